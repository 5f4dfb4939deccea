"""The processes that train one policy together, and what they tell each other.

Whoever starts them (``torchrun``, or ``--train.processes``) gives each its place in RANK, WORLD_SIZE, LOCAL_RANK and
MASTER_*. One process that nobody placed is `Ranks`, for which nothing is sent. Sums go over gloo on a CPU and NCCL on
GPUs, objects over gloo. All ranks must make the same calls in the same order: none may be in a branch for one rank.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from puffer_core.errors import LostRankError
from puffer_core.isolation import describe
from puffer_core.place import PARENT, Place, place

if TYPE_CHECKING:
    from torch import Tensor

TIMEOUT = timedelta(hours=1)
"""How long one rank waits for another that is alive; one that dies is noticed at once."""
WATCH_S = 0.5
"""Seconds between two looks at whether another rank has failed."""
GRACE_S = 5.0
"""Seconds in which a rank has to end by itself once another has failed."""
_FAILED = "puffer/failed"


class Ranks:
    """One process: sums are what is put in, and everybody agrees.

    Attributes:
        rank: Of this process, from 0.
        world_size: Number of processes.
        is_first: Whether this one writes and speaks for all.
    """

    rank, world_size = 0, 1

    @property
    def is_first(self) -> bool:
        """Whether this process has rank 0."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Make ``tensor`` the sum over ranks, in place; return it, with the same bits on every rank."""
        return tensor

    def max_(self, tensor: Tensor) -> Tensor:
        """Make ``tensor`` the maximum over ranks, in place; return it."""
        return tensor

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Make ``tensor`` that of rank 0, in place; return it."""
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank, on every rank."""
        return [value]

    def broadcast_object(self, value: Any) -> Any:
        """Return the value of rank 0."""
        return self.gather(value)[0]

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is set on any rank."""
        return any(self.gather(flag))

    def total(self, number: float) -> float:
        """Return the sum of a number over ranks."""
        return float(sum(self.gather(number)))

    def expect_end(self) -> None:
        """Note that the run has ended well: from now on other ranks may go at any time."""

    def leave(self, error: BaseException | None = None) -> None:
        """Go: this rank takes part in nothing more. With an error, the others fail as well, and are told why."""


class Group(Ranks):
    """This process among others; the constructor returns once all are there.

    Args:
        here: Its place.
        device: On which it learns.
    """

    def __init__(self, here: Place, device: str = "cpu") -> None:
        import torch
        import torch.distributed as dist

        self.rank, self.world_size = here.rank, here.world_size
        self._dist: Any = dist
        if device.startswith("cuda"):
            torch.cuda.set_device(torch.device(device))
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo", timeout=TIMEOUT)
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        # A connection of its own: a rank that waits in a collective must still be able to look.
        self._store = self._dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=10))
        self._watch = _Watch(self._dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=10)))

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum over ranks."""
        return self._reduce(tensor, self._dist.ReduceOp.SUM)

    def max_(self, tensor: Tensor) -> Tensor:
        """Take the maximum over ranks."""
        return self._reduce(tensor, self._dist.ReduceOp.MAX)

    def _reduce(self, tensor: Tensor, operation: Any) -> Tensor:
        try:
            self._dist.all_reduce(tensor, operation)
        except RuntimeError as error:
            self._explain(error)
        return tensor

    def broadcast_(self, tensor: Tensor) -> Tensor:
        """Take over the tensor of rank 0."""
        try:
            self._dist.broadcast(tensor, 0)
        except RuntimeError as error:
            self._explain(error)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """Exchange objects, as pickles, through the CPU."""
        values: list[Any] = [None] * self.world_size
        try:
            self._gather(values, value)
        except RuntimeError as error:
            self._explain(error)
        return values

    def total(self, number: float) -> float:
        """Sum a number over ranks."""
        import torch

        return float(self.sum_(torch.tensor(number, dtype=torch.float64)))

    def _gather(self, values: list[Any], value: Any) -> None:
        """Fill ``values``; torch's own function would go through the GPU where there is one."""
        import pickle

        import torch

        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in values]
        self._dist.all_gather(sizes, torch.tensor([len(data)]))
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(data)] = data
        parts = [torch.empty_like(padded) for _ in values]
        self._dist.all_gather(parts, padded)
        for rank, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            values[rank] = pickle.loads(part[: int(size)].numpy().tobytes())

    def _explain(self, error: RuntimeError) -> NoReturn:
        """Raise what has befallen the other rank without which a collective could not be done."""
        text = _failure(self._store, GRACE_S / 2)
        raise LostRankError(text or f"another process of this run is gone: {describe(error)}") from error

    def expect_end(self) -> None:
        """Watch the others no more."""
        self._watch.stop()

    def leave(self, error: BaseException | None = None) -> None:
        """Close the connections, on which ranks that still wait for this one fail."""
        if error is not None:
            with suppress(RuntimeError):  # the rank that keeps the store is gone: everybody notices
                self._store.compare_set(_FAILED, "", f"rank {self.rank} failed: {describe(error)}")
        self._watch.stop()
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


class _Watch(threading.Thread):
    """Ends this process where another rank has failed, or its starter is gone, and it does not end by itself."""

    def __init__(self, store: Any) -> None:
        super().__init__(name="puffer-ranks", daemon=True)
        self._store, self._stopped = store, threading.Event()
        self._parent = int(os.environ.get(PARENT, 0))
        self.start()

    def run(self) -> None:
        """Look until stopped."""
        while not self._stopped.wait(WATCH_S):
            if self._is_over() and not self._stopped.wait(GRACE_S):
                os._exit(1)

    def _is_over(self) -> bool:
        if self._parent and os.getppid() != self._parent:
            return True
        try:
            return bool(self._store.check([_FAILED]))
        except RuntimeError:  # the process that keeps the store is gone
            return True

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()


def _failure(store: Any, patience_s: float) -> str | None:
    """Return which rank has failed and why, as soon as it has said so."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        try:
            if store.check([_FAILED]):
                return str(store.get(_FAILED).decode())
        except RuntimeError:
            return None
        time.sleep(0.05)
    return None


_joined: list[Ranks] = []


def join(device: str = "cpu") -> Ranks:
    """Return the ranks of this process, once all are there; later calls return the same."""
    if not _joined:
        here = place()
        _joined.append(Group(here, device) if here.world_size > 1 else Ranks())
    return _joined[0]


def leave(error: BaseException | None = None) -> None:
    """Leave the ranks that were joined, if any."""
    for ranks in _joined:
        ranks.leave(error)
    _joined.clear()
