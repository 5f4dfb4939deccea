"""What a parent and a worker say to each other: words in shared memory, and pipes for who sleeps and for objects.

A step and its end are said by a word alone. Its reader looks at it again and again for a while; then it says that it
sleeps, and is woken by a byte in a pipe. Whatever has more to it is announced by the word, too, and follows in a pipe.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import threading
import time
from typing import Any

import numpy as np

from puffer_core.env import Layout
from puffer_core.vector.pickling import by_value
from puffer_core.vector.shared import map_arrays

STEP = DONE = b"."
"""To a worker: step with the actions in memory. From it: a step or reset is done, without infos."""
RESET, CALL = b"r", b"c"
"""To a worker: reset, a seed follows; call a method, name and arguments follow."""
INFOS, VALUE, FAILED = b"i", b"v", b"f"
"""From a worker: a step or reset is done, infos follow; what a call returned; a `Fault`."""
GONE = b""
"""Read where the other end is closed: its process has ended."""

WORDS = "words"
"""Name of the words in the layout of the memory, at its start."""
SPIN_S = 100e-6
"""How long to look again and again before sleeping: longer than the others of a batch need to finish, as a rule."""
_LENGTH = struct.Struct("<Q")
_LINE = 8
"""Words of a cache line; each process writes into one of its own."""
_SLEEPS = 1
"""In a line, 0 is the word itself, and this says whether its writer sleeps."""


def words_layout(num_workers: int) -> Layout:
    """Return the array of the words of so many workers, which comes first in the memory."""
    return {WORDS: ((num_workers, 2 * _LINE), np.int64)}


class Link:
    """One end of two pipes and two words.

    A word is twice the number of things said, and one more where the pipe holds the last of them.

    Args:
        reader: Descriptor to read from.
        writer: Descriptor to write to.
        region: Descriptor of the shared memory.
        number: Of the worker.
        is_parent: Whether this is the end of the parent.
    """

    def __init__(self, reader: int, writer: int, region: int, number: int, is_parent: bool) -> None:
        self.reader, self.writer = reader, writer
        self._words = map_arrays(region, words_layout(number + 1))[WORDS][number].data
        self._own, self._other = (0, _LINE) if is_parent else (_LINE, 0)
        self._said = self._heard = 0
        self._lock = threading.Lock()
        self._is_answered = not is_parent

    @property
    def is_told(self) -> bool:
        """Whether there is something to `take`."""
        return bool(self._words[self._other] != self._heard)

    @property
    def is_at_work(self) -> bool:
        """Whether the other end was told to do something, and has not said that it is done."""
        return not self._is_answered and not self.is_told

    # -- saying -------------------------------------------------------------------------------------------------------

    def put(self) -> None:
        """Say `STEP` or `DONE`."""
        self._is_answered = False
        self._said += 2
        self.fence()
        self._words[self._own] = self._said
        self.fence()
        if self._words[self._other + _SLEEPS]:
            os.write(self.writer, STEP)

    def put_object(self, code: bytes, value: object) -> None:
        """Say something else, with an object."""
        try:
            blob = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            blob = by_value(value)
        self._is_answered = False
        self._said += 2
        self.fence()
        self._words[self._own] = self._said + 1
        left = memoryview(code + _LENGTH.pack(len(blob)) + blob)
        while left:
            left = left[os.write(self.writer, left) :]

    # -- hearing ------------------------------------------------------------------------------------------------------

    def get(self, spin_s: float) -> bytes:
        """Wait for something to be said and return its code; `GONE` where nothing will be.

        Args:
            spin_s: How long to look again and again, giving way to others in between, before sleeping.
        """
        if spin_s:
            words, other, heard = self._words, self._other, self._heard
            end = time.perf_counter() + spin_s
            while words[other] == heard and time.perf_counter() < end:
                os.sched_yield()
        if not self.is_told and (code := self._sleep()) != STEP:
            self._heard = self._words[self._other]
            return code
        return self.take()

    def take(self) -> bytes:
        """Return the code of what was said, which is there; `GONE` if the other end died while it spoke."""
        self._is_answered = True
        self._heard = self._words[self._other]
        self.fence()
        if not self._heard & 1:
            return STEP
        while (code := os.read(self.reader, 1)) == STEP:  # left by a wake-up that was not needed
            pass
        return code

    def get_object(self) -> Any:
        """Return the object that follows a code.

        Raises:
            EOFError: If the other end died while it wrote.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(length))

    # -- sleeping -----------------------------------------------------------------------------------------------------

    def set_asleep(self, asleep: bool) -> None:
        """Say whether this end has to be woken by a byte in the pipe; after a `fence`, look at `is_told` once more."""
        self._words[self._own + _SLEEPS] = asleep

    def woken(self) -> bool:
        """Take the byte that came as a wake-up, after the reader was seen to be ready; False where the pipe ended."""
        return (self.is_told and bool(self._words[self._other] & 1)) or os.read(self.reader, 1) != GONE

    def _sleep(self) -> bytes:
        """Wait for a word; return `STEP`, or the code that was read from the pipe."""
        self.set_asleep(True)
        self.fence()
        code = STEP
        while not self.is_told and code == STEP:
            code = os.read(self.reader, 1)
        self.set_asleep(False)
        return code

    def fence(self) -> None:
        """Let no access of memory pass another across this line.

        What follows the taking of a lock stays behind it, and what precedes the giving back stays before it; two in a
        row keep both apart. Ctrl-C may leave the lock taken: nobody waits for it, and the next one gives it back.
        """
        lock = self._lock
        lock.acquire(False)
        lock.release()
        lock.acquire(False)
        lock.release()

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = os.read(self.reader, min(length, 1 << 20))
            if not part:
                raise EOFError("the other end is closed")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def is_readable(fd: int) -> bool:
    """Return whether a read of a descriptor would return at once, at the end of the data too."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
