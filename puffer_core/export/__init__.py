"""Writing the network of a run for other programs: as ONNX, or as a flat file of numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puffer_core.errors import OptionError, RunError

if TYPE_CHECKING:
    from puffer_core.rl.agent import Agent

SUFFIXES = {"onnx": ".onnx", "flat": ".bin"}
"""Formats, and how the names of their files end."""


def export(
    source: str | os.PathLike[str],
    format: str = "onnx",  # noqa: A002  # named as on the command line
    output: str | os.PathLike[str] | None = None,
    *,
    env: str | None = None,
    runs_dir: str | None = None,
    policy: Any = None,
) -> dict[str, Any]:
    """Write the network of a run; return ``checkpoint format files``.

    Args:
        source: A run, a checkpoint in it, an id, or ``latest``.
        format: ``onnx`` or ``flat``.
        output: Path of the file; None puts it into the run directory, named after the step.
        env: Canonical name of the environment that an id or ``latest`` is looked up under.
        runs_dir: Folder of the runs.
        policy: The network of a run that was trained with one of the caller's own, as `train` was given it.

    Raises:
        OptionError: If there is no such format, or the network can't be written in it.
        PluginError: If a package is missing.
        RunError: If there is no such checkpoint, or the file can't be written.
    """
    if format not in SUFFIXES:
        raise OptionError(f"`--format {format}` is not one of {', '.join(SUFFIXES)}")
    from puffer_core.rl import checkpoint
    from puffer_core.rl.agent import load

    agent = load(source, env, runs_dir=runs_dir, policy=policy)
    state = checkpoint.read(agent.path).state
    network = {key: state[key] for key in ("policy", "policy_options")}
    path = _default(agent, format) if output is None else Path(output)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files = _writer(format)(agent, path, network)
    except OSError as error:
        msg = f"can't write `{path}`: {error.strerror or error}"
        raise RunError(msg, hint="choose another place with --output") from error
    return {"checkpoint": str(agent.path), "format": format, "files": [str(file) for file in files]}


def _default(agent: Agent, kind: str) -> Path:
    """Return where the file goes unless somebody says otherwise: ``<run>/export/<step>.onnx``."""
    return agent.path.absolute().parent.parent / "export" / f"{agent.path.name}{SUFFIXES[kind]}"


def _writer(kind: str) -> Callable[[Agent, Path, Mapping[str, Any]], list[Path]]:
    if kind == "onnx":
        from puffer_core.export.onnx import write_onnx

        return write_onnx
    from puffer_core.export.flat import write_flat

    return write_flat
