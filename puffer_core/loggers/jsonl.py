"""The logger that is always on: one line of JSON per row, in the run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from puffer_core.files import append_json
from puffer_core.runs import METRICS


class HasDirectory(Protocol):
    """The part of a run that this logger reads."""

    @property
    def directory(self) -> Path:
        """The run directory."""


class JsonlLogger:
    """Appends rows to ``metrics.jsonl``; whoever reads it sees whole lines, whatever happens to this process."""

    def __init__(self, run: HasDirectory) -> None:
        self._path = run.directory / METRICS

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one row."""
        append_json(self._path, {"step": step, **metrics})

    def close(self) -> None:
        """Nothing is held open."""
