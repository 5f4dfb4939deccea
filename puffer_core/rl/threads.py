"""How many threads torch splits one operation over, chosen by the clock.

On idle cores two threads learn 1.4 times as fast as one. But threads that share an operation meet at a barrier after
it, and those that wait there spin: as soon as another program wants a core, two threads are ten times slower than one.
So the work is timed, the count that was fastest lately is used, and the other one is tried now and then.

Matrix products and elementwise operations of the built-in networks give the same bits for any count, so the clock
decides how fast, not what. Sums of a whole array to one number do not: those stay outside. Nor do the gradients of
convolutions: see `threads_for`.
"""

from __future__ import annotations

import time
from contextlib import ContextDecorator

import torch
from torch import nn

SMALL = 2**22
"""Weights times rows of a pass: below, it is not worth splitting."""
LARGE = 2**26
"""Likewise, where the clock may not find out that a busy machine makes two threads slower than one."""
FIRST_TRIALS = 3
"""Timings of each count to begin with."""
SHORTEST_WAIT, LONGEST_WAIT = 16, 1024
"""Units of work between two trials of the other count; the wait doubles whenever it loses."""
WEIGHT = 0.3
"""Of the latest timing in the estimate."""


class Threads:
    """Use as a context manager around each unit of work, which is always of the same size.

    Args:
        most: The count that competes with one thread.
        is_timed: Let the clock choose; otherwise it is always ``most``.
    """

    def __init__(self, most: int, *, is_timed: bool = True) -> None:
        self._counts = (1, most) if most > 1 and is_timed else (most,)
        self._seconds: dict[int, float] = {}
        self._trials = [count for count in self._counts for _ in range(FIRST_TRIALS)] if len(self._counts) > 1 else []
        self._best, self._now = most, 1
        self._wait = self._left = SHORTEST_WAIT

    def __enter__(self) -> None:
        self._now = self._trials[0] if self._trials else self._best
        torch.set_num_threads(self._now)
        self._started = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(1)
        if len(self._counts) > 1:
            self.observe(time.perf_counter() - self._started)

    def observe(self, seconds: float) -> None:
        """Take in how long the last unit of work took, and decide on the next."""
        if self._trials:
            self._trials.pop(0)
            self._seconds[self._now] = min(seconds, self._seconds.get(self._now, seconds))
            if not self._trials:
                self._choose()
            return
        before = self._seconds[self._best]
        self._seconds[self._best] = before + WEIGHT * (seconds - before)
        self._left -= 1
        other = self._other()
        if self._left <= 0 or self._seconds[self._best] > 1.5 * self._seconds[other]:
            self._seconds.pop(other)
            self._trials = [other]

    def _other(self) -> int:
        return next(count for count in self._counts if count != self._best)

    def _choose(self) -> None:
        """After trials: take the faster count; wait longer if that changes nothing."""
        fastest = min(self._counts, key=lambda count: self._seconds[count])
        self._wait = min(2 * self._wait, LONGEST_WAIT) if fastest == self._best else SHORTEST_WAIT
        self._best, self._left = fastest, self._wait


def threads_for(network: nn.Module, rows: int, most: int, *, is_plain: bool = True) -> Threads:
    """Return how passes of a network over so many rows are split over at most ``most`` threads.

    The clock chooses where the bits are known to be the same for any power of two: for an encoder that says
    ``splits_alike``. (LSTMs of 256 have others on three threads and those of 512 on eight: at most two share one.)
    Gradients of convolutions, of a user's network, compiled or in bfloat16 may be sums in another order on two threads
    than on one: their count depends on nothing but sizes, so that a seed gives the same run.

    Args:
        network: The policy.
        rows: Of one pass.
        most: Threads.
        is_plain: It computes in float32, and is not compiled.
    """
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    has_pictures = any(weight.ndim > 2 for weight in weights)
    size = rows * sum(weight.numel() for weight in weights)
    if is_plain and getattr(getattr(network, "encoder", None), "splits_alike", False):
        most = min(most, 2) if getattr(network, "core", None) == "lstm" else 2 ** (most.bit_length() - 1)
        return Threads(1 if size < SMALL else most)
    return Threads(most if has_pictures or size >= LARGE else 1, is_timed=False)


class OneThreadPerOperation(ContextDecorator):
    """While it is entered, torch does not split operations over threads, but where `Threads` says so."""

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(self._before)
