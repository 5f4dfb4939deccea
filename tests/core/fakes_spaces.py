"""Nested spaces for tests: strategies that draw them, comparison of samples, and small environments that use them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
SHAPES = ((), (1,), (3,), (2, 3), (2, 1, 2))


def boxes(dtypes: tuple[str, ...] = (*FLOATS, *INTEGERS, "bool"), shapes: Any = SHAPES) -> st.SearchStrategy[Any]:
    """Draw Boxes: bounded ones, so that samples can be compared."""

    def make(dtype: str, shape: tuple[int, ...]) -> spaces.Box:
        least = 0 if np.dtype(dtype).kind in ("b", "u") else -3
        return spaces.Box(least, 1 if dtype == "bool" else 5, shape, np.dtype(dtype).type)

    return st.builds(make, st.sampled_from(dtypes), st.sampled_from(shapes))


def discretes() -> st.SearchStrategy[Any]:
    """Draw Discrete, MultiDiscrete (of one or two axes, with starts) and MultiBinary spaces."""
    starts = st.integers(-4, 4)
    vector = st.lists(st.integers(1, 5), min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), starts),
        st.builds(lambda nvec, start: spaces.MultiDiscrete(nvec, start=[start] * len(nvec)), vector, starts),
        st.builds(lambda a, b: spaces.MultiDiscrete(np.array([a, b])), *[st.tuples(*[st.integers(1, 4)] * 2)] * 2),
        st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
    )


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw spaces of at most three levels of Dict and Tuple around ``leaves``."""

    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        named = st.dictionaries(st.sampled_from(["a", "b", "z z", "f0", "é"]), inner, min_size=1, max_size=3)
        return st.one_of(
            inner,
            named.map(spaces.Dict),
            named.map(lambda parts: spaces.Dict(parts, sort_keys=False)),
            st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        )

    return deeper(deeper(deeper(leaves)))


def same(left: Any, right: Any) -> bool:
    """Return whether two nested samples have the same structure, shapes and values."""
    if isinstance(right, dict):
        return isinstance(left, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in right)
    if isinstance(right, tuple):
        return isinstance(left, tuple) and len(left) == len(right) and all(map(same, left, right))
    left, right = np.asarray(left), np.asarray(right)
    return left.shape == right.shape and bool((left == right).all())


class Sentry:
    """A task that needs every leaf and both heads; each step shows a new situation, and an episode has eight.

    The right ``move`` is the side, two further where ``flip`` is set; the right ``aim`` is the wind. Each is worth half
    a point: 4 of the 8 points of an episode can be had without either head.
    """

    LENGTH = 8
    observation_space = spaces.Dict(
        {"side": spaces.Discrete(4, start=1), "wind": spaces.Box(-1, 1, (2,)), "flip": spaces.MultiBinary(1)}
    )
    action_space = spaces.Dict({"move": spaces.Discrete(4), "aim": spaces.Box(-1, 1, (2,))})

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.time = 0
        return self._look(), {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        seen = self.seen
        is_right = action["move"] == (seen["side"] - 1 + 2 * seen["flip"][0]) % 4
        reward = 0.5 * is_right + 0.5 * (1.0 - np.abs(action["aim"] - seen["wind"]).mean())
        self.time += 1
        return self._look(), float(reward), self.time == self.LENGTH, False, {}

    def _look(self) -> dict[str, Any]:
        self.seen = {
            "side": int(self.rng.integers(1, 5)),
            "wind": self.rng.uniform(-1, 1, 2).astype(np.float32),
            "flip": self.rng.integers(0, 2, 1).astype(np.int8),
        }
        return dict(self.seen)
