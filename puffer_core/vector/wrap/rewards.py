"""Wrappers of rewards: clipped, scaled, or divided by the spread of returns. What is logged stays raw."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from puffer_core.config.schema import WrapConfig
from puffer_core.env import Array
from puffer_core.vector.base import Vector
from puffer_core.vector.wrap.base import EpisodeWrapper, Wrapper

_PRIOR = (1.0, 0.0, 1.0)
"""Count, mean and variance before the first return."""


class RewardClip(Wrapper):
    """Rewards clipped to plus or minus ``bound``.

    Args:
        vector: The vector inside.
        bound: Largest absolute reward.
    """

    key: ClassVar[str] = "reward_clip"

    def __init__(self, vector: Vector, bound: float) -> None:
        super().__init__(vector, bound)
        self._bound = np.float32(bound)
        self._rewards = np.zeros(vector.agents_per_batch, np.float32)

    def _transform(self) -> None:
        raw = self.vector.rewards
        self.rewards = np.clip(raw, -self._bound, self._bound, out=self._rewards[: len(raw)])


class RewardScale(Wrapper):
    """Rewards times a number.

    Args:
        vector: The vector inside.
        factor: The number.
    """

    key: ClassVar[str] = "reward_scale"

    def __init__(self, vector: Vector, factor: float) -> None:
        super().__init__(vector, factor)
        self._factor = np.float32(factor)
        self._rewards = np.zeros(vector.agents_per_batch, np.float32)

    def _transform(self) -> None:
        raw = self.vector.rewards
        self.rewards = np.multiply(raw, self._factor, out=self._rewards[: len(raw)])


class RewardNormalize(EpisodeWrapper):
    """Rewards divided by the running standard deviation of discounted returns.

    A row's return is what came before times ``gamma`` plus the reward, from the start of its episode on. Mean and
    variance are over all returns of all rows so far, and one of 0 with variance 1 before them, so that the first
    rewards are not blown up. Rewards are not shifted. Steps of absent agents, and numbers that are not finite, count
    for nothing. Both are saved with the environments: where those can't be saved, they begin anew as well, as they do
    at a reset with a seed.

    Args:
        vector: The vector inside.
        gamma: Discount per step.
    """

    key: ClassVar[str] = "reward_normalize"

    def __init__(self, vector: Vector, gamma: float = WrapConfig.reward_gamma) -> None:
        super().__init__(vector, gamma)
        self._gamma = gamma
        self._rewards = np.zeros(vector.agents_per_batch, np.float32)
        self._returns = np.zeros(vector.num_agents)
        self._moments = np.array(_PRIOR)

    @property
    def count(self) -> float:
        """Returns that the variance is over."""
        return float(self._moments[0])

    @property
    def variance(self) -> float:
        """Variance of the returns so far."""
        return float(self._moments[2])

    def _transform(self) -> None:
        raw, rows = self.vector.rewards, self._rows()
        there = self._was_there[rows]
        returns = np.where(there, self._returns[rows] * self._gamma + raw, 0.0)
        is_finite = np.isfinite(returns)
        self._add(returns[there & is_finite])
        self.rewards = np.multiply(raw, self.variance**-0.5, out=self._rewards[: len(raw)], casting="unsafe")
        self._returns[rows] = np.where(is_finite & ~(self.terminals | self.truncations), returns, 0.0)
        self._was_there[rows] = self.masks

    def _add(self, values: Array) -> None:
        """Bring mean and variance up to date with more values (Chan, Golub and LeVeque 1979)."""
        if not len(values):
            return
        count, mean, variance = self._moments
        more, shift = len(values), values.mean() - mean
        total = count + more
        spread = variance * count + values.var() * more + shift**2 * count * more / total
        self._moments[:] = total, mean + shift * more / total, spread / total

    def _async_reset(self, seed: int | None) -> None:
        super()._async_reset(seed)
        self._returns.fill(0.0)
        if seed is not None:  # one seed gives one trajectory, rewards included
            self._moments[:] = _PRIOR

    def _state(self) -> list[Array]:
        return [*super()._state(), self._returns, self._moments]
