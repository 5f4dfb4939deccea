"""Operations on batches of pictures: channels, shades of grey, and resizing by area averaging."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box

from puffer_core.env import Array, Space

GREY = (77, 150, 29)
"""Weights of red, green and blue, in 256ths: those of ITU-R BT.601."""
_ROWS_AT_ONCE = 16
"""Pictures that are worked on together, so that what is computed on the way stays in the cache."""


def is_image(space: Space) -> bool:
    """Return whether a space is one of pictures: (H, W), (H, W, C) or (C, H, W), uint8 or floats."""
    return (
        isinstance(space, Box)
        and len(space.shape) in (2, 3)
        and (space.dtype == np.uint8 or space.dtype.kind == "f")
        and not hasattr(space, "original")
    )


def channel_axis(shape: tuple[int, ...]) -> int:
    """Return the axis of the channels in a shape of three: the last, unless the first is shorter."""
    return 0 if shape[0] < shape[-1] else len(shape) - 1


def to_grey(images: Array, axis: int, out: Array) -> None:
    """Write shades of grey of RGB pictures.

    Args:
        images: (n, H, W, 3), or (n, 3, H, W) where ``axis`` is 0.
        axis: Of the channels, counted without n.
        out: (n, H, W, 1) or (n, 1, H, W) in the same dtype; integers are rounded.
    """
    for rows in _chunks(len(images)):
        red, green, blue = np.moveaxis(images[rows], axis + 1, 0)
        target = np.moveaxis(out[rows], axis + 1, 0)[0]
        if images.dtype == np.uint8:
            # 256 x 255 and the half still fit.
            mixed = red * np.uint16(GREY[0])
            mixed += green * np.uint16(GREY[1])
            mixed += blue * np.uint16(GREY[2])
            mixed += np.uint16(128)
            target[...] = mixed >> 8
        else:
            target[...] = (red * GREY[0] + green * GREY[1] + blue * GREY[2]) / 256


def resize(images: Array, out: Array) -> None:
    """Write pictures in another size: each new pixel is the mean of the area it covers.

    Args:
        images: (n, H, W, C).
        out: (n, h, w, C) in the same dtype; integers are rounded.
    """
    (height, width), (new_height, new_width) = images.shape[1:3], out.shape[1:3]
    is_whole = height % new_height == 0 and width % new_width == 0
    kind = np.float64 if images.dtype == np.float64 else np.float32
    down, across = area_weights(height, new_height).astype(kind), area_weights(width, new_width).astype(kind)
    for rows in _chunks(len(images)):
        if is_whole:
            _average_blocks(images[rows], height // new_height, width // new_width, out[rows])
        else:
            _average_areas(images[rows].astype(kind, copy=False), down, across, out[rows])


def area_weights(size: int, new_size: int) -> Array:
    """Return (new_size, size) float64: the share that each old pixel has in each new one, along one axis."""
    edges = np.linspace(0, size, new_size + 1)
    pixels = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: Array = np.maximum(overlap, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _average_blocks(images: Array, high: int, wide: int, out: Array) -> None:
    """Average blocks of whole pixels, which takes additions only."""
    size = high * wide
    is_whole = images.dtype == np.uint8
    kind: type = np.float64 if images.dtype == np.float64 else np.float32
    if is_whole:
        kind = np.uint16 if 256 * size < 2**16 else np.uint32
    total: Array = np.full(out.shape, size // 2 if is_whole else 0, kind)
    for i in range(high):
        for j in range(wide):
            total += images[:, i::high, j::wide]
    out[...] = total // kind(size) if is_whole else total / kind(size)


def _average_areas(images: Array, down: Array, across: Array, out: Array) -> None:
    """Average areas with parts of pixels: one matrix product along each axis."""
    count, height, width, channels = images.shape
    lower = (down @ images.reshape(count, height, -1)).reshape(-1, width, channels)
    # One product over all rows wants the width last; where there is one channel, it is.
    narrower = np.ascontiguousarray(lower.transpose(0, 2, 1)).reshape(-1, width) @ across.T
    result = narrower.reshape(count, out.shape[1], channels, out.shape[2]).transpose(0, 1, 3, 2)
    out[...] = np.floor(result + 0.5) if out.dtype == np.uint8 else result


def _chunks(count: int) -> list[slice]:
    return [slice(first, first + _ROWS_AT_ONCE) for first in range(0, count, _ROWS_AT_ONCE)]
