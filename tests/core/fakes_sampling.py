"""Environments of any spaces, whose observations are samples."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import Space


def sampling_env(observation: Space[Any], action: Space[Any] | None = None, length: int = 3) -> type[gymnasium.Env]:
    """Return a class of environments that show samples and take actions of these spaces only."""

    class Sampling(gymnasium.Env[Any, Any]):
        observation_space = observation
        action_space = action if action is not None else gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.steps = 0
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action), action
            self.steps += 1
            return self.observation_space.sample(), 0.0, False, self.steps >= length, {}

    return Sampling
