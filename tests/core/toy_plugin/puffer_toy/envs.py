"""A corridor to walk along, and a family of rooms that are corridors of a length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box, Discrete

from puffer_core import PufferEnv
from puffer_core.errors import UnknownNameError, did_you_mean

LENGTHS = {"short": 3, "long": 9}


@dataclass(frozen=True)
class CorridorParams:
    length: int = 5
    """Steps to the end."""


class Corridor(PufferEnv):
    """Action 1 is a step forward, 0 one back; the end pays 1 and ends the episode. Cut off after four lengths."""

    single_observation_space = Box(0, 1, (2,), np.float32)
    single_action_space = Discrete(2)
    num_agents = 1

    def __init__(self, length: int = 5, buf=None):
        self.length = length
        super().__init__(buf)

    def reset(self, seed=None, index=0):
        self.place = self.time = 0
        self._observe(self.observations)
        return self.observations, []

    def step(self, actions):
        self.place = max(0, self.place + (1 if self.actions[0] == 1 else -1))
        self.time += 1
        self.terminals[0] = self.place == self.length
        self.truncations[0] = not self.terminals[0] and self.time == 4 * self.length
        self.rewards[0] = self.terminals[0]
        if self.terminals[0] or self.truncations[0]:
            self._observe(self.final_observations)
            self.place = self.time = 0
        self._observe(self.observations)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def _observe(self, row):
        row[0] = self.place / self.length, 1


def make_room(name: str, buf=None):
    lengths = {key.lower(): value for key, value in LENGTHS.items()}
    if name.lower() not in lengths:
        raise UnknownNameError(f"unknown room `{name}`", hint=did_you_mean(name, LENGTHS))
    return Corridor(lengths[name.lower()], buf=buf)


def list_rooms() -> list[str]:
    return sorted(LENGTHS)
