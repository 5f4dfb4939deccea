"""States of workers and of the whole: a backend with workers saves what a `Serial` of the same environments saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from puffer_core.errors import EnvError


def join_states(states: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return what the `Serial` of each worker saved as one state."""
    blobs = [state[f"env.{i}"] for state in states for i in range(len(state) - 1)]
    halves = [np.split(np.frombuffer(state["episodes"], np.uint8), 2) for state in states]
    episodes = b"".join(half[part].tobytes() for part in (0, 1) for half in halves)
    return {**{f"env.{i}": blob for i, blob in enumerate(blobs)}, "episodes": episodes}


def split_state(state: Mapping[str, bytes], workers: int, share: int, owner: str) -> list[dict[str, bytes]]:
    """Return one state for each worker.

    Args:
        state: What was saved, with any number of workers.
        workers: How many there are.
        share: Environment objects of each.
        owner: Who is named in errors.

    Raises:
        EnvError: If it is of another number of environments.
    """
    count = workers * share
    if set(state) != {*(f"env.{i}" for i in range(count)), "episodes"} or len(state["episodes"]) % (2 * workers):
        raise EnvError(f"{owner}: the saved state has {len(state) - 1} environments, not {count}")
    parts = np.frombuffer(state["episodes"], np.uint8).reshape(2, workers, -1)
    return [
        {
            **{f"env.{i}": state[f"env.{worker * share + i}"] for i in range(share)},
            "episodes": parts[:, worker].tobytes(),
        }
        for worker in range(workers)
    ]
