"""The state of a user's recurrent network, in whatever form, as the one tensor that everything else carries.

Three forms are understood: a tensor or a tuple of tensors that goes in as ``state`` and comes back as the third item;
and a dict that the network changes in place, ``state["lstm_h"]`` and ``state["lstm_c"]``. Which one it is, is found out
by calling the network. Inside it is (1, n, W): the numbers of each row side by side, 0 where an episode begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from puffer_core.errors import ShapeError

KEYS = ("lstm_h", "lstm_c")
"""What a dict holds at first."""
_DERIVED = ("hidden", "mask")
"""Keys that networks write or read in passing; they are no memory."""


@dataclass(frozen=True)
class Memory:
    """How the state of a network is taken apart and put together.

    Attributes:
        shapes: Of each tensor, without the axis of rows.
        axes: Where the axis of rows lies in each.
        keys: Of a dict; None where tensors are returned.
        is_single: One tensor that is not inside a tuple.
        is_dict: The network is handed a dict even if it remembers nothing.
    """

    shapes: tuple[tuple[int, ...], ...] = ()
    axes: tuple[int, ...] = ()
    keys: tuple[str, ...] | None = None
    is_single: bool = False
    is_dict: bool = False

    @property
    def width(self) -> int:
        """Numbers that a row remembers: W, 0 for a feed-forward network."""
        return sum(math.prod(shape) for shape in self.shapes)

    def unpack(self, state: Tensor) -> Any:
        """Return what the network is handed for (1, n, W)."""
        parts = torch.split(state[0], [math.prod(shape) for shape in self.shapes], 1) if self.shapes else ()
        tensors = [
            part.reshape(len(part), *shape).movedim(0, axis).contiguous()
            for part, shape, axis in zip(parts, self.shapes, self.axes, strict=True)
        ]
        if self.is_dict:
            return dict.fromkeys(KEYS) | dict(zip(self.keys or (), tensors, strict=True))
        if not tensors:
            return None
        return tensors[0] if self.is_single else tuple(tensors)

    def pack(self, handed: Any, returned: Any, before: Tensor, name: str) -> Tensor:
        """Return the (1, n, W) that the network remembers after a call.

        Args:
            handed: What `unpack` gave, which a network that takes a dict has changed.
            returned: The third item.
            before: (1, n, W) of before the call.
            name: Of the network, for messages.

        Raises:
            ShapeError: If it remembers other things than when it was first called.
        """
        if not self.shapes:
            return before
        tensors = [handed.get(key) for key in self.keys] if self.keys is not None else _listed(returned)
        rows, found = before.shape[1], [None if t is None else tuple(t.shape) for t in tensors]
        wanted = [(*s[:axis], rows, *s[axis:]) for s, axis in zip(self.shapes, self.axes, strict=True)]
        if found != wanted:
            raise ShapeError(f"the state of the policy `{name}` has shapes {found}, at first it had {wanted}")
        parts = [t.movedim(axis, 0).reshape(rows, -1) for t, axis in zip(tensors, self.axes, strict=True)]
        return torch.cat(parts, 1)[None].to(before.dtype)


def find_memory(call: Callable[[int, Any], Any], takes_state: bool, hidden_size: int | None, name: str) -> Memory:
    """Find out by a few calls what a network remembers.

    Args:
        call: Calls it for so many rows with a state, and returns the state that it returned.
        takes_state: It has an argument for a state.
        hidden_size: Width of ``state["lstm_h"]``, for networks that can't begin from None.
        name: Of the network, for messages.

    Raises:
        ShapeError: If it returns a state and takes none, or returns no tensors.
        Exception: What the network raised, if it accepts no form of state at all.
    """
    if not takes_state:
        if call(2, None) is not None:
            msg = f"the policy `{name}` returns a state and has no argument for one"
            raise ShapeError(msg, hint="define forward_eval(self, observations, state=None)")
        return Memory()
    failures = []
    for begin in _beginnings(hidden_size):
        try:
            return _observe(call, begin, name)
        except ShapeError:
            raise
        except Exception as error:  # whatever a network raises that is handed another kind of state than its own
            failures.append(error)
    raise failures[-1]


def _beginnings(hidden_size: int | None) -> list[Callable[[int], Any]]:
    """Return ways to make the state of so many rows, in the order in which they are tried."""
    ways: list[Callable[[int], Any]] = [lambda rows: dict.fromkeys(KEYS), lambda rows: None]
    if hidden_size is not None:
        width = hidden_size
        ways.insert(1, lambda rows: {key: torch.zeros(rows, width) for key in KEYS})
    return ways


def _observe(call: Callable[[int, Any], Any], begin: Callable[[int], Any], name: str) -> Memory:
    """Call the network for two and for three rows: the axis that differs is that of the rows."""
    seen: list[list[Tensor]] = []
    keys: tuple[str, ...] | None = None
    for rows in (2, 3):
        handed = begin(rows)
        before = dict(handed or {})
        returned = call(rows, handed)
        if returned is handed:
            returned = None
        if isinstance(handed, dict) and returned is None:
            keys = tuple(key for key, value in handed.items() if _is_new(key, value, before))
            seen.append([handed[key] for key in keys])
        elif returned is not None:
            seen.append(_listed(returned, name))
        else:
            seen.append([])
        is_dict, is_single = isinstance(handed, dict) and returned is None, isinstance(returned, Tensor)
    axes = tuple(_row_axis(two, three, name) for two, three in zip(*seen, strict=True))
    shapes = tuple((*t.shape[:axis], *t.shape[axis + 1 :]) for t, axis in zip(seen[0], axes, strict=True))
    return Memory(shapes, axes, keys, is_single, is_dict)


def _is_new(key: str, value: Any, before: dict[str, Any]) -> bool:
    """Whether a network has written a tensor into its dict, or into what was there."""
    if not isinstance(value, Tensor) or key in _DERIVED:
        return False
    tensor: Tensor = value
    return tensor is not before.get(key) or bool(tensor.any())


def _listed(state: Any, name: str = "") -> list[Tensor]:
    tensors = [state] if isinstance(state, Tensor) else list(state) if isinstance(state, tuple | list) else [state]
    if not all(isinstance(tensor, Tensor) and tensor.is_floating_point() for tensor in tensors):
        msg = f"the policy `{name}` returned a {type(state).__name__} as its state"
        raise ShapeError(msg, hint="a state is a tensor of floats or a flat tuple of such tensors")
    return tensors


def _row_axis(two: Tensor, three: Tensor, name: str) -> int:
    if two.ndim == three.ndim:
        differing = [axis for axis in range(two.ndim) if two.shape[axis] != three.shape[axis]]
        if len(differing) == 1 and two.shape[differing[0]] == 2:
            return differing[0]
    shapes = f"{tuple(two.shape)} for 2 rows and {tuple(three.shape)} for 3"
    raise ShapeError(f"the policy `{name}` has a state {shapes}", hint="one axis of a state is that of the rows")
