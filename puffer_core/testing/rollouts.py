"""Reproducible random play, and a hash of everything an environment wrote while it was played.

Actions come from a counter-based generator of our own, so that a stored hash depends on no library's random streams.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from puffer_core.env import Array, PufferEnv

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def random_bits(seed: int, step: int, count: int) -> npt.NDArray[np.uint64]:
    """Return ``count`` 64-bit words that depend on nothing but the arguments (splitmix64 of a counter)."""
    start = (seed << 40) + (step << 20)
    word = (np.arange(count, dtype=np.uint64) + np.uint64(start + 1)) * _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * _MIX_1
    word = (word ^ (word >> np.uint64(27))) * _MIX_2
    return word ^ (word >> np.uint64(31))


def head_sizes(space: gymnasium.Space[Any]) -> list[int]:
    """Return the number of choices of each discrete head; empty for a Box."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return [int(n) for n in space.nvec]
    return []


def random_actions(env: PufferEnv, seed: int, step: int, mask: npt.NDArray[np.uint8] | None = None) -> Array:
    """Return one batch of uniform random actions in the dtype and shape of ``env.actions``.

    Args:
        env: Gives the action space and the number of rows.
        seed: Chooses the batch together with ``step``; equal values give equal actions on every machine.
        step: Number of the batch.
        mask: (N, sum of head sizes) of 0 and 1; given, only legal choices are drawn.
    """
    space, rows = env.single_action_space, env.num_agents
    sizes = head_sizes(space)
    if not sizes:
        assert isinstance(space, gymnasium.spaces.Box)
        width = int(np.prod(space.shape))
        unit = (random_bits(seed, step, rows * width) >> np.uint64(40)).astype(np.float64) * 2.0**-24
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        actions: Array = (low + unit.reshape(rows, width) * (high - low)).astype(np.float32)
        return actions
    bits = (random_bits(seed, step, rows * len(sizes)) >> np.uint64(33)).astype(np.int64).reshape(rows, len(sizes))
    choices = np.empty((rows, len(sizes)), np.int32)
    first = 0
    for head, size in enumerate(sizes):
        if mask is None:
            choices[:, head] = bits[:, head] % size
        else:
            choices[:, head] = _nth_legal(mask[:, first : first + size], bits[:, head])
        first += size
    return choices[:, 0] if isinstance(space, gymnasium.spaces.Discrete) else choices


def _nth_legal(mask: npt.NDArray[np.uint8], bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for each row one of its legal columns, the ``bits % count``-th; 0 where a row has none."""
    legal = mask.astype(np.int64)
    wanted = bits % np.maximum(legal.sum(axis=1), 1) + 1
    found: npt.NDArray[np.int64] = np.argmax((legal.cumsum(axis=1) == wanted[:, None]) & (legal == 1), axis=1)
    return found


class Digest:
    """SHA-256 over observations, rewards, flags, masks and last observations, step after step."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def update(self, env: PufferEnv) -> None:
        """Add what ``env`` has in its buffers now."""
        arrays = [env.observations, env.rewards, env.terminals, env.truncations, env.masks]
        if env.action_mask is not None:
            arrays.append(env.action_mask)
        ended = env.terminals | env.truncations
        if ended.any():
            arrays.append(env.final_observations[ended])
        for array in arrays:
            self._sha.update(np.ascontiguousarray(array).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Return the hash so far."""
        return self._sha.hexdigest()


def play(
    env: PufferEnv, steps: int, *, seed: int = 1, first_step: int = 0, seconds: float | None = None, masked: bool = True
) -> tuple[str, int]:
    """Step ``env`` with random actions; return the hash of what it wrote and the number of steps taken.

    Args:
        env: Already reset; its present buffers are the first entry of the hash.
        steps: Most steps to take.
        seed: Chooses the actions.
        first_step: Number of the first batch of actions.
        seconds: Stop after the first step that ends later than this; how a test bounds a slow parameter set.
        masked: Draw legal actions where the environment has an action mask.
    """
    digest = Digest()
    digest.update(env)
    deadline = None if seconds is None else time.perf_counter() + seconds
    for step in range(steps):
        env.step(random_actions(env, seed, first_step + step, env.action_mask if masked else None))
        digest.update(env)
        if deadline is not None and time.perf_counter() > deadline:
            return digest.hexdigest(), step + 1
    return digest.hexdigest(), steps
