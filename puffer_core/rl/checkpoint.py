"""Checkpoints: a folder of named tensors and JSON. Reading one executes no code.

    model.safetensors    weights and buffers of the policy, under their plain names
    arrays.safetensors   optimiser.*, carry.*, env.* (saved environments), generator.*
    state.json           format, checksums of the two, counters, metrics not yet reported, spaces, network, and what
                         the arrays belong to

Format 1 had no checksums, and nothing of the global generators (``global.*``); it is still read.

A folder is written beside its place, flushed to disk and renamed: whatever happens, the one that was there stays whole.
In a run, the run directory does that; else `write` does.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from puffer_core.config.values import kinds, parse, render
from puffer_core.emulation.spaces import FlatActions, FlatBox
from puffer_core.errors import RunError
from puffer_core.files import sync
from puffer_core.plugins import manager, resolve

FORMAT = 2
"""Of what is written; everything from 1 on is read."""
MODEL, ARRAYS, STATE = "model.safetensors", "arrays.safetensors", "state.json"
_NESTED = ("flat_box", "flat_actions", "dict", "tuple", "multi_binary")
CONTENT: Mapping[str, type[Any] | tuple[type[Any], ...]] = {
    **dict.fromkeys(("global_step", "epoch", "total_epochs", "gradient_steps", "skipped_updates", "seed"), int),
    "horizon": int,
    **dict.fromkeys(("is_started", "has_environments"), bool),
    **dict.fromkeys(("policy", "policy_options", "observation_space", "action_space"), dict),
    **dict.fromkeys(("optimizer", "means", "means.environment", "means.losses"), dict),
    "episodes": (int, float),
    "optimizer.name": str,
    "optimizer.steps": int,
}
"""What ``state.json`` has to hold, by dotted key."""


@dataclass(frozen=True)
class Checkpoint:
    """What one folder holds."""

    model: dict[str, Tensor]
    arrays: dict[str, Tensor]
    state: dict[str, Any]

    def section(self, prefix: str) -> dict[str, Tensor]:
        """Return the arrays called ``prefix.NAME``, by ``NAME``."""
        start = prefix + "."
        return {name[len(start) :]: array for name, array in self.arrays.items() if name.startswith(start)}


def write(path: Path, content: Checkpoint, others: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """Write ``content`` to the folder ``path``, replacing what is there only once everything is on the disk.

    An empty folder that is there already, such as `RunDirectory.saving` gives, is filled in place: whoever made it
    flushes it and moves it to where it belongs.

    Args:
        path: The folder.
        content: What every rank shares, and what rank 0 has of its own.
        others: More files, by name: those of other ranks.

    Raises:
        RunError: If it can't be written; ``path`` is then as it was, but for an empty folder.
    """
    files = {MODEL: _pack(content.model), ARRAYS: _pack(content.arrays), **others}
    head = {"format": FORMAT, "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}}
    files[STATE] = json.dumps({**content.state, **head}, indent=1).encode()
    try:
        if path.is_dir() and not any(path.iterdir()):
            for name, data in files.items():
                (path / name).write_bytes(data)
        else:
            _replace(path, files)
    except OSError as error:
        raise RunError(f"the checkpoint {path} could not be written: {error}", hint="is the disk full?") from error


def _replace(path: Path, files: Mapping[str, bytes]) -> None:
    """Make ``path`` a folder of these files, in place of what is there, whole or not at all."""
    partial, replaced = path.with_name(path.name + ".partial"), path.with_name(path.name + ".replaced")
    try:
        for leftover in (partial, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, data in files.items():
            (partial / name).write_bytes(data)
            sync(partial / name)
        sync(partial)
        if path.exists():
            path.rename(replaced)
        partial.rename(path)
        sync(path.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if replaced.exists() and not path.exists():
            replaced.rename(path)
        raise


def read(path: Path) -> Checkpoint:
    """Return what the folder ``path`` holds.

    Raises:
        RunError: If it is no checkpoint, is damaged, or was written in a newer format; the hint names the checkpoint
            before it in its run.
    """
    try:
        return _read(path)
    except RunError as error:
        raise RunError(str(error), hint=error.hint or _older(path)) from error.__cause__


def _read(path: Path) -> Checkpoint:
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        files = {name: (path / name).read_bytes() for name in (MODEL, ARRAYS)}
    except FileNotFoundError as error:
        raise RunError(f"{path} is not a checkpoint: {Path(str(error.filename)).name} is missing") from error
    except (OSError, ValueError) as error:
        raise RunError(f"the checkpoint {path} is damaged: {error}") from error
    _require_format(state, path)
    for name, data in files.items():
        if state["format"] > 1 and hashlib.sha256(data).hexdigest() != state["sha256"].get(name):
            raise RunError(f"the checkpoint {path} is damaged: {name} does not have the checksum in {STATE}")
    try:
        model, arrays = (load(files[name]) for name in (MODEL, ARRAYS))
    except (ValueError, SafetensorError) as error:
        raise RunError(f"the checkpoint {path} is damaged: {error}") from error
    _require_content(state, path)
    _require_consistent(state, path)
    return Checkpoint(model, arrays, state)


def _older(path: Path) -> str | None:
    """Return the hint that names the checkpoint before ``path`` in its run, where there is one."""
    older = [folder for folder in path.parent.glob("[0-9]*") if folder.name.isdigit() and folder.name < path.name]
    return f"go on from an older one: --resume {max(older)} (or --load, to evaluate it)" if older else None


def _require_format(state: Any, path: Path) -> None:
    number = state.get("format") if isinstance(state, dict) else None
    if type(number) is int and number > FORMAT:
        msg = f"the checkpoint {path} has format {number}, this version reads up to {FORMAT}"
        raise RunError(msg, hint="a newer puffer-core wrote it: pip install --upgrade puffer-core")
    if type(number) is not int or number < 1:
        raise RunError(f"the checkpoint {path} is damaged: `format` in {STATE} is {number!r}")
    if number > 1 and not isinstance(state.get("sha256"), dict):
        raise RunError(f"the checkpoint {path} is damaged: `sha256` in {STATE} is {state.get('sha256')!r}")


def _require_content(state: Mapping[str, Any], path: Path) -> None:
    """Check that everything in `CONTENT` is there, and of its kind."""
    for key, kind in CONTENT.items():
        value: Any = state
        for part in key.split("."):
            value = value.get(part)
        is_number = kind in (int, (int, float))
        if not isinstance(value, kind) or (is_number and (isinstance(value, bool) or not 0 <= value < math.inf)):
            raise RunError(f"the checkpoint {path} is damaged: `{key}` in {STATE} is {value!r}")


def _require_consistent(state: Mapping[str, Any], path: Path) -> None:
    """Check that the counters belong to one moment of one run."""
    epoch, total = state["epoch"], state["total_epochs"]
    if epoch > total:
        raise RunError(f"the checkpoint {path} is damaged: `epoch` in {STATE} is {epoch} of `total_epochs` {total}")
    for key in ("global_step", "gradient_steps", "skipped_updates", "episodes"):
        if epoch == 0 and state[key]:
            raise RunError(f"the checkpoint {path} is damaged: `{key}` in {STATE} is {state[key]} before epoch 1")
    if bool(epoch) != state["is_started"]:
        raise RunError(f"the checkpoint {path} is damaged: `is_started` in {STATE} does not fit `epoch` {epoch}")


def plain(policy: nn.Module) -> nn.Module:
    """Return the module itself from under `torch.compile` and DistributedDataParallel, so that names are plain."""
    while True:
        inner = getattr(policy, "_orig_mod", None)
        if inner is None and isinstance(policy, nn.parallel.DistributedDataParallel):
            inner = policy.module
        if inner is None:
            return policy
        policy = inner


def require_fit(policy: nn.Module, model: Mapping[str, Tensor], path: Path) -> None:
    """Check that the weights are those of ``policy``: every one must be there, and nothing else.

    Raises:
        RunError: If names or shapes differ; the text gives the first that does.
    """
    own = plain(policy).state_dict()
    for name in sorted(own.keys() | model.keys()):
        mine, theirs = (None if name not in tensors else tuple(tensors[name].shape) for tensors in (own, model))
        if mine != theirs:
            msg = f"{path} does not fit this network: `{name}` is {theirs or 'missing'} there, {mine or 'missing'} here"
            raise RunError(msg, hint="the network is described in config.ini beside it: [policy] must be the same")


def load_model(policy: nn.Module, model: Mapping[str, Tensor], path: Path) -> None:
    """Copy the weights into ``policy``.

    Raises:
        RunError: As `require_fit`.
    """
    require_fit(policy, model, path)
    plain(policy).load_state_dict(dict(model))


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as JSON can hold it: a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple, or emulated.

    Raises:
        RunError: If it is another.
    """
    if isinstance(space, FlatBox | FlatActions):
        kind = "flat_box" if isinstance(space, FlatBox) else "flat_actions"
        return {"kind": kind, "original": describe_space(space.original)}
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "spaces": [[key, describe_space(sub)] for key, sub in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [describe_space(sub) for sub in space.spaces]}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "n": np.asarray(space.n).tolist()}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multi_discrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.Box):
        low, high = (_shorten(bound) for bound in (space.low, space.high))
        return {"kind": "box", "shape": list(space.shape), "dtype": str(space.dtype), "low": low, "high": high}
    raise RunError(f"a checkpoint can't hold the space {space}")


