"""Spaces of the old Gym as spaces of Gymnasium, told by the names of their classes: Gym is not imported."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from puffer_core.errors import EnvError, shortened


def convert_space(space: Any) -> Space[Any]:
    """Return a space of Gymnasium with the same samples as a space of Gym, 0.10 to 0.26.

    Args:
        space: Of Gym, nested as it may be; one of Gymnasium is returned as it is.

    Raises:
        EnvError: If it is neither, or has no fixed layout (Text, Graph, Sequence); the text gives the path.
    """
    return _convert(space, "the space")


def _convert(space: Any, path: str) -> Space[Any]:
    if isinstance(space, Space):
        return space
    for base in type(space).__mro__:
        convert = _CONVERTERS.get(base.__name__)
        if convert is not None:
            return convert(space, path)
    msg = f"{path} is {shortened(repr(space))} of {type(space).__module__}.{type(space).__name__}"
    raise EnvError(f"{msg}; allowed are {', '.join(_CONVERTERS)}", hint="turn it into one of them in a wrapper")


def _box(space: Any, _path: str) -> Space[Any]:
    dtype = np.dtype(space.dtype).type
    return Box(np.asarray(space.low, dtype), np.asarray(space.high, dtype), tuple(space.shape), dtype)


def _discrete(space: Any, _path: str) -> Space[Any]:
    return Discrete(int(space.n), start=int(getattr(space, "start", 0)))


def _multi_discrete(space: Any, _path: str) -> Space[Any]:
    return MultiDiscrete(np.array(space.nvec, np.int64))


def _multi_binary(space: Any, _path: str) -> Space[Any]:
    shape = space.n
    return MultiBinary(int(shape) if np.ndim(shape) == 0 else tuple(int(size) for size in shape))


def _dict(space: Any, path: str) -> Space[Any]:
    # Pairs, not a dict: that would be sorted again, and the order is part of the layout.
    return Dict([(key, _convert(sub, f"{path}[{key!r}]")) for key, sub in space.spaces.items()])


def _tuple(space: Any, path: str) -> Space[Any]:
    return Tuple([_convert(sub, f"{path}[{i}]") for i, sub in enumerate(space.spaces)])


_CONVERTERS = {
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": _multi_binary,
    "Dict": _dict,
    "Tuple": _tuple,
}
