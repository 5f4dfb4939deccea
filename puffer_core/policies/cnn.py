"""The encoder `cnn`: three convolutions on a picture, and one linear layer."""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.policies.choice import SMALLEST_PICTURE
from puffer_core.policies.init import uniform
from puffer_core.policies.options import CNNOptions
from puffer_core.policies.pictures import Pixels, convolution, require_picture, require_size

LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, side and stride of each convolution. Source: Mnih et al. 2015, Methods."""


class CNNEncoder(nn.Module):
    """Convolutions with ReLU, flattened with the channels first, to the width of the trunk.

    Raises:
        OptionError: If the observations are not pictures, or too small.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        width: int,
        bias: bool,
        generator: torch.Generator,
        options: CNNOptions | None = None,
    ) -> None:
        super().__init__()
        options = options or CNNOptions()
        require_picture("cnn", observation_space)
        self._pixels = Pixels(observation_space, options.channels)
        require_size("cnn", self._pixels, SMALLEST_PICTURE)
        convolutions, (channels, *sides) = [], self._pixels.shape
        for count, size, stride in LAYERS:
            out = max(1, round(count * options.width))
            convolutions.append(convolution(channels, out, size, generator, stride=stride, bias=bias))
            channels, sides = out, [(side - size) // stride + 1 for side in sides]
        self.conv = nn.ModuleList(convolutions)
        features = channels * math.prod(sides)
        self.weight = uniform(width, features, math.sqrt(2.0 / features), generator)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, *shape) to (n, width)."""
        x = self._pixels(observations, self.weight.dtype)
        for layer in self.conv:
            x = torch.relu(layer(x))
        return nn.functional.linear(x.flatten(1), self.weight, self.bias)
