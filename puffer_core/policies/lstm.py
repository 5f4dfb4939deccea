"""LSTM: one recurrent layer as a step and as a fused pass over whole segments.

    [i, f, g, o] = W [x, h_prev] + b       i, f, o through sigmoid, g through tanh
    c = f c_prev + i g                     h = o tanh(c)

Both forms use the same weights, in one matrix for x and h side by side, so that a step has one matrix product. Training
takes the steps of a segment one by one, since each needs the h of the one before; what does not depend on time, the
factors of the gradient and the products for the weights, is done for all steps at once, by hand. On a CPU sigmoid is
six times faster than tanh, hence tanh(x) = 2 sigmoid(2x) - 1. Sizes: H steps, S segments, D width; everything is
time-major.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from puffer_core.policies.init import uniform
from puffer_core.policies.precision import compute_type, linear, multiply
from puffer_core.policies.workspaces import Workspaces


class LSTMLayer(nn.Module):
    """One layer; the state is (rows, 2D), h then c, and starts at 0.

    Weights are torch's own, joined: ``weight`` (4D, 2D) is its ``weight_ih`` and ``weight_hh`` side by side, ``bias``
    (4D,) the sum of its two. They start as torch's do, U(-1/sqrt(D), 1/sqrt(D)), but for the bias, which is 0 as every
    other bias is.
    """

    def __init__(self, width: int, bias: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = uniform(4 * width, 2 * width, 1.0 / math.sqrt(width), generator)
        self.bias = nn.Parameter(torch.zeros(4 * width)) if bias else None
        self._spare = Workspaces(_Workspace)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return (output (rows, D), new state) after one step of (rows, D) from ``state``, (rows, 2D)."""
        width = x.shape[1]
        h, c = state.tensor_split((width,), 1)
        gates = _sigmoids(linear(torch.cat([x, h], 1), self.weight, self.bias), width)
        i, f, g, o = gates.chunk(4, 1)
        c = torch.addcmul(f * c - i, i, g, value=2.0)
        h = torch.addcmul(-o, o, torch.sigmoid(2.0 * c), value=2.0)
        return h, torch.cat([h, c], 1)

    def forward(self, x: Tensor, state: Tensor, resets: Tensor) -> Tensor:
        """Return (H, S, D) outputs of whole segments, differentiable in ``x``, the weights and ``state``.

        Args:
            x: (H, S, D) inputs.
            state: (S, 2D) state before the first step.
            resets: Flat indices t * S + s of the steps before which the state is zeroed.
        """
        args = (x, self.weight, self.bias, state, resets, self._spare)
        output: Tensor = _Segments.apply(*args)  # type: ignore[no-untyped-call]
        return output


def _sigmoids(gates: Tensor, width: int) -> Tensor:
    """Replace the gates of (rows, 4D) by their sigmoids, g by that of 2g."""
    gates[:, 2 * width : 3 * width] *= 2.0
    return gates.sigmoid_()


class _Workspace:
    """Arrays that a forward pass fills and its backward pass uses up.

    Attributes:
        inputs: (H, S, 2D), x and the h before each step, zeroed at resets.
        gates: (H, S, 4D), of i, f, g, o.
        d_gates: (H, S, 4D), what their gradients are made of, then the gradients.
        before: (H, S, D), the c before each step, zeroed at resets.
        curve: (H, S, D), tanh(c).
    """

    def __init__(self, x: Tensor) -> None:
        horizon, segments, width = x.shape
        self.inputs = x.new_empty(horizon, segments, 2 * width)
        self.gates, self.d_gates = (x.new_empty(horizon, segments, 4 * width) for _ in range(2))
        self.before, self.curve = (torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(2))

    def fits(self, x: Tensor) -> bool:
        """Whether it is of the shape, type and device of ``x``."""
        own = self.before
        return own.shape == x.shape and own.dtype == x.dtype and own.device == x.device


