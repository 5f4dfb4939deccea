"""One environment of a `Serial`: its rows, its seeds, and the last observations that it does not write."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from puffer_core.env import Array, PufferEnv
from puffer_core.errors import EnvError
from puffer_core.native import NativeEnv
from puffer_core.vector.base import Infos
from puffer_core.vector.infos import as_infos
from puffer_core.vector.seeds import Seeding
from puffer_core.vector.wrap.instances import EnvWrapper

PATTERN = 0xA5
"""Fills final observations before each step, so that rows an environment did not write are known."""
CLEARED = ("rewards", "terminals", "truncations", "logged")
_WATCHED = ("observations", "actions", "rewards", "terminals", "truncations")
_RETURNED = ("observations", "rewards", "terminals", "truncations")


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
        self.is_watched = not (env.is_adapter or isinstance(env, NativeEnv))
        self._watched = [(name, own[name]) for name in _WATCHED if self.is_watched]
        self._returned = [(name, own[name]) for name in _RETURNED if self.is_watched]
        self._agents = int(env.num_agents)
        self._before = np.empty_like(env.observations) if self.is_watched else None
        self._has_warned = False
        self._seeding = Seeding(env)
        self.takes_seed = self._seeding.takes_seed
        if self._before is not None and isinstance(env, EnvWrapper):
            env.watch(self._before)

    def reset(self, seed: int | None, first_index: int) -> Infos:
        """Start new episodes; the seed and the instances before this one give the environment's own."""
        index = first_index + self.first
        self._clear_own()
        result: Any = self.env.reset(**self._seeding.arguments(seed, index))
        is_pair = isinstance(result, tuple) and len(result) == 2
        observations = result[0] if is_pair else result
        if self.is_watched and isinstance(observations, np.ndarray):
            self._check_returned("reset", self._returned[0][0], self._returned[0][1], observations)
        self._copy_out()
        return as_infos(result[1], self.env, "reset") if is_pair else []

    def step(self) -> Infos:
        """Step the environment with the actions in its rows, and bring the rows up to date."""
        env = self.env
        if self._before is not None:
            self._before[...] = env.observations
            _bytes(env.final_observations)[...] = PATTERN
        if self._copied:
            self._clear_own()
            env.actions[...] = self._buf["actions"]
        result = env.step(env.actions)
        if self.is_watched:
            self._check_step(result)
        if self._copied:
            self._copy_out()
        return as_infos(result[4], env, "step")

    def load(self, blob: bytes) -> None:
        """Restore what the environment's ``save`` returned, and bring the rows up to date."""
        self.env.load(blob)
        self._copy_out()

    def _check_step(self, result: Any) -> None:
        """Refuse results that are not in the environment's own arrays, and would be lost."""
        env = self.env
        kind = type(env).__name__
        for name, array in self._watched:
            if getattr(env, name) is not array:
                raise EnvError(f"{kind} replaced its array `{name}`: write into it instead")
        if env.num_agents != self._agents:
            raise EnvError(
                f"{kind} changed num_agents from {self._agents} to {env.num_agents}: it is fixed once opened"
            )
        if not isinstance(result, tuple | list) or len(result) != 5:
            found = f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__
            raise EnvError(f"{kind}: step returned {found}, not 5 values: {', '.join(_RETURNED)}, infos")
        for (name, array), given in zip(self._returned, result, strict=False):
            if given is not array:
                self._check_returned("step", name, array, given)

    def _check_returned(self, call: str, name: str, array: Array, given: Any) -> None:
        is_view = isinstance(given, np.ndarray) and np.may_share_memory(given, array)
        if given is not array and not is_view and not (array.size == 0 and np.size(given) == 0):
            msg = f"{type(self.env).__name__}: {call} returned {name} that are not its own array `{name}`"
            raise EnvError(msg, hint=f"write into it, as in `self.{name}[:] = ...`, and return it")

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


def _bytes(rows: Array) -> Array:
    """Return a view of contiguous rows as bytes, (N, bytes of a row)."""
    return rows.reshape(len(rows), -1).view(np.uint8)
