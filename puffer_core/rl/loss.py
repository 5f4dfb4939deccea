"""The PPO loss with its gradient in closed form (algorithms page, section 4).

Value and gradient come from one pass over arrays of (A, n) or (n,): autograd would launch three times as many kernels
on arrays too small for any of them to matter. Never below float32. n: steps of a minibatch, A: logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from puffer_core.policies.actions import HALF_LOG_2PI, ActionLayout, full_precision

TERMS = ("policy", "value", "entropy", "old_kl", "kl", "clipfrac", "importance")
"""What `ppo_loss` reports, in this order."""
_SCALES = (-1.0, 0.5, 1.0, -1.0, 1.0, 1.0, 1.0)
"""What the sums behind them are multiplied by."""


@dataclass(frozen=True)
class Coefficients:
    """Clips and weights of the loss."""

    clip: float
    vf_clip: float
    vf: float
    ent: float


@dataclass(frozen=True)
class Targets:
    """What a minibatch is judged by; n steps each.

    Attributes:
        actions: (n,), (n, K) or (n, W) as drawn, not clipped.
        logprobs, values: Of acting time; ``values`` centres the value clip.
        advantages: Normalised and weighted.
        returns: Advantages, neither normalised nor weighted, plus values.
        action_mask: (n, discrete logits), nonzero where an action was legal, or None.
        live: (n,) bool, an agent acted; None if one did everywhere.
        count: Live steps in the whole minibatch, over all its parts and ranks; the means divide by it.
    """

    actions: Tensor
    logprobs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    action_mask: Tensor | None
    live: Tensor | None
    count: float


def ppo_loss(
    logits: Tensor, values: Tensor, logstd: Tensor | None, layout: ActionLayout, targets: Targets, coefs: Coefficients
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (the loss, its `TERMS` in one array, the importance ratio of each step); only the loss is differentiable.

    A step on which nobody acted takes part in nothing, whatever numbers stand there; its ratio is 1.
    """
    loss, terms, ratio = _PPOLoss.apply(logits, values, logstd, layout, targets, coefs)  # type: ignore[no-untyped-call]
    return loss, terms, ratio


class _PPOLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        values: Tensor,
        logstd: Tensor | None,
        layout: ActionLayout,
        targets: Targets,
        coefs: Coefficients,
    ) -> tuple[Tensor, Tensor, Tensor]:
        heads = _heads(logits, logstd, layout, targets)
        live, count = targets.live, targets.count
        log_ratio = _select(live, heads.logprob - targets.logprobs)
        advantage = _select(live, targets.advantages)
        ratio = log_ratio.exp()
        clipped_ratio = ratio.clamp(1.0 - coefs.clip, 1.0 + coefs.clip)
        gain, clipped_gain = advantage * ratio, advantage * clipped_ratio

        sums = ratio.new_empty(len(TERMS), len(ratio))
        policy, value, entropy, old_kl, kl, clipfrac, importance = sums.unbind(0)
        torch.minimum(gain, clipped_gain, out=policy)
        d_values = _value_loss(full_precision(values), targets, coefs.vf_clip, out=value)
        entropy.copy_(_select(live, heads.entropy))
        old_kl.copy_(log_ratio)
        torch.sub(ratio - 1.0, log_ratio, out=kl)
        torch.ne(ratio, clipped_ratio, out=clipfrac)
        importance.copy_(ratio if live is None else ratio * live)
        terms = sums.sum(1) * ratio.new_tensor([scale / count for scale in _SCALES])
        loss = torch.dot(terms, terms.new_tensor([1.0, coefs.vf, -coefs.ent, 0.0, 0.0, 0.0, 0.0]))

        # Where the clipped branch is strictly larger, its ratio is a constant: no gradient.
        d_logprob = gain * (gain <= clipped_gain) * (-1.0 / count)
        d_logits, d_logstd = heads.gradient(d_logprob, coefs.ent / count)
        if layout.deviates_by_state and d_logstd is not None:
            d_logits, d_logstd = torch.cat([d_logits.t(), d_logstd.t()]).t(), None
        ctx.gradients = (d_logits.to(logits.dtype), d_values.mul_(coefs.vf / count), d_logstd)
        ctx.mark_non_differentiable(terms, ratio)
        return loss, terms, ratio

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor, _terms: Tensor, _ratio: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, None, None, None]:
        """Scale what the forward pass has computed."""
        d_logits, d_values, d_logstd = ctx.gradients
        return d_logits * grad, d_values * grad, None if d_logstd is None else d_logstd * grad, None, None, None


def _value_loss(values: Tensor, targets: Targets, clip: float, out: Tensor) -> Tensor:
    """Write the clipped squared error of each step to ``out``, and return half its derivative."""
    error = _select(targets.live, values - targets.returns)
    change = _select(targets.live, values - targets.values)
    # Not V_old + clamp(change) - R: in floating point V_old + (v - V_old) is not v, and 1 % of gradients would vanish.
    moved = error + (change.clamp(-clip, clip) - change)
    square, moved_square = error.square(), moved.square()
    torch.maximum(square, moved_square, out=out)
    return error.mul_(square >= moved_square)


