"""What of a checkpoint belongs to one rank: its environments, its generators, and what it carries between rollouts.

Rank 0 has its part among the arrays of the checkpoint, rank r in ``rank{r}.safetensors``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from puffer_core.errors import RunError
from puffer_core.rl.checkpoint import Checkpoint
from puffer_core.rl.ranks import Ranks

SECTIONS = ("carry", "env", "generator", "global")
"""Prefixes of the arrays that each rank has of its own."""


def gather(ranks: Ranks, content: Checkpoint) -> dict[str, bytes]:
    """Return the files of all ranks but the first, by name; on every rank, though only the first writes them."""
    if ranks.world_size == 1:
        return {}
    own = {name: array.detach().cpu().contiguous().clone() for name, array in _own(content.arrays).items()}
    parts = ranks.gather(save(own) if not ranks.is_first else b"")
    return {_file(rank): part for rank, part in enumerate(parts) if rank}


def read(ranks: Ranks, content: Checkpoint, path: Path) -> Checkpoint:
    """Return a checkpoint as ``ranks`` goes on from it: with the arrays of its own rank.

    Raises:
        RunError: If the file of this rank is missing or damaged.
    """
    if ranks.is_first:
        return content
    name = _file(ranks.rank)
    try:
        data = (path / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != content.state["sha256"].get(name):
            raise RunError(f"the checkpoint {path} is damaged: {name} does not have its checksum")
        own = load(data)
    except (OSError, SafetensorError) as error:
        hint = "all machines must see the run directory under the same path"
        raise RunError(f"the checkpoint {path} is damaged: {name}: {error}", hint=hint) from error
    shared = {key: array for key, array in content.arrays.items() if key.partition(".")[0] not in SECTIONS}
    # What rank 0 had not yet reported is reported by rank 0.
    state = {**content.state, "means": {"environment": {}, "losses": {}}, "episodes": 0.0}
    return Checkpoint(content.model, {**shared, **own}, state)


def rescaled(state: Mapping[str, Any], world_size: int, total_epochs: int) -> dict[str, Any]:
    """Return the state of a run whose rollouts have another size from now on, since other ranks make them."""
    epoch = min(state["epoch"] * state.get("world_size", 1) // world_size, total_epochs)
    return {**state, "epoch": epoch, "total_epochs": total_epochs, "has_environments": False}


def _own(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: array for name, array in arrays.items() if name.partition(".")[0] in SECTIONS}


def _file(rank: int) -> str:
    return f"rank{rank}.safetensors"
