"""Metrics and statistics of observations over all ranks."""

from __future__ import annotations

from torch import Tensor

from puffer_core.policies.normalizer import Normalizer
from puffer_core.rl.means import Means
from puffer_core.rl.ranks import Ranks


def count_over(ranks: Ranks, normalizer: Normalizer, observations: Tensor) -> None:
    """Count (n, *shape) observations of each rank; the normaliser is then the same on every one."""
    if ranks.world_size == 1:
        normalizer.update(observations)
        return
    own = Normalizer(tuple(normalizer.mean.shape)).to(normalizer.mean.device)
    own.update(observations)
    normalizer.merge(ranks.gather((int(own.count), own.mean.cpu(), own.var.cpu())))


def over(ranks: Ranks, environment: Means, losses: Means, episodes: float) -> tuple[Means, Means, float]:
    """Return the means and the number of episodes of all ranks together, on every one."""
    sums = (Means(), Means())
    parts = ranks.gather((environment.state(), losses.state(), episodes))
    for *states, _ in parts:
        for total, state in zip(sums, states, strict=True):
            total.add_sums(state)
    return *sums, sum(count for _, _, count in parts)
