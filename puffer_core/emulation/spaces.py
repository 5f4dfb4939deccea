"""Emulated spaces: nested observations as flat rows, nested and mixed actions as one row of numbers.

`observation_codec` and `action_codec` translate between what an environment speaks and what a vector holds. A policy
gets the flat rows and takes them apart again (`puffer_core.policies.nativize`).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from puffer_core.emulation.columns import Columns, Head
from puffer_core.emulation.leaves import DType, Leaf, Node, read, tree_of, views_of
from puffer_core.env import Array
from puffer_core.errors import EnvError

__all__ = [
    "ActionCodec",
    "FlatActions",
    "FlatBox",
    "Head",
    "Leaf",
    "ObservationCodec",
    "action_codec",
    "observation_codec",
]

_EXACT_FLOAT32 = 2**24
_WIDE_UNSIGNED = [np.dtype(kind) for kind in (np.uint16, np.uint32, np.uint64)]
"""Rows of these are bytes, too: torch stores such numbers, but can't fill or compute with all of them."""
_LARGEST = float(np.finfo(np.float32).max)


class _Emulated(Box):
    """A Box of rows that stand for samples of a nested space; equal only where that is the same, too."""

    original: Space[Any]
    tree: Node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)) or not super().__eq__(other):
            return False
        mine, theirs = ([(leaf.keys, leaf.space) for leaf in space.tree.leaves()] for space in (self, other))
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]

    def seed(self, seed: Any = None) -> Any:
        """Seed `sample`."""
        return self.original.seed(seed)


