"""The rollout on partial batches: rows arrive some at a time, each counts its own columns (rollout page, section 2).

A row is full once arrival H has been received. It is then held, unanswered, while others go on; the rollout is over
when all rows are held, and the next one begins by answering them, with the weights of then. So every row gives exactly
H steps, a batch may mix rows that are full with others, and nothing that was received is left out. What actions are
drawn with belongs to a row and a column, whatever the order in which rows arrive: whole batches, a ring of blocks and
whoever is ready first give the same rollout, but for rounding in the network, which sees other batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from puffer_core.rl.rollout import At, Rollout


class PartialRollout(Rollout):
    """As `Rollout`, on a vector whose batches hold some of the rows; it must be able to hold agents."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        actions = self._vector.actions
        self._first_actions = np.zeros((self.rows, *actions.shape[1:]), actions.dtype)
        self._columns = np.zeros(self.rows, np.int64)
        """Of each row's last arrival."""

    def _receive_first(self) -> None:
        self._columns.fill(self.horizon - 1)
        self._receive_until_full()

    def _step(self, noise: Tensor) -> None:
        self._copy_actions(self._act(0, noise), self._first_actions)
        self._vector.send_held(self._first_actions)
        self._columns.fill(0)
        self._receive_until_full(noise)

    def _receive_until_full(self, noise: Tensor | None = None) -> None:
        """Receive batches, answer rows that are not full and hold those that are, until all are."""
        vector = self._vector
        while (self._columns < self.horizon).any():
            vector.recv()
            self._clock.mark("env")
            rows = vector.agent_ids
            self._columns[rows] += 1
            columns = self._columns[rows]
            at, before = (columns, rows), (columns - 1, rows)
            self._store(at, before)
            self._clock.mark("copy")
            self._bootstrap_truncated(at, before)
            if noise is not None:
                self._change_opponents()
            is_full = columns == self.horizon
            if noise is not None and not is_full.all():
                self._answer(at, ~is_full, noise)
            vector.send(vector.actions, hold=is_full)

    def _answer(self, at: At, chosen: NDArray[np.bool_], noise: Tensor) -> None:
        """Write actions for the chosen rows of the batch; the others' stay as they are and are not sent."""
        assert not isinstance(at, int)
        columns, rows = at
        actions = self._act((columns[chosen], rows[chosen]), noise)
        answers = self._vector.actions[chosen]
        self._copy_actions(actions, answers)
        self._vector.actions[chosen] = answers
