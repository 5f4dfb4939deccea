"""Which workers make the next batch: bookkeeping without any waiting, for every backend that has workers.

A worker is working, ready, received, or held. `Blocks.restart` sets all to work; `done` reports one that finished;
`take` gives the workers of the next batch once all of them are ready; `give_back` sets those to work again, except
those it is told to hold; `release` sets the held ones to work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
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
    batches of a run are then the same every time, in a ring as block 0, 1, .., 0, 1, ... While workers are held, a
    batch is what is left: of a block that is taken whole its other workers, else no more than all who are not held.

    Args:
        num_workers: Workers of the vector.
        per_batch: Workers of one batch; with ``zero_copy`` it divides ``num_workers``.
        zero_copy: Whether a batch must be consecutive workers.
        in_order: Whether to take them in the order in which they were set to work.

    Attributes:
        mode: As in the table.
        is_in_order: Whether it is known before anyone is ready who makes the next batch.
        received: The block that was taken and not given back; empty in between.
        held: The workers that were received and left unanswered, in order.

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
        self.held: Block = ()
        self.is_in_order = in_order or self.mode == "full"
        self._everyone = tuple(range(num_workers))
        self._aligned = [tuple(range(i, i + per_batch)) for i in range(0, num_workers, per_batch)]
        self._queue: deque[int] = deque()
        self._ready: dict[int, None] = {}

    def restart(self) -> None:
        """Set every worker to work, as a reset does; whatever they did before is forgotten."""
        self._queue = deque(range(self.num_workers))
        self._ready.clear()
        self.received = self.held = ()

    def done(self, worker: int) -> None:
        """Note that a worker finished its step or its reset."""
        self._ready[worker] = None

    def take(self) -> Block | None:
        """Return the workers of the next batch, which are then `received`; None while it is not ready."""
        if self.mode == "full":
            return self._take_everyone()
        block = self._next()
        if not block:
            return None
        for worker in block:
            del self._ready[worker]
            self._queue.remove(worker)
        self.received = block
        return block

    def _take_everyone(self) -> Block | None:
        if len(self._ready) < self.num_workers:
            return None
        self._ready.clear()
        self._queue.clear()
        self.received = self._everyone
        return self.received

    def give_back(self, hold: Block = ()) -> Block:
        """Set the workers received to work again, except those to hold; return them, in the order of the batch."""
        block = self.received
        if hold:
            block = tuple(worker for worker in block if worker not in hold)
            self.held = tuple(sorted({*self.held, *hold}))
        self.received = ()
        self._queue.extend(block)
        return block

    def release(self) -> Block:
        """Set the workers that are held to work again; return them, in order."""
        block, self.held = self.held, ()
        self._queue.extend(block)
        return block

    @property
    def working(self) -> Block:
        """The workers that were set to work and are not done, longest at work first."""
        return tuple(worker for worker in self._queue if worker not in self._ready)

    @property
    def wanted(self) -> Block:
        """The working workers of which some are needed for the next batch: the ones to wait for."""
        if self.mode == "full":
            return self._unready(self._everyone) if self._ready else self._everyone
        return self._unready(self._head()) if self.is_in_order else self.working

    @property
    def missing(self) -> int:
        """How many of `wanted` must be done, at the least, before the next batch can be ready."""
        if self.mode == "full":
            return self.num_workers - len(self._ready)
        if self.is_in_order:
            return len(self.wanted)
        if self.mode == "ring":
            return min((len(self._unready(block)) for block in self._whole()), default=0)
        return max(0, self._size() - len(self._ready))

    def _next(self) -> Block | None:
        if self.is_in_order:
            head = self._head()
            return None if self._unready(head) else head
        if self.mode == "ring":
            return next((block for block in self._whole() if not self._unready(block)), None)
        return tuple(self._ready)[: self._size()] if len(self._ready) >= self._size() else None

    def _head(self) -> Block:
        """Return the next batch where it is known before anyone is ready."""
        if self.mode in ("single", "asynchronous"):
            return tuple(islice(self._queue, self._size()))
        block = self._aligned[self._queue[0] // self.per_batch] if self._queue else ()
        return tuple(worker for worker in block if worker not in self.held)

    def _whole(self) -> list[Block]:
        """Return the blocks of a ring without the workers that are held; those received are in none."""
        queued = set(self._queue)
        blocks = [tuple(worker for worker in block if worker in queued) for block in self._aligned]
        return [block for block in blocks if block]

    def _unready(self, block: Block) -> Block:
        return tuple(worker for worker in block if worker not in self._ready)

    def _size(self) -> int:
        return min(self.per_batch, len(self._queue))


def auto_workers(num_envs: int, batch_size: int, cores: int) -> int:
    """Return the workers for ``num_workers = auto``: as many as there are cores, if environments and batches divide.

    Where no such number is at most ``cores``, it is the lowest that is legal.
    """
    shares = [share for share in range(1, num_envs + 1) if num_envs % share == 0 and batch_size % share == 0]
    legal = [num_envs // share for share in shares]
    return max((count for count in legal if count <= cores), default=min(legal))


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
