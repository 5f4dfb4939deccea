"""Where the time of training goes, at the price of reading the clock."""

from __future__ import annotations

import time

PHASES = (
    "env",
    "forward",
    "sample",
    "copy",
    "advantage",
    "replay",
    "loss_forward",
    "backward",
    "optimiser",
    "misc",
)
"""Acting is env, forward, sample and copy; learning is the rest."""


class PhaseClock:
    """Adds up seconds by phase: each `mark` books the time since the one before.

    Kernels that run asynchronously on a GPU are booked where the program waits for them.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last = time.perf_counter()

    def start(self) -> None:
        """Begin now; what happened since the last mark belongs to nobody."""
        self._last = time.perf_counter()

    def mark(self, phase: str) -> None:
        """Book the time since the last mark on ``phase``."""
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now
