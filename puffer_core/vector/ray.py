"""The backend for many machines: environments in Ray actors, which send their rows as messages.

A message costs some hundred microseconds however small it is, so this pays where a worker's share of the environments
takes milliseconds, or where there are more machines than one.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from puffer_core.env import Array, allocate
from puffer_core.errors import PufferError, WorkerError
from puffer_core.vector.actors import Message, Opened, pickled_share, put_message
from puffer_core.vector.blocks import Block, rows_of
from puffer_core.vector.counts import check_counts
from puffer_core.vector.faults import Fault, hang, slow_start
from puffer_core.vector.logs import LogSums
from puffer_core.vector.raypool import Pool, is_installed
from puffer_core.vector.rows import Rows
from puffer_core.vector.source import Source, sources_of
from puffer_core.vector.workers import WorkerVector

if TYPE_CHECKING:
    from puffer_core.specs import VectorJob

CLOSE_TIMEOUT_S = 1.0
"""How long environments may take to close before their actor is killed."""
_LOOK_S = 0.5
"""How often a wait for several actors looks whether one of them is gone."""


def supports(job: VectorJob) -> str | None:
    """Return why a job can't run in Ray actors, or None."""
    return None if is_installed() else 'Ray is missing: `pip install "puffer-core[ray]"`'


