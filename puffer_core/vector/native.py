"""The backend for C environments: all instances in one vector, stepped by threads of this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from puffer_core.env import Array, Step
from puffer_core.errors import EnvError, OptionError
from puffer_core.native import MAX_THREADS, NativeEnv
from puffer_core.place import place
from puffer_core.vector.base import SEND, Vector
from puffer_core.vector.counts import refuse_split
from puffer_core.vector.source import Source, source_of

if TYPE_CHECKING:
    from puffer_core.specs import VectorJob

ROWS_PER_THREAD = 512
"""Below this, waking a thread costs more than it saves."""


def supports(job: VectorJob) -> str | None:
    """Return why a job can't run in one C vector, or None."""
    if job.table is None:
        return "it runs environments in C only"
    return refuse_split(job.num_envs, job.num_workers, job.batch_size, job.zero_copy)


class Native(Vector):
    """One `NativeEnv`; its arrays are the vector's.

    Args:
        env: What `puffer_core.vector.make` takes, as long as it is an environment in C.
        num_envs: Times the environment's own parameter ``num_envs``: instances.
        num_threads: ``auto`` is one per core, fewer for few rows.
        seed, first_index, strict: As in `NativeEnv`.
        num_workers, batch_size, zero_copy: Of backends with workers; only what splits nothing is legal.
    """

    backend = "native"

    def __init__(
        self,
        env: Any,
        num_envs: int = 1,
        *,
        params: Mapping[str, object] | None = None,
        num_workers: int | str = "auto",
        batch_size: int | str = "auto",
        num_threads: int | str = "auto",
        zero_copy: bool = True,
        seed: int = 0,
        first_index: int = 0,
        strict: bool = False,
    ) -> None:
        source = source_of(env, params)
        if source.table is None:
            raise OptionError(f"{source.name} is not an environment in C", hint="use the serial backend")
        if reason := refuse_split(num_envs, num_workers, batch_size, zero_copy):
            raise OptionError(f"backend native can't run {source.name}: {reason}", hint="it takes num_threads")
        super().__init__(source.name, seed)
        instances = num_envs * source.instances
        threads = auto_threads(source, instances) if num_threads == "auto" else num_threads
        self.env = NativeEnv(
            source.table,
            source.params,
            num_envs=instances,
            seed=seed,
            first_index=first_index,
            num_threads=threads,  # type: ignore[arg-type]
            strict=strict,
        )
        for name in ("num_envs", "agents_per_env", "num_agents", "log_fields"):
            setattr(self, name, getattr(self.env, name))
        self.single_observation_space = self.env.single_observation_space
        self.single_action_space = self.env.single_action_space
        self.agents_per_batch = self.num_agents
        self.agent_ids = np.arange(self.num_agents)
        self.limits = source.limits
        self._take_arrays()
        self.backend_note = f"native: {instances} instances of {source.name} in C on {self.env.num_threads} thread(s)"

    def _take_arrays(self) -> None:
        for name in ("observations", "actions", "rewards", "terminals", "truncations", "masks"):
            setattr(self, name, getattr(self.env, name))
        for name in ("final_observations", "action_mask", "log", "logged"):
            setattr(self, name, getattr(self.env, name))

    def _async_reset(self, seed: int | None) -> None:
        self.env.reset(seed)

    def _recv(self) -> None:
        pass

    def _send(self, actions: Array) -> None:
        self.env.step(actions)

    def step(self, actions: Array) -> Step:
        """`send`, then `recv`, in one call."""
        if self._phase != SEND:
            self._refuse("send")
        return self.env.step(actions)

    def _close(self) -> None:
        self.env.close()

    def drain_log(self) -> dict[str, float] | None:
        """Return the means over everything logged since the last call, with their number ``n``; None without any."""
        return self.env.drain_log()

    def set_params(self, **values: Any) -> None:
        """Set LIVE parameters of the table."""
        self.env.set_params(**values)

    def save(self) -> dict[str, bytes] | None:
        """Return the state of all instances."""
        return {"env": self.env.save()}

    def load(self, state: Mapping[str, bytes]) -> None:
        """Restore what `save` returned; the batch that was received then is the one to send actions for."""
        if set(state) != {"env"}:
            raise EnvError(f"{self.name}: the saved state has {sorted(state)}, needed is `env`")
        self.env.load(state["env"])
        self._phase = SEND

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        """Return a picture or a text of one instance."""
        return self.env.render(index, mode)


def auto_threads(source: Source, instances: int) -> int:
    """Return one thread per core of this rank's share, but none for fewer than `ROWS_PER_THREAD` rows."""
    rows = instances * source.agents
    return max(1, min(cores() // place().local_world_size, rows // ROWS_PER_THREAD, MAX_THREADS))


def cores() -> int:
    """Return the physical cores this process may use."""
    import psutil

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, psutil.cpu_count(logical=False) or allowed)
