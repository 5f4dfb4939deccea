"""Which encoder reads an observation, where the configuration leaves it open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gymnasium import spaces

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import OptionError

SMALLEST_PICTURE = 36
"""Shortest side of a picture of which the convolutions of `cnn` leave something."""


def choose_encoder(config: PolicyConfig, space: spaces.Space[object]) -> PolicyConfig:
    """Return ``config`` with the name of an encoder in place of ``auto``.

    It is ``cnn`` for a picture of bytes that is large enough for it, ``mlp`` for any other Box and for nested
    observations of floats of one kind, ``multi-input`` for others.

    Raises:
        OptionError: If ``mlp`` was asked for, and the rows are the bytes of a struct.
    """
    if config.name == "auto":
        if _is_picture(space):
            return replace(config, name="cnn")
        is_plain = not isinstance(space, FlatBox) or (not space.is_struct and np.dtype(space.dtype).kind == "f")
        return replace(config, name="mlp" if is_plain else "multi-input")
    if config.name == "mlp" and isinstance(space, FlatBox) and space.is_struct:
        msg = f"policy.name=mlp reads a row of numbers, and these observations are the bytes of {space.original}"
        raise OptionError(msg, hint="use `--policy.name multi-input`, or `auto`")
    return config


def is_channels_last(shape: tuple[int, ...]) -> bool:
    """Whether the last of three axes holds the channels of a picture: it does unless the first is shorter."""
    return shape[2] <= shape[0]


def _is_picture(space: spaces.Space[object]) -> bool:
    """Whether these are bytes of three axes, and the sides are long enough for `cnn`."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    return min(space.shape[:2] if is_channels_last(space.shape) else space.shape[1:]) >= SMALLEST_PICTURE
