"""A logger in a thread of its own: whatever it does, the run goes on as if it were not there.

Rows wait in a queue of bounded length. What the logger raises, and a queue that is full, is raised by the next call
here, in the thread of the run, so that warnings need no lock. A logger that never returns is left behind in its thread,
which ends with the process.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from puffer_core.errors import RunError
from puffer_core.loggers.tracked import Progress

CAPACITY = 1024
"""Rows that may wait: ten minutes of them, and a few MB."""


class Logger(Protocol):
    """Where metrics are mirrored to.

    It may also have ``start()``, called before the first row, and ``finish(result)``, called after the last with the
    JSON object of the command. All calls but the making come from one thread, which is not the run's own; only
    ``jsonl`` is called directly. ``abandon()``, where it has one, is called from another thread while a call of it
    does not return: it must not wait, and leave nothing that holds up the end of the process.
    """

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take one row. Called between rollouts, at most about twice a second."""

    def close(self) -> None:
        """Send what is left."""


class Mirror:
    """Calls a logger from a thread, which is started by the first call.

    Args:
        name: For the thread.
        logger: Already made, but not started.
        progress: How far the logger has come in sessions before this one; kept up to date.
        backlog: Gives the rows there have been so far, in the thread; those that are not sent yet go first.
        capacity: Calls that may wait.
    """

    def __init__(
        self,
        name: str,
        logger: Logger,
        *,
        progress: Progress | None = None,
        backlog: Callable[[], Iterable[tuple[int, Mapping[str, float]]]] = tuple,
        capacity: int = CAPACITY,
    ) -> None:
        self._logger, self._progress, self._backlog, self._capacity = logger, progress, backlog, capacity
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"puffer-logger-{name}", daemon=True)
        self._error: Exception | None = None
        self._is_abandoned = self._is_ending = self._is_started = self.has_failed = False

    @property
    def waiting(self) -> int:
        """Calls that the logger has not begun."""
        return max(0, self._calls.qsize() - self._is_ending)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Put a row into the queue.

        Raises:
            RunError: If the queue is full.
            Exception: What the logger has raised since the call before.
        """
        row = dict(metrics)
        self._put(lambda: self._log(step, row))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Put the result of the run into the queue; raises what `log` raises."""
        finish = getattr(self._logger, "finish", None)
        if finish is not None:
            kept = dict(result)
            self._put(lambda: finish(kept))

    def end(self) -> None:
        """Have the logger closed once it has taken what waits; returns at once."""
        if not self._is_ending:
            self._is_ending = True
            if self._thread.ident is None:
                self._thread.start()
            self._calls.put(None)

    def wait(self, until: float) -> None:
        """Wait for `end` to be done, at most until ``until``, in seconds of `time.monotonic`.

        Raises:
            RunError: If the logger is not done by then.
            Exception: What the logger has raised.
        """
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            missing = self.waiting
            self.abandon()
            raise RunError(f"it did not end in time; {missing} entries that waited were not taken")
        self._raise()

    def abandon(self) -> None:
        """Give the logger up: it is called no more; a call that it is in now may still return.

        What it was handed in this session counts as not sent.
        """
        self._is_abandoned = True
        if self._progress is not None:
            self._progress.rewind()
        self._calls.put(None)
        abandon = getattr(self._logger, "abandon", None)
        if abandon is not None:
            abandon()

    def _put(self, call: Callable[[], None]) -> None:
        self._raise()
        if self._calls.qsize() >= self._capacity:
            self.abandon()
            raise RunError(f"it is {self._capacity} rows behind")
        self._calls.put(call)
        if self._thread.ident is None:
            self._thread.start()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _log(self, step: int, row: Mapping[str, float]) -> None:
        progress = self._progress
        if progress is None:
            self._logger.log(step, row)
        elif step > progress.step:
            self._logger.log(step, row)
            progress.advance(step)

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:  # a thread has nobody else to tell, and Ctrl-C goes to the main thread
            self.has_failed = True
            self._error = _as_exception(error)
        try:
            if not self._is_abandoned:
                self._close()
        except BaseException as error:
            self._error = self._error or _as_exception(error)
            if self._progress is not None:
                self._progress.rewind()

    def _close(self) -> None:
        """Close the logger; it has then sent what it was handed, and the result unless it failed before."""
        self._logger.close()
        if self._progress is not None and self._is_started and not self.has_failed:
            self._progress.close()

    def _run(self) -> None:
        call = self._calls.get()
        if call is None:
            return
        start = getattr(self._logger, "start", None)
        if start is not None:
            start()
        if self._progress is not None:
            self._progress.open()
        self._is_started = True
        for step, row in self._backlog():
            self._log(step, row)
        while call is not None and not self._is_abandoned:
            call()
            call = self._calls.get()


def _as_exception(error: BaseException) -> Exception:
    """Return what may be raised in the thread of the run without ending it."""
    return error if isinstance(error, Exception) else RunError(f"it raised {type(error).__name__}: {error}")
