"""Advantages by V-trace-corrected GAE over rollouts of H + 1 columns (rollout page, section 3).

Everything is time-major: row t of an (H + 1, N) array arrived with observation t and was caused by action t - 1. What
does not depend on values or ratios is folded once per rollout; the recursion then runs once per minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from puffer_core.errors import ShapeError
from puffer_core.policies.scan import Recurrence


@dataclass(frozen=True)
class Folded:
    """What the recursion reads besides values and ratios, (H, N) float32 each; row t belongs to action t.

    Attributes:
        rewards: Reward of the action, plus gamma V(final observation) where it was truncated; 0 where nobody acted.
        discounts: gamma, or 0 where the action ended an episode.
        traces: gamma lambda, or 0 where the action ended an episode or nobody acted.
        live: 1 where an agent acted, 0 elsewhere; None if there was one everywhere.
    """

    rewards: Tensor
    discounts: Tensor
    traces: Tensor
    live: Tensor | None


def fold(
    rewards: Tensor,
    terminals: Tensor,
    truncations: Tensor,
    final_values: Tensor,
    alive: Tensor,
    gamma: float,
    gae_lambda: float,
) -> Folded:
    """Fold ends, truncations and deaths into the rewards; selects, so that NaN in an unread cell stays unread.

    Args:
        rewards: (H + 1, N); row 0, as that of both flags, is not read.
        terminals: (H + 1, N) bool.
        truncations: (H + 1, N) bool.
        final_values: (H + 1, N), V of the last observation of each truncated episode, read only there.
        alive: (H + 1, N) bool, an agent is there at observation t.
        gamma: Discount per step.
        gae_lambda: Bias-variance mix.
    """
    acted = alive[:-1]
    cut = truncations[1:] & ~terminals[1:]
    ended = terminals[1:] | truncations[1:] | ~alive[1:]
    # A terminal wins over a truncation that breaks the contract by coming with it.
    folded = torch.where(cut, torch.add(rewards[1:], final_values[1:], alpha=gamma), rewards[1:])
    going_on = (~ended).to(rewards.dtype)
    live = None if bool(acted.all()) else acted.to(rewards.dtype)
    return Folded(
        rewards=torch.where(acted, folded, 0.0),
        discounts=gamma * going_on,
        traces=gamma * gae_lambda * (going_on if live is None else going_on * live),
        live=live,
    )


class Estimator:
    """The recursion from the last column to the first, over arrays that are kept from one minibatch to the next.

    Args:
        horizon: Actions per row: H.
        rows: N.
        like: Any array of the device and type to compute in.
    """

    def __init__(self, horizon: int, rows: int, like: Tensor) -> None:
        self._advantages, self._traces = (like.new_empty(horizon, rows) for _ in range(2))
        self._recurrence = Recurrence(self._advantages.unbind(0)[::-1], self._traces.unbind(0)[-2::-1])

    def estimate(self, folded: Folded, values: Tensor, ratio: Tensor, rho_clip: float, c_clip: float) -> Tensor:
        """Return (H, N) advantages, valid until the next call.

        Args:
            folded: From `fold`.
            values: (H + 1, N); the last row is the bootstrap. Rows of absent agents must be finite.
            ratio: (H, N) importance ratios.
            rho_clip: Upper bound of the ratio on the temporal difference.
            c_clip: Upper bound of the ratio on the trace.
        """
        torch.addcmul(folded.rewards, folded.discounts, values[1:], out=self._advantages)
        self._advantages.sub_(values[:-1]).mul_(ratio.clamp(max=rho_clip))
        if folded.live is not None:
            self._advantages.mul_(folded.live)
        torch.mul(folded.traces, ratio.clamp(max=c_clip), out=self._traces)
        self._recurrence.run()
        return self._advantages


def compute_advantages(
    values: Tensor,
    rewards: Tensor,
    terminals: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    truncations: Tensor | None = None,
    final_values: Tensor | None = None,
    alive: Tensor | None = None,
    ratio: Tensor | None = None,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """Return (H, N) advantages of a rollout in one call; add ``values[:-1]`` for the critic's target.

    Args:
        values: (H + 1, N) float; the last row is the bootstrap.
        rewards: (H + 1, N) float; row t arrived with observation t, row 0 is not read.
        terminals: (H + 1, N) bool, aligned with rewards.
        gamma: Discount per step.
        gae_lambda: Bias-variance mix.
        truncations: (H + 1, N) bool; by default none.
        final_values: (H + 1, N), V of the last observation of each truncated episode.
        alive: (H + 1, N) bool, an agent is there; by default everywhere.
        ratio: (H, N) importance ratios; by default 1, which gives plain GAE.
        rho_clip: Upper bound of the ratio on the temporal difference.
        c_clip: Upper bound of the ratio on the trace.

    Raises:
        ShapeError: If the arrays disagree in shape or have fewer than two rows.
    """
    nothing = torch.zeros_like(terminals, dtype=torch.bool)
    truncations = nothing if truncations is None else truncations.bool()
    alive = ~nothing if alive is None else alive.bool()
    final_values = torch.zeros_like(values) if final_values is None else final_values
    ratio = torch.ones_like(values[1:]) if ratio is None else ratio
    _check_shapes(values, rewards, terminals, truncations, final_values, alive, ratio)
    folded = fold(rewards, terminals.bool(), truncations, final_values, alive, gamma, gae_lambda)
    is_read = alive.clone()
    is_read[-1] = folded.discounts[-1] != 0
    ratio = torch.where(alive[:-1], ratio, 1.0)
    estimator = Estimator(len(ratio), ratio.shape[1], values)
    return estimator.estimate(folded, torch.where(is_read, values, 0.0), ratio, rho_clip, c_clip)


def _check_shapes(values: Tensor, rewards: Tensor, *others: Tensor) -> None:
    *columns, ratio = (rewards, *others)
    shapes = {tuple(array.shape) for array in (values, *columns)}
    if len(shapes) != 1 or values.ndim != 2 or len(values) < 2 or ratio.shape != values[1:].shape:
        found = ", ".join(str(tuple(array.shape)) for array in (values, *columns, ratio))
        raise ShapeError(f"advantages need (H + 1, N) arrays with H >= 1 and an (H, N) ratio, got {found}")
