"""Small deterministic environments that `BackendContract` steps: one of each kind of arrays that a backend carries.

Each counts its steps from a start that it draws at random, and adds up its actions, so that a row in the wrong place, a
step too many or a lost action shows in its observations.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from puffer_core.env import Array, PufferEnv, Step

_LENGTH = 7


class Counter(PufferEnv):
    """One agent; every second episode is cut. Tells of each end in an info; ``pay`` may change while running."""

    single_observation_space: Any = Box(-1e6, 1e6, (3,), np.float32)
    single_action_space: Any = Discrete(3)
    num_agents = 1

    def __init__(self, buf: Any = None, pay: float = 1.0) -> None:
        super().__init__(buf)
        self.rng = np.random.default_rng()
        self.pay = self._next_pay = pay
        self.time, self.episode, self.start = 0, 0, 0
        self.sums = np.zeros(self.num_agents)

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[dict[str, Any]]]:
        """Begin anew."""
        if seed is not None:
            self.rng = np.random.default_rng([seed, index])
            self.episode = 0
        self._begin()
        self._observe(self.observations)
        return self.observations, []

    def step(self, actions: Array) -> Step:
        """Count, and begin anew after a few steps."""
        self.time += 1
        self.sums += actions.reshape(self.num_agents, -1).sum(axis=1)
        self.rewards[:] = self.pay * (1 + actions.reshape(self.num_agents, -1)[:, 0])
        infos = []
        if self.time == _LENGTH + self.start % 3:
            flags = self.terminals if self.episode % 2 else self.truncations
            flags[:] = True
            self._observe(self.final_observations)
            infos.append({"start": float(self.start), "n": 2})
            self.episode += 1
            self._begin()
        self._observe(self.observations)
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def set_params(self, **values: Any) -> None:
        """Take ``pay``; it counts from the next episode."""
        if set(values) != {"pay"}:
            super().set_params(**values)
        self._next_pay = values["pay"]

    def _begin(self) -> None:
        self.start, self.time, self.pay = int(self.rng.integers(100)), 0, self._next_pay
        self.sums[:] = 0

    def _observe(self, rows: Array) -> None:
        flat = rows.reshape(self.num_agents, -1)
        flat[:] = 0
        flat[:, 0], flat[:, 1], flat[:, 2] = self.start, self.time, self.sums


class CounterCrowd(Counter):
    """Three agents; the second leaves in its third step until the next episode. Some choices are barred."""

    single_action_space: Any = MultiDiscrete([3, 2])
    num_agents = 3
    has_action_mask = True

    def step(self, actions: Array) -> Step:
        """Count; the second agent may be absent."""
        was_absent = not self.masks[1]
        result = super().step(actions)
        if self.time == 0:
            self.masks[1] = True
        elif self.time >= 3:
            self._leave(was_absent)
        if was_absent:
            self.rewards[1], self.terminals[1], self.truncations[1] = 0, False, False
        return result

    def _leave(self, was_absent: bool) -> None:
        if not was_absent:
            self.terminals[1] = True
            self.final_observations[1] = self.observations[1]
        self.masks[1] = False
        self.observations[1] = 0

    def _begin(self) -> None:
        super()._begin()
        self.masks[:] = True

    def _observe(self, rows: Array) -> None:
        super()._observe(rows)
        assert self.action_mask is not None
        self.action_mask[:] = 1
        self.action_mask[:, self.time % 3] = 0


class CounterPixels(Counter):
    """Bytes to observe, numbers to act."""

    single_observation_space: Any = Box(0, 255, (4, 3, 2), np.uint8)
    single_action_space: Any = Box(-1.0, 1.0, (2,), np.float32)

    def _observe(self, rows: Array) -> None:
        rows[:] = (np.arange(24).reshape(4, 3, 2) + self.start + self.time + int(10 * self.sums[0])) % 256


class CounterLogged(Counter):
    """Writes its own log."""

    log_fields = ("score", "starts")

    def step(self, actions: Array) -> Step:
        """Count, and log what ended."""
        start, total = self.start, float(self.sums[0] + actions.sum())
        result = super().step(actions)
        assert self.log is not None
        assert self.logged is not None
        if self.time == 0:
            self.log[:] = (total, start)
            self.logged[:] = True
        return result


class CounterGym(gymnasium.Env[Array, int]):
    """A Gymnasium environment."""

    observation_space: Any = Box(-1e6, 1e6, (2,), np.float32)
    action_space: Any = Discrete(3, start=2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin anew."""
        super().reset(seed=seed)
        self.time, self.sum = int(self.np_random.integers(5)), 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Count to nine."""
        self.time += 1
        self.sum += action
        is_over = self.time == 9
        return self._seen(), float(action), is_over and self.sum % 2 == 0, is_over and self.sum % 2 == 1, {}

    def _seen(self) -> Array:
        return np.array([self.time, self.sum], np.float32)


class CounterRaises(Counter):
    """Raises in its fifth step."""

    def step(self, actions: Array) -> Step:
        """Count, for a while."""
        if self.time == 4:
            raise ArithmeticError("the fifth step went wrong")
        return super().step(actions)


COUNTERS = (Counter, CounterCrowd, CounterPixels, CounterLogged, CounterGym)
"""Every kind of arrays; all of them keep their contract."""
