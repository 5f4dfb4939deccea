"""MinGRU with highway: one recurrent layer as a step, as a fused pass over whole segments, and in log space.

    [a, g, p] = W x           z = sigmoid(g)      s = sigmoid(p)
    c = a + 1/2 if a >= 0 else sigmoid(a)         which is max(a + 1/2, sigmoid(a))
    h = h_prev + z (c - h_prev)                   y = s h + (1 - s) x

Only h depends on the step before, so the gates of all steps are one matrix product, and the recurrence
h_t = k_t h_{t-1} + z_t c_t, with k = 1 - z (0 at a reset), is one multiply-add per step. The backward pass is written
by hand. Sizes: H steps, S segments, D width; everything is time-major. On a CPU, selecting by a bool mask costs twenty
times an addition: hence indices for resets, and 0/1 floats for the two branches of c.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from puffer_core.policies.init import uniform
from puffer_core.policies.precision import compute_type, linear, multiply
from puffer_core.policies.scan import Recurrence
from puffer_core.policies.workspaces import Workspaces


class MinGRULayer(nn.Module):
    """One layer; the state is (rows, D), starts at 0 and never becomes negative."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = uniform(3 * width, width, 1.0 / math.sqrt(width), generator)
        self._spare = Workspaces(_Workspace)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return (output, new state) after one step from ``state``; both (rows, D)."""
        gates = linear(x, self.weight, None)
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
        output: Tensor = _Segments.apply(x, self.weight, state, resets, self._spare)  # type: ignore[no-untyped-call]
        return output


class _Workspace:
    """Arrays that a forward pass fills and its backward pass uses up."""

    def __init__(self, x: Tensor) -> None:
        horizon, segments, width = x.shape
        rows = horizon * segments
        self.gates, self.d_gates = (x.new_empty(rows, 3 * width) for _ in range(2))
        self.candidate, self.scratch = (x.new_empty(rows, width) for _ in range(2))
        self.states = x.new_empty(horizon + 1, segments, width)
        self.keep, self.d_h = (torch.empty_like(x) for _ in range(2))
        keep = self.keep.unbind(0)
        self.forwards = Recurrence(self.states.unbind(0), keep)
        self.backwards = Recurrence(self.d_h.unbind(0)[::-1], keep[:0:-1])

    def fits(self, x: Tensor) -> bool:
        """Whether it is of the shape, type and device of ``x``."""
        own = self.keep
        return own.shape == x.shape and own.dtype == x.dtype and own.device == x.device


class _Segments(torch.autograd.Function):
    """The fused pass over (H, S, D) and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, state: Tensor, resets: Tensor, spare: Workspaces[_Workspace]
    ) -> Tensor:
        rows, work = x.reshape(-1, x.shape[2]), spare.take(x)
        h, keep, candidate = work.states[1:].view_as(rows), work.keep.view_as(rows), work.candidate
        ctx.half = compute_type(x.device)
        gates = multiply(rows, weight.t(), ctx.half, out=work.gates)
        torch.add(gates[:, : x.shape[2]], 0.5, out=candidate)
        left, update, highway = gates.sigmoid_().chunk(3, 1)
        torch.maximum(candidate, left, out=candidate)
        torch.sub(1.0, update, out=keep)
        keep.index_fill_(0, resets, 0.0)
        torch.mul(update, candidate, out=h)
        work.states[0] = state
        work.forwards.run()
        output = torch.lerp(rows, h, highway)
        ctx.save_for_backward(rows, weight, output)
        ctx.work, ctx.spare = work, spare
        return output.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        """Gradients of x, weight and state. Every operation is a pass over memory, so products are shared.

        With G = dL/dy and D_t = dL/dh_t = G_t s_t + k_{t+1} D_{t+1}: the highway's part of dL/dx is G (1 - s);
        dL/dp = G (1 - s) s (h - x), where s (h - x) is y - x; dL/dg = D z (c - h), since h - c = k (h_prev - c), at a
        reset too; dL/da = D z (1 or c (1 - c)).
        """
        (rows, weight, output), work = ctx.saved_tensors, ctx.work
        ctx.work = None  # a second backward pass has nothing to work on
        shape, grad, scratch = grad.shape, grad.reshape(rows.shape), work.scratch
        h, d_h, candidate = work.states[1:].view_as(rows), work.d_h.view_as(rows), work.candidate
        _, update, highway = work.gates.chunk(3, 1)
        d_hidden, d_update, d_highway = work.d_gates.chunk(3, 1)

        torch.mul(grad, highway, out=d_h)
        d_x = grad - d_h
        torch.mul(torch.sub(output, rows, out=scratch), d_x, out=d_highway)
        work.backwards.run()
        d_state = work.d_h[0] * work.keep[0] if ctx.needs_input_grad[2] else None
        d_h.mul_(update)
        torch.mul(torch.sub(candidate, h, out=scratch), d_h, out=d_update)
        is_linear = torch.ge(candidate, 0.5, out=scratch)
        candidate.addcmul_(candidate, candidate, value=-1.0)
        torch.mul(torch.maximum(candidate, is_linear, out=scratch), d_h, out=d_hidden)

        if ctx.half is None:
            d_x.addmm_(work.d_gates, weight)
        else:
            d_x.add_(multiply(work.d_gates, weight, ctx.half))
        d_weight = multiply(work.d_gates.t(), rows, ctx.half)
        ctx.spare.give_back(work)
        return d_x.view(shape), d_weight, d_state, None, None


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
