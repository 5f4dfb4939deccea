"""Nested spaces as trees: what each leaf is stored as, where it lies, and how samples get in and out.

A leaf is a Box, Discrete, MultiDiscrete or MultiBinary; Dict and Tuple hold others. The layout is decided once, from
the space: a numpy dtype with C alignment whose fields follow the space's own order. Samples are walked by key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from puffer_core.env import Array
from puffer_core.errors import EnvError, ShapeError, shortened

DType: TypeAlias = np.dtype[Any]
_INT32 = np.iinfo(np.int32)
_INTEGERS = (int, np.integer)
_ALLOWED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"


class Leaf:
    """One Box, Discrete, MultiDiscrete or MultiBinary in a nested space.

    Attributes:
        path: For messages: ``observation['inventory'][0]``.
        keys: Keys of Dicts and indices of Tuples on the way to it.
        space: The space.
        index: Its position among all leaves.
        dtype: Of one stored element.
        shape: Of the leaf: that of its space, () for Discrete.
        size: Bytes in a row.
        offset: Of the first byte in a row.
    """

    def __init__(self, space: Space[Any], path: str, keys: tuple[Any, ...], index: int) -> None:
        self.space, self.path, self.keys, self.index = space, path, keys, index
        self.dtype = _element(space, path)
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        self.size = self.dtype.itemsize * math.prod(self.shape)
        self.offset = 0
        self._low, self._high = _choices(space)
        self._is_choice, self._is_array = isinstance(space, Discrete), self._low is None

    @property
    def storage(self) -> DType:
        """The field: int32 for Discrete, int32 (K,) for MultiDiscrete, else dtype and shape of the space."""
        is_flat = isinstance(self.space, MultiDiscrete)
        return np.dtype((self.dtype, (math.prod(self.shape),) if is_flat else self.shape))

    def leaves(self) -> Iterator[Leaf]:
        """Yield itself."""
        yield self

    def locate(self, _layout: DType, offset: int) -> None:
        """Note where the leaf begins."""
        self.offset = offset

    def view(self, raw: Array) -> Array:
        """Return the leaf, (*rows, *shape), of the bytes (*rows, row size); a view."""
        part = raw[..., self.offset : self.offset + self.size]
        return part.view(self.dtype).reshape((*raw.shape[:-1], *self.shape))

    def put(self, views: Sequence[Array], value: Any) -> None:
        """Write a value into its view, checked and converted where nothing but digits of a float get lost."""
        view = views[self.index]
        if self._is_array:
            fits = type(value) is np.ndarray and value.dtype == self.dtype and value.shape == self.shape
        else:
            fits = self._is_choice and isinstance(value, _INTEGERS) and self._low <= value <= self._high
        view[...] = value if fits else self.convert(value)

    def get(self, raw: Array) -> Any:
        """Return a copy of the value in the bytes of a row, in the dtype of the space; an array for many rows."""
        value = self.view(raw).astype(self.space.dtype)
        return value[()] if isinstance(self.space, Discrete) else value

    def nest(self, values: Sequence[Any]) -> Any:
        """Return its own of the values of all leaves."""
        return values[self.index]

    def convert(self, value: Any, rows: tuple[int, ...] = ()) -> Array:
        """Return values of ``rows``, (*rows, *shape), that fit the stored dtype.

        Raises:
            EnvError: If the shape, the kind of number or a discrete value differs, or more than digits would be lost.
        """
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise self._refusal(value) from None
        shape = (*rows, *self.shape)
        if array.shape != shape:
            raise ShapeError(f"{self.path} has shape {array.shape}, declared is {shape}: {self.space}")
        if array.dtype.kind not in "biuf":
            raise self._refusal(value)
        if not self._is_array:
            if not ((array >= self._low) & (array <= self._high)).all():
                raise self._refusal(value)
            if array.dtype.kind != "f":
                return array
        cast = exact_cast(array, self.dtype)
        if cast is None:
            raise self._refusal(value)
        return cast

    def _refusal(self, value: Any) -> EnvError:
        kind = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
        return EnvError(f"{self.path} is {shortened(repr(value))}{kind}, declared is {self.space}")


class DictNode:
    """A Dict: children by key, in the space's order."""

    def __init__(self, children: dict[Any, Node], path: str) -> None:
        self.children, self.path = children, path
        self._fields = {key: str(key) for key in children}

    @property
    def storage(self) -> DType:
        """A struct with a field for each key."""
        return np.dtype([(self._fields[key], child.storage) for key, child in self.children.items()], align=True)

    def leaves(self) -> Iterator[Leaf]:
        """Yield all leaves below, in order."""
        for child in self.children.values():
            yield from child.leaves()

    def locate(self, layout: DType, offset: int) -> None:
        """Note where each leaf begins: where numpy puts it."""
        for key, child in self.children.items():
            _locate_field(child, layout, self._fields[key], offset)

    def put(self, views: Sequence[Array], value: Any) -> None:
        """Write a mapping, by key."""
        if type(value) is not dict and not isinstance(value, Mapping):
            raise EnvError(f"{self.path} is {shortened(repr(value))}, declared is a Dict of {_names(self.children)}")
        if value.keys() != self.children.keys():
            raise EnvError(f"{self.path} has the keys {_names(value)}, declared are {_names(self.children)}")
        for key, child in self.children.items():
            child.put(views, value[key])

    def nest(self, values: Sequence[Any]) -> dict[Any, Any]:
        """Return the values of all leaves as nested dicts and tuples."""
        return {key: child.nest(values) for key, child in self.children.items()}


