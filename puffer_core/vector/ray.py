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

from puffer_core.env import Array, allocate, put_actions
from puffer_core.errors import OptionError, PufferError, UsageError, WorkerError
from puffer_core.vector.actors import Message, Opened, pickled, put_message
from puffer_core.vector.base import SEND, Vector
from puffer_core.vector.blocks import Block, Blocks, auto_workers, rows_of
from puffer_core.vector.counts import check_count, check_counts, is_auto
from puffer_core.vector.faults import Fault, hang
from puffer_core.vector.logs import LogSums
from puffer_core.vector.raypool import Pool, is_installed
from puffer_core.vector.source import Source, sources_of
from puffer_core.vector.states import join_states, split_state

if TYPE_CHECKING:
    from puffer_core.specs import VectorJob

START_TIMEOUT_S = 120.0
"""How long an actor may take to start and to open its environments: a cluster may have to grow for it."""
CLOSE_TIMEOUT_S = 1.0
"""How long environments may take to close before their actor is killed."""
_LOOK_S = 0.5
"""How often a wait for several actors looks whether one of them is gone."""


def supports(job: VectorJob) -> str | None:
    """Return why a job can't run in Ray actors, or None."""
    return None if is_installed() else 'Ray is missing: `pip install "puffer-core[ray]"`'


