"""The actors of one vector, and the Ray that they run on: joined where there is one, else started and stopped again."""

from __future__ import annotations

import importlib.util
import math
import os
import threading
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from puffer_core.errors import OptionError, WorkerError
from puffer_core.vector.actors import Worker

NO_EVENTS = {"task_events_report_interval_ms": 0}
"""Every step is a task of Ray's, of which it would keep what happened to the last 100,000: megabytes that grow."""

_lock = threading.Lock()
_users = 0
"""Pools that use the Ray that this module started or joined; the last one to stop leaves it."""


def is_installed() -> bool:
    """Return whether Ray can be imported, without importing it."""
    return importlib.util.find_spec("ray") is not None


class Pool:
    """Actors of class `Worker`, of which each has one thread and at most one CPU of the cluster.

    Args:
        address: Of a cluster, as in ``ray.init``; used only where this process has not joined one.
        options: More arguments of ``ray.init``; likewise.

    Attributes:
        actors: Their handles, once started.

    Raises:
        OptionError: If Ray is missing, or ``ray.init`` refuses what it was given.
    """

    def __init__(self, address: str | None = None, options: Mapping[str, Any] | None = None) -> None:
        self._ray = _import_ray()
        self.actors: list[Any] = []
        self._process = os.getpid()
        self._is_user = _join(self._ray, {"address": address, **(options or {})})

    @property
    def cpus(self) -> int:
        """CPUs of the whole cluster, at least 1."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def start(self, given: Sequence[bytes]) -> None:
        """Start one actor for each of what `pickled_share` returned; none waits for CPUs that there are not."""
        free = int(self._ray.available_resources().get("CPU", 0))
        share = 1 / math.ceil(len(given) / free) if free else 0
        # Ray gives an actor of at most one CPU OMP_NUM_THREADS=1, unless the variable is set already.
        make = self._ray.remote(Worker).options(num_cpus=share, max_restarts=0)
        self.actors = [make.remote(one) for one in given]

    def wait(self, handles: Sequence[Any], count: int, timeout_s: float) -> list[Any]:
        """Return the handles that are ready, once ``count`` are or the time is up."""
        ready: list[Any] = self._ray.wait(list(handles), num_returns=count, timeout=timeout_s)[0]
        return ready

    def get(self, handle: Any) -> Any:
        """Return what an actor answered.

        Raises:
            WorkerError: If the actor is gone, or its answer was lost.
        """
        try:
            return self._ray.get(handle)
        except self._ray.exceptions.RayError as error:
            raise WorkerError(
                f"is gone: {str(error).strip()}",
                hint="an actor that vanishes was often killed for using too much memory",
            ) from error

    def stop(self, timeout_s: float) -> None:
        """Let the environments close for so long, then kill the actors, and leave Ray if nobody else uses it."""
        if os.getpid() != self._process:
            return  # a fork of the one that all this belongs to
        actors, self.actors = self.actors, []
        if self._ray.is_initialized():
            if timeout_s > 0 and actors:
                closing = [actor.call.remote("close") for actor in actors]
                self._ray.wait(closing, num_returns=len(closing), timeout=timeout_s)
            for actor in actors:
                self._ray.kill(actor)
        if self._is_user:
            self._is_user = False
            _leave(self._ray)


def _import_ray() -> ModuleType:
    if not is_installed():
        raise OptionError("backend ray needs Ray, which is missing", hint='`pip install "puffer-core[ray]"`')
    import ray

    return ray


def _join(ray: ModuleType, options: Mapping[str, Any]) -> bool:
    """Start or join a Ray where this process has none; return whether it is to be left again."""
    global _users
    with _lock:
        if not ray.is_initialized():
            _users = 0
            try:
                ray.init(**{"include_dashboard": False, "logging_level": "ERROR", **_system(options), **options})
            except (ValueError, TypeError, ConnectionError, RuntimeError) as error:
                raise OptionError(f"Ray can't be started with {dict(options)}: {error}") from error
        elif not _users:
            return False
        _users += 1
        return True


def _system(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a Ray of our own; one that is joined has its own."""
    is_joined = options.get("address") or os.environ.get("RAY_ADDRESS")
    return {} if is_joined else {"_system_config": NO_EVENTS}


def _leave(ray: ModuleType) -> None:
    global _users
    with _lock:
        _users = max(0, _users - 1)
        if not _users and ray.is_initialized():
            ray.shutdown()
