"""Environments for tests of backends with workers: importable, so that new processes find them."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from puffer_core.env import PufferEnv
from puffer_core.errors import EnvError


class Walk(gymnasium.Env[Any, Any]):
    """A random walk: observations depend on seed and actions, episodes have random lengths, some ends carry infos."""

    def __init__(self, size: int = 3, quiet: bool = False) -> None:
        self.observation_space = Box(-1e6, 1e6, (size,), np.float32)
        self.action_space = Discrete(3)
        self.quiet = quiet
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        self.length = int(self.np_random.integers(2, 12))
        self.place = self.np_random.normal(size=self.observation_space.shape).astype(np.float32)
        return self.place, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.place = self.place + np.float32(action) + self.np_random.normal(size=self.place.shape).astype(np.float32)
        ended = self.time >= self.length
        how = self.episode % 2 == 0
        infos = {"bonus": float(self.time), "n": 1.0} if ended and not self.quiet else {}
        return self.place, float(action) - 1, ended and how, ended and not how, infos


class Picture(gymnasium.Env[Any, Any]):
    """Observations are small pictures filled with ``mark`` and the tick."""

    def __init__(self, mark: int = 0) -> None:
        self.observation_space = Box(0, 255, (4, 3, 2), np.uint8)
        self.action_space = Discrete(2)
        self.mark, self.tick = mark, 0

    def observe(self) -> Any:
        picture = np.full((4, 3, 2), self.mark, np.uint8)
        picture[0] = self.tick % 256
        return picture

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.tick = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.tick += 1
        return self.observe(), 0.0, False, False, {}

    def render(self) -> Any:
        return self.observe()[..., :1].repeat(3, axis=2)


class Team(PufferEnv):
    """Two agents in place: they see (seed, tick, what they did); one ends with a terminal, the other is cut."""

    def __init__(self, buf: Any = None, limit: int = 5) -> None:
        self.single_observation_space = Box(-1e6, 1e6, (3,), np.float32)
        self.single_action_space = MultiDiscrete([3, 2])
        self.num_agents = 2
        self.limit, self.next_limit, self.seed, self.tick = limit, limit, 0, 0
        super().__init__(buf)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.seed = seed + 1000 * index
        self.tick, self.limit = 0, self.next_limit
        self.observations[:] = (self.seed, 0, 0)
        return self.observations, []

    def step(self, actions: Any) -> Any:
        self.tick += 1
        self.rewards[:] = actions[:, 0]
        self.observations[:, 1] = self.tick
        self.observations[:, 2] = actions.sum(axis=1)
        infos = []
        if self.tick >= self.limit:
            self.terminals[0], self.truncations[1] = True, True
            self.final_observations[:] = self.observations
            self.tick, self.limit = 0, self.next_limit
            self.observations[:, 1:] = 0
            infos = [{"length": self.limit}]
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def set_params(self, **values: Any) -> None:
        if set(values) != {"limit"}:
            super().set_params(**values)
        self.next_limit = values["limit"]

    def save(self) -> bytes:
        return repr((self.limit, self.next_limit, self.seed, self.tick, self.observations.tolist())).encode()

    def load(self, blob: bytes) -> None:
        import ast

        self.limit, self.next_limit, self.seed, self.tick, observations = ast.literal_eval(blob.decode())
        self.observations[:] = observations


class Slow(Picture):
    """Sleeps in every step; the tick is seen in its observations."""

    def __init__(self, mark: int = 0, sleep: float = 0.0) -> None:
        super().__init__(mark)
        self.sleep = sleep

    def step(self, action: Any) -> Any:
        time.sleep(self.sleep)
        return super().step(action)


class Trouble(Picture):
    """Does something wrong in its second step, or when it is made or closed."""

    def __init__(self, how: str = "", at: int = 2) -> None:
        if how == "init":
            raise LookupError("no such level")
        if how == "init exit":
            os._exit(7)
        super().__init__()
        self.how, self.at = how, at

    def step(self, action: Any) -> Any:
        if self.tick + 1 == self.at:
            self.make_trouble()
        return super().step(action)

    def make_trouble(self) -> None:
        if self.how == "raise":
            raise ZeroDivisionError("boom in env")
        if self.how == "refuse":
            raise EnvError("this is wrong", hint="do it right")
        if self.how == "exit":
            os._exit(3)
        if self.how == "leave":
            sys.exit("enough")
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "hang":
            time.sleep(600)
        if self.how == "loop":
            while True:
                pass

    def close(self) -> None:
        if self.how == "close":
            time.sleep(600)


class Facts(gymnasium.Env[Any, Any]):
    """Observations say what its process is like: id, seed of the last reset, a draw from numpy's global generator."""

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([os.getpid(), -1 if seed is None else seed, np.random.random()]), {}

    def step(self, action: Any) -> Any:
        import threading

        return np.array([os.getpid(), threading.active_count(), np.random.random()]), 0.0, False, False, {}


class Product(Picture):
    """Multiplies matrices that are large enough for libraries to use every core they may."""

    def step(self, action: Any) -> Any:
        matrix = np.ones((400, 400))
        matrix @ matrix
        return super().step(action)
