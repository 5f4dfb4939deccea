"""What a tracker needs to know about a run, live or read from its directory."""

from __future__ import annotations

import importlib.util
import json
import math
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from puffer_core.errors import PluginError
from puffer_core.files import salvage_jsonl, to_json
from puffer_core.runs import METRICS

if TYPE_CHECKING:
    from puffer_core.config import Config

FOLDER = "loggers"
"""Folder of a run directory with what loggers keep there."""


class TrackedRun(Protocol):
    """The part of a run that trackers read; the name of its directory is its id with every tracker."""

    @property
    def directory(self) -> Path:
        """The run directory."""

    @property
    def config(self) -> Config:
        """The whole typed configuration."""


class Progress:
    """How far a run is mirrored by one logger, in a file of the run directory.

    Trackers queue what they are given. A session therefore counts only once its logger has closed without an error:
    until then `rewind` undoes it.

    Attributes:
        step: Of the last row that was handed over, -1 before the first.
        is_closed: Whether the last session ended well, its result included.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / FOLDER / f"{name}.json"
        self._lock, self._is_over = threading.Lock(), False
        self.step, self.is_closed = self._read()
        self._first = self.step

    def _read(self) -> tuple[int, bool]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            entries = json.loads(self._path.read_text("utf-8"))
            return int(entries["step"]), entries.get("closed") is True
        return -1, False

    def restart(self) -> None:
        """Take nothing as handed over."""
        self._first = self.step = -1

    def open(self) -> None:
        """Note that a session has begun."""
        self._note(self.step)

    def advance(self, step: int) -> None:
        """Note that everything up to ``step`` is handed over; where the disk is full, rows are sent twice later."""
        self._note(step)

    def close(self) -> None:
        """Note that the logger has sent what it was handed."""
        self._note(self.step, is_closed=True)

    def rewind(self) -> None:
        """Go back to where this session began, for good: what was handed over since may not have been sent."""
        self._note(self._first)
        self._is_over = True

    def _note(self, step: int, *, is_closed: bool = False) -> None:
        with self._lock:  # a logger that was given up may still return from its call
            if self._is_over:
                return
            self.step, self.is_closed = step, is_closed
            with suppress(OSError):
                self._path.parent.mkdir(exist_ok=True)
                partial = self._path.with_suffix(".partial")
                partial.write_text(to_json({"step": step, "closed": is_closed}), "utf-8")
                partial.replace(self._path)


def rows_of(directory: Path) -> tuple[list[tuple[int, dict[str, float]]], int]:
    """Return the rows of ``metrics.jsonl``, (step, metrics), and how many damaged lines are left out.

    What JSON has no word for, NaN and infinities, is null in the file and NaN here.
    """
    rows, damaged = salvage_jsonl(directory / METRICS)
    whole = [row for row in rows if isinstance(row.get("step"), int)]
    found = [
        (row.pop("step"), {key: math.nan if value is None else value for key, value in row.items()}) for row in whole
    ]
    return found, len(damaged) + len(rows) - len(whole)


def require_package(logger: str, package: str) -> None:
    """Check that the package behind a logger is installed, without importing it.

    Raises:
        PluginError: With the extra that installs it.
    """
    try:
        is_there = importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        msg = f"the logger `{logger}` needs the package {package}, which is not installed"
        raise PluginError(msg, hint=f"pip install 'puffer-core[{logger}]'")


def values_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return a row without its step, which trackers have as the axis."""
    return {key: value for key, value in metrics.items() if key != "step"}


def flat_config(config: Config) -> dict[str, Any]:
    """Return the configuration as trackers show it: dotted key -> number, text, or text of a list."""
    from puffer_core.config import flatten

    return {key: _scalar(value) for key, value in flatten(config)}


def flat_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a result that say something: ``result/<key>`` -> number or text."""
    return {f"result/{key}": _scalar(value) for key, value in result.items() if value is not None}


def _scalar(value: Any) -> Any:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
