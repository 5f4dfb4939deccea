"""An encoder: two linear layers, drawn from the generator that every encoder gets."""

from __future__ import annotations

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, observation_space, width, bias, generator, options):
        super().__init__()
        assert isinstance(options.names, tuple)
        sizes = (options.inner, observation_space.shape[0]), (width, options.inner)
        first, second = (torch.empty(size).normal_(generator=generator) for size in sizes)
        self.first, self.second = nn.Parameter(first), nn.Parameter(second)

    def forward(self, observations):
        return observations @ self.first.T @ self.second.T
