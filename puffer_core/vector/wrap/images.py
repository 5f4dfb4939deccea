"""Operations on batches of pictures: channels, shades of grey, and resizing by area averaging."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box

from puffer_core.env import Array, Space

GREY = (77, 150, 29)
"""Weights of red, green and blue, in 256ths: those of ITU-R BT.601."""
_ROWS_AT_ONCE = 16
"""Pictures that are worked on together, so that what is computed on the way stays in the cache."""
_LEAST_OVERLAP = 1e-9
"""Less of a pixel is an error of rounding."""


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
    (_, height, width, channels), (_, new_height, new_width, _) = images.shape, out.shape
    are_blocks = height % new_height == 0 and width % new_width == 0 and images.dtype == np.uint8
    kind: type = np.float64 if images.dtype == np.float64 else np.float32
    down, across = _taps(height, new_height, 1, kind), _taps(width, new_width, channels, kind)
    for rows in _chunks(len(images)):
        lines = images[rows].reshape(-1, height, width * channels)
        if are_blocks:
            mean = _mean_of_blocks(lines, height // new_height, [pixels for pixels, _ in across])
        else:
            area = kind(height / new_height * (width / new_width))
            mean = _weighted_sum(_weighted_sum(lines, 1, down), 2, across) / area
            if out.dtype == np.uint8:
                np.floor(mean + kind(0.5), out=mean)
        out[rows] = mean.reshape(out[rows].shape)


def _weighted_sum(lines: Array, axis: int, taps: list[tuple[Array, Array]]) -> Array:
    """Return the sum of what each tap takes along an axis of (n, H, W C), times its weights."""
    total: Array | None = None
    for pixels, weights in taps:
        term = np.take(lines, pixels, axis) * (weights[:, None] if axis == 1 else weights)
        total = term if total is None else np.add(total, term, out=total)
    assert total is not None
    return total


def _mean_of_blocks(lines: Array, high: int, across: list[Array]) -> Array:
    """Return the rounded means of blocks of whole pixels, (n, h, w C), in integers, which is faster."""
    size = high * len(across)
    kind: type = np.uint16 if 256 * size < 2**16 else np.uint32
    lower: Array = lines[:, ::high].astype(kind)
    for i in range(1, high):
        lower += lines[:, i::high]
    total = np.take(lower, across[0], 2)
    for pixels in across[1:]:
        total += np.take(lower, pixels, 2)
    total += kind(size // 2)
    total //= kind(size)
    return total


def area_weights(size: int, new_size: int) -> Array:
    """Return (new_size, size) float64: how much of each new pixel's extent lies in each old one, along one axis."""
    edges = np.arange(new_size + 1) * size / new_size
    pixels = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: Array = np.where(overlap > _LEAST_OVERLAP, overlap, 0.0)
    return weights


def _taps(size: int, new_size: int, channels: int, kind: type) -> list[tuple[Array, Array]]:
    """Return, for the first, second, ... old pixel in each new one, which it is and its weight, both (new_size C,).

    There are few of them, so adding them up takes less than a product with the matrix of weights, and no BLAS whose
    threads would compete with workers.
    """
    weights = area_weights(size, new_size)
    first = (weights > 0).argmax(axis=1)
    taps: list[tuple[Array, Array]] = []
    for k in range(int((weights > 0).sum(axis=1).max())):
        pixels = np.minimum(first + k, size - 1)
        inside = np.where(first + k < size, weights[np.arange(new_size), pixels], 0.0)
        along = pixels[:, None] * channels + np.arange(channels)
        taps.append((along.reshape(-1), np.repeat(inside, channels).astype(kind)))
    return taps


def _chunks(count: int) -> list[slice]:
    return [slice(first, first + _ROWS_AT_ONCE) for first in range(0, count, _ROWS_AT_ONCE)]
