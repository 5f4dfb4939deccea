"""Which encoder reads an observation, and whether it is normalised, where the configuration leaves that open."""

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
    """Return ``config`` with an encoder's name, and true or false, in place of ``auto``.

    The encoder is ``cnn`` for a picture of bytes that is large enough for it, ``mlp`` for any other Box and for nested
    observations of floats of one kind, ``multi-input`` for others. Floats are normalised, but not for ``attention``,
    which may read in them who is present.

    Raises:
        OptionError: If ``mlp`` was asked for, and the rows are the bytes of a struct.
    """
    is_float = getattr(space, "dtype", None) is not None and np.dtype(space.dtype).kind == "f"
    if config.name == "auto":
        is_plain = not isinstance(space, FlatBox) or (not space.is_struct and is_float)
        config = replace(config, name="cnn" if _is_picture(space) else "mlp" if is_plain else "multi-input")
    if config.normalize_observations == "auto":
        config = replace(config, normalize_observations=is_float and config.name != "attention")
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