class TupleNode:
    """A Tuple: children by position, fields ``f0``, ``f1``, ..."""

    def __init__(self, children: tuple[Node, ...], path: str) -> None:
        self.children, self.path = children, path

    @property
    def storage(self) -> DType:
        """A struct with a field for each position."""
        return np.dtype([(f"f{i}", child.storage) for i, child in enumerate(self.children)], align=True)

    def leaves(self) -> Iterator[Leaf]:
        """Yield all leaves below, in order."""
        for child in self.children:
            yield from child.leaves()

    def locate(self, layout: DType, offset: int) -> None:
        """Note where each leaf begins: where numpy puts it."""
        for i, child in enumerate(self.children):
            _locate_field(child, layout, f"f{i}", offset)

    def put(self, views: Sequence[Array], value: Any) -> None:
        """Write a tuple or list, by position."""
        if not isinstance(value, tuple | list):
            raise EnvError(f"{self.path} is {shortened(repr(value))}, declared is a Tuple of {len(self.children)}")
        if len(value) != len(self.children):
            raise EnvError(f"{self.path} has {len(value)} entries, declared are {len(self.children)}")
        for child, part in zip(self.children, value, strict=True):
            child.put(views, part)

    def nest(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of all leaves as nested tuples and dicts."""
        return tuple(child.nest(values) for child in self.children)


Node: TypeAlias = Leaf | DictNode | TupleNode


def tree_of(space: Space[Any], name: str) -> Node:
    """Return the tree of a space, its leaves numbered and located.

    Args:
        space: Nested as it may be.
        name: What it is called in messages.

    Raises:
        EnvError: If a space in it has no fixed layout, or there is no leaf; the text gives the path.
    """
    tree = _build(space, name, (), [0])
    if not any(leaf.size for leaf in tree.leaves()):
        raise EnvError(f"{name} holds no number: its space is {space}")
    tree.locate(tree.storage, 0)
    return tree


def views_of(tree: Node, row: Array) -> list[Array]:
    """Return a view of each leaf in a row, (*shape) each, or in rows, (*rows, *shape); ``row`` is contiguous."""
    raw = bytes_of(row)
    return [leaf.view(raw) for leaf in tree.leaves()]


def read(tree: Node, row: Array) -> Any:
    """Return the nested sample in a row, copied; arrays (*rows, *shape) for many rows."""
    raw = bytes_of(np.ascontiguousarray(row))
    return tree.nest([leaf.get(raw) for leaf in tree.leaves()])


def bytes_of(rows: Array) -> Array:
    """Return rows of any dtype, their last axis in one piece, as bytes (*rows, row size); a view."""
    return rows.view(np.uint8)


def exact_cast(array: Array, dtype: DType) -> Array | None:
    """Return numbers in another dtype; None where more than digits of a float would get lost."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f":
        fits = np.isfinite(cast).all() or np.array_equal(np.isfinite(cast), np.isfinite(array))
    else:
        fits = np.array_equal(cast, array)
    return cast if fits else None


def _build(space: Space[Any], path: str, keys: tuple[Any, ...], count: list[int]) -> Node:
    """Return the node of a space; ``count`` holds how many leaves there are before it."""
    if isinstance(space, Dict):
        names = [str(key) for key in space.spaces]
        is_named = all(isinstance(key, str | int) and str(key) for key in space.spaces)
        if not is_named or len(set(names)) < len(names):
            raise EnvError(f"{path} has keys that are no words or integers, or read alike: {_names(space.spaces)}")
        items = space.spaces.items()
        return DictNode({key: _build(sub, f"{path}[{key!r}]", (*keys, key), count) for key, sub in items}, path)
    if isinstance(space, Tuple):
        parts = enumerate(space.spaces)
        return TupleNode(tuple(_build(sub, f"{path}[{i}]", (*keys, i), count) for i, sub in parts), path)
    leaf = Leaf(space, path, keys, count[0])
    count[0] += 1
    return leaf


def _element(space: Space[Any], path: str) -> DType:
    """Return the dtype that one element of a leaf is stored in."""
    if isinstance(space, Discrete | MultiDiscrete):
        start = np.asarray(space.start, dtype=object)
        last = start + np.asarray(space.n if isinstance(space, Discrete) else space.nvec, dtype=object) - 1
        if np.any(start < _INT32.min) or np.any(last > _INT32.max):
            raise EnvError(f"{path} is {space}, whose values do not fit 32 bits")
        return np.dtype(np.int32)
    if isinstance(space, MultiBinary):
        return np.dtype(np.int8)
    if isinstance(space, Box):
        dtype = np.dtype(space.dtype)
        if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
            raise EnvError(f"{path} is a Box of {dtype}; allowed are bool, integers and floats of up to 64 bits")
        return dtype
    kind = type(space).__name__
    msg = f"{path} is a {kind} space, which has no fixed number of bytes that a policy could read: {shortened(space)}"
    raise EnvError(msg, hint=f"turn it into {_ALLOWED} in a wrapper of the environment")


def _choices(space: Space[Any]) -> tuple[Any, Any]:
    """Return the least and largest legal values of a discrete leaf, and (None, None) for others."""
    if isinstance(space, Discrete):
        return int(space.start), int(space.start + space.n - 1)
    if isinstance(space, MultiBinary):
        return 0, 1
    return (space.start, space.start + space.nvec - 1) if isinstance(space, MultiDiscrete) else (None, None)


def _locate_field(child: Node, layout: DType, name: str, offset: int) -> None:
    assert layout.fields is not None
    field = layout.fields[name]
    child.locate(field[0], offset + field[1])


def _names(keys: Any) -> str:
    return ", ".join(repr(key) for key in keys) or "none"
