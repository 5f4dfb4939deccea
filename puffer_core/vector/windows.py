"""What a batch shows of the arrays of all workers: views of a block, or copies of rows from anywhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from puffer_core.env import Array
from puffer_core.vector.blocks import Block, rows_of

POISON = 0xA5
"""What the bytes of stale copies are in the debug mode."""
_POISONED = ("observations", "rewards", "terminals", "truncations", "masks", "final_observations")


class Windows:
    """The rows of blocks of workers.

    Args:
        arrays: Of all workers, each (rows of all, ...).
        rows_per_worker: Rows of one worker; they are consecutive.
        copies: Whether to copy consecutive rows too.
    """

    def __init__(self, arrays: Mapping[str, Array], rows_per_worker: int, copies: bool) -> None:
        self._arrays = arrays
        self._rows_per_worker = rows_per_worker
        self._copies = copies
        self._ids = np.arange(len(arrays["rewards"]))
        self._views: dict[Block, dict[str, Array]] = {}

    def show(self, block: Block) -> dict[str, Array]:
        """Return the arrays of a batch, and ``agent_ids``: where its rows are among all rows."""
        if block in self._views:
            return self._views[block]
        rows = rows_of(block, self._rows_per_worker)
        if self._copies or not isinstance(rows, slice):
            return self._copied(self._ids[rows])
        arrays = {name: array[rows] for name, array in self._arrays.items()}
        self._views[block] = {**arrays, "agent_ids": self._ids[rows]}
        return self._views[block]

    def is_view(self, block: Block) -> bool:
        """Return whether a batch that was shown is a view."""
        return block in self._views

    def ids_of(self, block: Block) -> npt.NDArray[np.int64]:
        """Return where the rows of some workers are."""
        return self._ids[rows_of(block, self._rows_per_worker)]

    def _copied(self, ids: npt.NDArray[np.int64]) -> dict[str, Array]:
        """Return copies of some rows; last observations of those that ended only, since others mean nothing."""
        arrays = {name: array[ids] for name, array in self._arrays.items() if name != "final_observations"}
        last = self._arrays["final_observations"]
        arrays["final_observations"] = np.zeros((len(ids), *last.shape[1:]), last.dtype)
        ended = arrays["terminals"] | arrays["truncations"]
        if ended.any():
            arrays["final_observations"][ended] = last[ids[ended]]
        arrays["agent_ids"] = ids
        return arrays


def poison(shown: object) -> None:
    """Fill the copies that a vector shows, so that whoever still reads them sees it."""
    for name in _POISONED:
        getattr(shown, name).reshape(-1).view(np.uint8).fill(POISON)
