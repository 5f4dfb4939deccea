"""Every hook a plugin can implement, each with its contract. `docs/plugins.md` shows one example per hook.

A plugin is an entry point in the group ``puffer`` that names a module. The module says ``puffer_api = 1`` and marks its
functions with `hookimpl`. An implementation may ask for fewer arguments than the hook has, never for others; hooks only
ever gain arguments. No hook runs per environment step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pluggy

if TYPE_CHECKING:
    from puffer_core.config import Config
    from puffer_core.specs import BackendSpec, EnvSpec, LoggerSpec, PolicySpec, SweeperSpec, TrainerSpec

API = 1
"""What `puffer_api` in a plugin must be to be loaded by this core."""

hookspec = pluggy.HookspecMarker("puffer")
hookimpl = pluggy.HookimplMarker("puffer")


class RunEnv(Protocol):
    """The environments of a run, as observers see them."""

    @property
    def values(self) -> Mapping[str, Any]:
        """What `set` has set in this run, also before it was resumed."""

    def set(self, **values: Any) -> None:
        """Set parameters that are LIVE in the C table, or those `set_params` of a Python environment takes.

        They take effect at each instance's next reset. Raises `OptionError` with the legal range.
        """


class Run(Protocol):
    """One training run, as observers see it. Observers are called between epochs, never while one is computed."""

    @property
    def config(self) -> Config:
        """The whole typed configuration, read only."""

    @property
    def step(self) -> int:
        """Agent-steps so far."""

    @property
    def epoch(self) -> int:
        """Rollouts so far."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Those of the last epoch; empty before the first."""

    @property
    def directory(self) -> Path:
        """The run directory."""

    @property
    def env(self) -> RunEnv:
        """The environments."""

    def stop(self, reason: str) -> None:
        """End the run after this epoch; it is saved and evaluated as usual."""

    def save(self) -> Path:
        """Write a checkpoint now and return its directory."""


# Registration: each is called once per process, when the first name is looked up.


@hookspec
def puffer_envs() -> Iterable[EnvSpec]:
    """Environments and families of them that this plugin supplies.

    Called once per process by `PluginManager.load`, before options are parsed. The names must not need an import of the
    framework: a family (``gym/*``) lists itself only when asked. A name that is claimed twice is an error when it is
    used, and the error names both. If this raises, or returns anything but `EnvSpec`s, the plugin is listed as broken
    and nothing of it is registered. Model: ``puffer_ocean.plugin``.
    """
    raise NotImplementedError


@hookspec
def puffer_vector_backends() -> Iterable[BackendSpec]:
    """Ways to run many environments, chosen with ``--vec.backend``.

    Called once per process by `PluginManager.load`. ``make`` of a spec is called once per vector. What happens on an
    exception or a name claimed twice: as for `puffer_envs`; a name of the core's stays the core's.
    Model: ``puffer_core.builtin`` (`serial`, `native`).
    """
    raise NotImplementedError


@hookspec
def puffer_policies() -> Iterable[PolicySpec]:
    """Encoders, chosen with ``--policy.name``; the core adds the recurrent core and the action heads.

    Called once per process by `PluginManager.load`; the encoder of a spec is built once per policy. What happens on an
    exception or a name claimed twice: as for `puffer_vector_backends`. Model: ``puffer_core.builtin`` (`mlp`).
    """
    raise NotImplementedError


@hookspec
def puffer_trainers() -> Iterable[TrainerSpec]:
    """Trainers, chosen with ``--trainer``; ``auto`` takes the highest priority whose ``supports(job)`` is None.

    Called once per process by `PluginManager.load`. ``supports`` is called once per run, before any environment is
    made. What happens on an exception or a name claimed twice: as for `puffer_vector_backends`.
    Model: ``puffer_core.builtin`` (`torch`).
    """
    raise NotImplementedError


@hookspec
def puffer_loggers() -> Iterable[LoggerSpec]:
    """Places that metrics are mirrored to, chosen with ``--logger``.

    Called once per process by `PluginManager.load`; the logger of a spec is made once per run, before training starts:
    ``make`` is quick and says at once what is missing. The rest is called by a thread of the logger's own: ``start()``
    if there is one, ``log(step, metrics)`` at most about twice a second, ``finish(result)`` if there is one,
    ``close()``. ``abandon()``, if there is one, is called from outside when that takes too long. What it raises never
    stops training. What happens on an exception here or a name claimed twice: as for `puffer_vector_backends`.
    Model: ``puffer_core.builtin`` (`jsonl`).
    """
    raise NotImplementedError


@hookspec
def puffer_sweepers() -> Iterable[SweeperSpec]:
    """Hyper-parameter searches, chosen with ``--sweeper``.

    Called once per process by `PluginManager.load`; ``suggest()`` and ``observe()`` of the object made are called once
    per trial. What happens on an exception or a name claimed twice: as for `puffer_vector_backends`. Model to read:
    any registration in ``puffer_core.builtin``, which has no sweeper of its own.
    """
    raise NotImplementedError


# Observers: called by the process that trains. One that raises is reported once and detached; training goes on.


@hookspec
def puffer_run_started(run: Run) -> None:
    """Called once per run by the trainer's job, after everything is built and before the first rollout.

    A resumed run calls it again. On an exception this plugin's three observer hooks are detached for the run.
    Model: the curriculum in ``docs/plugins.md``.
    """
    raise NotImplementedError


@hookspec
def puffer_epoch_finished(run: Run, metrics: Mapping[str, float]) -> None:
    """Called once per epoch by the trainer's job, after the rollout was learnt from.

    ``metrics`` are the epoch's, with the keys of a row of ``metrics.jsonl``. Keep this quick: the next rollout waits.
    On an exception: as for `puffer_run_started`. Model: the curriculum in ``docs/plugins.md``.
    """
    raise NotImplementedError


@hookspec
def puffer_run_finished(run: Run, result: Mapping[str, Any]) -> None:
    """Called once per run by the trainer's job, after the last checkpoint, also when the run was stopped early.

    ``result`` has the keys of `puffer train --json`. Not called when the run fails. On an exception: as for
    `puffer_run_started`. Model: the curriculum in ``docs/plugins.md``.
    """
    raise NotImplementedError
