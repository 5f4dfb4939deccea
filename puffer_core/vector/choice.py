"""Which backend: the one that is named, or for ``auto`` the one that can run the environment and is fastest.

That is the one of highest priority which can do what was asked: `native` for environments in C, `serial` in Python. A
step of the environment is timed, and where worker processes would be clearly faster than `serial`, it is those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from puffer_core.errors import OptionError
from puffer_core.place import place
from puffer_core.specs import BackendSpec, VectorJob
from puffer_core.vector.blocks import auto_workers
from puffer_core.vector.counts import is_auto, refuse_split
from puffer_core.vector.native import cores
from puffer_core.vector.probe import step_seconds
from puffer_core.vector.source import Source

HAND_OVER_S = 25e-6
"""What a batch costs with worker processes besides the steps, and again for each of them; measured on two cores."""
LEAST_GAIN = 1.3
"""How many times faster than `serial` worker processes must promise to be."""
LEAST_SAVING_S = 0.5e-3
"""How much of every batch they must save: less is lost in what else a batch takes."""


@dataclass(frozen=True)
class Forecast:
    """What whole batches of an environment would take, in this process and in worker processes.

    Args:
        step_s: Seconds of one environment's step.
        num_envs: Environments.
        workers: Processes.
    """

    step_s: float
    num_envs: int
    workers: int

    @property
    def serial_s(self) -> float:
        """Seconds of a batch, one environment after the other."""
        return self.num_envs * self.step_s

    @property
    def workers_s(self) -> float:
        """Seconds of a batch in worker processes."""
        return self.serial_s / min(self.workers, cores()) + HAND_OVER_S * (1 + self.workers)

    @property
    def is_clear(self) -> bool:
        """Whether worker processes are clearly faster."""
        is_faster = self.serial_s >= LEAST_GAIN * self.workers_s
        return is_faster and self.serial_s - self.workers_s >= LEAST_SAVING_S

    @property
    def numbers(self) -> str:
        """The forecast in words."""
        return (
            f"a step takes {_duration(self.step_s)}, so {self.num_envs} take about {_duration(self.serial_s)} "
            f"one after the other, {_duration(self.workers_s)} in {self.workers} process{'es' * (self.workers > 1)}"
        )


def choose(backend: str, job: VectorJob, source: Source | None = None) -> tuple[Callable[..., Any], str, str]:
    """Return what makes the vector, the name of the backend, and a note on the choice.

    Args:
        backend: A name, or ``auto``.
        job: What it has to run.
        source: The environment, to be timed where `auto` has a choice; None is not to be timed.

    Raises:
        OptionError: If the backend that is named can't run the job, or none can; the text gives the reasons.
        UnknownNameError: If there is no such backend.
    """
    from puffer_core.plugins import manager, resolve

    registry = manager().backends
    if backend != "auto":
        spec = registry.get(backend)
        reason = _reason(spec, job)
        if reason:
            raise OptionError(f"backend {backend} can't run {job.env_name}: {reason}")
        return resolve(spec.make), spec.name, ""
    passed: list[str] = []
    for spec in sorted(registry.specs(), key=lambda spec: -spec.priority):
        make, reason = _ask(spec, job)
        if make is None:
            passed.append(f"{spec.name}: {reason}")
        elif spec.name == "serial":
            return _serial_or_workers(make, job, source)
        else:
            return make, spec.name, " (auto)"
    raise OptionError(f"no backend that is installed can run {job.env_name}: {'; '.join(passed) or 'there is none'}")


def forecast(job: VectorJob, source: Source | None) -> Forecast | None:
    """Time a step of the environment; None where it can't be timed, or nothing could be divided among processes."""
    if source is None or job.table is not None or job.num_envs < 2 or cores() < 2:
        return None
    workers = job.num_workers
    count = auto_workers(job.num_envs, job.num_envs, cores()) if is_auto(workers) else int(workers)
    step_s = step_seconds(source)
    return None if step_s is None else Forecast(step_s, job.num_envs, count)


def second_thoughts(backend: str, job: VectorJob, source: Source | None) -> str:
    """Return, where worker processes were asked for and `serial` would be faster, a note that says so; else nothing."""
    is_partial = refuse_split(job.num_envs, "auto", job.batch_size, job.zero_copy)
    if backend != "multiprocessing" or is_partial:
        return ""
    found = forecast(job, source)
    if found is None or found.serial_s > found.workers_s:
        return ""
    return f"; serial would be faster: {found.numbers}"


def _serial_or_workers(
    serial: Callable[..., Any], job: VectorJob, source: Source | None
) -> tuple[Callable[..., Any], str, str]:
    from puffer_core.plugins import manager

    workers = next((spec for spec in manager().backends.specs() if spec.name == "multiprocessing"), None)
    make = None if workers is None else _ask(workers, job)[0]
    found = None if make is None or is_alone(job) else forecast(job, source)
    if found is None:
        return serial, "serial", " (auto)"
    if make is not None and found.is_clear:
        return make, "multiprocessing", f" (auto: {found.numbers})"
    return serial, "serial", f" (auto: {found.numbers})"


def is_alone(job: VectorJob) -> bool:
    """Return whether one process was asked for, or other ranks of this machine use its cores already."""
    return job.num_workers == 1 or place().local_world_size > 1


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def _ask(spec: BackendSpec, job: VectorJob) -> tuple[Callable[..., Any] | None, str]:
    """Return what makes the vector, or why this backend is passed over: one that is broken must not stop the rest."""
    from puffer_core.isolation import describe, raises_plugin_errors
    from puffer_core.plugins import resolve

    try:
        reason = _reason(spec, job)
        return (None, reason) if reason else (resolve(spec.make), "")
    except (Exception, SystemExit) as error:
        if raises_plugin_errors():
            raise
        return None, f"it can't be asked: {describe(error)}"


def _reason(spec: BackendSpec, job: VectorJob) -> str | None:
    """Return what ``supports`` answers."""
    from puffer_core.plugins import resolve

    reason = None if spec.supports is None else resolve(spec.supports)(job)
    return None if reason is None else str(reason)
