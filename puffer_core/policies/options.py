"""Options of the built-in encoders, in a module that imports no torch: `puffer config show` reads them, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from puffer_core.config.schema import Range

Channels = Literal["auto", "first", "last"]
Factor = Annotated[float, Range(0.0, 64.0, low_open=True)]


@dataclass(frozen=True)
class CNNOptions:
    """Options of `cnn`."""

    channels: Channels = "auto"
    """Axis of a picture that holds its channels: ``auto`` takes the shorter of first and last, the last if equal."""
    width: Factor = 1.0
    """Factor on the numbers of channels, 32, 64 and 64."""


@dataclass(frozen=True)
class ImpalaOptions:
    """Options of `impala`."""

    channels: Channels = "auto"
    """Axis of a picture that holds its channels: ``auto`` takes the shorter of first and last, the last if equal."""
    width: Factor = 1.0
    """Factor on the numbers of channels, 16, 32 and 32."""


@dataclass(frozen=True)
class AttentionOptions:
    """Options of `attention`."""

    width: Annotated[int, Range(1, 65536)] = 64
    """Width of an entity in the blocks; a multiple of ``heads``."""
    heads: Annotated[int, Range(1, 1024)] = 4
    """Heads of each self-attention."""
    blocks: Annotated[int, Range(1, 64)] = 1
    """Blocks: self-attention, then a layer of two matrices on each entity."""
    present: Annotated[int, Range(-1, 65535)] = -1
    """Feature that marks with a number above 0 that an entity is there; -1: all always are."""
