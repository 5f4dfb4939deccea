"""Environments for tests of curricula and of saved states: one whose pay changes, and forms of other frameworks."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
from fakes_env import Match
from gymnasium.spaces import Box, Discrete

from puffer_core.errors import OptionError


class Paid(Match):
    """As `Match`; a right action is worth ``pay``, which may change from the next episode on. It can't be saved."""

    def __init__(self, buf: Any = None, pay: float = 1.0) -> None:
        self.pay = self.next_pay = pay
        super().__init__(buf)

    def begin(self) -> None:
        self.pay = self.next_pay
        super().begin()

    def reward(self, action: int) -> float:
        return self.pay

    def set_params(self, **values: Any) -> None:
        if set(values) != {"pay"}:
            raise OptionError(f"Paid has no parameter `{', '.join(values)}`", hint="it has pay")
        self.next_pay = values["pay"]


class PaidSaving(Paid):
    """As `Paid`, and it can be saved."""

    def save(self) -> bytes:
        return json.dumps([self.time, self.length, self.total, self.pay, self.next_pay]).encode()

    def load(self, blob: bytes) -> None:
        self.time, self.length, self.total, self.pay, self.next_pay = json.loads(blob)
        self.observe(self.observations)


class Clock(gymnasium.Env[Any, Any]):
    """Shows how many steps it has made since it began; never ends by itself, and can be saved."""

    observation_space = Box(0, 1e6, (1,), np.float32)
    action_space = Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._seen(), 1.0, False, False, {}

    def _seen(self) -> Any:
        return np.array([self.time], np.float32)

    def save(self) -> bytes:
        return str(self.time).encode()

    def load(self, blob: bytes) -> None:
        self.time = int(blob)


class Pair:
    """A parallel environment of two agents, of which the second leaves after two steps; it can be saved."""

    possible_agents = ["a", "b"]  # noqa: RUF012
    metadata = {"name": "pair"}  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return Box(0, 1e6, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.agents = 0, ["a", "b"]
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.time += 1
        seen, live = self._seen(), list(self.agents)
        ended = {"a": self.time >= 5, "b": self.time >= 2}
        self.agents = [agent for agent in live if not ended[agent]]
        flags = {agent: ended[agent] for agent in live}
        return seen, dict.fromkeys(live, 1.0), flags, dict.fromkeys(live, False), {agent: {} for agent in live}

    def _seen(self) -> Any:
        return {agent: np.array([self.time], np.float32) for agent in self.agents}

    def render(self) -> None:
        return None

    def close(self) -> None:
        return None

    def save(self) -> bytes:
        return json.dumps([self.time, self.agents]).encode()

    def load(self, blob: bytes) -> None:
        self.time, self.agents = json.loads(blob)
