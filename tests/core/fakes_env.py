"""Small environments in Python, for tests that need one to train on or to evaluate."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from puffer_core.env import PufferEnv


class Fake(PufferEnv):
    """Counts steps. A subclass says when an episode ends, with which return."""

    log_fields = ("score", "perf", "episode_return", "episode_length")

    def __init__(self, buf: Any = None, agents: int = 1) -> None:
        self.single_observation_space = Box(-1.0, 1.0, (3,), np.float32)
        self.single_action_space = Discrete(2)
        self.num_agents = agents
        super().__init__(buf)
        self.rng = np.random.default_rng(0)
        self.time = 0
        self.length = 1
        self.total = 0.0

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng([seed, index])
        self.logged[:] = False
        self.begin()
        return self.observations, []

    def begin(self) -> None:
        self.time, self.total = 0, 0.0
        self.length = self.draw_length()
        self.observe(self.observations)

    def draw_length(self) -> int:
        raise NotImplementedError

    def reward(self, action: int) -> float:
        return 1.0

    def observe(self, out: Any) -> None:
        out[:] = (1.0, (self.time % 8) / 8, float(self.time % 2))

    def step(self, actions: Any) -> Any:
        self.logged[:] = False
        self.time += 1
        self.rewards[:] = self.reward(int(actions.flat[0]))
        self.total += float(self.rewards[0])
        if self.time >= self.length:
            self.terminals[:] = True
            self.observe(self.final_observations)
            self.log[:] = (self.total, min(1.0, self.total / 200), self.total, self.time)
            self.logged[:] = True
            self.begin()
        else:
            self.observe(self.observations)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def render(self) -> Any:
        return np.full((21, 31, 3), min(255, 5 * self.time), np.uint8)


class Count(Fake):
    """Episodes of ``limit`` steps, each worth 1."""

    def __init__(self, buf: Any = None, limit: int = 3, agents: int = 1) -> None:
        self.limit = limit
        super().__init__(buf, agents)

    def draw_length(self) -> int:
        return self.limit


class ShortOrLong(Fake):
    """Episodes of 2 or 200 steps with equal odds; the return is the length."""

    def draw_length(self) -> int:
        return int(self.rng.choice((2, 200)))


class Match(Fake):
    """Episodes of 8 steps; an action that equals the last observation is worth 1: learnt at once."""

    def draw_length(self) -> int:
        return 8

    def reward(self, action: int) -> float:
        return float(action == (self.time - 1) % 2)


class Written(Match):
    """As `Match`, shown as text."""

    def render(self) -> Any:
        return f"t={self.time}"


class Endless(Fake):
    """Never ends and never logs."""

    def draw_length(self) -> int:
        return 2**62


class Saving(Match):
    """As `Match`, and its state can be saved."""

    def save(self) -> bytes:
        return repr((self.time, self.length, self.total)).encode()

    def load(self, blob: bytes) -> None:
        import ast

        self.time, self.length, self.total = ast.literal_eval(blob.decode())
        self.observe(self.observations)


class Poisoned(Match):
    """Its rewards turn into NaN at step ``at``."""

    def __init__(self, buf: Any = None, at: int = 100) -> None:
        self.left = at
        super().__init__(buf)

    def reward(self, action: int) -> float:
        self.left -= 1
        return super().reward(action) if self.left > 0 else float("nan")