class Ray(WorkerVector):
    """Environments divided among Ray actors, each a `Serial` over its share on one thread.

    Batches are whole, a ring of blocks (``batch_size`` below ``num_envs``), or with ``zero_copy=False`` whoever is
    ready first, as `Blocks` has it. The arrays are this process's own, filled from messages as these are taken: those
    of a batch stay valid until its workers are sent to again (``zero_copy=False``: they are new ones each time).

    Args:
        env: What `puffer_core.vector.make` takes, or a sequence of ``num_envs`` of them. Lambdas, local functions and
            classes of a script work; an environment that is open already can't be sent.
        num_envs: Environment objects.
        params: For all of them, or a sequence with one mapping each.
        num_workers: Actors; ``auto`` is one per CPU of the cluster, if that divides the environments.
        batch_size: Environment objects per batch; ``auto`` is all.
        num_threads: Threads of each environment in C.
        zero_copy: Whether batches are consecutive actors.
        seed, first_index, strict: As in `NativeEnv`.
        sync_traj: Whether batches come in the order in which actors were set to work, the same in every run; None is
            yes with ``zero_copy``, else no.
        timeout: Seconds a step or a reset may take; None is any time. Opening may take as long and at least two
            minutes: a cluster may have to grow for it.
        address: Of a cluster to join, as in ``ray.init``. A Ray that runs in this process already is used as it is.
        ray_options: More arguments of ``ray.init``, where this has to start or join one.

    Raises:
        OptionError: If Ray is missing, a number does not fit, or the environment can't be sent to another process.
        WorkerError: If an actor can't be started. What opening an environment raises keeps its kind if it is ours.
    """

    backend = "ray"

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
        sync_traj: bool | None = None,
        timeout: float | None = None,
        address: str | None = None,
        ray_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_counts(num_envs, num_workers, batch_size, zero_copy)
        sources = sources_of(env, num_envs, params)
        super().__init__(sources[0].name, seed, strict=strict, timeout=timeout)
        self._pool = Pool(address, ray_options)
        self._finalizer = weakref.finalize(self, self._pool.stop, 0.0)
        try:
            batch = self._divide(num_envs, num_workers, batch_size, zero_copy, sync_traj, self._pool.cpus)
            self._copies = not zero_copy
            self._open(sources, num_threads, first_index)
        except BaseException:
            self.close()
            raise
        self.backend_note = (
            f"ray: {num_envs} x {self.name} in {self.num_workers} actors of {self._envs_per_worker}, "
            f"batches of {batch} ({self._blocks.mode})"
        )

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open(self, sources: list[Source], num_threads: int | str, first_index: int) -> None:
        """Start the actors; the first one says what its environments are, the others must have the same."""
        share = self._envs_per_worker
        options = {"num_envs": share, "num_threads": num_threads, "seed": self._seed}
        shares = [sources[i : i + share] for i in range(0, len(sources), share)]
        self._pool.start([pickled_share(part, options) for part in shares])
        first, *others = self._pool.actors
        opened = [self._opened(0, first.open.remote(first_index))]
        instances = opened[0].num_envs
        handles = [actor.open.remote(first_index + i * instances) for i, actor in enumerate(others, 1)]
        opened += [self._opened(worker, handle) for worker, handle in enumerate(handles, 1)]
        for worker, one in enumerate(opened):
            opened[0].rows.require_same(one.rows, worker * share, self.name)
        self._declare(opened[0].rows)
        self.limits = tuple(sorted({limit for one in opened for limit in one.limits}))

    def _opened(self, worker: int, handle: Any) -> Opened:
        if not self._pool.wait([handle], 1, self._open_s):
            hint = "`ray status` shows whether the cluster has CPUs left; "
            self._fail(slow_start(self.name, self._place(worker), self._open_s, hint))
        opened: Opened = self._result(worker, handle)
        return opened

    def _declare(self, rows: Rows) -> None:
        super()._declare(rows)
        self._arrays = allocate(rows.layout(self.num_workers * self._envs_per_worker))
        self._all_ids = np.arange(self.num_agents)
        self._messages: dict[int, Message] = {}
        """The last of each worker."""
        self._batch_actions = self._arrays.pop("actions")[: self.agents_per_batch]
        self._bind(tuple(range(self._blocks.per_batch)))

    def _bind(self, block: Block) -> None:
        """Show the rows of a block."""
        rows = rows_of(block, self._rows_per_worker)
        for name, array in self._arrays.items():
            shown = array[rows]
            setattr(self, name, shown.copy() if self._copies and isinstance(rows, slice) else shown)
        self.agent_ids = self._all_ids[rows]
        self.actions = self._batch_actions[: len(self.agent_ids)]

    # -- stepping -----------------------------------------------------------------------------------------------------

    def _async_reset(self, seed: int | None) -> None:
        # Actors do what they are told in that order, so a step that is still on its way is finished and left out.
        self._blocks.restart()
        self._handles: dict[Any, int] = {actor.reset.remote(seed): i for i, actor in enumerate(self._pool.actors)}
        if seed is not None:
            self._sums = LogSums(self.log_fields)

    def _recv(self) -> None:
        block = self._received()
        messages = [self._messages[worker] for worker in block]
        self.infos = [info for message in messages for info in message.infos]
        counted = [info for message in messages if message.is_step for info in message.infos]
        self._sums.add(self.log, self.logged, counted, [info for message in messages for info in message.last])

    def _received(self) -> Block:
        """Wait for the next batch and show its rows."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while (block := self._blocks.take()) is None:
            self._wait(deadline)
        self._bind(block)
        return block

    def _wait(self, deadline: float | None) -> None:
        """Take the messages of those that are done, after waiting a while for as many as the next batch lacks."""
        wanted = set(self._blocks.wanted)
        handles = [handle for handle, worker in self._handles.items() if worker in wanted]
        left = _LOOK_S if deadline is None else min(_LOOK_S, max(0.0, deadline - time.monotonic()))
        ready = self._pool.wait(handles, self._blocks.missing, left)
        if not ready and deadline is not None and time.monotonic() >= deadline:
            self._fail(hang(self.name, " and ".join(map(self._place, sorted(wanted))), self._timeout or 0.0))
        for handle in ready:
            worker = self._handles.pop(handle)
            self._take(worker, self._result(worker, handle))
            self._blocks.done(worker)

    def _take(self, worker: int, message: Message) -> None:
        rows = slice(worker * self._rows_per_worker, (worker + 1) * self._rows_per_worker)
        put_message(message, self._arrays, rows)
        self._messages[worker] = message

    def _send(self, actions: Array) -> None:
        self._send_but(actions, None)

    def _send_but(self, actions: Array, hold: npt.NDArray[np.bool_] | None) -> None:
        held = () if hold is None else self._workers_to_hold(hold)
        self._put_actions(actions, self.actions)
        self._step(self._blocks.received, self.actions, held)
        self._blocks.give_back(held)

    def _send_held(self, actions: Array) -> None:
        rows = len(self._blocks.held) * self._rows_per_worker
        own = np.empty((rows, *self._batch_actions.shape[1:]), self._batch_actions.dtype)
        self._put_actions(actions, own)
        self._step(self._blocks.held, own)
        self._blocks.release()

    def _step(self, workers: Block, actions: Array, held: Block = ()) -> None:
        """Send each worker its rows of the actions, except those that are held."""
        for k, worker in enumerate(workers):
            if worker not in held:
                rows = slice(k * self._rows_per_worker, (k + 1) * self._rows_per_worker)
                self._handles[self._pool.actors[worker].step.remote(actions[rows])] = worker

    def _close(self) -> None:
        self._handles = {}
        self._finalizer.detach()
        self._pool.stop(CLOSE_TIMEOUT_S)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def drain_log(self) -> dict[str, float] | None:
        """Return the means over everything logged since the last call, with their number ``n``; None without any."""
        self._check_open()
        return self._sums.drain()

    def _load(self, parts: list[dict[str, bytes]]) -> None:
        handles = [actor.load.remote(part) for actor, part in zip(self._pool.actors, parts, strict=True)]
        self._blocks.restart()
        self._handles = {handle: worker for worker, handle in enumerate(handles)}
        self._received()

    def _call(self, number: int, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._called(number, self._pool.actors[number].call.remote(name, *args, **kwargs))

    def _call_all(self, name: str, **kwargs: Any) -> list[Any]:
        handles = [actor.call.remote(name, **kwargs) for actor in self._pool.actors]
        return [self._called(worker, handle) for worker, handle in enumerate(handles)]

    def _called(self, worker: int, handle: Any) -> Any:
        """Return what a call gave; an error of ours, as a value that is refused, leaves the vector as it is."""
        answer = self._get(worker, handle)
        if isinstance(answer, Fault):
            error = self._as_error(worker, answer)
            if isinstance(error, WorkerError):
                self._fail(error)
            raise error
        return answer

    # -- faults -------------------------------------------------------------------------------------------------------

    def _result(self, worker: int, handle: Any) -> Any:
        """Return what opening, a reset or a step gave; what was raised there ends the vector."""
        answer = self._get(worker, handle)
        if isinstance(answer, Fault):
            self._fail(self._as_error(worker, answer))
        return answer

    def _get(self, worker: int, handle: Any) -> Any:
        try:
            return self._pool.get(handle)
        except WorkerError as error:
            self._fail(WorkerError(f"{self.name}: {self._place(worker)} {error}", error.hint))

    def _as_error(self, worker: int, fault: Fault) -> PufferError:
        return fault.as_error(self.name, lambda _: self._place(worker))

    def _fail(self, error: PufferError) -> NoReturn:
        self.close()
        raise error
