"""Which rows a minibatch is made of, and how their advantages are scaled (algorithms page, section 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from puffer_core.rl.ranks import Ranks

EPS = 1e-8
FLOOR = 1e-6
ALONE = Ranks()


def probabilities(advantages: Tensor, alpha: float) -> Tensor:
    """Return (N,) float64 probabilities that sum to 1, from (H, N) advantages: (sum of |A|) ^ alpha plus a floor."""
    priority = advantages.abs().sum(0).double().pow(alpha)
    priority = torch.where(priority.isfinite(), priority, 0.0) + FLOOR
    return priority / priority.sum()


def draw(probability: Tensor, uniforms: Tensor) -> Tensor:
    """Return one row for each uniform number in [0, 1): the first whose cumulated probability exceeds it."""
    cdf = probability.cumsum(0)
    return torch.searchsorted(cdf, uniforms.double() * cdf[-1], right=True).clamp_(max=len(cdf) - 1)


def importance(probability: Tensor, rows: Tensor, beta: float) -> Tensor:
    """Return (S,) float64 weights (N p) ^ -beta of the drawn rows; not divided by their maximum."""
    return (len(probability) * probability[rows]).pow(-beta)


def normalize(advantages: Tensor, live: Tensor | None, ranks: Ranks = ALONE) -> Tensor:
    """Return advantages with mean 0 and standard deviation 1 over live steps; 0 where they hardly differ.

    Per minibatch, not per rollout: rows are drawn by priority, so the rollout's statistics do not describe them. The
    minibatch is that of all ranks together.

    Args:
        advantages: Any shape, 0 on steps that are not live.
        live: The same shape, 1.0 where a step counts; None if all do.
        ranks: Whose advantages these are a part of.
    """
    if ranks.world_size > 1:
        return _normalize_over(advantages, live, ranks)
    if live is None:
        count = advantages.new_tensor(advantages.numel())
        centred = advantages - advantages.mean()
    else:
        count = live.sum()
        centred = (advantages - advantages.sum() / count.clamp(min=1)) * live
    std = (centred.square().sum() / (count - 1).clamp(min=1)).sqrt()
    differ = std > FLOOR * advantages.abs().amax()
    return centred * (differ / (std + EPS))


def _normalize_over(advantages: Tensor, live: Tensor | None, ranks: Ranks) -> Tensor:
    weights = torch.ones_like(advantages) if live is None else live.to(advantages.dtype)
    count, total = ranks.sum_(torch.stack([weights.sum(), (advantages * weights).sum()]).double())
    centred = (advantages - (total / count.clamp(min=1)).to(advantages.dtype)) * weights
    squares, largest = ranks.sum_(centred.double().square().sum()), ranks.max_(advantages.abs().amax())
    std = (squares / (count - 1).clamp(min=1)).sqrt().to(advantages.dtype)
    differ = std > FLOOR * largest
    scaled: Tensor = centred * (differ / (std + EPS))
    return scaled


class Replay:
    """Draws the rows of each minibatch from a generator of its own.

    Args:
        segments: Rows per minibatch: S.
        prio: Draw by priority with replacement; otherwise every row once per pass, shuffled.
        alpha: Exponent of the priority.
        candidates: (C,) int64, the rows that are drawn from; None for all.
    """

    def __init__(
        self,
        segments: int,
        *,
        prio: bool,
        alpha: float,
        generator: torch.Generator,
        candidates: Tensor | None = None,
    ) -> None:
        self._segments = segments
        self._candidates = candidates
        self._prio = prio
        self._alpha = alpha
        self.generator = generator
        self._queue = torch.empty(0, dtype=torch.int64)

    def begin_epoch(self) -> None:
        """Forget what is left of the last pass."""
        self._queue = self._queue[:0]

    def next_rows(self, advantages: Tensor, beta: float) -> tuple[Tensor, Tensor | None]:
        """Return (S,) rows and their (S,) weights, or None where all weigh 1, given (H, N) advantages."""
        if self._candidates is None:
            return self._draw(advantages, beta)
        rows, weights = self._draw(advantages.index_select(1, self._candidates), beta)
        return self._candidates[rows], weights

    def _draw(self, advantages: Tensor, beta: float) -> tuple[Tensor, Tensor | None]:
        if not self._prio:
            while len(self._queue) < self._segments:
                one_pass = torch.randperm(advantages.shape[1], generator=self.generator)
                self._queue = torch.cat([self._queue, one_pass])
            rows, self._queue = self._queue[: self._segments], self._queue[self._segments :]
            return rows.to(advantages.device), None
        probability = probabilities(advantages, self._alpha)
        uniforms = torch.rand(self._segments, generator=self.generator).to(advantages.device)
        rows = draw(probability, uniforms)
        return rows, importance(probability, rows, beta).to(advantages.dtype)
