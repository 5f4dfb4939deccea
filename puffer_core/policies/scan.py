"""Linear recurrences over the rows of an array, row[i] += factor[i] * row[i - 1], in one call.

A loop in Python over the 64 steps of a segment costs more than its arithmetic, and holds the interpreter. The list
operations of torch work through their lists in order on a CPU, so a list of rows and the same list one row later make a
recurrence of them; that is checked once, on the first use, and a loop takes its place where it does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


class Recurrence:
    """The recurrence over given arrays, whose row views are made once.

    Args:
        rows: In order of time; row 0 is where it starts and stays as it is.
        factors: One for each row but the first.
    """

    def __init__(self, rows: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
        self._after, self._factors, self._before = list(rows[1:]), list(factors), list(rows[:-1])
        on_cpu = not rows or rows[0].device.type == "cpu"
        self._in_one_call = bool(self._after) and on_cpu and _lists_run_in_order()

    def run(self) -> None:
        """Update every row in place."""
        if self._in_one_call:
            torch._foreach_addcmul_(self._after, self._factors, self._before)
            return
        for after, factor, before in zip(self._after, self._factors, self._before, strict=True):
            after.addcmul_(factor, before)


@lru_cache(maxsize=1)
def _lists_run_in_order() -> bool:
    rows, factors = torch.ones(4, 2), torch.full((3, 2), 2.0)
    try:
        torch._foreach_addcmul_(list(rows[1:]), list(factors), list(rows[:-1]))
    except (AttributeError, RuntimeError, TypeError):
        return False
    return rows[:, 0].tolist() == [1.0, 3.0, 7.0, 15.0]
