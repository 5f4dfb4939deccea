"""What runs in a worker process: a `Serial` over its share of the environments, on its rows of the shared memory."""

from __future__ import annotations

import fcntl
import os
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from puffer_core.env import Array, Layout
from puffer_core.vector.faults import Fault
from puffer_core.vector.generators import seed_globals
from puffer_core.vector.links import CALL, FAILED, GONE, INFOS, RESET, STEP, VALUE, WORDS, Link, is_readable
from puffer_core.vector.member import Member
from puffer_core.vector.rows import Rows
from puffer_core.vector.serial import Serial
from puffer_core.vector.shared import map_arrays
from puffer_core.vector.source import Source
from puffer_core.vector.threads import use_one_thread

parents_ends: set[int] = set()
"""Descriptors of this process's vectors. A forked worker closes them: a pipe ends when nobody else holds its end."""


@dataclass(frozen=True)
class Task:
    """The share of one worker.

    Attributes:
        number: Of the worker.
        sources: Its environments.
        expected: What each of them takes in the arrays.
        layout: Of the arrays of all workers.
        rows: Its own rows.
        seed: Of the vector.
        first_index: Instances before its own, over all workers and ranks.
        num_threads: Of each environment in C.
        spin_s: How long to look again and again for the next step before sleeping.
    """

    number: int
    sources: Sequence[Source]
    expected: Rows
    layout: Layout
    rows: slice
    seed: int
    first_index: int
    num_threads: int | str
    spin_s: float


def main(sent: Any, number: int, passed: Sequence[int]) -> None:
    """Be a worker until the parent closes its pipe or is gone.

    Args:
        sent: A `Task`, or one pickled by cloudpickle.
        number: Of the worker.
        passed: Descriptors: of pipes to read, to write and to watch, and of the shared memory.
    """
    reader, writer, lifeline, region = passed
    _become_worker(lifeline)
    link = Link(reader, writer, region, number, is_parent=False)
    vector: Share | None = None
    try:
        task = _task(sent)
        seed_globals(task.seed, task.first_index)
        arrays = map_arrays(region, task.layout)
        del arrays[WORDS]
        vector = Share(task, arrays)
        link.put_object(VALUE, vector.limits)
        _serve(link, vector, task.spin_s)
    except BrokenPipeError:
        return
    except BaseException as error:
        _report_error(link, error, vector)
    finally:
        if vector is not None:
            vector.close()


def _task(sent: Any) -> Task:
    if not isinstance(sent, bytes):
        return sent  # type: ignore[no-any-return]
    import pickle

    return pickle.loads(sent)  # type: ignore[no-any-return]


class Share(Serial):
    """The environments of one worker, of which each takes what those of other workers do in the arrays."""

    def __init__(self, task: Task, arrays: Mapping[str, Array]) -> None:
        self._task = task
        super().__init__(
            task.sources,
            len(task.sources),
            num_threads=task.num_threads,
            seed=task.seed,
            first_index=task.first_index,
            buf={name: array[task.rows] for name, array in arrays.items()},
        )

    def _declare(self, rows: Rows, objects: int, buf: Mapping[str, Array] | None) -> None:
        self._task.expected.require_same(rows, self._task.number * objects, self.name)
        super()._declare(rows, objects, buf)

    def advance(self) -> None:
        """Step with the actions that the parent wrote; it keeps the order of calls."""
        self._send(self.actions)


def _serve(link: Link, vector: Share, spin_s: float) -> None:
    """Do what the parent says until its pipe ends."""
    while True:
        code = link.get(spin_s)
        if code == STEP:
            vector.advance()
        elif code == RESET:
            vector.reset(link.get_object())
        elif code == CALL:
            _answer(link, vector)
            continue
        elif code == GONE:
            return
        if vector.infos:
            link.put_object(INFOS, vector.infos)
        else:
            link.put()


def _answer(link: Link, vector: Serial) -> None:
    """Call a method of the vector for the parent; what it raises is for the caller, and the worker goes on."""
    name, args, kwargs = link.get_object()
    call: Callable[..., Any] = getattr(vector, name)
    try:
        link.put_object(VALUE, call(*args, **kwargs))
    except BrokenPipeError:
        raise
    except Exception as error:
        link.put_object(FAILED, Fault.of(error, _position(error, vector)))


def _report_error(link: Link, error: BaseException, vector: Serial | None) -> None:
    """Send what went wrong, if the parent is there to hear it."""
    try:
        link.put_object(FAILED, Fault.of(error, _position(error, vector)))
    except BrokenPipeError:
        return


def _position(error: BaseException, vector: Serial | None) -> int | None:
    """Return which of the worker's instances raised something: the one of which a method is in the traceback."""
    owners = {} if vector is None else {id(part): member.first for member in vector.members for part in _parts(member)}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        names, seen = frame.f_code.co_varnames, frame.f_locals
        owner = seen.get(names[0]) if names else None
        if id(owner) in owners:
            return owners[id(owner)]
        if vector is None and isinstance(owner, Serial) and frame.f_code.co_name == "_open":
            return int(seen.get("i", 0))
    return None


def _parts(member: Member) -> list[object]:
    """Return an environment, and what it is wrapped around."""
    inner = getattr(member.env, "env", None)
    parts = [member, member.env, inner, getattr(inner, "unwrapped", None)]
    return [part for part in parts if part is not None]


# -- the process itself ---------------------------------------------------------------------------------------------


def _become_worker(lifeline: int) -> None:
    """Make this process a worker: deaf to Ctrl-C, one thread, gone when the parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.set_wakeup_fd(-1)
    for fd in parents_ends:
        os.close(fd)
    parents_ends.clear()
    _die_with(lifeline)
    use_one_thread()


def _die_with(lifeline: int) -> None:
    """Have the system kill this process when the parent's end of a pipe closes, also in the middle of a step.

    The parent closes it when it ends, however it ends; the system then signals the owner of the other end.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if is_readable(lifeline):
        os._exit(1)
