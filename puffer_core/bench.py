"""Throughput of an environment under random actions, which are prepared before the clock starts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from puffer_core import vector
from puffer_core.vector.probe import random_batches

AGENTS = 4096
"""Agents of a measurement where nothing else is asked for."""
BATCHES = 64
_STEPS_PER_LOOK = 8


@dataclass(frozen=True)
class Throughput:
    """Agent-steps (frame skip not included) and what they took."""

    steps: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        """Agent-steps per second of wall time."""
        return self.steps / self.seconds

    @property
    def per_cpu_second(self) -> float:
        """Agent-steps per second of CPU time, of all threads together."""
        return self.steps / self.cpu_seconds


class EnvBench:
    """An open vector and a ring of action batches; `measure` may be called again and again.

    Args:
        name: Of the environment.
        num_envs: Environments; None for 4096 agents' worth.
        threads: That step them.
        params: Of the environment.
    """

    def __init__(
        self, name: str, num_envs: int | None = None, threads: int = 1, params: Mapping[str, object] | None = None
    ) -> None:
        params = dict(params or {})
        if num_envs is None:
            num_envs = default_instances(name, params)
        self.num_envs, self.threads = num_envs, threads
        self._vector = vector.make(name, num_envs=num_envs, params=params, num_threads=threads)
        self.name, self.num_agents = self._vector.name, self._vector.num_agents
        self._batches = random_batches(self._vector.single_action_space, self.num_agents, BATCHES)
        self._vector.reset(seed=0)
        self._next = 0

    def measure(self, seconds: float) -> Throughput:
        """Step for at least ``seconds`` of wall time."""
        step, batches, at = self._vector.step, self._batches, self._next
        taken, elapsed = 0, 0.0
        wall, cpu = time.perf_counter(), self._cpu_seconds()
        while elapsed < seconds:
            for _ in range(_STEPS_PER_LOOK):
                step(batches[at])
                at = (at + 1) % BATCHES
            taken += _STEPS_PER_LOOK
            elapsed = time.perf_counter() - wall
        cpu = self._cpu_seconds() - cpu
        self._next = at
        return Throughput(taken * self.num_agents, elapsed, cpu)

    def _cpu_seconds(self) -> float:
        """Return the CPU time of this process and of the workers."""
        import psutil

        times = [psutil.Process(pid).cpu_times() for pid in getattr(self._vector, "worker_pids", ())]
        return time.process_time() + float(sum(worker.user + worker.system for worker in times))

    def close(self) -> None:
        """Close the vector."""
        self._vector.close()

    def __enter__(self) -> EnvBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def bench_env(
    name: str,
    num_envs: int | None = None,
    threads: int = 1,
    seconds: float = 2.0,
    params: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return the JSON object of ``puffer bench env``.

    Args:
        name: Of the environment.
        num_envs: Environments; None for 4096 agents' worth.
        threads: That step them.
        seconds: Of wall time, at least; a tenth of it goes before as a warm-up.
        params: Of the environment.
    """
    with EnvBench(name, num_envs, threads, params) as bench:
        bench.measure(seconds / 10)
        result = bench.measure(seconds)
        return {
            "env": bench.name,
            "num_envs": bench.num_envs,
            "threads": threads,
            "steps_per_second": result.per_second,
            "steps_per_cpu_second": result.per_cpu_second,
        }


def default_instances(name: str, params: Mapping[str, object] | None = None) -> int:
    """Return how many environments have `AGENTS` agents together."""
    return max(1, AGENTS // vector.describe(name, params)[2])
