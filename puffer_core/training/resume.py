"""Going on with a run: its directory, its configuration, and what may be different this time."""

from __future__ import annotations

import os
from collections.abc import Mapping

from puffer_core import config as configuration
from puffer_core import runs
from puffer_core.config import Config
from puffer_core.config.options import require_text, spell
from puffer_core.errors import OptionError, RunError
from puffer_core.runs import RunDirectory
from puffer_core.specs import EnvSpec
from puffer_core.training.job import locate, with_value

MAY_CHANGE = ("logger", "checkpoint_interval", "train.checkpoint_seconds", "eval_episodes", "vec.num_threads")
"""Keys that change nothing about what is learnt, so that a resumed run may be given other values for them."""


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


def resumed_config(env: str | EnvSpec, saved: Config, options: Mapping[str, str]) -> Config:
    """Return the configuration of a run with those of ``options`` that may change taken over for this session.

    An option that says what the run has anyway is no change. ``--runs-dir`` only says where to look.

    Raises:
        OptionError: If an option would change what is learnt, or is none at all.
    """
    asked = {key: text for key, text in options.items() if key != "runs_dir"}
    if not asked:
        return saved
    context = {"policy.name": saved.policy.name, "vec.backend": saved.vec.backend, "trainer": saved.base.trainer}
    before = dict(configuration.flatten(saved))
    after = dict(configuration.flatten(configuration.load(env, options={**context, **asked})))
    for key in asked:
        if before.get(key) == after[key]:
            continue
        if key not in MAY_CHANGE:
            msg = f"`{spell(key)} {asked[key]}` can't change in a resumed run: it was started with {before.get(key)}"
            allowed = ", ".join(map(spell, MAY_CHANGE))
            raise OptionError(msg, hint=f"leave it out, or start a new run; only {allowed} may change")
        saved = with_value(saved, key, after[key])
    return saved
