"""Threads that own parts of a batch.

One thread per part, each with its own small matrix products, instead of many threads inside every product: nothing
waits at a barrier after each operation, and a barrier that spins costs ten times what it saves as soon as another
program wants a core. Parts are cut by size alone and their results taken in order, so the numbers do not depend on how
many threads there are.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")
Task = tuple[Callable[[Any], Any], Sequence[Any], "SimpleQueue[Any]", int]

MAX_PARTS = 8


def cut(size: int, least: int, most: int | None = None) -> list[slice]:
    """Return slices that cover ``range(size)``: up to `MAX_PARTS` of ``least`` or more, unless ``most`` wants more."""
    count = max(1, min(MAX_PARTS, size // least), 1 if most is None else -(-size // most))
    step = -(-size // count)
    return [slice(first, min(first + step, size)) for first in range(0, size, step)]


class Workers:
    """A fixed set of threads, of which the caller is one.

    Args:
        threads: How many, the caller included.
    """

    def __init__(self, threads: int) -> None:
        self._inboxes: list[SimpleQueue[Task | None]] = [SimpleQueue() for _ in range(threads - 1)]
        for inbox in self._inboxes:
            threading.Thread(target=_work, args=(inbox,), daemon=True, name="puffer-rl").start()
        self._finalizer = weakref.finalize(self, _stop, self._inboxes)

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return ``function`` of each item, in their order; thread k takes every so manieth item from the k-th on."""
        if len(items) == 1 or not self._inboxes:
            return [function(item) for item in items]
        stride = len(self._inboxes) + 1
        done: SimpleQueue[Any] = SimpleQueue()
        shares = [items[k::stride] for k in range(stride)]
        for k, inbox in enumerate(self._inboxes, 1):
            inbox.put((function, shares[k], done, k))
        results: list[Any] = [None] * len(items)
        error: BaseException | None = None
        try:
            results[::stride] = [function(item) for item in shares[0]]
        except BaseException as own:
            error = own
        for _ in self._inboxes:
            k, outcome = done.get()
            if isinstance(outcome, BaseException):
                error = error or outcome
            else:
                results[k::stride] = outcome
        if error is not None:
            raise error
        return results

    def close(self) -> None:
        """End the threads; calling it twice is harmless."""
        self._finalizer()


def _work(inbox: SimpleQueue[Task | None]) -> None:
    torch.set_num_threads(1)
    while (task := inbox.get()) is not None:
        function, items, done, k = task
        try:
            done.put((k, [function(item) for item in items]))
        except BaseException as error:
            done.put((k, error))
        del task, function, items, done


def _stop(inboxes: Sequence[SimpleQueue[Task | None]]) -> None:
    for inbox in inboxes:
        inbox.put(None)


class OneThreadPerOperation(ContextDecorator):
    """While it is entered, torch does not split single operations over threads."""

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(self._before)
