"""Where the time of training goes, at the price of reading the clock."""

from __future__ import annotations

import threading
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

    Only the thread that started it is heard; what others do meanwhile is the same. Kernels that run asynchronously on a
    GPU are booked where the program waits for them.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.start()

    def start(self) -> None:
        """Begin now, in this thread; what happened since the last mark belongs to nobody."""
        self._thread = threading.get_ident()
        self._last = time.perf_counter()

    def mark(self, phase: str) -> None:
        """Book the time since the last mark on ``phase``."""
        if threading.get_ident() != self._thread:
            return
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now
