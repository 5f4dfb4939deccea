"""Pictures: which axis is which, how their numbers are scaled, and how convolutions on them start.

Convolutions work on channels-last memory: on a CPU training takes two thirds of the time then, and a picture whose
channels come last is in that order already.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import OptionError
from puffer_core.policies.choice import is_channels_last


class Pixels(nn.Module):
    """Takes pictures as they are stored to (n, C, height, width), bytes divided by their largest bound.

    Args:
        space: Of one picture: a Box of two or three axes; two have one channel.
        channels: ``first``, ``last``, or ``auto``: the shorter of both axes, the last if they are equal.

    Attributes:
        shape: (C, height, width).
    """

    def __init__(self, space: spaces.Box, channels: str = "auto") -> None:
        super().__init__()
        shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
        is_last = channels == "last" or (channels == "auto" and is_channels_last(shape))
        self._is_last = is_last or len(space.shape) == 2
        self.shape = (shape[2], shape[0], shape[1]) if self._is_last else shape
        is_bytes = space.dtype is not None and space.dtype.kind in "iu" and space.dtype.itemsize == 1
        self._scale = largest(space) if is_bytes else 1.0

    def forward(self, pictures: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return (n, *shape) as (n, C, height, width) of ``dtype``, channels-last in memory."""
        x = pictures.unsqueeze(-1) if pictures.ndim == 3 else pictures
        x = (x.permute(0, 3, 1, 2) if self._is_last else x).to(dtype, memory_format=torch.channels_last)
        return x if self._scale == 1.0 else x / self._scale


def require_picture(name: str, space: spaces.Box) -> None:
    """Check that the encoder ``name`` can read these observations as pictures.

    Raises:
        OptionError: If they are nested, or not of two or three axes.
    """
    if isinstance(space, FlatBox):
        msg = f"policy.name={name} reads one picture, and these observations are {space.original}"
        raise OptionError(msg, hint="use `--policy.name multi-input`: it reads pictures inside nested observations")
    if len(space.shape) not in (2, 3):
        msg = f"policy.name={name} reads pictures of two or three axes, these observations have shape {space.shape}"
        raise OptionError(msg, hint="use `--policy.name mlp`, or give them the shape (height, width, channels)")


def require_size(name: str, pixels: Pixels, smallest: int) -> None:
    """Check that no side of the pictures is shorter than ``smallest``.

    Raises:
        OptionError: With the sides there are, and what to do.
    """
    channels, height, width = pixels.shape
    if min(height, width) < smallest or channels < 1:
        msg = f"policy.name={name} needs pictures of at least {smallest} x {smallest}, these are {height} x {width}"
        hint = (
            f"use `--policy.name impala` for small ones; if the axes are mistaken, `--{name}.channels first` or `last`"
        )
        raise OptionError(f"{msg} with {channels} channels", hint=hint)


def largest(space: Any) -> float:
    """Return the largest magnitude that a bounded space of whole numbers may hold, at least 1."""
    if isinstance(space, spaces.MultiBinary):
        return 1.0
    return float(np.abs([space.low, space.high], dtype=np.int64).max(initial=1))


def convolution(
    channels: int,
    out: int,
    size: int,
    generator: torch.Generator,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: bool = True,
    gain: float = 1.0,
) -> nn.Conv2d:
    """Return a square convolution that keeps the variance through ReLU, times ``gain``; its bias starts at 0."""
    make = nn.utils.skip_init  # leaves the generator of torch alone
    layer: nn.Conv2d = make(nn.Conv2d, channels, out, size, stride, padding, bias=bias)  # type: ignore[no-untyped-call]
    bound = gain * math.sqrt(6.0 / (size * size * channels))
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.zero_()
    return layer
