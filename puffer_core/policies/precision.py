"""Matrix products of the hand-written passes in the type that `torch.autocast` asks for; everything else is float32.

Autocast itself does not reach a product that writes to a given array, nor the backward passes written by hand.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def compute_type(device: torch.device) -> torch.dtype | None:
    """Return the type that factors of products are rounded to inside `torch.autocast`, None outside."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def multiply(a: Tensor, b: Tensor, half: torch.dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Return the product of two float32 matrices in float32, factors and product rounded to ``half`` if it is given.

    Without ``half`` nothing is rounded, inside `torch.autocast` either: that leaves alone what has an ``out``.
    """
    if half is None:
        if out is None and compute_type(a.device) is not None:
            out = a.new_empty(len(a), b.shape[1])
        return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
    product = torch.mm(a.to(half), b.to(half))
    return product.to(a.dtype) if out is None else out.copy_(product)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W x + b for each row in float32, as `multiply` computes it where `torch.autocast` is on."""
    half = compute_type(x.device)
    if half is None:
        return nn.functional.linear(x, weight, bias)
    product = multiply(x, weight.t(), half)
    return product if bias is None else product + bias
