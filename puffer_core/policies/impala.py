"""The encoder `impala`: a small residual network on a picture, and one linear layer.

A section is a convolution, a max-pool that halves the sides, and two residual blocks of two convolutions; all are 3 x 3
and keep the size. Source: Espeholt et al. 2018, arXiv:1802.01561, figure 3, without its LSTM.
"""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.policies.init import uniform
from puffer_core.policies.options import ImpalaOptions
from puffer_core.policies.pictures import Pixels, convolution, require_picture, require_size

SECTIONS = (16, 32, 32)
"""Channels of each section."""
BLOCKS = 2
"""Residual blocks of one section."""
GAINS = (math.sqrt(0.5), *(1.0, 1.0 / math.sqrt(len(SECTIONS) * BLOCKS)) * BLOCKS)
"""Of the convolutions of a section: the first has no ReLU before it, and the sum over all blocks stays of one size."""


class ImpalaEncoder(nn.Module):
    """Sections with ReLU, flattened with the channels first, to the width of the trunk.

    ``conv`` lists the convolutions in the order in which they are computed, five for each section.

    Raises:
        OptionError: If the observations are not pictures.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        width: int,
        bias: bool,
        generator: torch.Generator,
        options: ImpalaOptions | None = None,
    ) -> None:
        super().__init__()
        options = options or ImpalaOptions()
        require_picture("impala", observation_space)
        self._pixels = Pixels(observation_space, options.channels)
        require_size("impala", self._pixels, 1)
        convolutions, (channels, *sides) = [], self._pixels.shape
        for count in SECTIONS:
            out = max(1, round(count * options.width))
            for gain in GAINS:
                convolutions.append(convolution(channels, out, 3, generator, padding=1, bias=bias, gain=gain))
                channels = out
            sides = [(side + 1) // 2 for side in sides]
        self.conv = nn.ModuleList(convolutions)
        features = channels * math.prod(sides)
        self.weight = uniform(width, features, math.sqrt(2.0 / features), generator)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, *shape) to (n, width)."""
        x = self._pixels(observations, self.weight.dtype)
        for first in range(0, len(self.conv), len(GAINS)):
            x = nn.functional.max_pool2d(self.conv[first](x), 3, 2, 1)
            for k in range(first + 1, first + len(GAINS), 2):
                x = x + self.conv[k + 1](torch.relu(self.conv[k](torch.relu(x))))
        return nn.functional.linear(torch.relu(x).flatten(1), self.weight, self.bias)
