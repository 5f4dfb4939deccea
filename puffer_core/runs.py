"""The run directory: ``<runs>/<env>/<run id>/`` with configuration, metrics, events, checkpoints and result.

What must be whole is written under a temporary name in the same folder, flushed to disk and renamed, so that a kill at
any moment leaves a directory that loads. Pointers are text files: ``<runs>/<env>/latest`` and
``<run>/checkpoints/latest``.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from puffer_core.config import Config, from_run, saved
from puffer_core.errors import OptionError, RunError, did_you_mean
from puffer_core.files import append_json, read_jsonl, replace_text, salvage_jsonl, sync, to_json

LATEST = "latest"
CHECKPOINTS = "checkpoints"
METRICS, EVENTS, RESULT = "metrics.jsonl", "events.jsonl", "result.json"
LOCK = ".lock"
STEP_DIGITS = 14


class RunDirectory:
    """One run on disk. Make it with `create`, `open` or `find`.

    Args:
        path: The directory.
        env_name: Canonical name of the environment.

    Attributes:
        named: The checkpoint that the path given to `find` leads to, None where that was the run.
    """

    def __init__(self, path: Path, env_name: str) -> None:
        self.path = path
        self.named: Path | None = None
        self.id = path.name
        self.env_name = env_name
        self._lock: IO[str] | None = None

    @classmethod
    def create(cls, config: Config, env_name: str, runs_dir: str | os.PathLike[str] | None = None) -> RunDirectory:
        """Make the directory of a new run, write its configuration and point ``latest`` to it.

        Raises:
            RunError: If the folder can't be written.
        """
        folder = Path(config.base.runs_dir if runs_dir is None else runs_dir) / _folder(env_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = _claim(folder, config, env_name)
            replace_text(folder / LATEST, f"{path.name}\n")
        except OSError as error:
            msg = f"can't make a run directory in `{folder}`: {error.strerror or error}"
            raise RunError(msg, hint="choose another place with --runs-dir") from error
        return cls(path, env_name)

    def discard(self) -> None:
        """Remove a run that could not begin; ``latest`` points to the newest run before it again, if there is one."""
        folder = self.path.parent
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            pointer = folder / LATEST
            if pointer.read_text().strip() == self.path.name:
                before = sorted(path.parent.name for path in folder.glob(f"*/{saved.NAME}"))
                replace_text(pointer, f"{before[-1]}\n") if before else pointer.unlink()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Return the run in a directory.

        Raises:
            RunError: If there is no run, or its configuration is damaged.
        """
        folder = Path(path)
        if not (folder / saved.NAME).is_file():
            raise RunError(f"`{path}` is not a run directory: it holds no {saved.NAME}")
        try:
            env_name = saved.run_section(folder / saved.NAME).get("env", "")
        except OptionError as error:
            raise RunError(f"the run in `{path}` can't be read: {error}", hint=error.hint) from error
        if not env_name:
            raise RunError(f"`{path}` is not a run directory: its {saved.NAME} names no environment in [run]")
        return cls(folder, env_name)

    @cached_property
    def config(self) -> Config:
        """The configuration the run was started with."""
        return from_run(self.path)

    def acquire(self) -> None:
        """Keep other processes from training this run until `release`, or until this process dies.

        Raises:
            RunError: If the run is in use, or the directory can't be written.
        """
        try:
            lock = (self.path / LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise RunError(f"can't write `{self.path / LOCK}`: {error.strerror or error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with lock:
                if not isinstance(error, BlockingIOError):
                    raise RunError(f"can't lock `{self.path / LOCK}`: {error.strerror or error}") from error
                lock.seek(0)
                msg = f"the run in `{self.path}` is in use by pid {lock.read().strip() or 'unknown'}"
            raise RunError(msg, hint="wait until that process has ended, or stop it") from None
        self._lock = lock
        with suppress(OSError):  # a full disk leaves the lock without a number, but locked
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()

    def release(self) -> None:
        """Let others train this run."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                lock.close()

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add a row to ``metrics.jsonl``."""
        append_json(self.path / METRICS, row)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of ``metrics.jsonl``; a last line that a kill has cut off is left out."""
        return read_jsonl(self.path / METRICS)

    def rewind(self, step: int) -> int:
        """Drop the metrics after ``step``, where the run goes on; return how many damaged lines were dropped, too."""
        rows, damaged = salvage_jsonl(self.path / METRICS)
        kept = [row for row in rows if isinstance(row.get("step"), int | float) and row["step"] <= step]
        if damaged or len(kept) < len(rows):
            replace_text(self.path / METRICS, "".join(f"{to_json(row)}\n" for row in kept))
        return len(damaged)

    def event(self, kind: str, **details: Any) -> None:
        """Add a row to ``events.jsonl``: the time, what happened, and details."""
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        append_json(self.path / EVENTS, {"time": time, "kind": kind, **details})

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write ``result.json``, whole or not at all."""
        try:
            replace_text(self.path / RESULT, f"{to_json(result)}\n")
        except OSError as error:
            raise RunError(f"can't write `{self.path / RESULT}`: {error.strerror or error}") from error

    def result(self) -> dict[str, Any] | None:
        """Return what `write_result` wrote, None before that."""
        path = self.path / RESULT
        return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else None

    def checkpoint_dir(self, step: int) -> Path:
        """Return where the checkpoint of ``step`` is, or will be."""
        return self.path / CHECKPOINTS / f"{step:0{STEP_DIGITS}d}"

    @contextmanager
    def saving(self, step: int) -> Iterator[Path]:
        """Give an empty temporary directory for a checkpoint; commit it at the end, or remove it on an error.

        Raises:
            RunError: If the disk is full or fails; the checkpoint before stays as it was.
        """
        partial = beside(self.checkpoint_dir(step), "partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            yield partial
            self.commit_checkpoint(partial, step)
        except OSError as error:
            msg = f"the checkpoint of step {step} can't be saved in `{self.path}`: {error.strerror or error}"
            raise RunError(msg, hint="the one before it is still there; free some space") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def commit_checkpoint(self, written: Path, step: int) -> Path:
        """Make a finished directory the checkpoint of ``step``, if it is not that yet, and point ``latest`` to it."""
        final = self.checkpoint_dir(step)
        if written != final:
            for file in (*written.iterdir(), written):
                sync(file)
            replaced = beside(final, "replaced")
            if final.exists():
                shutil.rmtree(replaced, ignore_errors=True)
                final.rename(replaced)
            try:
                written.rename(final)
            except OSError:
                if replaced.exists():
                    replaced.rename(final)
                raise
            sync(final.parent)
            shutil.rmtree(replaced, ignore_errors=True)
        replace_text(final.parent / LATEST, f"{final.name}\n")
        return final

    def checkpoints(self) -> list[Path]:
        """Return the checkpoints, oldest first."""
        folder = self.path / CHECKPOINTS
        return sorted(path for path in folder.glob("[0-9]*") if path.name.isdigit() and path.is_dir())

    def latest_checkpoint(self) -> Path:
        """Return the checkpoint that ``latest`` points to, or the newest where there is no such pointer.

        Raises:
            RunError: If the run has none yet, or the one pointed to is missing; the hint names the newest there is.
        """
        name = read_pointer(self.path / CHECKPOINTS / LATEST)
        found = self.checkpoints()
        if not name.isdigit():
            if not found:
                raise RunError(f"run {self.id} has no checkpoint yet", hint="it is too young; --load takes another run")
            return found[-1]
        pointed = self.path / CHECKPOINTS / name
        # A kill between the two renames of a checkpoint that is written anew leaves the one before as `.replaced`.
        for path in (pointed, beside(pointed, "replaced")):
            if path.is_dir():
                return path
        hint = f"go on from an older one: --resume {found[-1]} (or --load, to evaluate it)" if found else None
        raise RunError(f"the checkpoint {pointed} is missing", hint=hint)

    def write_config(self, config: Config) -> None:
        """Replace the configuration that the run goes on with, whole or not at all."""
        section = saved.run_section(self.path / saved.NAME)
        try:
            replace_text(self.path / saved.NAME, saved.dumps(config, section))
        except OSError as error:
            raise RunError(f"can't write `{self.path / saved.NAME}`: {error.strerror or error}") from error
        self.__dict__.pop("config", None)


def find(ref: str, env: str | None = None, runs_dir: str | os.PathLike[str] | None = None) -> RunDirectory:
    """Return the run that ``ref`` means: a path, a run id or the beginning of one, or ``latest``.

    Args:
        ref: As typed. A path may also lead into a run, as to one of its checkpoints.
        env: Canonical name of the environment to look under; None looks everywhere.
        runs_dir: Folder of the runs; None is ``PUFFER_RUNS``, else ``runs``.

    Raises:
        RunError: If there is no such run, or more than one; the hint says what to do.
    """
    root = root_of(runs_dir)
    folder = root / _folder(env) if env else root
    name = read_pointer(folder / LATEST) if ref == LATEST else ref
    for path in (folder / name,) if ref == LATEST else (Path(ref), root / ref, folder / ref):
        if name and path.exists() and (inside := _run_of(path)):
            directory = RunDirectory.open(inside)
            directory.named = _checkpoint_of(path, inside)
            return directory
    if Path(ref).exists() and os.sep in ref:
        raise RunError(f"`{ref}` is not in a run directory")
    known = list_runs(root, env)
    if ref == LATEST and known:
        return RunDirectory.open(known[-1])
    matches = [run for run in known if run.name == ref] or [run for run in known if ref and run.name.startswith(ref)]
    if len(matches) == 1:
        return RunDirectory.open(matches[0])
    if matches:
        names = ", ".join(run.name for run in matches[:5])
        raise RunError(f"`{ref}` begins the ids of {len(matches)} runs: {names}", hint="type more of the id")
    raise _not_found(ref, env, root, known)


def root_of(runs_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of all runs: as given, else ``PUFFER_RUNS``, else ``runs``."""
    return Path(runs_dir if runs_dir is not None else os.environ.get("PUFFER_RUNS") or "runs")


def find_checkpoint(ref: str, env: str | None = None, runs_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the checkpoint that ``ref`` means: that of a run as in `find`, or the path of one (or of a file in it)."""
    path = Path(ref)
    folder = path.parent if path.is_file() else path
    if (folder / "state.json").is_file():
        return folder
    directory = find(ref, env, runs_dir)
    return directory.named or directory.latest_checkpoint()


def list_runs(root: str | os.PathLike[str], env: str | None = None) -> list[Path]:
    """Return the run directories below ``root``, of one environment or of all, oldest first."""
    start = Path(root) / _folder(env) if env else Path(root)
    return sorted(_walk(start), key=lambda path: path.name)


def _not_found(ref: str, env: str | None, root: Path, known: list[Path]) -> RunError:
    of_env = f" of {env}" if env else ""
    if not known:
        return RunError(f"there are no runs{of_env} in `{root}`", hint=f"puffer train {env or 'ENV'}")
    elsewhere = [run for run in list_runs(root) if ref and run.name.startswith(ref)]
    if elsewhere:
        other = RunDirectory.open(elsewhere[0])
        return RunError(f"run {other.id} is of {other.env_name}, not{of_env}")
    near = did_you_mean(ref, [run.name for run in known])
    return RunError(f"there is no run `{ref}`{of_env} in `{root}`", hint=near or f"the newest is {known[-1].name}")


def _claim(folder: Path, config: Config, env_name: str) -> Path:
    """Make a directory of a name that nobody else has; it appears with its configuration in it."""
    while True:
        now = datetime.now(timezone.utc)
        name = f"{now:%Y%m%d-%H%M%S}{now.microsecond // 1000:03d}-{secrets.token_hex(3)}"
        partial = folder / f".{name}.partial"
        try:
            partial.mkdir()
        except FileExistsError:
            continue
        try:
            (partial / CHECKPOINTS).mkdir()
            saved.write(config, partial / saved.NAME, {"env": env_name, "id": name})
            sync(partial / saved.NAME)
            partial.rename(folder / name)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            if not (folder / name).exists():
                raise
        else:
            sync(folder)
            return folder / name


def _run_of(path: Path) -> Path | None:
    """Return the run directory that ``path`` is, or lies in."""
    return next((folder for folder in (path.absolute(), *path.absolute().parents) if _is_run(folder)), None)


def _checkpoint_of(path: Path, run: Path) -> Path | None:
    """Return the checkpoint of a run that ``path`` is, or lies in."""
    folder, *inner = path.absolute().relative_to(run).parts or ("",)
    checkpoint = run.joinpath(CHECKPOINTS, *inner[:1])
    return checkpoint if folder == CHECKPOINTS and inner and checkpoint.is_dir() else None


def _is_run(folder: Path) -> bool:
    """Return whether the configuration in a folder is that of a run, if perhaps damaged, and not somebody else's."""
    if not (folder / saved.NAME).is_file():
        return False
    try:
        return bool(saved.run_section(folder / saved.NAME).get("env"))
    except OptionError:
        return (folder / CHECKPOINTS).is_dir()


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the run directories below a folder, without looking into them."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith((".", "_")) or not entry.is_dir():
                continue
            path = folder / entry.name
            if _is_run(path):
                yield path
            else:
                yield from _walk(path)


def _folder(env_name: str) -> str:
    """Return the folder of an environment's runs: its name, safe as a path."""
    parts = [re.sub(r"[^\w.+-]", "-", part) for part in env_name.split("/") if part]
    return "/".join(f"env{part}" if part[0] in "._" else part for part in parts) or "env"


def read_pointer(path: Path) -> str:
    """Return the name in a pointer file, empty where there is none."""
    try:
        name = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return name if re.fullmatch(r"[\w-]+", name) else ""


def beside(path: Path, state: str) -> Path:
    """Return the name of ``path`` in some state other than whole and in its place."""
    return path.with_name(f"{path.name}.{state}")
