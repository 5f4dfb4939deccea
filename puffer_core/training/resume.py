"""Going on with a run: its directory, its configuration, and what may be different this time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puffer_core import config as configuration
from puffer_core import run_upkeep, runs
from puffer_core.config import Config
from puffer_core.config.options import require_text, spell
from puffer_core.config.schema import section_of
from puffer_core.errors import OptionError, RunError
from puffer_core.plugins import manager
from puffer_core.runs import RunDirectory
from puffer_core.specs import EnvSpec
from puffer_core.training.job import locate, with_value

if TYPE_CHECKING:
    from puffer_core.console import Reporter
    from puffer_core.training.trainer import Trainer

THREADS = "vec.num_threads"
"""Threads add up gradients of some networks in another order: a run that gets another number is warned."""
TOTAL, SPAN = "train.total_timesteps", "train.schedule_timesteps"
SCHEDULES = ("refuse", "stretch", "keep")
SESSION = "session.json"
"""File of a checkpoint with what the session set besides the trainer: parameters of environments."""
MAY_CHANGE = (
    "logger",
    "checkpoint_interval",
    "keep_checkpoints",
    "train.checkpoint_seconds",
    "eval_episodes",
    THREADS,
    "train.processes",
)
"""Keys that a resumed run may be given other values for: they change at most the last bits, see `THREADS`."""


def find_run(ref: str, env: str | EnvSpec, runs_dir: str | os.PathLike[str] | None) -> RunDirectory:
    """Return the run to go on with.

    Raises:
        OptionError: If ``ref`` or ``runs_dir`` is empty.
        RunError: If there is none, or it is one of another environment.
    """
    require_text("resume", ref)
    if runs_dir is not None:
        require_text("runs_dir", os.fspath(runs_dir))
    _, name = locate(env)
    directory = runs.find(ref, name, runs_dir)
    if directory.env_name != name:
        hint = f"puffer train {directory.env_name} --resume {directory.path}"
        raise RunError(f"the run in `{directory.path}` is one of {directory.env_name}, not of {name}", hint=hint)
    return directory


@dataclass(frozen=True)
class Resumed:
    """What a session goes on with.

    Attributes:
        config: Of this session.
        lasting: What the run is from now on: saved once the checkpoint fits. None where nothing changes for good.
        warnings: What a person may not have meant.
    """

    config: Config
    lasting: Config | None = None
    warnings: tuple[str, ...] = ()


def resumed_config(env: str | EnvSpec, saved: Config, options: Mapping[str, str], schedule: str = "refuse") -> Resumed:
    """Return the configuration of a run with those of ``options`` that may change taken over.

    An option that says what the run has anyway is no change. ``--runs-dir`` only says where to look. Another total of
    steps stays with the run, all other changes last for this session.

    Args:
        env: The environment.
        saved: The configuration of the run.
        options: As asked.
        schedule: What the schedules do where the total changes: one of `SCHEDULES`.

    Raises:
        OptionError: If an option would change what is learnt, or is none at all.
    """
    if schedule not in SCHEDULES:
        raise OptionError(f"`--resume-schedule {schedule}` is not one of {', '.join(SCHEDULES)}")
    asked = {key: text for key, text in options.items() if key != "runs_dir"}
    if schedule != "refuse" and TOTAL not in asked:
        hint = f"add {spell(TOTAL)} STEPS, or leave it out"
        raise OptionError(f"`--resume-schedule {schedule}` goes with another total of steps", hint=hint)
    if not asked:
        return Resumed(saved)
    context = {"policy.name": saved.policy.name, "vec.backend": saved.vec.backend, "trainer": saved.base.trainer}
    loaded = configuration.load(env, options={**context, **asked})
    trackers = {name: options for name, options in loaded.plugins.items() if name in _logger_sections()}
    saved = replace(saved, plugins={**trackers, **saved.plugins})
    before, after = (dict(configuration.flatten(config)) for config in (saved, loaded))
    resumed = Resumed(saved)
    for key in asked:
        if before.get(key) == after[key]:
            continue
        if key == TOTAL:
            longer = _with_total(saved, after[key], schedule)
            config = with_value(with_value(resumed.config, TOTAL, after[key]), SPAN, longer.train.schedule_timesteps)
            resumed = Resumed(config, longer, resumed.warnings + _warn_of_end(longer))
        elif key in MAY_CHANGE or key.partition(".")[0] in trackers:
            resumed = replace(resumed, config=with_value(resumed.config, key, after[key]))
            if key == THREADS:
                resumed = replace(resumed, warnings=resumed.warnings + _warn_of_threads(saved))
        else:
            msg = f"`{spell(key)} {asked[key]}` can't change in a resumed run: it was started with {before.get(key)}"
            allowed = ", ".join(map(spell, (*MAY_CHANGE, TOTAL)))
            raise OptionError(msg, hint=f"leave it out, or start a new run; only {allowed} may change")
    return resumed


def _warn_of_threads(config: Config) -> tuple[str, ...]:
    """Say that another number of threads may change bits; the built-in network for numbers has the same for any."""
    if config.policy.name == "mlp":
        return ()
    return (f"another {spell(THREADS)}: a network other than `mlp` may go on with other last bits",)


def _logger_sections() -> set[str]:
    """Return the sections of options of loggers: they may change, too."""
    return {section_of(name) for name in manager().loggers.names()}


def _with_total(saved: Config, total: int, schedule: str) -> Config:
    """Return the configuration of a run that has another total of steps from now on."""
    before = saved.train.total_timesteps
    if schedule == "refuse":
        msg = f"`{spell(TOTAL)} {total}` can't change in a resumed run without a choice: it was started with {before}, "
        raise OptionError(
            msg + "and learning rate, entropy bonus and priorities follow the total",
            hint="add --resume-schedule stretch (they follow the new total) or keep (they end with the old one)",
        )
    span = total if schedule == "stretch" else saved.train.schedule_timesteps or before
    return with_value(with_value(saved, TOTAL, total), SPAN, span)


def _warn_of_end(config: Config) -> tuple[str, ...]:
    train = config.train
    if train.schedule_timesteps >= train.total_timesteps or not train.anneal_lr or train.min_lr_ratio > 0:
        return ()
    return (f"the learning rate is 0 from step {train.schedule_timesteps:,} on: nothing more is learnt there",)


def load_checkpoint(trainer: Trainer, directory: RunDirectory, reporter: Reporter) -> tuple[Path, dict[str, Any]]:
    """Make ``trainer`` go on from the checkpoint that was named, or the latest; say what can't be restored.

    Returns:
        The checkpoint, and the parameters of environments that observers had set by then.

    Raises:
        RunError: If there is none, it is damaged, or it does not fit.
    """
    run_upkeep.tidy(directory)
    checkpoint = directory.named or directory.latest_checkpoint()
    params = read_params(checkpoint)
    if params:
        trainer.vector.set_params(**params)  # for environments that begin anew; others hold them in their state
    for lost in trainer.load(checkpoint):
        reporter.warn(f"not restored: {lost}; the run goes on, but not bit for bit")
    return checkpoint, params


def settle(trainer: Trainer, directory: RunDirectory, checkpoint: Path, reporter: Reporter) -> None:
    """Bring the directory of a run to where ``trainer`` goes on from, and say so."""
    for path in run_upkeep.go_on_from(directory, checkpoint):
        reporter.warn(f"a later checkpoint is set aside as {path}")
    damaged = directory.rewind(trainer.global_step)
    if damaged:
        reporter.warn(f"metrics.jsonl had {damaged} damaged line{'s' * (damaged > 1)}, which can't be read: dropped")
    reporter.say(f"resuming {directory.path} at step {trainer.global_step:,}")


def write_params(checkpoint: Path, params: Mapping[str, Any]) -> None:
    """Put the parameters of environments that observers have set into a checkpoint, where there are any."""
    if params:
        (checkpoint / SESSION).write_text(json.dumps({"env_params": dict(params)}), encoding="utf-8")


def read_params(checkpoint: Path) -> dict[str, Any]:
    """Return what `write_params` put into a checkpoint.

    Raises:
        RunError: If it is damaged.
    """
    path = checkpoint / SESSION
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["env_params"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"the checkpoint {checkpoint} is damaged: {SESSION}: {error}") from error
