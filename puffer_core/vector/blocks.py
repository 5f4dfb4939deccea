"""Which workers make the next batch: bookkeeping without any waiting, for every backend that has workers.

A worker is working, ready, or received. `Blocks.restart` sets all to work; `done` reports one that finished; `take`
gives the workers of the next batch once all of them are ready; `give_back` sets those to work again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from puffer_core.errors import OptionError

Block: TypeAlias = tuple[int, ...]
Mode: TypeAlias = Literal["full", "single", "ring", "asynchronous"]


class Blocks:
    """The workers of a vector, in blocks of one batch each.

    ======================  ====================  ==============================================  =======
    mode                    when                  workers of a batch                              arrays
    ======================  ====================  ==============================================  =======
    ``full``                a batch is everyone   all of them, in order                           a view
    ``single``              a batch is one        the first that is ready                         a view
    ``ring``                ``zero_copy``         the lowest aligned block that is ready as one   a view
    ``asynchronous``        otherwise             the first that are ready, in that order         copies
    ======================  ====================  ==============================================  =======

    With ``in_order`` it is always the workers that were set to work the longest ago, whoever is ready first: the
    batches of a run are then the same every time, in a ring as block 0, 1, .., 0, 1, ...

    Args:
        num_workers: Workers of the vector.
        per_batch: Workers of one batch; with ``zero_copy`` it divides ``num_workers``.
        zero_copy: Whether a batch must be consecutive workers.
        in_order: Whether to take them in the order in which they were set to work.

    Attributes:
        mode: As in the table.
        received: The block that was taken and not given back; empty in between.

    Raises:
        OptionError: If the numbers do not fit.
    """

    def __init__(self, num_workers: int, per_batch: int, *, zero_copy: bool = True, in_order: bool = True) -> None:
        if not 1 <= per_batch <= num_workers:
            msg = f"{per_batch} workers per batch are not an integer from 1 to num_workers={num_workers}"
            raise OptionError(msg, hint="batch_size is a multiple of num_envs / num_workers")
        if zero_copy and num_workers % per_batch:
            msg = f"num_workers={num_workers} is not divisible by {per_batch} workers per batch"
            raise OptionError(msg, hint="give another batch_size, or zero_copy=False")
        self.num_workers = num_workers
        self.per_batch = per_batch
        self.mode: Mode = _mode(num_workers, per_batch, zero_copy)
        self.received: Block = ()
        self._in_order = in_order or self.mode == "full"
        self._aligned = [tuple(range(i, i + per_batch)) for i in range(0, num_workers, per_batch)]
        self._queue: deque[int] = deque()
        self._ready: dict[int, None] = {}

    def restart(self) -> None:
        """Set every worker to work, as a reset does; whatever they did before is forgotten."""
        self._queue = deque(range(self.num_workers))
        self._ready.clear()
        self.received = ()

    def done(self, worker: int) -> None:
        """Note that a worker finished its step or its reset."""
        self._ready[worker] = None

    def take(self) -> Block | None:
        """Return the workers of the next batch, which are then `received`; None while it is not ready."""
        block = self._next()
        if block is None:
            return None
        for worker in block:
            del self._ready[worker]
        if self._in_order:
            for _ in block:
                self._queue.popleft()
        else:
            self._queue = deque(worker for worker in self._queue if worker not in block)
        self.received = block
        return block

    def give_back(self) -> Block:
        """Set the workers received to work again; return them."""
        block, self.received = self.received, ()
        self._queue.extend(block)
        return block

    @property
    def working(self) -> Block:
        """The workers that were set to work and are not done, longest at work first."""
        return tuple(worker for worker in self._queue if worker not in self._ready)

    @property
    def wanted(self) -> Block:
        """The working workers of which some are needed for the next batch: the ones to wait for."""
        if not self._in_order:
            return self.working
        return tuple(worker for worker in self._head() if worker not in self._ready)

    @property
    def missing(self) -> int:
        """How many of `wanted` must be done, at the least, before the next batch can be ready."""
        if self._in_order:
            return len(self.wanted)
        if self.mode != "ring":
            return max(0, self.per_batch - len(self._ready))
        queued = set(self._queue)
        waits = [
            sum(worker not in self._ready for worker in block) for block in self._aligned if queued.issuperset(block)
        ]
        return min(waits, default=0)

    def _next(self) -> Block | None:
        if self._in_order:
            head = self._head()
            return head if len(head) == self.per_batch and self._ready.keys() >= set(head) else None
        if self.mode == "ring":
            return next((block for block in self._aligned if self._ready.keys() >= set(block)), None)
        if len(self._ready) < self.per_batch:
            return None
        return tuple(self._ready)[: self.per_batch]

    def _head(self) -> Block:
        return tuple(self._queue[i] for i in range(min(self.per_batch, len(self._queue))))


def rows_of(block: Sequence[int], rows_per_worker: int) -> slice | npt.NDArray[np.int64]:
    """Return where a block's rows are among all rows: a slice for consecutive workers, else the index of each row."""
    first = block[0]
    if all(worker == first + i for i, worker in enumerate(block)):
        return slice(first * rows_per_worker, (first + len(block)) * rows_per_worker)
    starts = np.asarray(block, np.int64)[:, None] * rows_per_worker
    return (starts + np.arange(rows_per_worker)).reshape(-1)


def _mode(num_workers: int, per_batch: int, zero_copy: bool) -> Mode:
    if per_batch == num_workers:
        return "full"
    if per_batch == 1:
        return "single"
    return "ring" if zero_copy else "asynchronous"
