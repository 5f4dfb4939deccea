"""A limit on how long code that is not ours may take in this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
_AGAIN_S = 0.1
"""Code that swallows the interruption is interrupted again after so long."""


class _TimeUp(BaseException):
    """Raised inside the code that takes too long; no `except Exception` of it is meant to catch this."""


def within(limit_s: float | None, call: Callable[[], T]) -> T:
    """Return what ``call`` returns.

    In the main thread it stays there and is interrupted by a signal; elsewhere, or where somebody else's timer runs, it
    is called in a thread of its own, which is left behind when the time is up.

    Args:
        limit_s: Seconds that it may take; None is any time.
        call: What to do.

    Raises:
        TimeoutError: If it takes longer.
    """
    if limit_s is None:
        return call()
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN):
        return _interrupted(limit_s, call)
    return _in_thread(limit_s, call)


def _interrupted(limit_s: float, call: Callable[[], T]) -> T:
    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _TimeUp

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
            return call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _TimeUp:
        raise TimeoutError from None
    finally:
        signal.signal(signal.SIGALRM, previous)


def _in_thread(limit_s: float, call: Callable[[], T]) -> T:
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(limit_s)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]  # type: ignore[no-any-return]
