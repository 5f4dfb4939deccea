"""Checks of what an environment declares, of the arrays it writes in, and of opening and closing it."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from puffer_core.env import Array, layout_of
from puffer_core.testing.contract import (
    BUFFERS,
    PATTERN,
    BreachError,
    Contract,
    blamed,
    buffers_of,
    is_pattern,
    without_display,
)
from puffer_core.testing.rollouts import random_actions

_PHASE_S = 1.0
_LEAK_BYTES = 512 * 1024
_DECLARED = ("single_observation_space", "single_action_space", "num_agents")


class ArrayChecks(Contract):
    """Spaces, arrays, buffers, closing."""

    def test_opens_steps_and_closes(self) -> None:
        """It can be made, reset, stepped and closed on a machine without a display."""
        with without_display(), self.opened() as env:
            self.step(env, random_actions(env, 1, 0, env.action_mask))

    def test_spaces_are_supported(self) -> None:
        """One Box to observe; Discrete, MultiDiscrete or a bounded Box to act; at least one agent."""
        with self.opened(seed=None) as env:
            space, actions = env.single_observation_space, env.single_action_space
            if not isinstance(space, gymnasium.spaces.Box):
                raise BreachError(f"single_observation_space is {space}, not a Box")
            if not isinstance(
                actions, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete | gymnasium.spaces.Box
            ):
                raise BreachError(f"single_action_space is {actions}, not a Discrete, a MultiDiscrete or a Box")
            if isinstance(actions, gymnasium.spaces.Box):
                for side, bound in (("lower", actions.low), ("upper", actions.high)):
                    if not np.isfinite(bound).all():
                        raise BreachError(f"a Box action has no {side} bound: {actions}", "give it finite low and high")
            if env.num_agents < 1:
                raise BreachError(f"num_agents is {env.num_agents}")

    def test_spaces_stay_as_declared(self) -> None:
        """Spaces and number of agents are the same after resets and steps."""
        with self.opened(seed=None) as env:
            declared = {name: getattr(env, name) for name in _DECLARED}
            self.reset(env, 1)
            _require_same(declared, env, "after reset")
            for step in self.play(env):
                _require_same(declared, env, f"step {step}")

    def test_arrays_match_the_spaces(self) -> None:
        """Every array has the shape and dtype that the spaces imply."""
        with self.opened() as env:
            for name, (shape, dtype) in layout_of(env).items():
                array = getattr(env, name)
                if array.shape != shape:
                    raise BreachError(f"`{name}` has shape {array.shape}, not {shape}")
                if array.dtype != dtype:
                    raise BreachError(f"`{name}` has dtype {array.dtype}, not {np.dtype(dtype)}")
                if not array.flags.c_contiguous:
                    raise BreachError(f"`{name}` is not contiguous")

    def test_reset_and_step_return_the_environments_own_arrays(self) -> None:
        """Results are written in place; no array is ever replaced."""
        with self.opened(seed=None) as env:
            arrays = [getattr(env, name) for name in BUFFERS]
            result = self.reset(env, 1)
            if not isinstance(result, tuple) or len(result) != 2:
                raise BreachError(f"reset returns {type(result).__name__}, not (observations, infos)")
            if result[0] is not env.observations:
                raise BreachError("reset returns an array that is not `observations`", "write into `self.observations`")
            if not isinstance(result[1], list):
                raise BreachError(f"reset returns infos {result[1]!r}, not a list")
            self._require_own(env, self.step(env, random_actions(env, 1, 0, env.action_mask)))
            for step in range(1, min(self.steps, 50)):
                for name, array in zip(BUFFERS, arrays, strict=True):
                    if getattr(env, name) is not array:
                        raise BreachError(
                            f"step {step - 1}: `{name}` was replaced", f"write into it: `self.{name}[:] = ...`"
                        )
                self._require_own(env, self.step(env, random_actions(env, 1, step, env.action_mask), step))

    def _require_own(self, env: Any, result: Any) -> None:
        if not isinstance(result, tuple) or len(result) != 5:
            found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise BreachError(f"step returns {found}, not observations, rewards, terminals, truncations and infos")
        for name, given in zip(("observations", "rewards", "terminals", "truncations"), result, strict=False):
            if given is not getattr(env, name):
                raise BreachError(
                    f"step returns an array that is not `{name}`", f"return `self.{name}`, written in place"
                )
        if not isinstance(result[4], list):
            raise BreachError(f"step returns infos {result[4]!r}, not a list")

    def test_infos_are_dictionaries(self) -> None:
        """A step returns a list of dicts beside the arrays."""
        with self.opened() as env:
            for step in range(self.steps):
                infos = self.step(env, random_actions(env, 1, step, env.action_mask), step)[4]
                for info in infos:
                    if not isinstance(info, dict):
                        raise BreachError(f"step {step}: infos holds {info!r}, not a dict")

    def test_reset_writes_every_row(self) -> None:
        """After reset no present agent's row holds what was there before."""
        with self.opened() as env:
            env.observations.view(np.uint8)[...] = PATTERN
            self.reset(env, 1)
            stale = is_pattern(env.observations) & env.masks
            if stale.any():
                rows = np.flatnonzero(stale)
                raise BreachError(
                    f"reset leaves the observations of agents {rows} unwritten", "write all num_agents rows"
                )

    def test_step_leaves_the_actions_alone(self) -> None:
        """Actions are read, never written."""
        with self.opened() as env:
            for step in range(min(self.steps, 100)):
                actions = random_actions(env, 1, step, env.action_mask)
                self.step(env, actions, step)
                if not np.array_equal(env.actions, actions):
                    raise BreachError(f"step {step}: `actions` was written into", "copy it before changing it")

    def test_given_buffers_are_used_and_give_the_same_results(self) -> None:
        """Arrays passed in are the arrays used."""
        with self.opened(seed=None) as env:
            buf = buffers_of(env)
        with self.opened(buf, seed=3) as given:
            for name, array in buf.items():
                if getattr(given, name) is not array:
                    hint = "take `buf` in the constructor and pass it to `super().__init__(buf)`"
                    raise BreachError(f"`{name}` was given and is not used", hint)
            trace = self.trace(given)
        if not self.lacks("no-seed") and trace != self.trace_of(seed=3):
            raise BreachError("results depend on whose arrays they are written to")

    def test_wrong_buffers_are_refused(self) -> None:
        """An array of the wrong shape or dtype is refused by name."""
        with self.opened(seed=None) as env:
            buf = buffers_of(env)
        for name, array in buf.items():
            other = np.float32 if array.dtype == np.float64 else np.float64
            for wrong in (np.zeros((len(array) + 1, *array.shape[1:]), array.dtype), array.astype(other)):
                what = f"`{name}` of shape {wrong.shape} and dtype {wrong.dtype}"
                refusal = self._refusal({**buf, name: wrong})
                if refusal is None:
                    raise BreachError(f"{what} was accepted", "pass `buf` to `super().__init__`, which checks it")
                if name not in refusal:
                    raise BreachError(f"{what} was refused without its name: {refusal}")

    def _refusal(self, buf: Mapping[str, Array]) -> str | None:
        """Return what the environment says against these buffers, or None."""
        try:
            self.make(buf).close()
        except ValueError as error:
            return str(error)
        return None

    def test_close_can_be_called_twice(self) -> None:
        """Closing is idempotent."""
        env = self.make()
        self.reset(env, 1)
        for call in ("close", "a second close"):
            with blamed(call):
                env.close()

    def test_step_after_close_is_no_crash(self) -> None:
        """A step after close raises or does nothing; it does not take the process along."""
        env = self.make()
        self.reset(env, 1)
        env.close()
        with suppress(Exception):
            env.step(env.actions)

    def test_resets_leak_nothing(self) -> None:
        """Resident memory is flat over many resets."""
        import psutil

        process = psutil.Process()
        with self.opened() as env:
            sizes = []
            for phase in range(4):
                end = time.monotonic() + _PHASE_S
                for number in range(self.resets):
                    self.reset(env, 1 + phase * self.resets + number)
                    if time.monotonic() > end:
                        break
                gc.collect()
                sizes.append(process.memory_info().rss)
            grown = np.diff(sizes[1:])
            if (grown > _LEAK_BYTES).all():
                kib = int(grown.mean()) // 1024
                raise BreachError(
                    f"memory grows by {kib} KiB with every {number + 1} resets", "something is kept at each reset"
                )


def _require_same(declared: Mapping[str, Any], env: Any, where: str) -> None:
    for name, value in declared.items():
        if (found := getattr(env, name)) is not value and found != value:
            raise BreachError(
                f"{where}: {name} is {found}, declared was {value}", "it is fixed once the environment is made"
            )
