"""Saved states of a vector that is split among workers: the same as those of one `Serial` of all environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from puffer_core.errors import EnvError

EPISODES = "episodes"
"""Key of the episode statistics: the returns of all rows, then their lengths."""


def join_states(states: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the states of all workers, in order, as one."""
    blobs = [state[f"env.{i}"] for state in states for i in range(len(state) - 1)]
    halves = [_halves(state[EPISODES]) for state in states]
    episodes = b"".join(half[part] for part in (0, 1) for half in halves)
    return {**{f"env.{i}": blob for i, blob in enumerate(blobs)}, EPISODES: episodes}


def split_state(state: Mapping[str, bytes], workers: int, envs_per_worker: int, owner: str) -> list[dict[str, bytes]]:
    """Return the part of a state that each worker loads.

    Raises:
        EnvError: If it is of another number of environments.
    """
    names = [f"env.{i}" for i in range(workers * envs_per_worker)]
    if set(state) != {*names, EPISODES}:
        raise EnvError(f"{owner}: the saved state has {len(state) - 1} environments, not {len(names)}")
    returns, lengths = (_parts(half, workers) for half in _halves(state[EPISODES]))
    return [
        {
            **{f"env.{i}": state[names[worker * envs_per_worker + i]] for i in range(envs_per_worker)},
            EPISODES: returns[worker] + lengths[worker],
        }
        for worker in range(workers)
    ]


def _halves(blob: bytes) -> tuple[bytes, bytes]:
    middle = len(blob) // 2
    return blob[:middle], blob[middle:]


def _parts(blob: bytes, count: int) -> list[bytes]:
    """Return equal parts; what is left over is in none, and refused by whoever loads it."""
    return [part.tobytes() for part in np.array_split(np.frombuffer(blob, np.uint8), count)]
