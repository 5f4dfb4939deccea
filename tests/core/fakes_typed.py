"""Environments with agents of two kinds, which should do opposite things."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from puffer_core import PufferEnv


class Opposites(PufferEnv):
    """Three agents see a bit; those of type 0 are right to repeat it, the one of type 1 to contradict it."""

    single_observation_space = Box(0.0, 1.0, (2,), np.float32)
    agent_types: tuple[int, ...] = (0, 1, 0)
    num_agents = 3
    LENGTH = 4

    def __init__(self, buf: Any = None, space: Any = None, types: Any = None) -> None:
        self.single_action_space = Discrete(2) if space is None else space
        self.agent_types = self.agent_types if types is None else types
        super().__init__(buf)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.rng, self.time = np.random.default_rng(None if seed is None else seed + index), 0
        self._show()
        return self.observations, []

    def _show(self) -> None:
        self.observations[:, 0] = self.rng.integers(0, 2, 3)
        self.observations[:, 1] = self.time / self.LENGTH

    def step(self, actions: Any) -> Any:
        chosen = actions if actions.ndim == 1 else actions[:, 0] > 0.5
        self.rewards[:] = (chosen == self.observations[:, 0]) != np.array([False, True, False])
        self.time += 1
        self.truncations[:] = self.time == self.LENGTH
        self.final_observations[:] = self.observations
        self.time %= self.LENGTH
        self._show()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def save(self) -> bytes:
        return json.dumps([self.rng.bit_generator.state, self.time, self.observations.tolist()]).encode()

    def load(self, blob: bytes) -> None:
        self.rng = np.random.default_rng()
        self.rng.bit_generator.state, self.time, self.observations[:] = json.loads(blob)


class Chase(ParallelEnv):
    """Two agents and an adversary, for 5 steps; an action of 1 is worth 1 to an agent, and -1 to the adversary."""

    metadata = {"name": "chase_v0"}  # noqa: RUF012

    def __init__(self) -> None:
        self.possible_agents = ["adversary_0", "agent_0", "agent_1"]

    def observation_space(self, agent: str) -> Any:
        return Box(0.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.time = list(self.possible_agents), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([1.0, self.time / 5], np.float32) for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self.time += 1
        rewards = {a: float(actions[a]) * (-1.0 if a.startswith("adversary") else 1.0) for a in self.agents}
        ends, seen = dict.fromkeys(self.agents, self.time == 5), self._seen()
        no, infos = dict.fromkeys(self.agents, False), {agent: {} for agent in self.agents}
        self.agents = [] if self.time == 5 else self.agents
        return seen, rewards, no, ends, infos
