"""Worker processes: how they are started, waited for and ended, whatever becomes of them or of this process."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver, reduction, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from puffer_core.errors import OptionError
from puffer_core.vector import worker
from puffer_core.vector.links import SPIN_S, Link
from puffer_core.vector.pickling import pickled
from puffer_core.vector.threads import one_thread_environment, one_thread_libraries
from puffer_core.vector.worker import Task

METHODS = ("auto", "fork", "spawn", "forkserver")
GRACE_S, FAULT_GRACE_S = 1.0, 0.5
"""How long workers have to close their environments before they are ended; the second after a fault in one of them."""

_HINT = 'give a class or function of a module, or start_method="fork"'

_starting = threading.Lock()
"""Held while a worker is started: no other may inherit pipes that are not yet known as this process's own."""
_server = {"users": 0, "is_ours": False}


class EndedError(Exception):
    """Raised when a worker has ended, with its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Processes:
    """The workers of one vector.

    Args:
        method: As for `Multiprocessing`.
        num_cores: Of this machine, for this process.

    Attributes:
        method: How the processes are started: ``fork``, ``spawn`` or ``forkserver``.
        links: To each worker.
        pids: Of each worker.
    """

    def __init__(self, method: str, num_cores: int) -> None:
        self.method = start_method(method)
        self.links: list[Link] = []
        self.pids: list[int] = []
        self._num_cores = num_cores
        self._processes: list[BaseProcess] = []
        self._lifelines: list[int] = []
        self._ends: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._polls: dict[int | None, select.poll] = {}
        self._is_stopped = False
        if self.method == "forkserver":
            _use_server()

    # -- starting -----------------------------------------------------------------------------------------------------

    def start(self, task: Task, region: int) -> None:
        """Start one more worker.

        Args:
            task: What it has to do.
            region: Descriptor of the shared memory.

        Raises:
            OptionError: If the task can't be sent to a new process.
        """
        context: Any = multiprocessing.get_context(self.method)
        sent: Task | bytes = task if self.method == "fork" else pickled(task, task.sources[0].name, _HINT)
        with ExitStack() as stack:
            stack.enter_context(_starting)
            mine, theirs = _pipes()
            stack.callback(_close_all, theirs)
            worker.parents_ends.update(mine)
            self.links.append(Link(mine[0], mine[1], region, task.number, is_parent=True))
            self._lifelines.append(mine[2])
            passed: Sequence[Any] = [*theirs, region]
            if self.method != "fork":
                # Started by now, since it lets signals through again that are blocked below.
                resource_tracker.ensure_running()
                passed = [_Sent(fd) for fd in passed]
                stack.enter_context(one_thread_environment())
                stack.enter_context(_without_main())
            else:
                stack.enter_context(one_thread_libraries())
            process = context.Process(
                target=worker.main, args=(sent, task.number, passed), name=f"puffer-worker-{task.number}", daemon=False
            )
            stack.enter_context(_signals_blocked())
            stack.enter_context(warnings.catch_warnings())
            # Python 3.12 warns of forks while there are threads, which numerical libraries start on their own.
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            process.start()
            # Known to `stop` before Ctrl-C gets through again.
            self._processes.append(process)
            self.pids.append(process.pid)
            end = _end_of(process)
            worker.parents_ends.add(end)
            self._ends[end] = self._numbers[end] = task.number
            self._numbers[mine[0]] = task.number
            self._polls.clear()

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, wanted: Sequence[int], missing: int, timeout_s: float | None = None) -> Sequence[int]:
        """Wait for a word from workers; return those that have something to say.

        A worker that was not asked for and has ended is in the answer if it left a word.

        Args:
            wanted: The workers to wait for.
            missing: How many of them are needed; the answer may be fewer, or more.
            timeout_s: After which the answer is empty; None waits for ever.

        Raises:
            EndedError: If a worker, this one or another, has ended without one.
        """
        if self._has_free_core():
            self._spin(wanted, missing)
        return self._told(wanted) or self._sleep(wanted, missing, timeout_s)

    def _told(self, numbers: Sequence[int]) -> list[int]:
        links = self.links
        return [number for number in numbers if links[number].is_told]

    def _has_free_core(self) -> bool:
        """Return whether fewer workers are at work than there are cores, so that looking takes nothing from them.

        Where none is free, one who gives way to a worker also gives way to all other programs: sleeping ends sooner.
        """
        links = self.links
        return len(links) < self._num_cores or sum(link.is_at_work for link in links) < self._num_cores

    def _spin(self, wanted: Sequence[int], missing: int) -> None:
        """Look for a while whether enough have a word, giving way to others in between."""
        end = time.perf_counter() + SPIN_S
        while len(self._told(wanted)) < missing and time.perf_counter() < end:
            os.sched_yield()

    def _sleep(self, wanted: Sequence[int], missing: int, timeout_s: float | None) -> list[int]:
        """Sleep until somebody who is wanted, or anybody who has ended or failed, has a word.

        Where all are needed, the first one is asked to wake this process, as others will be done as well by then; each
        is asked where the first who is done leaves a core free, on which this process can look for the others.
        """
        is_each = missing < len(wanted) or len(wanted) == self._num_cores
        links = [self.links[number] for number in (wanted if is_each else wanted[:1])]
        for link in links:
            link.set_asleep(True)
        links[0].fence()
        try:
            return self._told(wanted) or self._hear(wanted[0] if len(wanted) == 1 else None, timeout_s)
        finally:
            for link in links:
                link.set_asleep(False)

    def _hear(self, number: int | None, timeout_s: float | None) -> list[int]:
        """Return who has a word, once one worker, or any if that is None, has woken this process."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        poll = self._polls.get(number) or self._poll_of(number)
        while ready := poll.poll(None if end is None else max(0.0, end - time.monotonic()) * 1000):
            heard: dict[int, None] = {}
            for fd, _ in ready:
                other = self._numbers[fd]
                link = self.links[other]
                has_ended = fd in self._ends or not link.woken()
                # That one has ended may be told before its last word is read.
                if link.is_told:
                    heard[other] = None
                elif has_ended:
                    raise EndedError(other)
            if heard:
                return list(heard)
        return []

    def _poll_of(self, number: int | None) -> select.poll:
        """Return, kept for the next time, what polls the words of one worker or of all, and the ends of all."""
        poll = self._polls[number] = select.poll()
        links = self.links if number is None else [self.links[number]]
        for fd in (*self._ends, *(link.reader for link in links)):
            poll.register(fd, select.POLLIN)
        return poll

    def exit_code(self, number: int) -> int | None:
        """Return the exit status of a worker that has ended; negative is a signal, None not known."""
        self._processes[number].join(GRACE_S)
        return self._processes[number].exitcode

    # -- ending -------------------------------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """End one worker at once."""
        self._processes[number].kill()

    def stop(self, grace_s: float = GRACE_S) -> None:
        """End all workers, after so many seconds at the most in which they may close their environments."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for link in self.links:
            # A worker may be writing what nobody will read: without a reader it stops, and closes its environments.
            _close_all([link.writer, link.reader])
        self._join(grace_s)
        for process in self._alive():
            process.terminate()
        self._join(grace_s / 5)
        for process in self._alive():
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        _close_all([*self._lifelines, *self._ends])
        self._processes.clear()
        if self.method == "forkserver":
            _leave_server()

    def _alive(self) -> list[BaseProcess]:
        return [process for process in self._processes if process.is_alive()]

    def _join(self, seconds: float) -> None:
        """Wait until all have ended, for up to so many seconds."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        for end in self._ends:
            poll.register(end, select.POLLIN)
        left = set(self._ends)
        while left and (rest := deadline - time.monotonic()) > 0:
            for end, _ in poll.poll(rest * 1000):
                poll.unregister(end)
                left.discard(end)