class _Discrete:
    """Log-probability and entropy of one or more discrete heads, and their gradient with respect to the logits."""

    def __init__(self, logits: Tensor, layout: ActionLayout, targets: Targets) -> None:
        self._live = targets.live
        self._actions = targets.actions.reshape(len(logits), -1).t()[:, None]
        self._logp = [torch.log_softmax(head, 0) for head in layout.heads(logits, targets.action_mask)]
        self._p = [logp.exp() for logp in self._logp]
        self._entropies = [-(p * logp).sum(0) for p, logp in zip(self._p, self._logp, strict=True)]
        chosen = [logp.gather(0, a)[0] for logp, a in zip(self._logp, self._actions, strict=True)]
        self.logprob = sum(chosen[1:], start=chosen[0])
        self.entropy = sum(self._entropies[1:], start=self._entropies[0])

    def gradient(self, d_logprob: Tensor, entropy_weight: float) -> tuple[Tensor, None]:
        """Return dL/dz = g (1[j = a] - p) + w p (H + log p), as (n, A); masked logits have p = 0 and get none."""
        grads = []
        for logp, p, entropy, action in zip(self._logp, self._p, self._entropies, self._actions, strict=True):
            grad = logp.add(entropy).mul_(entropy_weight).sub_(d_logprob).mul_(p)
            grads.append(grad.scatter_add_(0, action, d_logprob[None]))
        return _select(self._live, torch.cat(grads) if len(grads) > 1 else grads[0]).t(), None


class _Box:
    """Log-probability and entropy of independent normals, and their gradient for means and log-deviations.

    The entropy of squashed ones has no closed form. It is estimated at the u that was drawn, E[log-stretch] by
    log-stretch(u), whose gradient follows u = m + s e at the e which that u has now: without bias while the policy is
    the one that drew.
    """

    def __init__(self, means: Tensor, logstd: Tensor, layout: ActionLayout, targets: Targets) -> None:
        self._live, self._by_state = targets.live, layout.deviates_by_state
        self._inverse = torch.exp(-logstd)
        self._deviations = (targets.actions - full_precision(means)) * self._inverse
        self.logprob = (-0.5 * self._deviations.square() - HALF_LOG_2PI - logstd).sum(1)
        self.entropy = (logstd + (0.5 + HALF_LOG_2PI)).sum(1).expand(len(means))
        self._pull: Tensor | None = None
        if layout.is_squashed:
            self.entropy = self.entropy + layout.log_stretch(targets.actions)
            self._pull = 2.0 * torch.tanh(targets.actions)

    def gradient(self, d_logprob: Tensor, entropy_weight: float) -> tuple[Tensor, Tensor]:
        """Return dL/dm = g (a - m) / s^2 and dL/dlog s = g ((a - m)^2 / s^2 - 1) - w, summed over live steps.

        Squashed, 2 w tanh(u) comes to dL/dm, and (u - m) times that to dL/dlog s. Deviations of the state have dL/dlog
        s of each step, (n, D).
        """
        deviations = _select(self._live, self._deviations.t()).t()
        inverse = _select(self._live, self._inverse.t()).t() if self._by_state else self._inverse
        weight = d_logprob[:, None]
        d_means = weight * deviations * inverse
        d_logstd = weight * (deviations.square() - 1.0)
        if self._pull is not None:
            pull = entropy_weight * _select(self._live, self._pull.t()).t()
            d_means = d_means + pull
            # The inverse of a dead step may be anything.
            spread = _select(self._live, self._inverse.reciprocal().expand_as(pull).t()).t()
            d_logstd = d_logstd + pull * deviations * spread
        if self._by_state:
            return d_means, _select(self._live, (d_logstd - entropy_weight).t()).t()
        live = len(deviations) if self._live is None else self._live.sum(dtype=d_logstd.dtype)
        return d_means, d_logstd.sum(0, keepdim=True) - entropy_weight * live


class _Mixed:
    """Discrete heads and independent normals: log-probabilities, entropies and gradients of both."""

    def __init__(self, logits: Tensor, logstd: Tensor, layout: ActionLayout, targets: Targets) -> None:
        choices, numbers = layout.split(targets.actions)
        self._discrete = _Discrete(logits, layout, replace(targets, actions=choices))
        self._box = _Box(layout.means(logits), logstd, layout, replace(targets, actions=numbers))
        self.logprob = self._discrete.logprob + self._box.logprob
        self.entropy = self._discrete.entropy + self._box.entropy

    def gradient(self, d_logprob: Tensor, entropy_weight: float) -> tuple[Tensor, Tensor]:
        """Return dL/dz and dL/dm side by side, (n, A), and dL/dlog s."""
        d_choices, _ = self._discrete.gradient(d_logprob, entropy_weight)
        d_means, d_logstd = self._box.gradient(d_logprob, entropy_weight)
        return torch.cat([d_choices.t(), d_means.t()]).t(), d_logstd


def _heads(logits: Tensor, logstd: Tensor | None, layout: ActionLayout, targets: Targets) -> _Discrete | _Box | _Mixed:
    logstd = layout.log_deviations(logits, logstd)
    if logstd is None:
        return _Discrete(logits, layout, targets)
    if layout.continuous:
        return _Mixed(logits, logstd, layout, targets)
    return _Box(layout.means(logits), logstd, layout, targets)


def _select(live: Tensor | None, array: Tensor) -> Tensor:
    """Return ``array`` with 0 where nobody acted; the last axis runs over steps."""
    return array if live is None else torch.where(live, array, 0.0)
