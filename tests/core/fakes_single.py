"""Environments of one agent in every form, for tests of their adapter and of the loop that steps many of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

from puffer_core.emulation import GymnasiumPufferEnv


class Count(gymnasium.Env):
    """Shows (episode, step in it); a reward of 1 a step; ends after ``limit`` steps."""

    def __init__(self, limit: int = 3, how: str = "truncate", boom_at: int = 0) -> None:
        self.observation_space = Box(-1e6, 1e6, (2,), np.float32)
        self.action_space: Space[Any] = Discrete(2)
        self.limit, self.how, self.boom_at = limit, how, boom_at
        self.ep, self.n, self.t = -1, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.ep += 1
        self.t = 0
        return np.array([self.ep, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self.n += 1
        if self.n == self.boom_at:
            raise RuntimeError("boom in env")
        end = self.t >= self.limit
        observation = np.array([self.ep, self.t], np.float32)
        return observation, 1.0, end and self.how == "terminate", end and self.how == "truncate", {}


def make_count(buf: Any = None, seed: int = 0, **kwargs: Any) -> GymnasiumPufferEnv:
    """Make the adapter itself, as a person's factory may."""
    return GymnasiumPufferEnv(env=Count(**kwargs), buf=buf)


class Probe(gymnasium.Env):
    """Keeps the actions and seeds that it got; answers what it is told."""

    def __init__(
        self,
        action_space: Space[Any] | None = None,
        observation_space: Space[Any] | None = None,
        first: Any = None,
        answer: Any = None,
    ) -> None:
        self.action_space = Discrete(3) if action_space is None else action_space
        self.observation_space = Box(0, 1, (2,), np.float32) if observation_space is None else observation_space
        self.first = np.zeros(2, np.float32) if first is None else first
        self.answer = (self.first, 0.0, False, False, {}) if answer is None else answer
        self.actions: list[Any] = []
        self.seeds: list[Any] = []
        self.closed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        return self.first, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        return self.answer

    def close(self) -> None:
        self.closed += 1


class Old:
    """The form of Gym before 0.26: four values, `reset` without anything, `seed` a method; ends as ``info`` says."""

    def __init__(self, info: Any = None, limit: int = 2) -> None:
        self.observation_space = Box(0, 100, (1,), np.float32)
        self.action_space = Discrete(2)
        self.info, self.limit, self.t, self.seeds = info or {}, limit, 0, []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def reset(self) -> Any:
        self.t = 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(1, self.t, np.float32), 1, self.t >= self.limit, dict(self.info)


class Motley:
    """Answers with values of ever other types, drawn from its seed; never twice in the same form."""

    def __init__(self, seed: int = 0, values: int = 5, is_wild: bool = True, shape: tuple[int, ...] = (3,)) -> None:
        self.observation_space = Box(-1e9, 1e9, shape, np.float32)
        self.action_space = Discrete(4, start=-1)
        self.rng, self.values, self.is_wild = np.random.default_rng(seed), values, is_wild

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        return self.observe(), {}

    def observe(self) -> Any:
        array = self.rng.normal(size=self.observation_space.shape).astype(np.float32)
        if not self.is_wild:
            return array
        forms = [array, array, array.astype(np.float64), array.tolist(), np.flip(np.flip(array).copy())]
        forms += [array[..., None]] * (array.ndim > 0)
        return forms[self.rng.integers(len(forms))]

    def number(self) -> Any:
        value = float(self.rng.normal())
        forms = [value, np.float64(value), np.float32(value), np.array([value]), int(value), True, np.int8(3), np.inf]
        return forms[self.rng.integers(len(forms))] if self.is_wild else value

    def flag(self, odds: float) -> Any:
        value = bool(self.rng.random() < odds)
        forms = [value, value, np.bool_(value), int(value), np.array(value), np.array([value])]
        return forms[self.rng.integers(len(forms))] if self.is_wild else value

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        info = {"speed": float(self.rng.normal()), "name": "x"} if self.rng.random() < 0.2 else {}
        if self.is_wild and self.rng.random() < 0.1:
            info = None
        if self.values == 4:
            cut = {"TimeLimit.truncated": True} if self.rng.random() < 0.5 else {}
            return self.observe(), self.number(), self.flag(0.15), {**(info or {}), **cut}
        return self.observe(), self.number(), self.flag(0.1), self.flag(0.1), info


class Nested(gymnasium.Env):
    """Dict observations whose keys come in either order, and Dict actions of both kinds; its state can be saved."""

    def __init__(self) -> None:
        self.observation_space = Dict({"b": Box(0, 9, (2,), np.int16), "a": Discrete(5, start=2)})
        self.action_space = Dict({"move": Discrete(4, start=1), "aim": Box(-1, 1, (2,), np.float64)})
        self.t, self.actions = 0, []

    def observe(self) -> Any:
        parts = [("a", 2 + self.t % 5), ("b", np.array([self.t % 10, 1], np.int16))]
        return dict(parts if self.t % 2 else reversed(parts))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.t += 1
        return self.observe(), 1.0, False, self.t == 7, {}

    def save(self) -> bytes:
        return bytes([self.t])

    def load(self, blob: bytes) -> None:
        (self.t,) = blob