class _Segments(torch.autograd.Function):
    """The pass over (H, S, D) and its gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        state: Tensor,
        resets: Tensor,
        spare: Workspaces[_Workspace],
    ) -> Tensor:
        (horizon, segments, width), work = x.shape, spare.take(x)
        starts = _by_step(resets, horizon, segments)
        work.inputs[:, :, :width] = x
        output, h, c = torch.empty_like(work.before), *state.tensor_split((width,), 1)
        ctx.half, scaled = compute_type(x.device), weight.t()
        for t in range(horizon):
            inputs, before, gates, curve = work.inputs[t], work.before[t], work.gates[t], work.curve[t]
            inputs[:, width:], before[:] = h, c
            if len(starts[t]):
                inputs[:, width:].index_fill_(0, starts[t], 0.0)
                before.index_fill_(0, starts[t], 0.0)
            if bias is None or ctx.half is not None:
                multiply(inputs, scaled, ctx.half, out=gates)
            else:
                torch.addmm(bias, inputs, scaled, out=gates)
            if bias is not None and ctx.half is not None:
                gates.add_(bias)
            i, f, g, o = _sigmoids(gates, width).chunk(4, 1)
            g.mul_(2.0).sub_(1.0)
            c = torch.addcmul(torch.mul(f, before, out=output[t]), i, g)
            torch.mul(c, 2.0, out=curve).sigmoid_().mul_(2.0).sub_(1.0)
            h = torch.mul(o, curve, out=output[t])
        ctx.save_for_backward(weight)
        ctx.work, ctx.spare, ctx.starts = work, spare, starts
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, None, None]:
        """Gradients of x, weight, bias and state.

        With E = dL/dh_t = G_t + what the next step passes back, and C = dL/dc_t = E o (1 - tanh(c)^2) + f' C' of the
        next step: dL/do = E tanh(c), dL/di = C g, dL/df = C c_prev, dL/dg = C i, each times the derivative of its gate.
        """
        (weight,), work = ctx.saved_tensors, ctx.work
        ctx.work = None  # a second backward pass has nothing to work on
        horizon, segments, width = grad.shape
        slope = _factors(work)
        parts = work.d_gates.view(horizon, segments, 4, width)
        d_x = torch.empty_like(work.before)
        d_h, d_c = (torch.zeros_like(d_x[0]) for _ in range(2))
        for t in reversed(range(horizon)):
            d_h = d_h + grad[t]
            d_c.addcmul_(d_h, slope[t])
            parts[t, :, 3].mul_(d_h)
            parts[t, :, :3].mul_(d_c[:, None])
            d_inputs = multiply(work.d_gates[t], weight, ctx.half)
            d_x[t], d_h = d_inputs[:, :width], d_inputs[:, width:]
            d_c.mul_(work.gates[t, :, width : 2 * width])
            if len(ctx.starts[t]):
                d_h.index_fill_(0, ctx.starts[t], 0.0)
                d_c.index_fill_(0, ctx.starts[t], 0.0)
        rows = work.d_gates.flatten(0, 1)
        d_weight = multiply(rows.t(), work.inputs.flatten(0, 1), ctx.half)
        d_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        d_state = torch.cat([d_h, d_c], 1) if ctx.needs_input_grad[3] else None
        ctx.spare.give_back(work)
        return d_x, d_weight, d_bias, d_state, None, None


def _factors(work: _Workspace) -> Tensor:
    """Fill ``d_gates`` with all factors of the gates' gradients but E and C; return o (1 - tanh(c)^2), (H, S, D)."""
    i, f, g, o = work.gates.chunk(4, 2)
    d_i, d_f, d_g, d_o = work.d_gates.chunk(4, 2)
    torch.addcmul(i, i, i, value=-1.0, out=d_i).mul_(g)
    torch.addcmul(f, f, f, value=-1.0, out=d_f).mul_(work.before)
    torch.mul(g, g, out=d_g).neg_().add_(1.0).mul_(i)
    torch.addcmul(o, o, o, value=-1.0, out=d_o).mul_(work.curve)
    return work.curve.square_().neg_().add_(1.0).mul_(o)


def _by_step(resets: Tensor, horizon: int, segments: int) -> tuple[Tensor, ...]:
    """Return the segments that begin anew at each step, from flat indices in rising order."""
    edges = torch.arange(1, horizon, device=resets.device) * segments
    cuts = torch.searchsorted(resets, edges).cpu()
    return torch.tensor_split(resets % segments, cuts)
