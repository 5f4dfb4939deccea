"""Memory that the passes of a recurrent layer over whole segments use again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor


class Workspace(Protocol):
    """Arrays that a forward pass fills and its backward pass uses up."""

    def fits(self, x: Tensor) -> bool:
        """Whether it is of the shape, type and device of ``x``."""
        ...


W = TypeVar("W", bound=Workspace)


class Workspaces(Generic[W]):
    """Those of one layer that no pass is using, kept for the next minibatch of the same shape.

    Fresh memory of this size would be returned to the system and faulted in again by every minibatch. A copy, or what
    is unpickled, begins with none: a layer that was copied to act, as an opponent in self-play, never needs them.

    Args:
        make: Returns a workspace for inputs (H, S, D).
    """

    def __init__(self, make: Callable[[Tensor], W]) -> None:
        self._make = make
        self._spare: list[W] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make,)

    def take(self, x: Tensor) -> W:
        """Return a workspace for ``x``: a spare one where it fits, and one that doesn't is dropped."""
        try:
            work = self._spare.pop()
        except IndexError:  # another thread may have taken the last one
            return self._make(x)
        return work if work.fits(x) else self._make(x)

    def give_back(self, work: W) -> None:
        """Keep ``work`` for the next minibatch."""
        self._spare.append(work)
