"""An encoder: one linear layer, drawn from the generator that every encoder gets."""

from __future__ import annotations

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, observation_space, width, bias, generator):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, observation_space.shape[0]).normal_(generator=generator))

    def forward(self, observations):
        return observations @ self.weight.T
