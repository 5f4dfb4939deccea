"""Mirroring a run later: its rows, configuration and result, from the run directory into a tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puffer_core.config import flatten
from puffer_core.errors import OptionError, PufferError, RunError
from puffer_core.isolation import describe
from puffer_core.loggers import ALWAYS, Logger
from puffer_core.loggers.tracked import Progress, rows_of
from puffer_core.plugins import manager, resolve
from puffer_core.runs import RunDirectory

if TYPE_CHECKING:
    from puffer_core.config import Config


@dataclass(frozen=True)
class SavedRun:
    """A run as loggers see it, read from its directory."""

    directory: Path
    config: Config


def sync_run(
    directory: RunDirectory, name: str, options: dict[str, str], warn: Callable[[str], None], *, again: bool = False
) -> int:
    """Send the rows that a logger has not taken yet, then the result; return how many rows were sent.

    A second call sends only what has come since, and nothing where that is nothing.

    Args:
        directory: The run; nobody may be training it.
        name: Of the logger.
        options: Of the logger, ``{"wandb.project": "mine"}``, in place of those that the run was started with.
        warn: Called with a sentence about lines that are damaged.
        again: Send every row, also those that were sent before.

    Raises:
        OptionError: If an option is not one of the logger's, or the logger is ``jsonl``.
        UnknownNameError: If there is no such logger.
        RunError: If the run is in use, or the logger fails; what was sent by then is not sent again.
    """
    if name == ALWAYS:
        raise OptionError(f"`{ALWAYS}` is the file that rows are read from", hint=f"use one of {_others()}")
    spec = manager().loggers.get(name)
    config = _config_for(directory.config, name, options)
    directory.acquire()
    try:
        rows, damaged = rows_of(directory.path)
        if damaged:
            warn(f"{damaged} damaged lines of {directory.path}/metrics.jsonl are left out")
        progress = Progress(directory.path, name)
        if again:
            progress.restart()
        missing = [(step, row) for step, row in rows if step > progress.step]
        result = directory.result()
        if missing or (result is not None and not progress.is_closed):
            _send(resolve(spec.make)(SavedRun(directory.path, config)), name, missing, progress, result)
        return len(missing)
    finally:
        directory.release()


def _send(
    logger: Logger,
    name: str,
    rows: list[tuple[int, dict[str, float]]],
    progress: Progress,
    result: dict[str, Any] | None,
) -> None:
    is_sent = False
    try:
        try:
            _hand_over(logger, rows, progress, result)
        finally:  # what was taken is to be sent, also where a later row was refused
            logger.close()
            is_sent = True
        progress.close()
    except PufferError:
        raise
    except (Exception, SystemExit) as error:
        hint = "the same command goes on where it stopped"
        raise RunError(f"logger `{name}` failed after step {progress.step}: {describe(error)}", hint=hint) from error
    finally:
        if not is_sent:
            progress.rewind()


def _hand_over(
    logger: Logger, rows: list[tuple[int, dict[str, float]]], progress: Progress, result: dict[str, Any] | None
) -> None:
    _call(logger, "start")
    for step, row in rows:
        logger.log(step, row)
        progress.advance(step)
    if result is not None:
        _call(logger, "finish", result)


def _call(logger: Logger, method: str, *arguments: Any) -> None:
    function = getattr(logger, method, None)
    if function is not None:
        function(*arguments)


def _config_for(config: Config, name: str, options: dict[str, str]) -> Config:
    """Return the configuration of a run with the options of one logger.

    Raises:
        OptionError: If one of them is not the logger's.
    """
    if not options:
        return config
    from puffer_core.config import load
    from puffer_core.config.schema import section_of

    section = section_of(name)
    for key in options:
        if key.partition(".")[0] != section:
            raise OptionError(f"`--{key}` is no option of the logger `{name}`", hint=f"its options are --{section}.KEY")
    before = {key: _text(value) for key, value in flatten(config) if key.startswith(f"{section}.")}
    given = load(None, options={**before, **options, "logger": name})
    return replace(config, plugins={**config.plugins, section: given.options_of(name)})


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _others() -> str:
    return ", ".join(name for name in manager().loggers.names() if name != ALWAYS)
