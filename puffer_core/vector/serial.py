"""The backend that steps environments one after the other in this process: the simplest one, and the reference."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from puffer_core.emulation.forms import call_with
from puffer_core.emulation.gymnasium import GymnasiumPufferEnv
from puffer_core.env import Array, PufferEnv, allocate, put_actions, take_buffers
from puffer_core.errors import EnvError, OptionError
from puffer_core.native import NativeEnv
from puffer_core.vector.base import SEND, Infos, Vector
from puffer_core.vector.counts import refuse_split
from puffer_core.vector.logs import EpisodeStats, LogSums
from puffer_core.vector.member import Member
from puffer_core.vector.rows import Rows
from puffer_core.vector.singles import SingleAgents
from puffer_core.vector.source import Source, sources_of

if TYPE_CHECKING:
    from puffer_core.specs import VectorJob

_STATS = struct.Struct("<dq")


def supports(job: VectorJob) -> str | None:
    """Return why a job can't run in a loop, or None."""
    return refuse_split(job.num_envs, job.num_workers, job.batch_size, job.zero_copy)


class Serial(Vector):
    """Environments in a loop, all writing into one set of arrays.

    Args:
        env: What `puffer_core.vector.make` takes, or a sequence of ``num_envs`` of them.
        num_envs: Environment objects.
        params: For all of them, or a sequence with one mapping each.
        num_threads: Threads of each environment in C.
        seed, first_index, strict: As in `NativeEnv`.
        num_workers, batch_size, zero_copy: Of backends with workers; only what splits nothing is legal.
        buf: Arrays to use, as `Rows.layout` lays them out: those that a worker shares with its parent.

    Attributes:
        last_infos: Those of `infos` that came with the end of an episode, where the vector keeps the log.
    """

    backend = "serial"

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
        buf: Mapping[str, Array] | None = None,
    ) -> None:
        sources = sources_of(env, num_envs, params)
        if reason := refuse_split(num_envs, num_workers, batch_size, zero_copy):
            raise OptionError(f"backend serial can't run {sources[0].name}: {reason}")
        super().__init__(sources[0].name, seed)
        self._first_index, self._strict = first_index, strict
        self._threads = 1 if num_threads == "auto" else num_threads
        self.members = self._open(sources, buf)
        self._watched = [member for member in self.members if member.is_watched]
        self._singles = SingleAgents.of([member.env for member in self.members], self._arrays)
        self._stats = EpisodeStats(self.num_agents)
        self._sums = LogSums(self.log_fields)
        self.last_infos: Infos = []
        limits = {limit for source in sources for limit in source.limits}
        limits |= {"no-seed" for member in self.members if not member.takes_seed}
        self.limits = tuple(sorted(limits))
        self.backend_note = f"serial: {num_envs} x {self.name}, one after the other in this process"

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open(self, sources: Sequence[Source], buf: Mapping[str, Array] | None) -> list[Member]:
        """Make the arrays from the first environment's spaces, then every environment on its rows."""
        with ExitStack() as opened:
            spare: PufferEnv | None = self._make(sources[0], None)
            assert spare is not None
            opened.callback(spare.close)
            self._declare(Rows.of(spare), len(sources), buf)
            if sources[0].takes_buffers or sources[0].table is not None:
                opened.pop_all().close()
                spare = None
            members: list[Member] = []
            self.num_envs = 0
            for i, source in enumerate(sources):
                rows = slice(i * self.rows.num_agents, (i + 1) * self.rows.num_agents)
                own = {name: array[rows] for name, array in self._arrays.items()}
                if self.rows.is_unlogged:
                    own.pop("log"), own.pop("logged")
                env = spare if i == 0 and spare is not None else self._make_member(source, own, i)
                if env is not spare:
                    opened.callback(env.close)
                self.rows.require_same(env, i, self.name)
                if type(env) is GymnasiumPufferEnv and env.observations is not own["observations"]:
                    env.move(own)
                members.append(Member(env, rows, self.num_envs, own))
                self.num_envs += env.num_instances
            opened.pop_all()
            return members

    def _make_member(self, source: Source, buf: Mapping[str, Array], position: int) -> PufferEnv:
        try:
            return self._make(source, buf)
        except EnvError as error:
            raise EnvError(f"environment {position} does not fit into the rows of the first: {error}") from error

    def _make(self, source: Source, buf: Mapping[str, Array] | None) -> PufferEnv:
        if source.table is None:
            return source.open(buf)
        return NativeEnv(
            source.table,
            source.params,
            num_envs=source.instances,
            num_threads=self._threads,  # type: ignore[arg-type]
            strict=self._strict,
            buf=buf,
        )

    def _declare(self, rows: Rows, objects: int, buf: Mapping[str, Array] | None) -> None:
        """Take spaces, fields and sizes from the first environment, and the arrays given or new ones."""
        self.rows = rows
        self.single_observation_space = rows.single_observation_space
        self.single_action_space = rows.single_action_space
        self.agents_per_env, self.agent_types = rows.agents_per_env, rows.agent_types
        self.num_agents = self.agents_per_batch = rows.num_agents * objects
        self.log_fields = rows.columns
        layout = rows.layout(objects)
        arrays = allocate(layout) if buf is None else take_buffers(layout, buf, f"serial of {self.name}")
        self._arrays = {name: array for name, array in arrays.items() if array is not None}
        self.action_mask = None
        for name, array in self._arrays.items():
            setattr(self, name, array)
        self.agent_ids = np.arange(self.num_agents)

    # -- stepping -----------------------------------------------------------------------------------------------------

    def _async_reset(self, seed: int | None) -> None:
        self._clear()
        self.infos, self.last_infos = [], []
        for member in self.members:
            self.infos += member.reset(seed, self._first_index)
        if self._singles is not None:
            self._singles.refresh()
        self._clear()
        self._stats.reset(self.masks)
        if seed is not None:
            self._sums = LogSums(self.log_fields)

    def _clear(self) -> None:
        for array in (self.rewards, self.terminals, self.truncations, self.logged):
            array.fill(0)

    def _recv(self) -> None:
        pass

    def _send(self, actions: Array) -> None:
        if self._singles is not None:
            self._send_singles(self._singles, actions)
            return
        self._put(actions)
        self._clear()
        given = [(member, infos) for member in self.members if (infos := member.step())]
        self.infos = [info for _, infos in given for info in infos]
        ended = self.terminals | self.truncations
        if np.count_nonzero(ended):
            self._finish(ended)
        self.last_infos = []
        if self.rows.is_unlogged:
            self._stats.add(self, ended)
            self.last_infos = self._take_last_infos(given)
        self._sums.add(self.log, self.logged, self.infos, self.last_infos)

    def _put(self, actions: Array) -> None:
        put_actions(actions, self.actions, self.name, self.single_action_space if self._strict else None)

    def _send_singles(self, singles: SingleAgents, actions: Array) -> None:
        """Do what `_send` does, for single-agent adapters."""
        legal = singles.read(actions, self.actions)
        if legal is None:
            self._put(actions)
        self._clear()
        ended, given = singles.step(legal, self.actions)
        self._stats.add_rows(self, ended)
        self.infos = [info for _, info in given]
        last = [(row, info) for row, info in given if self.logged[row]]
        for row, info in last:
            self._stats.add_info(self, row, info)
        self.last_infos = [info for _, info in last]
        if ended or given:
            self._sums.add_rows(self.log, ended, self.infos, self.last_infos)

    def _finish(self, ended: Array) -> None:
        both = self.terminals & self.truncations
        if np.count_nonzero(both):
            row = int(np.argmax(both))
            kind = type(self.members[row // self.rows.num_agents].env).__name__
            msg = f"{kind}: agent {row} is terminal and truncated"
            raise EnvError(msg, hint="an end has one flag: terminal where both hold")
        for member in self._watched:
            member.finish(ended[member.rows])

    def _take_last_infos(self, given: Sequence[tuple[Member, Infos]]) -> Infos:
        """Bring infos that came with ends into the log rows; return them.

        Infos as many as a member's rows are one for each, others are of all its rows.
        """
        last: Infos = []
        for member, infos in given:
            rows = np.flatnonzero(self.logged[member.rows])
            is_each = len(infos) == self.rows.num_agents
            for row in rows:
                for info in [infos[row]] if is_each else infos:
                    self._stats.add_info(self, member.rows.start + row, info)
            last += [infos[row] for row in rows] if is_each else infos * bool(len(rows))
        return last

    def _close(self) -> None:
        with ExitStack() as opened:  # one that fails to close keeps none of the others open
            for member in reversed(self.members):
                opened.callback(member.env.close)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def drain_log(self) -> dict[str, float] | None:
        """Return the means over everything logged since the last call, with their number ``n``; None without any."""
        self._check_open()
        return self._sums.drain()

    def take_log(self) -> LogSums:
        """Return what `drain_log` would draw its means from, and begin anew: a worker's share of its vector's log."""
        self._check_open()
        return self._sums.take()

    def set_params(self, **values: Any) -> None:
        """Set parameters of every environment."""
        self._check_open()
        for member in self.members:
            member.env.set_params(**values)

    def save(self) -> dict[str, bytes] | None:
        """Return the state of every environment and of its episode statistics, or None where one can't be saved."""
        self._check_open()
        blobs = [member.env.save() for member in self.members]
        state = {f"env.{i}": blob for i, blob in enumerate(blobs) if blob is not None}
        if len(state) < len(blobs):
            return None
        state["episodes"] = self._stats.returns.tobytes() + self._stats.lengths.tobytes()
        return state

    def load(self, state: Mapping[str, bytes]) -> None:
        """Restore what `save` returned; the batch that was received then is the one to send actions for."""
        self._check_open()
        names = [f"env.{i}" for i in range(len(self.members))]
        if set(state) != {*names, "episodes"} or len(state["episodes"]) != self.num_agents * _STATS.size:
            raise EnvError(f"{self.name}: the saved state has {len(state) - 1} environments, not {len(names)}")
        for name, member in zip(names, self.members, strict=True):
            member.load(state[name])
        returns, lengths = np.split(np.frombuffer(state["episodes"], np.uint8), 2)
        self._stats.resume(returns.view(np.float64), lengths.view(np.int64), self.masks)
        self._phase = SEND

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        """Return a picture or a text of one instance."""
        self._check_open()
        if not 0 <= index < self.num_envs:
            raise OptionError(f"index={index!r} is not an integer from 0 to {self.num_envs - 1}")
        member = next(member for member in reversed(self.members) if member.first <= index)
        return call_with(member.env.render, index=index - member.first, mode=mode)
