"""Which encoder reads an observation, where the configuration leaves it open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gymnasium import spaces

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import OptionError


def choose_encoder(config: PolicyConfig, space: spaces.Space[object]) -> PolicyConfig:
    """Return ``config`` with the name of an encoder in place of ``auto``.

    It is ``mlp`` for a Box and for nested observations of floats of one kind, ``multi-input`` for others.

    Raises:
        OptionError: If ``mlp`` was asked for, and the rows are the bytes of a struct.
    """
    if config.name == "auto":
        is_plain = not isinstance(space, FlatBox) or (not space.is_struct and np.dtype(space.dtype).kind == "f")
        return replace(config, name="mlp" if is_plain else "multi-input")
    if config.name == "mlp" and isinstance(space, FlatBox) and space.is_struct:
        msg = f"policy.name=mlp reads a row of numbers, and these observations are the bytes of {space.original}"
        raise OptionError(msg, hint="use `--policy.name multi-input`, or `auto`")
    return config
