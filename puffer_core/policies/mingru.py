"""MinGRU with highway: one recurrent layer as a step, as a fused pass over whole segments, and in log space.

    [a, g, p] = W x           z = sigmoid(g)      s = sigmoid(p)
    c = a + 1/2 if a >= 0 else sigmoid(a)         which is max(a + 1/2, sigmoid(a))
    h = h_prev + z (c - h_prev)                   y = s h + (1 - s) x

Only h depends on the step before, so the gates of all steps are one matrix product, and the recurrence
h_t = k_t h_{t-1} + b_t, with k = 1 - z (0 at a reset) and b = z c, is one fused multiply-add per step. The backward
pass is written by hand. Sizes: H steps, S segments, D width; everything is time-major. On a CPU, selecting by a bool
mask costs twenty times an addition: hence indices for resets, and 0/1 floats for the two branches of c.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from puffer_core.policies.encoders import uniform


class MinGRULayer(nn.Module):
    """One layer; the state is (rows, D), starts at 0 and never becomes negative."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = uniform(3 * width, width, 1.0 / math.sqrt(width), generator)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return (output, new state) after one step from ``state``; both (rows, D)."""
        gates = torch.mm(x, self.weight.t())
        hidden = gates[:, : x.shape[1]] + 0.5
        left, update, highway = torch.sigmoid(gates).chunk(3, 1)
        state = torch.lerp(state, torch.maximum(hidden, left), update)
        return torch.lerp(x, state, highway), state

    def forward(self, x: Tensor, state: Tensor, resets: Tensor) -> Tensor:
        """Return (H, S, D) outputs of whole segments, differentiable in ``x``, the weight and ``state``.

        Args:
            x: (H, S, D) inputs.
            state: (S, D) state before the first step.
            resets: Flat indices t * S + s of the steps before which the state is zeroed.
        """
        output: Tensor = _Segments.apply(x, self.weight, state, resets)  # type: ignore[no-untyped-call]
        return output


class _Segments(torch.autograd.Function):
    """The fused pass over (H, S, D) and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, state: Tensor, resets: Tensor) -> Tensor:
        horizon, segments, width = x.shape
        rows = x.reshape(horizon * segments, width)
        gates = torch.mm(rows, weight.t())
        candidate = gates[:, :width] + 0.5
        left, update, highway = gates.sigmoid_().chunk(3, 1)
        torch.maximum(candidate, left, out=candidate)
        keep = torch.rsub(update, 1.0).index_fill_(0, resets, 0.0)
        inflow = update * candidate
        states = x.new_empty(horizon + 1, segments, width)
        states[0] = state
        steps = states.unbind(0)
        for t, (b, k) in enumerate(zip(inflow.view_as(x).unbind(0), keep.view_as(x).unbind(0), strict=True)):
            torch.addcmul(b, k, steps[t], out=steps[t + 1])
        ctx.save_for_backward(rows, weight, gates, candidate, keep, inflow, states)
        return torch.lerp(rows, states[1:].view_as(rows), highway).view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        """Gradients of x, weight and state, with D_t = dL/dh_t running backwards through ``keep``."""
        rows, weight, gates, candidate, keep, inflow, states = ctx.saved_tensors
        shape, h = grad.shape, states[1:].view_as(rows)
        grad = grad.reshape(rows.shape)
        _, update, highway = gates.chunk(3, 1)
        d_gates = torch.addcmul(gates, gates, gates, value=-1.0)  # sigmoid' of all three, then times what arrives
        d_left, d_update, d_highway = d_gates.chunk(3, 1)

        d_highway.mul_((h - rows).mul_(grad))
        d_h = grad * highway
        d_x = grad - d_h
        steps, keeps = d_h.view(shape).unbind(0), keep.view(shape).unbind(0)
        for t in range(len(steps) - 2, -1, -1):
            torch.addcmul(steps[t], keeps[t + 1], steps[t + 1], out=steps[t])
        # dL/dg = D (c - k' h_prev) z (1 - z) with k' = 0 at a reset, and b - z h is just that product without D.
        torch.mul(torch.addcmul(inflow, update, h, value=-1.0), d_h, out=d_update)
        linear = torch.ge(candidate, 0.5, out=torch.empty_like(candidate))
        torch.maximum(d_left, linear, out=d_left).mul_(update).mul_(d_h)

        d_state = d_h.view(shape)[0] * keep.view(shape)[0] if ctx.needs_input_grad[2] else None
        return d_x.addmm_(d_gates, weight).view(shape), torch.mm(d_gates.t(), rows), d_state, None


def log_space_segments(x: Tensor, weight: Tensor, state: Tensor, resets: Tensor) -> Tensor:
    """Return what `MinGRULayer.forward` returns, by the parallel form in log space, differentiable by autograd.

    Resets here are (H, S) bool. The scan restarts wherever any segment resets, with log 0 for those that do. Its
    float32 error grows with H (4e-5 at 64, 1e-3 at 1024), so training does not use it.
    """
    softplus = nn.functional.softplus
    hidden, gate, highway = (x @ weight.t()).chunk(3, -1)
    log_keep = -softplus(gate)
    log_candidate = torch.where(hidden >= 0, torch.log(hidden.clamp(min=0) + 0.5), -softplus(-hidden))
    log_inflow = log_candidate - softplus(-gate)
    starts = [0, *(t for t in range(1, len(x)) if bool(resets[t].any())), len(x)]
    log_h, chunks = state.log(), []
    for first, last in pairwise(starts):
        log_h = torch.where(resets[first, :, None], -math.inf, log_h)
        total = log_keep[first:last].cumsum(0)
        terms = torch.cat([log_h[None], log_inflow[first:last] - total])
        chunk = total + torch.logcumsumexp(terms, 0)[1:]
        chunks.append(chunk)
        log_h = chunk[-1]
    return torch.lerp(x, torch.cat(chunks).exp(), torch.sigmoid(highway))
