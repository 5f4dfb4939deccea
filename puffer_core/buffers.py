"""Arrays that an environment writes in place: its own, and the check of those that somebody else made."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from puffer_core.errors import EnvError

Array: TypeAlias = npt.NDArray[Any]
ALIGNMENT = 64
"""Bytes: a cache line."""


def check_buffer(what: str, array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check that an array of somebody else's can be written in place.

    Raises:
        EnvError: If it is no writable, contiguous, aligned array of this shape and dtype.
    """
    if not isinstance(array, np.ndarray):
        raise EnvError(f"{what} is no array but {type(array).__name__}")
    if array.dtype != dtype:
        raise EnvError(f"{what} has dtype {array.dtype}, not {dtype}")
    if array.shape != shape:
        raise EnvError(f"{what} has shape {array.shape}, not {shape}")
    if not array.flags.c_contiguous:
        raise EnvError(f"{what} is not contiguous: its strides are {array.strides}")
    if not array.flags.writeable:
        raise EnvError(f"{what} is not writable")
    needed = min(4, dtype.itemsize)
    if array.ctypes.data % needed:
        raise EnvError(f"{what} is not aligned to {needed} bytes")


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return zeros that begin at a multiple of `ALIGNMENT` bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    block = np.zeros(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size].view(dtype).reshape(shape)
