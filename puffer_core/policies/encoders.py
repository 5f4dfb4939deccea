"""Encoders: observation rows to vectors of the trunk's width."""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.policies.init import uniform


class MLPEncoder(nn.Module):
    """One linear layer on the flattened observation; integers are taken as they are, without scaling.

    The activation, where the core wants one, follows outside. Every encoder is built with these arguments.

    Attributes:
        splits_alike: Outputs and gradients have the same bits on any power of two of threads.
    """

    splits_alike = True

    def __init__(self, observation_space: spaces.Box, width: int, bias: bool, generator: torch.Generator) -> None:
        super().__init__()
        size = math.prod(observation_space.shape)
        self.weight = uniform(width, size, math.sqrt(2.0 / size), generator)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, *shape) of any number type to (n, width)."""
        return nn.functional.linear(observations.flatten(1).to(self.weight.dtype), self.weight, self.bias)
