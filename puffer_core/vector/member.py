"""One environment of a `Serial`: its rows, its seeds, and the last observations that it does not write."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from puffer_core.env import Array, PufferEnv
from puffer_core.errors import EnvError
from puffer_core.native import NativeEnv
from puffer_core.vector.base import Infos
from puffer_core.vector.plain import PlainEnv, accepts

PATTERN = 0xA5
"""Fills final observations before each step, so that rows an environment did not write are known."""
CLEARED = ("rewards", "terminals", "truncations", "logged")
_WATCHED = ("observations", "actions", "rewards", "terminals", "truncations")


class Member:
    """One environment of a `Serial`, and its rows.

    Args:
        env: The environment; it writes in the vector's arrays, or in its own, which are then copied.
        rows: Its slice of the vector's arrays.
        first: Instances before it in the vector.
        buf: The slices themselves.
    """

    def __init__(self, env: PufferEnv, rows: slice, first: int, buf: Mapping[str, Array]) -> None:
        self.env, self.rows, self.first = env, rows, first
        self._buf = dict(buf)
        own = {name: getattr(env, name) for name in buf if getattr(env, name, None) is not None}
        self._copied = {name: array for name, array in own.items() if array is not buf[name]}
        # C environments and adapters keep the contract; others are watched. One may write last observations only at
        # some ends, so the observations before each step are kept for the rows in which it writes none.
        is_watched = not isinstance(env, NativeEnv | PlainEnv)
        self._watched = [(name, own[name]) for name in _WATCHED if is_watched]
        self._before = np.empty_like(env.observations) if is_watched else None
        self._has_warned = False
        self._takes_index, self.takes_seed = _seeding(env)

    def reset(self, seed: int | None, first_index: int) -> Infos:
        """Start new episodes; the seed and the instances before this one give the environment's own."""
        index = first_index + self.first
        arguments = {}
        if seed is not None and self._takes_index:
            arguments = {"seed": seed, "index": index}
        elif seed is not None and self.takes_seed:
            arguments = {"seed": seed + index}
        self._clear_own()
        result = self.env.reset(**arguments)
        self._copy_out()
        return list(result[1] or []) if isinstance(result, tuple) and len(result) == 2 else []

    def step(self) -> Infos:
        """Step the environment with the actions in its rows, and bring the rows up to date."""
        env = self.env
        if self._before is not None:
            self._before[...] = env.observations
            _bytes(env.final_observations)[...] = PATTERN
        if self._copied:
            self._clear_own()
            env.actions[...] = self._buf["actions"]
        infos = env.step(env.actions)[4]
        for name, array in self._watched:
            if getattr(env, name) is not array:
                raise EnvError(f"{type(env).__name__} replaced its array `{name}`: write into it instead")
        if self._copied:
            self._copy_out()
        return infos or []

    def finish(self, ended: Array) -> None:
        """Supply the last observations of the rows that ended, where the environment writes none."""
        if self._before is None or not ended.any():
            return
        final = self._buf["final_observations"]
        lost = ended & (_bytes(final) == PATTERN).all(axis=1)
        final[lost] = self._before[lost]
        if not self._has_warned and self._buf["truncations"][lost].any():
            self._has_warned = True
            msg = f"{type(self.env).__name__} truncates and does not write final_observations: "
            warnings.warn(msg + "values are bootstrapped from the observation before the cut", stacklevel=5)

    def _clear_own(self) -> None:
        """Rewards and flags are of one step; arrays that are the vector's are cleared there."""
        for name in CLEARED:
            if name in self._copied:
                self._copied[name].fill(0)

    def _copy_out(self) -> None:
        for name, array in self._copied.items():
            if name != "actions":
                self._buf[name][...] = array


def _seeding(env: PufferEnv) -> tuple[bool, bool]:
    """Return whether the environment's ``reset`` takes an index, and whether a seed reaches it at all."""
    if isinstance(env, PlainEnv):
        return True, env.takes_seed
    reset: Callable[..., Any] = env.reset
    return accepts(reset, "index") and accepts(reset, "seed"), accepts(reset, "seed")


def _bytes(rows: Array) -> Array:
    """Return a view of contiguous rows as bytes, (N, bytes of a row)."""
    return rows.reshape(len(rows), -1).view(np.uint8)
