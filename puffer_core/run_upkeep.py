"""What becomes of a run directory between sessions and saves; only for the process that has acquired the run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from puffer_core.errors import RunError
from puffer_core.files import replace_text
from puffer_core.runs import CHECKPOINTS, LATEST, RunDirectory, beside, read_pointer

ASIDE = "aside"
_LEFTOVER = re.compile(r"\.(latest|config\.ini|metrics\.jsonl|result\.json)-[0-9a-f]{8}")


def tidy(run: RunDirectory) -> None:
    """Remove what a kill amid a save has left behind."""
    folder = run.path / CHECKPOINTS
    for path in folder.glob("*.replaced"):
        final = path.with_suffix("")
        if final.exists():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.rename(final)
    for path in folder.glob("*.partial"):
        shutil.rmtree(path, ignore_errors=True)
    for path in (*run.path.glob(".*"), *folder.glob(".*")):
        if _LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def go_on_from(run: RunDirectory, checkpoint: Path) -> list[Path]:
    """Make ``checkpoint`` the latest one; return those after it, which are set aside under another name.

    Raises:
        RunError: If it is itself one that was set aside, or the disk fails.
    """
    if checkpoint.parent != run.path / CHECKPOINTS or not checkpoint.name.isdigit():
        place = checkpoint.parent / checkpoint.name.partition(".")[0]
        raise RunError(f"{checkpoint} was set aside", hint=f"to go on from it, rename it to {place} first")
    try:
        if read_pointer(checkpoint.parent / LATEST) != checkpoint.name:
            replace_text(checkpoint.parent / LATEST, f"{checkpoint.name}\n")
        later = [path for path in run.checkpoints() if path.name > checkpoint.name]
        return [path.rename(_unused(beside(path, ASIDE))) for path in later]
    except OSError as error:
        raise RunError(f"can't write in `{checkpoint.parent}`: {error.strerror or error}") from error


def prune(run: RunDirectory, keep: int) -> None:
    """Delete all but the newest ``keep`` checkpoints, for good; 0 keeps all.

    Raises:
        OSError: If one can't be deleted.
    """
    for path in run.checkpoints()[:-keep] if keep else ():
        partial = beside(path, "partial")  # a kill in the middle leaves no half of a checkpoint
        path.rename(partial)
        shutil.rmtree(partial, ignore_errors=True)


def _unused(path: Path) -> Path:
    """Return ``path``, or the first of ``path-2``, ``path-3``, ... that is not there."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
