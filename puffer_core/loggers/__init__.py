"""Loggers mirror the rows of metrics outward. ``jsonl``, the run directory's own file, is always on.

A tracker or a network that fails never stops training: a logger that raises is detached with one warning. Only
``jsonl`` stays, and tries again: the disk that is full now may have room later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from puffer_core.errors import PufferError
from puffer_core.isolation import describe
from puffer_core.plugins import manager, resolve

ALWAYS = "jsonl"


class Logger(Protocol):
    """Where metrics are mirrored to."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one row. Called between rollouts, at most about twice a second."""

    def close(self) -> None:
        """Send what is left."""


class Loggers:
    """The loggers of one run, called one after the other.

    Args:
        loggers: By name.
        warn: Called with a sentence when one fails.
    """

    def __init__(self, loggers: Mapping[str, Logger], warn: Callable[[str], None]) -> None:
        self._loggers = dict(loggers)
        self._warn = warn
        self._told: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The loggers that still work."""
        return tuple(self._loggers)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand a row to each logger."""
        for name, logger in list(self._loggers.items()):
            try:
                logger.log(step, metrics)
            except (Exception, SystemExit) as error:
                self._fail(name, error)
            else:
                self._told.discard(name)

    def close(self) -> None:
        """Close each logger, once."""
        for name, logger in self._loggers.items():
            try:
                logger.close()
            except (Exception, SystemExit) as error:
                self._warn(f"logger `{name}` could not be closed: {describe(error)}")
        self._loggers.clear()

    def _fail(self, name: str, error: BaseException) -> None:
        if name != ALWAYS:
            del self._loggers[name]
        if name not in self._told:
            ending = "" if name == ALWAYS else "; it is detached"
            self._warn(f"logger `{name}` failed: {describe(error)}{ending}; training goes on")
        self._told.add(name)


def make_loggers(run: Any, warn: Callable[[str], None]) -> dict[str, Logger]:
    """Return the loggers that the configuration of ``run`` names, ``jsonl`` first; one that can't start is a warning.

    Raises:
        PufferError: If a name is unknown, or its maker says that a person must do something first.
    """
    names = dict.fromkeys((ALWAYS, *run.config.base.logger))
    specs = {name: manager().loggers.get(name) for name in names}
    loggers: dict[str, Logger] = {}
    try:
        for name, spec in specs.items():
            try:
                loggers[name] = resolve(spec.make)(run)
            except PufferError:
                raise
            except (Exception, SystemExit) as error:
                warn(f"logger `{name}` can't start: {describe(error)}; training goes on without it")
    except BaseException:
        Loggers(loggers, warn).close()
        raise
    return loggers
