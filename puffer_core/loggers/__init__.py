"""Loggers mirror the rows of metrics outward. ``jsonl``, the run directory's own file, is always on.

A tracker or a network that fails, or is slow, never stops or slows training: every logger but ``jsonl`` works in a
thread of its own (`mirror`), and one that raises or falls behind is detached with one warning. ``jsonl`` stays, and
tries again: the disk that is full now may have room later. `puffer runs sync` sends later what was not sent.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from puffer_core.errors import PufferError, shortened
from puffer_core.isolation import describe
from puffer_core.loggers.mirror import Logger, Mirror
from puffer_core.loggers.tracked import Progress, rows_of
from puffer_core.plugins import manager, resolve

__all__ = ["ALWAYS", "CLOSE_SECONDS", "Logger", "Loggers", "Mirror", "make_loggers"]

ALWAYS = "jsonl"
CLOSE_SECONDS = 10.0
"""How long the end of a run waits for loggers to send what is left."""


class Loggers:
    """The loggers of one run.

    Args:
        loggers: By name; those that are neither ``jsonl`` nor a `Mirror` become one.
        warn: Called with a sentence when one fails, in the thread of the run.
        close_seconds: How long `close` waits for all of them.
        sync: The command that sends later what was not sent; ``NAME`` in it stands for the logger.
    """

    def __init__(
        self,
        loggers: Mapping[str, Logger | Mirror],
        warn: Callable[[str], None],
        *,
        close_seconds: float = CLOSE_SECONDS,
        sync: str = "",
    ) -> None:
        self._own = {
            name: logger for name, logger in loggers.items() if name == ALWAYS and not isinstance(logger, Mirror)
        }
        self._mirrors = {
            name: logger if isinstance(logger, Mirror) else Mirror(name, logger)
            for name, logger in loggers.items()
            if name != ALWAYS
        }
        self._names = tuple(loggers)
        self._warn, self._close_seconds, self._sync = warn, close_seconds, sync
        self._told: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The loggers that still work."""
        return tuple(name for name in self._names if name in self._own or name in self._mirrors)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand a row to each logger."""
        for name, logger in self._own.items():
            try:
                logger.log(step, metrics)
            except (Exception, SystemExit) as error:
                if name not in self._told:
                    self._warn(f"logger `{name}` failed: {describe(error)}; training goes on")
                self._told.add(name)
            else:
                self._told.discard(name)
        self._each(lambda mirror: mirror.log(step, metrics))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Hand the result of the run to each logger that takes one."""
        self._each(lambda mirror: mirror.finish(result))

    def close(self) -> None:
        """Close each logger, once; all of them together have `close_seconds` for what is left."""
        until = time.monotonic() + self._close_seconds
        for logger in self._own.values():
            logger.close()
        for mirror in self._mirrors.values():
            mirror.end()
        for name, mirror in self._mirrors.items():
            try:
                mirror.wait(until)
            except Exception as error:
                what = "failed" if mirror.has_failed else "could not be closed"
                self._warn(f"logger `{name}` {what}: {_one_line(error)}{self._way_out(name)}")
        self._own, self._mirrors = {}, {}

    def _each(self, call: Callable[[Mirror], None]) -> None:
        for name, mirror in list(self._mirrors.items()):
            try:
                call(mirror)
            except Exception as error:
                del self._mirrors[name]
                ending = f"it is detached; training goes on{self._way_out(name)}"
                self._warn(f"logger `{name}` failed: {_one_line(error)}; {ending}")

    def _way_out(self, name: str) -> str:
        if not self._sync or name not in manager().loggers.names():
            return ""
        return f"; later, `{self._sync.replace('NAME', name)}` sends what is missing"


def _one_line(error: Exception) -> str:
    """Return what a tracker says; some of them write pages, in colours."""
    return shortened(re.sub(r"\x1b\[[0-9;]*m", "", describe(error)), 400)


def make_loggers(run: Any, warn: Callable[[str], None]) -> dict[str, Logger | Mirror]:
    """Return the loggers that the configuration of ``run`` names, ``jsonl`` first; one that can't start is a warning.

    Making one must be quick: trackers connect in ``start()``, in the thread of their `Mirror`.

    Raises:
        PufferError: If a name is unknown, or its maker says that a person must do something first.
    """
    names = dict.fromkeys((ALWAYS, *run.config.base.logger))
    specs = {name: manager().loggers.get(name) for name in names}
    loggers: dict[str, Logger | Mirror] = {}
    try:
        for name, spec in specs.items():
            try:
                made = resolve(spec.make)(run)
            except PufferError:
                raise
            except (Exception, SystemExit) as error:
                warn(f"logger `{name}` can't start: {describe(error)}; training goes on without it")
            else:
                loggers[name] = made if name == ALWAYS else mirrored(run, name, made)
    except BaseException:
        Loggers(loggers, warn).close()
        raise
    return loggers


def mirrored(run: Any, name: str, logger: Logger, **options: Any) -> Mirror:
    """Return a logger in a thread of its own that notes in the run directory how far it has come.

    Args:
        run: Has the ``directory``; rows in it that this logger has not sent yet go first.
        name: Of the logger.
        logger: Made, not started.
        options: Of `Mirror`.
    """
    directory: Path = run.directory
    progress = Progress(directory, name)
    return Mirror(name, logger, progress=progress, backlog=lambda: rows_of(directory)[0], **options)
