"""Flat rows of emulated observations as the nested tensors they stand for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from puffer_core.emulation.spaces import FlatBox, Leaf
from puffer_core.errors import ShapeError


class Nativizer:
    """Takes rows of one `FlatBox` apart; offsets are those of its numpy layout.

    Args:
        space: The space of the rows.
    """

    def __init__(self, space: FlatBox) -> None:
        self._tree, self._shape = space.tree, space.shape
        self._dtype = torch_dtype(space.dtype) if space.is_struct else None
        self._parts = [(_part(leaf, space), torch_dtype(leaf.dtype), leaf.shape) for leaf in space.tree.leaves()]

    def leaves(self, rows: Tensor) -> list[Tensor]:
        """Return each leaf, (*n, *shape) in its dtype: views of the rows wherever torch allows it.

        Args:
            rows: (*n, row size): bytes as they are; where rows have a common dtype, numbers of any.

        Raises:
            ShapeError: If they are not rows of the space.
        """
        if rows.shape[-1:] != self._shape or self._dtype not in (rows.dtype, None):
            needed = f"{self._dtype or 'numbers'} (*n, {self._shape[0]})"
            msg = f"rows are {rows.dtype} {tuple(rows.shape)}, needed are {needed}"
            raise ShapeError(msg, hint="rows of bytes can't be converted to another type before they are taken apart")
        parts = [(rows[..., part], dtype, shape) for part, dtype, shape in self._parts]
        return [
            (part if self._dtype is None else _as_dtype(part, dtype)).reshape(*rows.shape[:-1], *shape)
            for part, dtype, shape in parts
        ]

    def __call__(self, rows: Tensor) -> Any:
        """Return nested dicts and tuples of the leaves."""
        return self._tree.nest(self.leaves(rows))


def nativize(rows: Tensor, space: FlatBox) -> Any:
    """Return rows, (*n, row size), as nested dicts and tuples of tensors (*n, *shape); a `Nativizer` is faster.

    Raises:
        ShapeError: If they are not rows of ``space``.
    """
    return Nativizer(space)(rows)


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return torch's name of a numpy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _part(leaf: Leaf, space: FlatBox) -> slice:
    """Return where a leaf lies in a row, in elements of the row."""
    width = np.dtype(space.dtype).itemsize
    return slice(leaf.offset // width, leaf.offset // width + math.prod(leaf.shape) * leaf.dtype.itemsize // width)


def _as_dtype(part: Tensor, dtype: torch.dtype) -> Tensor:
    """Return bytes as numbers; torch views them where every row begins at a multiple of their size."""
    sizes = (part.storage_offset(), *part.stride()[:-1])
    if part.stride(-1) != 1 or any(size % dtype.itemsize for size in sizes):
        part = part.clone(memory_format=torch.contiguous_format)
    return part.view(dtype)
