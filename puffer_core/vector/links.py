"""Pipes between a parent and a worker: one byte says what happened, an object follows where there is more to say."""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from typing import Any

STEP, RESET, CALL = b"s", b"r", b"c"
"""To a worker: step with the actions in memory; reset, a seed follows; call a method, name and arguments follow."""
DONE, INFOS, VALUE, FAILED = b"d", b"i", b"v", b"f"
"""From a worker: a step or reset is done, without infos or followed by them; what a call returned; a `Fault`."""
GONE = b""
"""Read where the other end is closed: its process has ended."""

SPIN_S = 100e-6
"""How long to look again and again before sleeping: longer than the others of a batch need to finish, as a rule."""
_LENGTH = struct.Struct("<Q")


class Link:
    """One end of two pipes.

    Args:
        reader: Descriptor to read from.
        writer: Descriptor to write to.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer

    def put(self, code: bytes) -> None:
        """Send a code that nothing follows."""
        os.write(self.writer, code)

    def put_object(self, code: bytes, value: object) -> None:
        """Send a code and an object."""
        try:
            blob = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            import cloudpickle

            blob = cloudpickle.dumps(value)
        left = memoryview(code + _LENGTH.pack(len(blob)) + blob)
        while left:
            left = left[os.write(self.writer, left) :]

    def get(self) -> bytes:
        """Wait for a code and return it; `GONE` where none will come."""
        return os.read(self.reader, 1)

    def get_object(self) -> Any:
        """Return the object that follows a code.

        Raises:
            EOFError: If the other end died while it wrote.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(length))

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = os.read(self.reader, min(length, 1 << 20))
            if not part:
                raise EOFError("the other end is closed")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def spin(poll: select.poll, seconds: float) -> bool:
    """Look for up to so many seconds whether something can be read, giving way to others in between."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        if poll.poll(0):
            return True
        os.sched_yield()
    return False


def is_readable(fd: int) -> bool:
    """Return whether a read of a descriptor would return at once, at the end of the data too."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
