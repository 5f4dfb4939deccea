"""Whether a sample fits a declared space, told by key path: of Gymnasium's spaces and of Gym's, by class name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from puffer_core.errors import shortened


@dataclass(frozen=True)
class Misfit:
    """Where and how a sample differs from its space."""

    path: str
    text: str
    is_bound: bool = False
    """Only a bound is left; type, shape and dtype are as declared."""

    def __str__(self) -> str:
        return f"{self.path} {self.text}"


def misfits(space: Any, sample: Any, path: str = "observation") -> Iterator[Misfit]:
    """Yield what is wrong with ``sample``, leaf by leaf.

    Args:
        space: What is declared.
        sample: What was received.
        path: How the sample is called in texts, as ``observation["speed"][0]``.
    """
    for kind in type(space).__mro__:
        if (check := _CHECKS.get(kind.__name__)) is not None:
            yield from check(space, sample, path)
            return
    if not space.contains(sample):
        yield Misfit(path, f"is {shortened(repr(sample))}, declared is {space}")


def _box(space: Any, sample: Any, path: str) -> Iterator[Misfit]:
    declared = f"declared is {space.dtype} {space.shape}"
    if not isinstance(sample, np.ndarray | np.generic):
        yield Misfit(path, f"is a {type(sample).__name__}, {declared}: return a numpy array")
        return
    if sample.shape != space.shape:
        yield Misfit(path, f"has shape {sample.shape}, {declared}")
        return
    if sample.dtype != space.dtype:
        yield Misfit(path, f"has dtype {sample.dtype}, {declared}")
        return
    if sample.dtype.kind == "f" and np.isnan(sample).any():
        yield Misfit(path, f"holds NaN at {_first(np.isnan(sample))}")
        return
    for word, wrong, bound in (
        ("below", sample < space.low, space.low),
        ("above", sample > space.high, space.high),
    ):
        if np.any(wrong):
            found = f"{np.asarray(sample)[wrong][0]} at {_first(wrong)}, where the bound is {bound[wrong][0]}"
            yield Misfit(path, f"is {word} the space: {found}", is_bound=True)


def _discrete(space: Any, sample: Any, path: str) -> Iterator[Misfit]:
    start = int(getattr(space, "start", 0))
    legal = f"declared is an integer from {start} to {start + int(space.n) - 1}"
    is_whole = isinstance(sample, int | np.integer) or (
        isinstance(sample, np.ndarray) and sample.shape == () and sample.dtype.kind in "iu"
    )
    if not is_whole:
        yield Misfit(path, f"is {shortened(repr(sample))}, {legal}")
    elif not start <= int(sample) < start + int(space.n):
        yield Misfit(path, f"is {int(sample)}, {legal}")


def _choices(space: Any, sample: Any, path: str) -> Iterator[Misfit]:
    """Check a MultiDiscrete or a MultiBinary."""
    shape = tuple(space.shape)
    if not isinstance(sample, np.ndarray) or sample.shape != shape or sample.dtype.kind not in "iub":
        found = f"{sample.dtype} {sample.shape}" if isinstance(sample, np.ndarray) else shortened(repr(sample))
        yield Misfit(path, f"is {found}, declared are integers of shape {shape}")
        return
    low = np.asarray(getattr(space, "start", 0))
    high = low + np.asarray(getattr(space, "nvec", 2)) - 1
    wrong = (sample < low) | (sample > high)
    if wrong.any():
        bound = f"{np.broadcast_to(low, shape)[wrong][0]} to {np.broadcast_to(high, shape)[wrong][0]}"
        yield Misfit(path, f"is {sample[wrong][0]} at {_first(wrong)}, declared is {bound}")


def _tuple(space: Any, sample: Any, path: str) -> Iterator[Misfit]:
    if not isinstance(sample, tuple):
        yield Misfit(path, f"is a {type(sample).__name__}, declared is a tuple of {len(space.spaces)}")
    elif len(sample) != len(space.spaces):
        yield Misfit(path, f"is a tuple of {len(sample)}, declared is one of {len(space.spaces)}")
    else:
        for i, (inner, value) in enumerate(zip(space.spaces, sample, strict=True)):
            yield from misfits(inner, value, f"{path}[{i}]")


def _dict(space: Any, sample: Any, path: str) -> Iterator[Misfit]:
    declared = list(space.spaces)
    if not isinstance(sample, Mapping):
        yield Misfit(path, f"is a {type(sample).__name__}, declared is a dict with the keys {declared}")
        return
    for key in declared:
        if key not in sample:
            yield Misfit(path, f"lacks the key {key!r}, declared are {declared}")
        else:
            yield from misfits(space.spaces[key], sample[key], f"{path}[{key!r}]")
    for key in sample:
        if key not in space.spaces:
            yield Misfit(path, f"has the key {key!r}, declared are {declared}")


def _first(wrong: Any) -> str:
    return f"index {tuple(int(i) for i in np.argwhere(np.atleast_1d(wrong))[0])}"


_CHECKS: dict[str, Callable[[Any, Any, str], Iterator[Misfit]]] = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _choices,
    "MultiBinary": _choices,
    "Tuple": _tuple,
    "Dict": _dict,
}
