"""From the name of an environment to everything that is decided before training: configuration, plan, trainer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from puffer_core import config as configuration
from puffer_core import plugins, vector
from puffer_core.config import Config, Origin
from puffer_core.config.options import spell
from puffer_core.config.plan import Plan, plan
from puffer_core.config.sections import split
from puffer_core.errors import OptionError, PluginError
from puffer_core.isolation import describe, raises_plugin_errors
from puffer_core.place import place
from puffer_core.specs import EnvSpec, Job, TrainerSpec

EnvLike: TypeAlias = str | EnvSpec | Callable[..., Any]
"""What a Python caller may give as an environment: a name, a spec, or a class or factory."""


@dataclass(frozen=True)
class Prepared:
    """A job that can start: nothing has been made yet.

    Attributes:
        job: Environment, spaces and configuration.
        plan: The counts: rows, horizon, minibatch, epochs.
        trainer: The trainer that was chosen.
        notes: What a person may want to know about these choices.
    """

    job: Job
    plan: Plan
    trainer: TrainerSpec
    notes: tuple[str, ...] = ()


def prepare(
    env: str | EnvSpec,
    *,
    preset: str | None = None,
    trainer: str | None = None,
    file: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | Sequence[str] = (),
    edits: Mapping[str, Mapping[str, Any]] | None = None,
    policy: Any = None,
) -> Prepared:
    """Resolve the configuration of ``env``, choose a trainer for it, and plan.

    The overlay that is named like the trainer may change everything but the trainer, so the configuration is read
    again once the trainer is known. ``policy`` is a network of the caller's own, as of `Job`.

    Raises:
        OptionError: For an illegal option, counts that don't fit, or a trainer that can't do the job.
    """
    spec, name = locate(env)

    def describe(chosen: str | None) -> Job:
        config = configuration.load(env, preset=preset, trainer=chosen, file=file, options=options, edits=edits)
        return describe_job(spec, name, config, policy)

    job = describe(trainer)
    found, notes = choose_trainer(job, job.config.base.trainer)
    if job.config.base.trainer != found.name:
        job = describe(found.name)
        _require_support(found, job)
    return _planned(job, found, notes)


def prepare_saved(env: str | EnvSpec, config: Config, policy: Any = None) -> Prepared:
    """Return what `prepare` returned for a run, from its saved configuration."""
    spec, name = locate(env)
    job = describe_job(spec, name, config, policy)
    return _planned(job, choose_trainer(job, config.base.trainer)[0], (), is_resumed=True)


def locate(env: str | EnvSpec) -> tuple[EnvSpec, str]:
    """Return the spec of an environment and its canonical name."""
    return (env, env.name) if isinstance(env, EnvSpec) else plugins.find_env(env)


def named(env: EnvLike) -> str | EnvSpec:
    """Return ``env`` as a name or spec; a class or factory becomes the spec ``local/<its name>``.

    Raises:
        OptionError: If it is something else, or can't be found again by module and name, as a run's checks need.
    """
    if isinstance(env, (str, EnvSpec)):
        return env
    label = getattr(env, "__name__", type(env).__name__)
    target = f"{getattr(env, '__module__', None)}:{getattr(env, '__qualname__', label)}"
    try:
        if plugins.resolve(target) is env:
            return EnvSpec(f"local/{label}", make=target)
    except (PluginError, ValueError):
        pass
    msg = f"{env!r} is no name, spec, or class or function at the top level of a module"
    raise OptionError(msg, hint="define it at the top level of a file, or give the name of an installed environment")


def _planned(job: Job, trainer: TrainerSpec, notes: tuple[str, ...], *, is_resumed: bool = False) -> Prepared:
    here = place()
    counts = plan(
        job.config,
        job.agents_per_env,
        is_native=job.table is not None,
        is_resumed=is_resumed,
        world_size=here.world_size,
    )
    config = counts.apply(job.config)
    if here.world_size > 1:
        config = replace(config, train=replace(config.train, processes=here.world_size))
    elif config.train.processes not in (1, "auto"):
        msg = f"train.processes={config.train.processes}: this process was started alone"
        raise OptionError(msg, hint="use `puffer train` or `puffer run`, which start the others, or torchrun")
    job = replace(job, config=config)
    return Prepared(job, counts, trainer, (*notes, *counts.notes))


def describe_job(spec: EnvSpec, name: str, config: Config, policy: Any = None) -> Job:
    """Return the job of ``config``: its spaces are from the C table or a Python environment that is opened for it."""
    params = {key: value for key, value in config.env.items() if not (spec.table and key == "num_envs")}
    opened = name if spec.is_family else spec
    observations, actions, agents, table = vector.describe(opened, params, config.wrap, config.vec.timeout or None)
    from puffer_core.policies.choice import choose_encoder  # its package imports torch

    config = replace(config, policy=choose_encoder(config.policy, observations))
    return Job(spec, name, params, observations, actions, agents, table, config, choose_device(config), policy)


def with_value(config: Config, key: str, value: object) -> Config:
    """Return ``config`` with one key set as an option sets it."""
    section, name = split(key)
    is_plugin = section in config.plugins
    part = config.plugins[section] if is_plugin else getattr(config, section)
    changed: Any = {**part, name: value} if isinstance(part, Mapping) else replace(part, **{name: value})
    origins = {**config.origins, key: Origin("option", spell(key))}
    parts = {"plugins": {**config.plugins, section: changed}} if is_plugin else {section: changed}
    return replace(config, origins=origins, **parts)


def choose_device(config: Config) -> str:
    """Return the device to learn on; ``auto`` is the first GPU that torch can use, else the CPU.

    Of several processes on a machine, each has a GPU of its own.
    """
    device, here = config.train.device, place()
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    return f"cuda:{here.local_rank}" if device == "cuda" and here.world_size > 1 else device


def choose_trainer(job: Job, wanted: str) -> tuple[TrainerSpec, tuple[str, ...]]:
    """Return the trainer called ``wanted``, or for ``auto`` the one of highest priority that supports the job.

    Returns:
        The spec, and for each trainer of higher priority why it was passed over.

    Raises:
        OptionError: If the wanted one does not support the job, or none does; the text gives the reasons.
    """
    registry = plugins.manager().trainers
    if wanted != "auto":
        spec = registry.get(wanted)
        _require_support(spec, job)
        return spec, ()
    passed: list[str] = []
    for spec in sorted(registry.specs(), key=lambda spec: -spec.priority):
        try:
            reason = _reason_against(spec, job)
        except (Exception, SystemExit) as error:  # one that is broken must not stop the rest
            if raises_plugin_errors():
                raise
            reason = f"it can't be asked: {describe(error)}"
        if reason is None:
            return spec, tuple(passed)
        passed.append(f"not trainer `{spec.name}`: {reason}")
    msg = f"no trainer supports {job.env_name}: {'; '.join(passed)}"
    raise OptionError(msg, hint="change what the reasons name; `puffer plugins` lists the trainers")


def _require_support(spec: TrainerSpec, job: Job) -> None:
    reason = _reason_against(spec, job)
    if reason is not None:
        others = [other.name for other in plugins.manager().trainers.specs() if other.name != spec.name]
        hint = f"use `--trainer auto`, or one of {', '.join(others)}" if others else None
        raise OptionError(f"trainer `{spec.name}` does not support {job.env_name}: {reason}", hint=hint)


def _reason_against(spec: TrainerSpec, job: Job) -> str | None:
    """Return what ``supports`` answers; a plugin that can't be loaded supports nothing."""
    try:
        reason = plugins.resolve(spec.supports)(job)
    except PluginError as error:
        return str(error)
    return None if reason is None else str(reason)
