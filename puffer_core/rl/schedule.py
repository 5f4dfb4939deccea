"""Schedules: pure functions of the epoch, so a resumed run follows the same curve (algorithms page, 1.5).

They span ``schedule_timesteps`` of the run, which is all of it unless somebody says otherwise; after that, everything
stays at its last value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from puffer_core.config.plan import Plan
from puffer_core.config.schema import TrainConfig


@dataclass(frozen=True)
class Rates:
    """What is scheduled, at one epoch."""

    learning_rate: float
    ent_coef: float
    prio_beta: float


def cosine(base: float, minimum: float, epoch: int, total: int) -> float:
    """Return a half cosine from ``base`` at epoch 0 down to ``minimum`` at ``total``; ``base`` where total <= 0."""
    if total <= 0:
        return base
    progress = min(max(epoch / total, 0.0), 1.0)
    return minimum + 0.5 * (base - minimum) * (1.0 + math.cos(math.pi * progress))


def prio_beta(beta0: float, alpha: float, epoch: int, total: int) -> float:
    """Return the exponent of the importance weights; with the published factor alpha it stays below 1 for alpha < 1."""
    return beta0 + (1.0 - beta0) * alpha * min(epoch, total) / total if total > 0 else beta0


def rates_at(config: TrainConfig, epoch: int, total: int) -> Rates:
    """Return learning rate, entropy coefficient and priority exponent of the 0-based ``epoch`` of ``total``."""
    learning_rate, ent_coef = config.learning_rate, config.ent_coef
    if config.anneal_lr:
        learning_rate = cosine(learning_rate, config.min_lr_ratio * learning_rate, epoch, total)
    if config.anneal_ent_coef:
        ent_coef = cosine(ent_coef, config.min_ent_coef_ratio * ent_coef, epoch, total)
    return Rates(learning_rate, ent_coef, prio_beta(config.prio_beta0, config.prio_alpha, epoch, total))


def schedule_epochs(config: TrainConfig, plan: Plan) -> int:
    """Return the epochs that the schedules span."""
    if not config.schedule_timesteps:
        return plan.epochs
    return max(1, config.schedule_timesteps * plan.epochs // plan.steps)