def restore_space(description: Mapping[str, Any]) -> spaces.Space[Any]:
    """Return the space that `describe_space` described.

    Raises:
        KeyError, TypeError, ValueError: If it is damaged.
    """
    kind = description["kind"]
    if kind in _NESTED:
        return _restore_nested(kind, description)
    if kind == "discrete":
        return spaces.Discrete(description["n"], start=description["start"])
    if kind == "multi_discrete":
        return spaces.MultiDiscrete(np.array(description["nvec"]), start=np.array(description["start"]))
    dtype: Any = np.dtype(description["dtype"])
    low, high = (np.array(description[bound], dtype) for bound in ("low", "high"))
    shape = tuple(description["shape"])
    return spaces.Box(np.broadcast_to(low, shape), np.broadcast_to(high, shape), shape, dtype.type)


def _restore_nested(kind: str, description: Mapping[str, Any]) -> spaces.Space[Any]:
    if kind == "multi_binary":
        return spaces.MultiBinary(description["n"])
    if kind == "dict":
        return spaces.Dict([(key, restore_space(sub)) for key, sub in description["spaces"]])
    if kind == "tuple":
        return spaces.Tuple([restore_space(sub) for sub in description["spaces"]])
    original = restore_space(description["original"])
    return FlatBox(original) if kind == "flat_box" else FlatActions(original)


def describe_options(options: Any) -> dict[str, str]:
    """Return the options of a policy's plugin, None where it has none, as the text of a configuration."""
    known = {} if options is None else kinds(type(options))
    return {name: render(getattr(options, name), kind) for name, kind in known.items()}


def restore_options(policy: str, described: Mapping[str, str]) -> Any:
    """Return the options that `describe_options` described, None where the policy of that name takes none.

    Raises:
        RunError: If the plugin, as it is now, knows no such option.
        ValueError: If it refuses a value.
    """
    target = manager().policies.get(policy).options
    cls: Any = None if target is None else resolve(target)
    known = {} if cls is None else kinds(cls)
    for name in described.keys() - known.keys():
        raise RunError(f"the policy `{policy}`, as it is installed, has no option `{name}`; the checkpoint's has one")
    return None if cls is None else cls(**{name: parse(text, known[name]) for name, text in described.items()})


def _shorten(bound: np.ndarray[Any, Any]) -> Any:
    same = bound.size > 0 and bool((bound == bound.flat[0]).all())
    return bound.flat[0].item() if same else bound.tolist()


def _pack(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
