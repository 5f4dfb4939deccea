"""What goes wrong in a worker, in a form that crosses to its parent, and the error that the parent raises."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from puffer_core.errors import PufferError, WorkerError, shortened, text_of


@dataclass(frozen=True)
class Fault:
    """An exception in a worker.

    Attributes:
        kind: Name of its class.
        text: What it says.
        trace: The worker's own traceback.
        position: The environment in which it was raised, counted within the worker; None where that is not known.
        pickled: A `PufferError` itself, which keeps its type; else empty.
    """

    kind: str
    text: str
    trace: str
    position: int | None = None
    pickled: bytes = b""

    @classmethod
    def of(cls, error: BaseException, position: int | None = None) -> Fault:
        """Describe an exception."""
        trace = "".join(traceback.format_exception(error))
        return cls(type(error).__qualname__, text_of(error), trace, position, _pickled(error))

    def as_error(self, owner: str, where: Callable[[int | None], str]) -> PufferError:
        """Return what the parent raises.

        Args:
            owner: The vector, for the message.
            where: Says which environment in which worker, given the position.
        """
        place = where(self.position)
        remote = WorkerError(f"{owner}: {place} raised {self.kind}: {self.text}\n\n{self.trace.rstrip()}")
        if not self.pickled:
            return remote
        error: PufferError = pickle.loads(self.pickled)
        known = type(error)(f"{place}: {error}", error.hint)
        known.__cause__ = remote
        return known


def death(owner: str, place: str, exit_code: int | None) -> WorkerError:
    """Return the error for a worker that has ended without a word."""
    if exit_code is None or exit_code >= 0:
        status = "an unknown exit status" if exit_code is None else f"exit status {exit_code}"
        return WorkerError(f"{owner}: {place} ended with {status}", hint="something in it left the process")
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    hint = "out of memory? use fewer environments or workers" if name == "SIGKILL" else None
    return WorkerError(f"{owner}: {place} was killed by {name}", hint=hint)


def hang(owner: str, place: str, timeout_s: float) -> WorkerError:
    """Return the error for a worker that takes too long."""
    msg = f"{owner}: {place} has not finished its step or reset within {shortened(timeout_s)} s"
    return WorkerError(msg, hint="raise `timeout` if it is only slow")


def slow_start(owner: str, place: str, limit_s: float, hint: str = "") -> WorkerError:
    """Return the error for a worker whose environments are not open in time."""
    msg = f"{owner}: {place} has not opened its environments within {shortened(limit_s)} s"
    return WorkerError(msg, hint=hint + "a `timeout` that is longer gives it more time")


def _pickled(error: BaseException) -> bytes:
    """Return a `PufferError` as bytes, where it can be made again; else nothing."""
    if not isinstance(error, PufferError):
        return b""
    try:
        blob = pickle.dumps(error)
        pickle.loads(blob)
    except Exception:
        return b""
    return blob
