"""Stopping a run from outside: the first signal asks it to end where it is whole, the second ends it now."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Raised after a signal ended a run early, once everything worth keeping has been saved.

    Args:
        number: The signal.
        result: What the run would have returned, up to where it got; empty where it had not begun.
    """

    def __init__(self, number: int, result: dict[str, object]) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number
        self.result = result

    @property
    def exit_code(self) -> int:
        """128 plus the signal, as shells report it: 130 for Ctrl-C."""
        return 128 + self.number


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered, and puts the handlers before it back when it is left.

    The first signal raises `Interrupted` where the program is, or inside `held` only sets `number`. The second one ends
    the process. What the handler calls may touch no lock and no buffer: the signal may have come amid a print.

    Args:
        on_first: Called in the handler of a first signal that is held, with its name, to tell what happens next.
        on_second: Called before the process ends, to restore the terminal.

    Outside the main thread signals can't be caught, and nothing happens.
    """

    def __init__(self, on_first: Callable[[str], None], on_second: Callable[[], None]) -> None:
        self.number: int | None = None
        self._on_first = on_first
        self._on_second = on_second
        self._is_held = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def raise_if_any(self) -> None:
        """Raise `Interrupted` if a signal came inside `held`."""
        if self.number is not None:
            raise Interrupted(self.number, {})

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the first signal only set `number`; whoever is inside looks at it."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            self._on_second()
            os._exit(128 + number)
        self.number = number
        if not self._is_held:
            raise Interrupted(number, {})
        self._on_first(signal.Signals(number).name)
