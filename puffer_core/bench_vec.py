"""Which backend, how many workers and which batches give the most steps per second, for one environment here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from puffer_core import vector
from puffer_core.bench import default_instances
from puffer_core.env import Array
from puffer_core.errors import EnvError, OptionError
from puffer_core.isolation import describe
from puffer_core.vector.counts import check_count
from puffer_core.vector.native import cores
from puffer_core.vector.probe import random_batches

AGENTS = 64
"""Agents of an environment in Python where nothing else is asked for, as a run has them."""
SECONDS = 1.0
BATCHES = 16
PARTS = 5
"""The seconds of a setting are divided into so many parts, of which the median counts."""


@dataclass(frozen=True)
class Setting:
    """One way to run the environments.

    Args:
        backend: Its name.
        num_envs: Environments; for those in C instances.
        num_workers: Processes; 1 for a backend without.
        batch_size: Environments of one batch.
        zero_copy: As in `puffer_core.vector.make`.
        num_threads: For environments in C.
        is_native: Whether the environment is one in C.
    """

    backend: str
    num_envs: int
    num_workers: int = 1
    batch_size: int = 0
    zero_copy: bool = True
    num_threads: int = 1
    is_native: bool = False

    @property
    def options(self) -> str:
        """What to type for it after `puffer train ENV`."""
        words = [f"--vec.backend {self.backend}"]
        if self.backend == "native":
            words += [f"--env.num-envs {self.num_envs}", f"--vec.num-threads {self.num_threads}"]
        elif self.is_native:
            share = self.num_envs // self.num_workers
            words += [f"--env.num-envs {share}", f"--vec.num-envs {self.num_workers}"]
        else:
            words += [f"--vec.num-envs {self.num_envs}"]
        if self.backend == "multiprocessing":
            words += [f"--vec.num-workers {self.num_workers}"]
        if self.batch_size < self.num_envs:
            words += [f"--vec.batch-size {self.batch_size}"]
        if not self.zero_copy:
            words += ["--no-vec.zero-copy"]
        return " ".join(words)

    def open(self, env: Any, params: Mapping[str, object], wrap: Mapping[str, object] | None) -> vector.Vector:
        """Open the vector; workers of an environment in C have one object of several instances each."""
        given, objects = dict(params), self.num_envs
        batch = self.batch_size
        if self.is_native and self.backend != "native":
            given["num_envs"], objects = self.num_envs // self.num_workers, self.num_workers
            batch = objects
        return vector.make(
            env,
            objects,
            self.backend,
            params=given,
            num_workers=self.num_workers,
            batch_size=batch,
            num_threads=self.num_threads,
            zero_copy=self.zero_copy,
            wrap=wrap,
        )


def settings(num_envs: int, count: int, is_native: bool) -> list[Setting]:
    """Return what is to be tried.

    Args:
        num_envs: Environments; for those in C instances.
        count: Cores.
        is_native: Whether the environment is one in C.
    """
    if is_native:
        threads = sorted({*_doublings(count), count})
        in_process = [Setting("native", num_envs, 1, num_envs, num_threads=n, is_native=True) for n in threads]
    else:
        in_process = [Setting("serial", num_envs, 1, num_envs)]
    workers = [n for n in sorted({*_doublings(2 * count), count, 2 * count}) if num_envs % n == 0]
    return in_process + [setting for n in workers for setting in _with_workers(num_envs, n, count, is_native)]


def bench_vec(
    env: Any,
    num_envs: int | None = None,
    seconds: float = SECONDS,
    params: Mapping[str, object] | None = None,
    wrap: Mapping[str, object] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return the JSON object of ``puffer bench vec``: every setting that was tried, best first.

    Args:
        env: Name of the environment, or what `puffer_core.vector.make` takes.
        num_envs: Environments (in C: instances); None is what a run has.
        seconds: Of wall time for each setting.
        params: Of the environment.
        wrap: Wrappers, as in `puffer_core.vector.make`.
        say: Called with a line about each setting once it is measured.

    Raises:
        OptionError: If a number is illegal.
        EnvError: If every setting fails. One that fails among others is in the result, with the reason in one line.
    """
    if not 0 < seconds < float("inf"):
        raise OptionError(f"seconds={seconds!r} is not a positive number")
    params = dict(params or {})
    _, _, agents, table = vector.describe(env, params)
    if num_envs is None:
        num_envs = max(1, AGENTS // agents) if table is None else default_instances(env, params)
    check_count("num_envs", num_envs)
    name = vector.source_of(env, params).name
    rows = []
    for setting in settings(num_envs, cores(), table is not None):
        row = _row(name, setting, *_rate(setting, env, params, wrap, seconds))
        rows.append(row)
        if say is not None:
            say(_told(row))
    if all(row["error"] is not None for row in rows):
        raise EnvError(f"{name}: all {len(rows)} settings fail, {rows[0]['options']} with: {rows[0]['error']}")
    return {"settings": sorted(rows, key=lambda row: -(row["steps_per_second"] or 0.0))}


def _with_workers(num_envs: int, workers: int, count: int, is_native: bool) -> Iterator[Setting]:
    """Yield whole batches, half of everyone in a ring, and whichever half is ready first."""
    half = num_envs // 2
    if workers <= count:
        yield Setting("multiprocessing", num_envs, workers, num_envs, is_native=is_native)
    if workers > 1 and workers % 2 == 0 and not is_native:
        yield Setting("multiprocessing", num_envs, workers, half)
        if workers > 2:
            yield Setting("multiprocessing", num_envs, workers, half, zero_copy=False)


def _rate(
    setting: Setting, env: Any, params: Mapping[str, object], wrap: Mapping[str, object] | None, seconds: float
) -> tuple[float | None, str | None]:
    """Return agent-steps per second, or why there are none."""
    try:
        with setting.open(env, params, wrap) as opened:
            opened.async_reset(0)
            batches = random_batches(opened.single_action_space, opened.agents_per_batch, BATCHES)
            _steps_per_second(opened, batches, seconds / 10)
            return statistics.median(_steps_per_second(opened, batches, seconds / PARTS) for _ in range(PARTS)), None
    except Exception as error:
        return None, describe(error).partition("\n")[0]


def _steps_per_second(opened: vector.Vector, batches: Sequence[Array], seconds: float) -> float:
    """Receive and send for so long; a batch that was sent before is the first to be received."""
    rows, began = 0, time.perf_counter()
    while True:
        for batch in batches:
            opened.recv()
            opened.send(batch)
            rows += len(batch)
            elapsed = time.perf_counter() - began
            if elapsed >= seconds:
                return rows / elapsed


def _row(name: str, setting: Setting, rate: float | None, error: str | None) -> dict[str, Any]:
    return {
        "env": name,
        "backend": setting.backend,
        "num_envs": setting.num_envs,
        "num_workers": setting.num_workers,
        "batch_size": setting.batch_size,
        "steps_per_second": rate,
        "num_threads": setting.num_threads,
        "zero_copy": setting.zero_copy,
        "options": setting.options,
        "error": error,
    }


def _told(row: Mapping[str, Any]) -> str:
    """Return the line about a setting that was measured."""
    if row["error"] is not None:
        return f"{'failed':>20}  {row['options']}: {row['error']}"
    return f"{row['steps_per_second']:>12,.0f} steps/s  {row['options']}"


def _doublings(limit: int) -> Iterator[int]:
    """Yield 1, 2, 4, ..., up to a limit."""
    value = 1
    while value <= limit:
        yield value
        value *= 2
