"""Environments that draw their step number, and screens that type: for tests of pictures and of play."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from fakes_pettingzoo import Duel
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from puffer_core.keys import Keys
from puffer_core.screens import PlayScreen

GREY = 20
"""Difference between the pictures of two steps."""


class Steps(gymnasium.Env[Any, Any]):
    """Episodes of ``length`` steps, drawn as a grey that tells the step; an action is its reward."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 25}

    def __init__(self, length: int = 5, render_mode: str | None = None) -> None:
        self.observation_space = Box(0, 1, (2,), np.float32)
        self.action_space = Discrete(3, start=-1)
        self.length, self.render_mode = length, render_mode
        self.time = 0
        self.taken: list[int] = []

    def observe(self) -> Any:
        return np.array([self.time / self.length, 1], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.taken.append(int(action))
        return self.observe(), float(action), self.time >= self.length, False, {}

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return f"step {self.time}\n"
        return np.full((32, 48, 3), GREY * self.time, np.uint8)


class Keyed(Steps):
    """As `Steps`, and says what keys do."""

    def get_keys_to_action(self) -> dict[Any, int]:
        return {(ord("a"),): -1, (276,): -1, "d": 1, (): 0}


class Waiting(Steps):
    """As `Keyed`, without an action for no key."""

    play_keys: ClassVar[dict[Any, int]] = {"left": -1, ("right",): 1}


class Pair(ParallelEnv[str, Any, Any]):
    """Two agents, episodes of four steps; the reward is the action of the agent itself."""

    metadata: ClassVar[dict[str, Any]] = {"name": "pair", "render_modes": ["rgb_array"], "render_fps": 25}

    def __init__(self) -> None:
        self.possible_agents = ["one", "two"]
        self.agents: list[str] = []
        self.render_mode = "rgb_array"
        self.time = 0

    def observation_space(self, agent: str) -> Any:
        return Box(0, 1, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.time = list(self.possible_agents), 0
        return self._all(np.zeros(1, np.float32)), self._all({})

    def step(self, actions: Any) -> Any:
        self.time += 1
        rewards = {agent: float(actions[agent]) for agent in self.agents}
        result = self._all(np.ones(1, np.float32)), rewards, self._all(self.time >= 4), self._all(False), self._all({})
        if self.time >= 4:
            self.agents = []
        return result

    def render(self) -> Any:
        return np.full((32, 48, 3), GREY * self.time, np.uint8)


class Turns(Duel):
    """As `Duel`, where nobody is killed, and drawn."""

    metadata: ClassVar[dict[str, Any]] = {"name": "turns", "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self) -> None:
        super().__init__(kill_at=1000)

    def render(self) -> Any:
        return np.full((32, 48, 3), self.moves, np.uint8)


def keys(*names: str) -> Keys:
    """Return these keys, just pressed."""
    return Keys(frozenset(names), frozenset(names))


class Typist(PlayScreen):
    """Types what it is told to, one entry each time that keys are asked for, and closes itself afterwards."""

    def __init__(self, typed: Sequence[Keys]) -> None:
        self.typed = list(typed)
        self.said: list[str] = []
        self.shown: list[int] = []
        self.waited = 0

    def show(self, envs: Any) -> None:
        self.shown.append(int(envs.render(0, "rgb_array")[0, 0, 0]) // GREY)

    def wait(self) -> None:
        self.waited += 1

    def keys(self, *, is_waiting: bool = False) -> Keys:
        if not self.typed:
            self.is_open = False
            return Keys()
        return self.typed.pop(0)

    def say(self, text: str) -> None:
        self.said.append(text)