class Ray(Vector):
    """Environments divided among Ray actors, each a `Serial` over its share on one thread.

    Batches are whole, a ring of blocks (``batch_size`` below ``num_envs``), or with ``zero_copy=False`` whoever is
    ready first, as `Blocks` has it. The arrays are this process's own, filled from messages: those of a batch stay
    valid until its agents are received again (``zero_copy=False``: they are new ones each time).

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
        timeout: Seconds a step or a reset may take; None is any time.
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
        super().__init__(sources[0].name, seed)
        self._strict, self._timeout = strict, timeout
        batch = num_envs if is_auto(batch_size) else check_count("batch_size", batch_size)
        self._pool = Pool(address, ray_options)
        self._finalizer = weakref.finalize(self, self._pool.stop, 0.0)
        try:
            workers = auto_workers(num_envs, batch, self._pool.cpus) if is_auto(num_workers) else int(num_workers)
            share = num_envs // workers
            in_order = zero_copy if sync_traj is None else sync_traj
            self._blocks = Blocks(workers, batch // share, zero_copy=zero_copy, in_order=in_order)
            self._copies = not zero_copy
            self._open(sources, share, num_threads, first_index)
        except BaseException:
            self.close()
            raise
        self.backend_note = (
            f"ray: {num_envs} x {self.name} in {workers} actors of {share}, batches of {batch} ({self._blocks.mode})"
        )

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open(self, sources: list[Source], share: int, num_threads: int | str, first_index: int) -> None:
        """Start the actors; the first one says what its environments are, the others must have the same."""
        options = {"num_envs": share, "num_threads": num_threads}
        shares = [sources[i : i + share] for i in range(0, len(sources), share)]
        self._objects_per_worker = share
        self._pool.start([pickled(part, options) for part in shares])
        first, *others = self._pool.actors
        opened = [self._opened(0, first.open.remote(first_index))]
        instances = opened[0].num_envs
        handles = [actor.open.remote(first_index + i * instances) for i, actor in enumerate(others, 1)]
        opened += [self._opened(worker, handle) for worker, handle in enumerate(handles, 1)]
        for worker, one in enumerate(opened):
            opened[0].rows.require_same(one.rows, worker * share, self.name)
        self._declare(opened[0], len(shares), share)
        self.limits = tuple(sorted({limit for one in opened for limit in one.limits}))

    def _opened(self, worker: int, handle: Any) -> Opened:
        if not self._pool.wait([handle], 1, START_TIMEOUT_S):
            msg = f"{self.name}: {self._who(worker)} was not open after {START_TIMEOUT_S:g} s"
            raise WorkerError(msg, hint="`ray status` shows whether the cluster has CPUs left")
        opened: Opened = self._result(worker, handle)
        return opened

    def _declare(self, opened: Opened, workers: int, share: int) -> None:
        rows = opened.rows
        self.single_observation_space, self.single_action_space = (
            rows.single_observation_space,
            rows.single_action_space,
        )
        self.num_envs, self.agents_per_env = opened.num_envs * workers, rows.agents_per_env
        self._rows_per_worker = rows.num_agents * share
        self._envs_per_worker = opened.num_envs
        self.num_agents = self._rows_per_worker * workers
        self.agents_per_batch = self._rows_per_worker * self._blocks.per_batch
        self.log_fields = rows.columns
        self._sums = LogSums(self.log_fields)
        self._arrays = allocate(rows.layout(workers * share))
        self._all_ids = np.arange(self.num_agents)
        self._messages: dict[int, Message] = {}
        """The last of each worker."""
        self._batch_actions = self._arrays.pop("actions")[: self.agents_per_batch]
        self.action_mask = None
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
            self._fail(hang(self.name, " and ".join(map(self._who, sorted(wanted))), float(self._timeout or 0)))
        for handle in ready:
            worker = self._handles.pop(handle)
            self._take(worker, self._result(worker, handle))
            self._blocks.done(worker)

    def _take(self, worker: int, message: Message) -> None:
        rows = slice(worker * self._rows_per_worker, (worker + 1) * self._rows_per_worker)
        put_message(message, self._arrays, rows)
        self._messages[worker] = message

    def _send(self, actions: Array) -> None:
        put_actions(actions, self.actions, self.name, self.single_action_space if self._strict else None)
        self._step(self._blocks.received, self.actions)
        self._blocks.give_back()

    def _send_but(self, actions: Array, hold: npt.NDArray[np.bool_]) -> None:
        held = hold.reshape(-1, self._rows_per_worker)
        if (held.any(axis=1) != held.all(axis=1)).any():
            raise UsageError(f"{self.name}: only some rows of a worker are to be held: hold all of them or none")
        received = self._blocks.received
        put_actions(actions, self.actions, self.name, self.single_action_space if self._strict else None)
        self._step(received, self.actions, skip=held[:, 0])
        self._blocks.give_back(tuple(worker for worker, is_held in zip(received, held[:, 0], strict=True) if is_held))

    def _send_held(self, actions: Array) -> None:
        rows = len(self._blocks.held) * self._rows_per_worker
        own = np.empty((rows, *self._batch_actions.shape[1:]), self._batch_actions.dtype)
        put_actions(actions, own, self.name, self.single_action_space if self._strict else None)
        self._step(self._blocks.held, own)
        self._blocks.release()

    def _step(self, workers: Block, actions: Array, skip: npt.NDArray[np.bool_] | None = None) -> None:
        for k, worker in enumerate(workers):
            if skip is None or not skip[k]:
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

    def set_params(self, **values: Any) -> None:
        """Set parameters of every environment; a step that is under way is finished first."""
        self._check_open()
        self._call_all("set_params", **values)

    def save(self) -> dict[str, bytes] | None:
        """Return what a `Serial` of these environments would; None where one can't be saved or batches are partial."""
        self._check_open()
        if self._blocks.mode != "full" or self._phase != SEND:
            return None
        states = self._call_all("save")
        return None if None in states else join_states(states)

    def load(self, state: Mapping[str, bytes]) -> None:
        """Restore what `save` returned; the batch that was received then is the one to send actions for."""
        self._check_open()
        if self._blocks.mode != "full":
            raise UsageError(f"{self.name}: a state can't be loaded into partial batches")
        parts = split_state(state, len(self._pool.actors), self._objects_per_worker, self.name)
        handles = [actor.load.remote(part) for actor, part in zip(self._pool.actors, parts, strict=True)]
        self._blocks.restart()
        self._handles = {handle: worker for worker, handle in enumerate(handles)}
        self._received()
        self._phase = SEND

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        """Return a picture or a text of one instance."""
        self._check_open()
        if not 0 <= index < self.num_envs:
            raise OptionError(f"index={index!r} is not an integer from 0 to {self.num_envs - 1}")
        worker, index = divmod(index, self._envs_per_worker)
        return self._called(worker, self._pool.actors[worker].call.remote("render", index, mode))

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
            self._fail(WorkerError(f"{self.name}: {self._who(worker)} {error}", error.hint))

    def _as_error(self, worker: int, fault: Fault) -> PufferError:
        return fault.as_error(self.name, lambda _: self._who(worker))

    def _who(self, worker: int) -> str:
        first = worker * self._objects_per_worker
        last = first + self._objects_per_worker - 1
        return f"worker {worker} (environment{f's {first} to {last}' if last > first else f' {first}'})"

    def _fail(self, error: PufferError) -> NoReturn:
        self.close()
        raise error
