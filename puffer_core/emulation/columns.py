"""The columns that one leaf of an action space takes in a row of numbers: its heads, and values there and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary

from puffer_core.emulation.leaves import Leaf
from puffer_core.env import Array
from puffer_core.errors import EnvError

MOST_CHOICES = 2**16
"""Values that one element of an integer Box may have."""
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Head:
    """One column of a row of actions.

    Attributes:
        size: Choices of a discrete one; 1 for a continuous one.
        is_continuous: A number from ``low`` to ``high``, not a choice from 0 to ``size - 1``.
        low, high: Bounds.
    """

    size: int
    is_continuous: bool
    low: float
    high: float


class Columns:
    """The columns ``first`` to ``last - 1``, those of one leaf.

    Attributes:
        heads: One for each.
    """

    def __init__(self, leaf: Leaf, first: int) -> None:
        self.first, self._leaf, self._shape, self._dtype = first, leaf, leaf.shape, leaf.space.dtype
        self._is_scalar = isinstance(leaf.space, Discrete)
        self._is_continuous = isinstance(leaf.space, Box) and leaf.dtype.kind == "f"
        self._bounds: tuple[Array, Array] | None = None
        if self._is_continuous:
            self.heads = self._take_bounds(leaf)
        else:
            self._least, self.heads = _choices(leaf)
        self.last = first + len(self.heads)
        self._low, self._high = (np.array([getattr(head, end) for head in self.heads]) for end in ("low", "high"))
        self._start = int(leaf.space.start) if isinstance(leaf.space, Discrete) else 0

    def read(self, row: Array) -> Any:
        """Return the leaf's value in a row, copied: a Python integer for Discrete, else an array of its space."""
        if self._is_scalar:
            return int(row[self.first]) + self._start
        part = row[self.first : self.last]
        if self._is_continuous:
            value = part.astype(self._dtype)
            if self._bounds is not None:
                np.clip(value, *self._bounds, out=value)
        else:
            value = (part.astype(np.int64) + self._least).astype(self._dtype, copy=False)
        return value if len(self._shape) == 1 else value.reshape(self._shape)

    def write(self, row: Array, value: Array) -> None:
        """Write a value, checked but for its bounds, into a row.

        Raises:
            EnvError: If it is out of bounds.
        """
        flat = value.reshape(-1)
        part = flat.astype(np.float32) if self._is_continuous else flat.astype(np.int64) - self._least
        if not ((part >= self._low) & (part <= self._high)).all():
            raise EnvError(f"{self._leaf.path} is {value}, declared is {self._leaf.space}")
        row[self.first : self.last] = part

    def _take_bounds(self, leaf: Leaf) -> tuple[Head, ...]:
        low, high = leaf.space.low.reshape(-1), leaf.space.high.reshape(-1)  # type: ignore[attr-defined]
        # Rows are float32: the nearest to a bound of another dtype may lie outside of it.
        if leaf.dtype != np.float32:
            self._bounds = low, high
        with np.errstate(over="ignore"):
            ends = zip(low.astype(np.float32).tolist(), high.astype(np.float32).tolist(), strict=True)
        return tuple(Head(1, True, least, most) for least, most in ends)


def _choices(leaf: Leaf) -> tuple[Array, tuple[Head, ...]]:
    """Return the least value of each element of a discrete leaf, int64, and its heads."""
    low, sizes = _range(leaf)
    for least, size in zip(low, sizes, strict=True):
        if isinstance(leaf.space, Box) and size > MOST_CHOICES:
            msg = f"{leaf.path} is {leaf.space}: {size} values of one element are more than {MOST_CHOICES}"
            raise EnvError(msg, hint="declare the integers that are used as bounds, or a Box of floats")
        if not _INT64.min <= least <= _INT64.max - size:
            raise EnvError(f"{leaf.path} is {leaf.space}, whose values do not fit 64 bits")
    return np.array(low, np.int64), tuple(Head(size, False, 0.0, float(size - 1)) for size in sizes)


def _range(leaf: Leaf) -> tuple[list[int], list[int]]:
    """Return the least value and the number of choices of each element, in Python integers."""
    space: Any = leaf.space
    if isinstance(space, Discrete):
        return [int(space.start)], [int(space.n)]
    if isinstance(space, MultiBinary):
        count = math.prod(leaf.shape)
        return [0] * count, [2] * count
    if isinstance(space, Box):
        low = [int(value) for value in space.low.reshape(-1)]
        return low, [int(high) - least + 1 for high, least in zip(space.high.reshape(-1), low, strict=True)]
    return [int(value) for value in space.start.reshape(-1)], [int(value) for value in space.nvec.reshape(-1)]
