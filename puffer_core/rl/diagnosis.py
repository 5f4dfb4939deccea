"""What a trainer says of its learning: how well values explain returns, and what has become infinite, and where."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from puffer_core.errors import NonFiniteError
from puffer_core.rl.loss import TERMS

if TYPE_CHECKING:
    from puffer_core.rl.trainer import PuffeRL


def non_finite(trainer: PuffeRL, rows: Tensor, losses: Tensor, ratio: Tensor) -> NonFiniteError:
    """Say which loss or gradient is not finite, and of which environments where one can tell.

    Args:
        trainer: As it was when the minibatch was done.
        rows: (S,) of the minibatch.
        losses: `TERMS` and the total.
        ratio: (H, N) importance ratios.
    """
    bad = [name for name, loss in zip(TERMS, losses.tolist(), strict=False) if not math.isfinite(loss)]
    tensor = f"the {bad[0]} loss" if bad else f"the gradient of `{trainer.optimizer.first_non_finite()}`"
    place = f"at step {trainer.global_step:,}, epoch {trainer.epoch}, gradient step {trainer.gradient_steps}"
    written = torch.stack([ratio[:, rows], trainer.rollout.values[:-1, rows]])
    found = rows[~written.isfinite().all(0).all(0)]
    message = f"{tensor} is not finite {place}"
    if len(found):
        instance, agent = divmod(int(found[0]), trainer.vector.agents_per_env)
        message += f": environment {instance}, agent {agent}"
    return NonFiniteError(message, hint="no weight was changed by it; a lower --train.learning-rate may help")


def explained_variance(advantage: Tensor, values: Tensor, live: Tensor | None) -> float:
    """Return 1 - var(A) / var(A + V) over live steps; NaN where the returns do not vary."""
    returns = advantage + values
    if live is not None:
        advantage, returns = advantage[live.bool()], returns[live.bool()]
    if returns.numel() < 2:
        return math.nan
    spread = float(returns.var())
    return 1.0 - float(advantage.var()) / spread if spread > 0 else math.nan
