"""The `multi-input` encoder: observations of Dict and Tuple spaces, each leaf read as what it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.emulation.spaces import FlatBox, Leaf
from puffer_core.policies.encoders import MLPEncoder
from puffer_core.policies.init import uniform
from puffer_core.policies.nativize import Nativizer
from puffer_core.policies.pictures import Pixels, convolution, largest

MOST_ONE_HOT = 1024
"""Choices of one leaf that are spelt out as zeros and a one; for more there is a table of learned vectors."""
TABLE_WIDTH = 32
"""Length of its vectors."""
SMALL_IMAGE = 8
"""Convolutions halve an image until its longer side is no longer than this."""


def make_encoder(observation_space: spaces.Box, width: int, bias: bool, generator: torch.Generator) -> nn.Module:
    """Return an encoder of emulated observations, or for a plain Box the one called `mlp`."""
    kind = MultiInputEncoder if isinstance(observation_space, FlatBox) else MLPEncoder
    return kind(observation_space, width, bias, generator)  # type: ignore[arg-type]


class MultiInputEncoder(nn.Module):
    """The features of every leaf side by side, and one linear layer on all of them.

    Numbers are taken as they are, those of 8 bits divided by their largest bound; a Discrete or MultiDiscrete becomes
    ones among zeros, counted from its start, or one of many choices the vector of a table; a picture, bytes or floats
    of three axes, goes through small convolutions.
    """

    def __init__(self, observation_space: FlatBox, width: int, bias: bool, generator: torch.Generator) -> None:
        super().__init__()
        self._nativize = Nativizer(observation_space)
        self.inputs = nn.ModuleList(_input_of(leaf, generator) for leaf in observation_space.tree.leaves())
        # Of a group of zeros and a one, one number is at work: a bound for all of them would leave it too faint.
        size, active = (sum(getattr(part, name) for part in self.inputs) for name in ("size", "active"))
        self.weight = uniform(width, size, math.sqrt(2.0 / active), generator)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, row size), in the dtype of the space, to (n, width)."""
        leaves = self._nativize.leaves(observations)
        features = [part(leaf).to(self.weight.dtype) for part, leaf in zip(self.inputs, leaves, strict=True)]
        return nn.functional.linear(torch.cat(features, 1), self.weight, self.bias)


class Numbers(nn.Module):
    """A leaf of numbers, flattened and divided by a constant."""

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.size = self.active = math.prod(leaf.shape)
        self._scale = largest(leaf.space) if leaf.dtype.kind in "iu" and leaf.dtype.itemsize == 1 else 1.0

    def forward(self, leaf: Tensor) -> Tensor:
        """Return (n, size) float32."""
        x = leaf.reshape(len(leaf), -1).float()
        return x if self._scale == 1.0 else x / self._scale


class OneHot(nn.Module):
    """A Discrete or MultiDiscrete leaf: for each element, a one among zeros; all zeros if it is out of range."""

    _choices: Tensor
    _element: Tensor

    def __init__(self, low: list[int], sizes: list[int]) -> None:
        super().__init__()
        self.size, self.active = sum(sizes), len(sizes)
        choices = [start + i for start, size in zip(low, sizes, strict=True) for i in range(size)]
        element = [k for k, size in enumerate(sizes) for _ in range(size)]
        self.register_buffer("_choices", torch.tensor(choices, dtype=torch.int32), persistent=False)
        self.register_buffer("_element", torch.tensor(element), persistent=False)

    def forward(self, leaf: Tensor) -> Tensor:
        """Return (n, size) bool."""
        return leaf.reshape(len(leaf), -1).index_select(1, self._element).eq(self._choices)


class Table(nn.Module):
    """A Discrete or MultiDiscrete leaf of many choices: the sum of a learned vector for each element."""

    size = active = TABLE_WIDTH
    _shift: Tensor

    def __init__(self, low: list[int], sizes: list[int], generator: torch.Generator) -> None:
        super().__init__()
        shift = np.cumsum([0, *sizes[:-1]]) - np.array(low)
        self.register_buffer("_shift", torch.from_numpy(shift), persistent=False)
        # Their sum has a variance of 1 in each of its numbers.
        self.weight = uniform(sum(sizes), TABLE_WIDTH, math.sqrt(3.0 / len(sizes)), generator)

    def forward(self, leaf: Tensor) -> Tensor:
        """Return (n, size)."""
        rows = (leaf.reshape(len(leaf), -1) + self._shift).clamp(0, len(self.weight) - 1)
        return nn.functional.embedding_bag(rows, self.weight, mode="sum")


class Image(nn.Module):
    """A picture, scaled as `Pixels` says: 3x3 convolutions, each halving it, with ReLU."""

    def __init__(self, space: Any, generator: torch.Generator) -> None:
        super().__init__()
        self._pixels = Pixels(space)
        channels, *sides = self._pixels.shape
        convolutions: list[nn.Conv2d] = []
        while not convolutions or max(sides) > SMALL_IMAGE:
            stride = 2 if max(sides) > SMALL_IMAGE else 1
            out = min(64, 16 * 2 ** len(convolutions))
            convolutions.append(convolution(channels, out, 3, generator, stride=stride, padding=1))
            channels, sides = out, [-(-side // stride) for side in sides]
        self.conv = nn.ModuleList(convolutions)
        self.size = self.active = channels * math.prod(sides)

    def forward(self, leaf: Tensor) -> Tensor:
        """Return (n, size)."""
        x: Tensor = self._pixels(leaf, self.conv[0].weight.dtype)
        for layer in self.conv:
            x = torch.relu(layer(x))
        return x.flatten(1)


def _input_of(leaf: Leaf, generator: torch.Generator) -> Any:
    space: Any = leaf.space
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec.reshape(-1)
        low, sizes = np.reshape(space.start, -1).tolist(), [int(size) for size in sizes]
        return OneHot(low, sizes) if sum(sizes) <= MOST_ONE_HOT else Table(low, sizes, generator)
    is_image = len(leaf.shape) == 3 and (leaf.dtype == np.uint8 or leaf.dtype.kind == "f") and min(leaf.shape) > 0
    return Image(space, generator) if is_image else Numbers(leaf)