class FlatBox(_Emulated):
    """The space of flat observation rows.

    Rows have the dtype in which every leaf is stored where that is one, else they are the bytes of a struct (uint8).

    Args:
        original: The nested space.

    Attributes:
        original: A copy of it.
        layout: numpy dtype of one row, with C alignment.
        is_struct: Rows are bytes.
        tree: Its leaves, with path, dtype, shape and offset.
    """

    def __init__(self, original: Space[Any]) -> None:
        self.original = deepcopy(original)
        self.tree = tree_of(self.original, "observation")
        self.layout: DType = self.tree.storage
        dtypes = {leaf.dtype for leaf in self.tree.leaves()}
        self.is_struct = len(dtypes) > 1 or not dtypes.isdisjoint(_WIDE_UNSIGNED)
        dtype = np.dtype(np.uint8) if self.is_struct else dtypes.pop()
        low, high = _bounds(dtype)
        super().__init__(low, high, (self.layout.itemsize // dtype.itemsize,), dtype.type)

    def __repr__(self) -> str:
        return f"FlatBox({self.shape[0]}, {np.dtype(self.dtype).name}, {self.original})"

    def sample(self, mask: None = None, probability: None = None) -> Array:
        """Return the row of a random sample of the original space."""
        row = np.zeros(self.shape, self.dtype)
        self.tree.put(views_of(self.tree, row), self.original.sample())
        return row

    def contains(self, x: Any) -> bool:
        """Return whether a row stands for a member of the original space."""
        is_row = isinstance(x, np.ndarray) and x.dtype == self.dtype and x.shape == self.shape
        return is_row and self.original.contains(self.unflatten(x))

    def flatten(self, samples: Any) -> Array:
        """Return n nested samples, given as one whose arrays are (n, *shape), as (n, row size).

        Raises:
            EnvError: As `ObservationCodec.write`.
        """
        values = [(leaf, _pick(samples, leaf)) for leaf in self.tree.leaves()]
        rows = np.zeros((len(values[0][1]), *self.shape), self.dtype)
        for (leaf, value), view in zip(values, views_of(self.tree, rows), strict=True):
            view[...] = leaf.convert(value, rows.shape[:1])
        return rows

    def unflatten(self, rows: Array) -> Any:
        """Return rows, (*n, row), as a nested sample of arrays (*n, *shape), copied."""
        return read(self.tree, rows)


class FlatActions(_Emulated):
    """The space of mixed action rows: float32, discrete columns holding whole numbers from 0.

    Args:
        original: The nested space, with discrete and continuous leaves.

    Attributes:
        original: A copy of it.
        action_layout: The head of each column, in order of the leaves.
    """

    def __init__(self, original: Space[Any]) -> None:
        self.original = deepcopy(original)
        self.tree = tree_of(self.original, "action")
        self.columns = columns_of(self.tree)
        self.action_layout: tuple[Head, ...] = tuple(head for part in self.columns for head in part.heads)
        for head in self.action_layout:
            if head.size > _EXACT_FLOAT32:
                raise EnvError(f"{head.size} choices beside continuous actions are more than float32 can count")
        low, high = (np.array([getattr(head, end) for head in self.action_layout]) for end in ("low", "high"))
        super().__init__(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def __repr__(self) -> str:
        return f"FlatActions({self.shape[0]}, {self.original})"

    def sample(self, mask: None = None, probability: None = None) -> Array:
        """Return the row of a random sample of the original space."""
        return write_columns(self.tree, self.columns, self.original.sample(), np.float32)

    def contains(self, x: Any) -> bool:
        """Return whether a row is within the bounds, with whole numbers in the discrete columns."""
        discrete = [i for i, head in enumerate(self.action_layout) if not head.is_continuous]
        return super().contains(x) and bool(np.all(np.mod(np.asarray(x)[discrete], 1) == 0))


class ObservationCodec:
    """Translates observations of one space to rows and back; `observation_codec` makes one.

    Attributes:
        original: The space of the environment.
        space: The space of the rows: the same Box, or a `FlatBox`.
        is_identity: Rows are observations.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.original = space
        self.is_identity = isinstance(space, Box) and bool(space.shape)
        if isinstance(space, Box) and self.is_identity:
            self.space, self._tree = space, tree_of(space, "observation")
        else:
            self.space = FlatBox(space)
            self._tree = self.space.tree

    def write(self, row: Array, observation: Any) -> None:
        """Write an observation into a row, by key.

        Args:
            row: Of the shape and dtype of `space`, contiguous; all of it but padding is written.
            observation: Of the space, with keys in any order. Lists and Python or numpy scalars will do; numbers are
                converted where nothing but digits of a float gets lost.

        Raises:
            EnvError: If keys, a shape, a kind of number or a discrete value differ; the text gives the path, what is
                declared and what came. The row may then be written in part.
        """
        self._tree.put(self._views(row), observation)

    def bind(self, row: Array) -> Callable[[Any], None]:
        """Return `write` for one row that stays where it is: several times faster."""
        tree, views = self._tree, self._views(row)
        return lambda observation: tree.put(views, observation)

    def read(self, row: Array) -> Any:
        """Return the observation in a row, copied: dicts and tuples of arrays, numpy integers for Discrete."""
        return row.copy() if self.is_identity else read(self._tree, row)

    def _views(self, row: Array) -> list[Array]:
        return [row] if self.is_identity else views_of(self._tree, row)


class ActionCodec:
    """Translates rows of actions to what an environment takes, and back; `action_codec` makes one.

    Attributes:
        original: The space of the environment.
        space: Discrete or MultiDiscrete from 0, a Box (D,), or `FlatActions` where both kinds are there.
        is_identity: `space` is the original; rows differ from its members in dtype at most.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.original = space
        self._tree = tree_of(space, "action")
        self._columns = columns_of(self._tree)
        self.is_identity = _is_flat(space)
        self.space: Space[Any] = space if self.is_identity else _row_space(space, self._columns)
        self._is_single = isinstance(space, Discrete)
        self._dtype: type[Any] = np.float32 if isinstance(self.space, Box) else np.int32

    def read(self, row: Any) -> Any:
        """Return the action that the environment's step takes: nested, offset, in the dtypes of the space, copied.

        Args:
            row: Of `space`, as in `PufferEnv.actions`; an integer for Discrete.
        """
        if self._is_single:
            row = (row,)
        return self._tree.nest([part.read(row) for part in self._columns])

    def write(self, action: Any) -> Array:
        """Return the row of an action of the environment, int32 or float32; without axes for Discrete.

        Raises:
            EnvError: If it is not from the space; the text gives the path.
        """
        row = write_columns(self._tree, self._columns, action, self._dtype)
        return row.reshape(()) if self._is_single else row


def observation_codec(space: Space[Any]) -> ObservationCodec:
    """Return the codec of an observation space.

    Raises:
        EnvError: If a space in it has no fixed layout (Text, Graph, Sequence, OneOf, custom ones); with its path.
    """
    return ObservationCodec(space)


def action_codec(space: Space[Any]) -> ActionCodec:
    """Return the codec of an action space.

    Raises:
        EnvError: As `observation_codec`; also for an integer Box with more than 65,536 values in one element.
    """
    return ActionCodec(space)


def columns_of(tree: Node) -> list[Columns]:
    """Return the columns of each leaf of an action space."""
    columns: list[Columns] = []
    for leaf in tree.leaves():
        columns.append(Columns(leaf, columns[-1].last if columns else 0))
    return columns


def write_columns(tree: Node, columns: list[Columns], action: Any, dtype: type[Any]) -> Array:
    """Return the row of a nested action.

    Raises:
        EnvError: If it is not from the space.
    """
    views = views_of(tree, np.zeros(tree.storage.itemsize, np.uint8))
    tree.put(views, action)
    row = np.zeros(columns[-1].last, dtype)
    for part, value in zip(columns, views, strict=True):
        part.write(row, value)
    return row


def _pick(sample: Any, leaf: Leaf) -> Any:
    """Return the values of a leaf in a nested sample."""
    try:
        for key in leaf.keys:
            sample = sample[key]
        len(sample)
    except (LookupError, TypeError):
        raise EnvError(f"{leaf.path} is missing, or is no array of one value for each row") from None
    return sample


def _is_flat(space: Space[Any]) -> bool:
    """Return whether an action space is one that a `PufferEnv` may have."""
    if isinstance(space, Discrete):
        return bool(space.start == 0)
    if isinstance(space, MultiDiscrete):
        return space.nvec.ndim == 1 and not np.any(space.start)
    return isinstance(space, Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f"


def _row_space(space: Space[Any], columns: list[Columns]) -> Space[Any]:
    heads = [head for part in columns for head in part.heads]
    if isinstance(space, Discrete):
        return Discrete(heads[0].size)
    if not any(head.is_continuous for head in heads):
        return MultiDiscrete([head.size for head in heads])
    if not all(head.is_continuous for head in heads):
        return FlatActions(space)
    low, high = (np.array([getattr(head, end) for head in heads], np.float32) for end in ("low", "high"))
    return Box(low, high, dtype=np.float32)


def _bounds(dtype: DType) -> tuple[float | int, float | int]:
    """Return the least and largest number of a dtype, of float32 for wider floats."""
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "f":
        most = min(float(np.finfo(dtype).max), _LARGEST)
        return -most, most
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
