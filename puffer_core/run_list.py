"""What runs there are, and what became of each: from the ends of their files, without reading them whole."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from puffer_core.config import flatten
from puffer_core.errors import PufferError
from puffer_core.runs import EVENTS, LOCK, METRICS, RESULT, RunDirectory, list_runs

CLOCK_S = 1.0
"""Seconds by which the clocks of files and of processes may differ."""
TAIL = 1 << 16
"""Bytes from the end of a file in which its last row is looked for."""
ENDINGS = ("finished", "stopped", "interrupted", "failed")
"""Events that end a session."""


def list_rows(root: str | os.PathLike[str], env: str | None = None) -> list[dict[str, Any]]:
    """Return one row for each run, oldest first: ``run env status steps score started run_dir``.

    Args:
        root: Folder of the runs.
        env: Canonical name of an environment; None lists all.
    """
    return [describe(path) for path in list_runs(root, env)]


def describe(path: Path) -> dict[str, Any]:
    """Return the row of one run; what can't be read is None.

    ``status`` is ``finished``, ``stopped`` (to be resumed), ``interrupted``, ``failed``, ``training``, or ``killed``
    for one that no process works on and that says nothing of its end.
    """
    env, row, result = None, last_row(path / METRICS), _result(path)
    with suppress(PufferError):
        env = RunDirectory.open(path).env_name
    steps = row.get("step", result.get("steps"))
    score = result.get("score") if result.get("score") is not None else row.get("score")
    return {
        "run": path.name,
        "env": env,
        "status": _status(path),
        "steps": 0 if steps is None else steps,
        "score": score,
        "started": _started(path),
        "run_dir": str(path),
    }


def describe_whole(run: RunDirectory) -> dict[str, Any]:
    """Return the row of a run with its checkpoints, last metrics, result and configuration."""
    return {
        **describe(run.path),
        "checkpoints": [str(path) for path in run.checkpoints()],
        "metrics": last_row(run.path / METRICS),
        "result": _result(run.path) or None,
        "config": dict(flatten(run.config)),
    }


def last_row(path: Path) -> dict[str, Any]:
    """Return the last whole row of a file of JSON lines, empty where there is none."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        for line in reversed(file.read().split(b"\n")[:-1]):
            with suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    return row
    return {}


def _result(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads((path / RESULT).read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _status(path: Path) -> str:
    kind = last_row(path / EVENTS).get("kind")
    if kind in ENDINGS:
        return str(kind)
    return "training" if _is_worked_on(path) else "killed"


def _is_worked_on(path: Path) -> bool:
    """Whether the process that locked the run last is alive; the lock itself is left alone, others may want it."""
    import psutil

    lock = path / LOCK
    with suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int(lock.read_text("utf-8")))
        return bool(process.create_time() <= lock.stat().st_mtime + CLOCK_S)  # else the number is another process's now
    return False


def _started(path: Path) -> str | None:
    """Return when the run began, in ISO 8601 and UTC, from its id."""
    name = path.name
    if len(name) < 15 or not (name[:8] + name[9:15]).isdigit():
        return None
    return f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}Z"