class _Sent:
    """A descriptor that is duplicated for a new process while that is started."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __reduce__(self) -> tuple[object, ...]:
        return _received, (reduction.DupFd(self._fd),)


def _received(duplicate: Any) -> int:
    return int(duplicate.detach())


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()
    _server.update(users=0, is_ours=False)


os.register_at_fork(after_in_child=_after_fork)


def start_method(name: str) -> str:
    """Return how processes are started where a person asked for ``name``.

    Raises:
        OptionError: If it is no start method, or not one of this system.
    """
    here = multiprocessing.get_all_start_methods()
    if name not in METHODS or (name != "auto" and name not in here):
        legal = ", ".join(method for method in METHODS if method == "auto" or method in here)
        raise OptionError(f"start_method={name!r} is not one of {legal}")
    if name != "auto":
        return name
    return "fork" if sys.platform == "linux" else "spawn"


def _pipes() -> tuple[list[int], list[int]]:
    """Return the parent's and the worker's ends of three pipes: words back, words there, and one that carries none."""
    from_worker, to_worker, lifeline = os.pipe(), os.pipe(), os.pipe()
    return [from_worker[0], to_worker[1], lifeline[1]], [to_worker[0], from_worker[1], lifeline[0]]


def _end_of(process: BaseProcess) -> int:
    """Return a descriptor of our own that can be read when a process has ended, whoever it leaves behind."""
    try:
        return os.pidfd_open(process.pid or 0)
    except (AttributeError, OSError):
        return os.dup(process.sentinel)


def _close(fd: int) -> None:
    worker.parents_ends.discard(fd)
    os.close(fd)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        _close(fd)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Keep Ctrl-C from a worker that does not ignore it yet; it reaches this process afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the script from a new interpreter, which would run it again: what a worker needs of it is sent by value."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _use_server() -> None:
    server: Any = forkserver._forkserver
    if not _server["users"]:
        _server["is_ours"] = server._forkserver_pid is None
    _server["users"] += 1


def _leave_server() -> None:
    """Stop the server that forks workers when the last vector is closed, if nobody else had started it or uses it."""
    _server["users"] -= 1
    stop: Callable[[], None] | None = getattr(forkserver._forkserver, "_stop", None)
    if not _server["users"] and _server["is_ours"] and stop is not None and not multiprocessing.active_children():
        stop()
