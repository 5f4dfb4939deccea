"""The backend with worker processes, for environments in Python: they write into memory that the parent reads."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from multiprocessing import util
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from puffer_core.env import Array
from puffer_core.errors import PufferError, WorkerError
from puffer_core.vector.base import CLOSED, Infos
from puffer_core.vector.blocks import Block
from puffer_core.vector.faults import death, hang, slow_start
from puffer_core.vector.links import CALL, DONE, FAILED, GONE, INFOS, RESET, SPIN_S, WORDS, words_layout
from puffer_core.vector.logs import LogSums
from puffer_core.vector.native import cores
from puffer_core.vector.processes import FAULT_GRACE_S, EndedError, Processes
from puffer_core.vector.rows import Rows
from puffer_core.vector.shared import map_arrays, open_region
from puffer_core.vector.source import Source, sources_of
from puffer_core.vector.windows import Windows, poison
from puffer_core.vector.worker import Task
from puffer_core.vector.workers import WorkerVector

if TYPE_CHECKING:
    from puffer_core.specs import VectorJob


def supports(job: VectorJob) -> str | None:
    """Return why a job can't run in worker processes, or None."""
    return None if os.name == "posix" else "worker processes need a POSIX system"


class Multiprocessing(WorkerVector):
    """Environments in worker processes, one `Serial` in each.

    What a batch is, and how long its arrays are valid:

    ================================  ===================================  =====================================
    mode                              arrays                               valid until
    ================================  ===================================  =====================================
    whole batches                     the same views of shared memory      the next `send`
    partial, ``zero_copy``            views of the workers of the batch    these workers are sent to again
    one worker is a batch             the same                             the same
    partial, without ``zero_copy``    copies, in order of readiness        they are dropped
    ``debug``                         copies                               the next `send`, which poisons them
    ================================  ===================================  =====================================

    Args:
        env, num_envs, params, num_threads, seed, first_index, strict: As in `Serial`.
        num_workers: Processes; ``auto`` is one per core where that divides the environments. More than there are cores
            is allowed.
        batch_size: Environments of one batch: whole workers; ``auto`` is all of them.
        zero_copy: Whether partial batches are blocks of consecutive workers, without copies.
        start_method: ``fork``, ``spawn``, ``forkserver``, or ``auto``: ``fork`` on Linux, else ``spawn``. A script
            needs no ``__main__`` guard, and its functions and classes can be environments, with all of them.
        timeout: Seconds that a step or a reset may take; None is any time. Opening may take as long, and at least two
            minutes.
        sync_traj: Whether partial batches come in the order in which their workers were sent to, the same in every run,
            instead of as they get ready. None: with ``zero_copy`` only.
        overwork: Accepted for scripts that give it; changes nothing.
        debug: Hand out copies, and fill them with a pattern when they are no longer valid: what still reads them is
            found. None: whether the environment variable ``PUFFER_DEBUG`` is 1.

    Attributes:
        num_workers: Processes.
        worker_pids: Of the processes.

    A worker that raises, ends or takes too long is a `WorkerError`; the vector is closed then.
    """

    backend = "multiprocessing"

    def __init__(
        self,
        env: Any,
        num_envs: int = 1,
        *,
        params: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        num_workers: int | str = "auto",
        batch_size: int | str = "auto",
        num_threads: int | str = "auto",
        zero_copy: bool = True,
        seed: int = 0,
        first_index: int = 0,
        strict: bool = False,
        start_method: str = "auto",
        timeout: float | None = None,
        sync_traj: bool | None = None,
        overwork: bool = False,
        debug: bool | None = None,
    ) -> None:
        sources = sources_of(env, num_envs, params)
        super().__init__(sources[0].name, seed, strict=strict, timeout=timeout)
        batch = self._divide(num_envs, num_workers, batch_size, zero_copy, sync_traj, cores())
        self._debug = os.environ.get("PUFFER_DEBUG") == "1" if debug is None else debug
        self._declare(Rows.of_source(sources[0], timeout))
        self._layout = {**words_layout(self.num_workers), **self.rows.layout(num_envs)}
        self._infos: dict[int, Infos] = {}
        self._deadlines: dict[int, float] = {}
        self._is_open = False
        self._processes = Processes(start_method, cores())
        # Runs when this object is collected or the interpreter ends, before that would wait for the workers.
        self._finalizer = util.Finalize(self, self._processes.stop, exitpriority=100)
        self._start(sources, num_threads, seed, first_index)
        self._bind(tuple(range(self._blocks.per_batch)))
        self.backend_note = (
            f"multiprocessing: {num_envs} x {self.name} in {self.num_workers} process(es), "
            f"{batch} in a batch, started by {self._processes.method}"
        )

    @property
    def worker_pids(self) -> list[int]:
        """The process of each worker."""
        return list(self._processes.pids)

    # -- opening ------------------------------------------------------------------------------------------------------

    def _start(self, sources: Sequence[Source], num_threads: int | str, seed: int, first_index: int) -> None:
        """Lay out the memory, start all workers, and wait until their environments are open."""
        region = open_region(self._layout, self.name)
        try:
            self._arrays = map_arrays(region, self._layout)
            del self._arrays[WORDS]
            copies = self._debug or self._blocks.mode == "asynchronous"
            self._windows = Windows(self._arrays, self._rows_per_worker, copies)
            for number in range(self.num_workers):
                first, share = number * self._envs_per_worker, self._envs_per_worker
                task = Task(
                    number=number,
                    sources=sources[first : first + share],
                    expected=self.rows,
                    layout=self._layout,
                    rows=slice(number * self._rows_per_worker, (number + 1) * self._rows_per_worker),
                    seed=seed,
                    first_index=first_index + number * self._instances_per_worker,
                    num_threads=num_threads,
                    spin_s=SPIN_S if self.num_workers <= cores() else 0.0,
                )
                self._processes.start(task, region)
                self._deadlines[number] = time.monotonic() + self._open_s
            limits = {limit for number in range(self.num_workers) for limit in self._value(number)}
            self._deadlines.clear()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(region)
        self.limits = tuple(sorted(limits))
        self._is_open = True

    # -- batches ------------------------------------------------------------------------------------------------------

    def _async_reset(self, seed: int | None) -> None:
        self._finish_steps()
        if seed is not None:
            self._sums = LogSums(self.log_fields)
        self._infos.clear()
        self._blocks.restart()
        for number in range(self.num_workers):
            self._ask(number, RESET, seed)
            self._set_deadline(number)

    def _recv(self) -> None:
        blocks = self._blocks
        while (block := blocks.take()) is None:
            for number in self._listen(blocks.wanted, blocks.missing):
                self._read_reply(number)
        if self._blocks.mode != "full" or self._debug:
            self._bind(block)
        self.infos = [info for number in block for info in self._infos.pop(number, ())] if self._infos else []

    def _bind(self, block: Block) -> None:
        """Show the rows of some workers."""
        self.__dict__.update(self._windows.show(block))

    def _send(self, actions: Array) -> None:
        self._put(actions)
        self._step(self._blocks.give_back())

    def _send_but(self, actions: Array, hold: npt.NDArray[np.bool_]) -> None:
        held = self._workers_to_hold(hold)
        self._put(actions)
        self._step(self._blocks.give_back(held))

    def _send_held(self, actions: Array) -> None:
        own, ids = self._arrays["actions"], self._windows.ids_of(self._blocks.held)
        staged = own[ids]
        self._put_actions(actions, staged)
        own[ids] = staged
        self._step(self._blocks.release())

    def _put(self, actions: Array) -> None:
        """Bring the actions of the batch into the shared memory; copies of the batch are stale then."""
        self._put_actions(actions, self.actions)
        if not self._windows.is_view(self._blocks.received):
            self._arrays["actions"][self.agent_ids] = self.actions
            if self._debug:
                poison(self)

    def _step(self, block: Block) -> None:
        for number in block:
            try:
                self._processes.links[number].put()
            except BrokenPipeError:
                self._raise_dead(number)
        if self._timeout is not None:
            for number in block:
                self._set_deadline(number)

    # -- words to workers, and from them ------------------------------------------------------------------------------

    def _ask(self, number: int, code: bytes, value: Any) -> None:
        """Tell a worker what else than a step to do."""
        try:
            self._processes.links[number].put_object(code, value)
        except BrokenPipeError:
            self._raise_dead(number)

    def _set_deadline(self, number: int) -> None:
        if self._timeout is not None:
            self._deadlines[number] = time.monotonic() + self._timeout

    def _await(self, number: int) -> None:
        """Wait until one worker is done."""
        self._await_word(number)
        self._read_reply(number)

    def _await_word(self, number: int) -> None:
        """Wait until one worker has something to say; take what others say meanwhile."""
        while number not in (heard := self._listen((number,), 1)):
            for other in heard:
                self._read_reply(other)

    def _listen(self, wanted: Block, missing: int) -> Sequence[int]:
        """Wait for words from workers, of whom some are needed; return those that have something to say."""
        timeout_s = None
        if self._deadlines:
            late = min(wanted, key=lambda worker: self._deadlines.get(worker, np.inf))
            if late in self._deadlines:
                timeout_s = self._deadlines[late] - time.monotonic()
        try:
            heard = self._processes.wait(wanted, missing, timeout_s)
        except EndedError as gone:
            self._raise_dead(gone.number)
        if not heard:
            self._processes.kill(late)
            self._fail(self._too_late(self._place(late)))
        return heard

    def _read_reply(self, number: int) -> None:
        """Take what a worker says after a step or a reset."""
        link = self._processes.links[number]
        code = link.take()
        if code == INFOS:
            self._infos[number] = self._object(number)
        elif code == FAILED:
            self._fail(self._error(number))
        elif code != DONE:
            self._raise_dead(number)
        self._blocks.done(number)

    def _finish_steps(self) -> None:
        """Wait until no worker is at work; what they have done is kept for `recv`."""
        for number in self._blocks.working:
            self._await(number)

    def _call(self, number: int, name: str, *args: Any, **kwargs: Any) -> Any:
        if number in self._blocks.working:
            self._await(number)
        self._deadlines.pop(number, None)
        self._ask(number, CALL, (name, args, kwargs))
        return self._value(number)

    def _value(self, number: int) -> Any:
        """Wait for what a call returned, or raise what it raised."""
        self._await_word(number)
        code = self._processes.links[number].take()
        if code == GONE:
            self._raise_dead(number)
        if code == FAILED:
            raise self._error(number)
        return self._object(number)

    def _object(self, number: int) -> Any:
        """Take the object that a worker sends after a code."""
        try:
            return self._processes.links[number].get_object()
        except EOFError:
            self._raise_dead(number)
        except Exception as error:
            msg = f"{self.name}: {self._place(number)} sent what can't be read here: {type(error).__name__}: {error}"
            self._fail(WorkerError(msg, hint="put numbers and texts into infos"))

    # -- faults -------------------------------------------------------------------------------------------------------

    def _error(self, number: int) -> PufferError:
        fault = self._object(number)
        return fault.as_error(self.name, lambda position: self._place(number, position))  # type: ignore[no-any-return]

    def _too_late(self, place: str) -> WorkerError:
        if not self._is_open:
            return slow_start(self.name, place, self._open_s)
        return hang(self.name, place, self._timeout or 0.0)

    def _raise_dead(self, number: int) -> NoReturn:
        """Raise that a worker has ended."""
        self._fail(death(self.name, self._place(number), self._processes.exit_code(number)))

    def _fail(self, error: PufferError) -> NoReturn:
        """Close the vector and raise."""
        self._phase = CLOSED
        self._processes.stop(FAULT_GRACE_S)
        self._close()
        raise error

    def _close(self) -> None:
        self._finalizer()

    # -- the rest -----------------------------------------------------------------------------------------------------

    def drain_log(self) -> dict[str, float] | None:
        """Return the means over everything logged since the last call, with their number ``n``; None without any."""
        self._check_open()
        for part in self._call_all("take_log"):
            self._sums.absorb(part)
        return self._sums.drain()

    def _load(self, parts: list[dict[str, bytes]]) -> None:
        self._finish_steps()
        for number, part in enumerate(parts):
            self._call(number, "load", part)
        self._blocks.restart()
        for number in range(self.num_workers):
            self._blocks.done(number)
        block = self._blocks.take()
        if self._debug and block is not None:
            self._bind(block)
