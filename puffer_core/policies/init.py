"""How weights start."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


def uniform(rows: int, columns: int, bound: float, generator: torch.Generator) -> nn.Parameter:
    """Return a (rows, columns) parameter drawn from U(-bound, bound)."""
    return nn.Parameter(torch.empty(rows, columns).uniform_(-bound, bound, generator=generator))


def layer_init(layer: Layer, std: float = math.sqrt(2.0), bias: float = 0.0) -> Layer:
    """Return ``layer`` with an orthogonal weight and a constant bias, the usual start of networks for PPO.

    Draws from torch's own generator. A weight of more than two axes is taken as a matrix (outputs, all others).

    Args:
        layer: With a ``weight`` of two axes or more; a ``bias`` may be missing or None.
        std: Its gain: sqrt(2) before a ReLU or tanh, 0.01 for the logits of a policy, 1 for a value.
        bias: Of every output.
    """
    nn.init.orthogonal_(layer.weight, std)  # type: ignore[arg-type]
    if getattr(layer, "bias", None) is not None:
        nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]
    return layer
