"""Trained agents and the environments that they are played in: what an evaluation and `puffer play` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puffer_core import config as configuration
from puffer_core import runs
from puffer_core.config import Config
from puffer_core.config.options import spell
from puffer_core.errors import OptionError, RunError
from puffer_core.specs import EnvSpec
from puffer_core.training.job import choose_device, locate, with_value

if TYPE_CHECKING:
    from puffer_core.rl.agent import Agent
    from puffer_core.vector import Vector


def config_for(env: str | EnvSpec, checkpoint: Path | None, options: Mapping[str, str]) -> Config:
    """Return the configuration that an agent is played in: that of its run, with no staggered starts.

    Args:
        env: Name or spec of the environment.
        checkpoint: Of the agent; None for the environment as it is shipped.
        options: Sections ``env`` and ``vec``, in place of the run's own values.

    Raises:
        OptionError: For an option that has no meaning where nobody learns.
        RunError: If the run is one of another environment.
    """
    _require_options(env, options)
    shipped = configuration.load(env, options=options)
    run, name = None if checkpoint is None else run_of(checkpoint), locate(env)[1]
    if run is not None and run.env_name != name:
        msg = f"the run in `{run.path}` is one of {run.env_name}, not of {name}"
        raise RunError(msg, hint=f"puffer eval {run.env_name} --load {run.path}")
    config = shipped if run is None else run.config
    vec = replace(config.vec, backend="auto", num_workers="auto", batch_size="auto", zero_copy=True)
    config = replace(config, vec=vec)
    asked = dict(configuration.flatten(shipped))
    for key in options:
        config = with_value(config, key, asked[key])
    return with_value(config, "env.stagger", False) if "stagger" in config.env else config


def _require_options(env: str | EnvSpec, options: Mapping[str, str]) -> None:
    refused = [key for key in options if not key.startswith(("env.", "vec."))]
    if refused:
        msg = f"`{spell(refused[0])}` has no meaning here: an evaluation takes --env.* and --vec.* only"
        raise OptionError(msg, hint="the network is that of the checkpoint")
    counts = ("vec.num_envs", "env.num_envs") if locate(env)[0].table else ("vec.num_envs",)
    for key in counts:
        if key in options:
            msg = f"`{spell(key)}` has no meaning here: as many environments are opened as there are episodes to play"
            raise OptionError(msg, hint="leave it out; --episodes says how many are played")
    for key in ("vec.batch_size", "vec.zero_copy"):
        if key in options:
            msg = f"`{spell(key)}` has no meaning here: an evaluation steps all environments together"
            raise OptionError(msg, hint="leave it out; --vec.num-workers may divide them among processes")


def environment_seed(seed: int) -> int:
    """Return the seed that environments are reset with: of the stream ``evaluation``, as `rl.streams` says."""
    from puffer_core.rl import streams

    return streams.environment_seed(streams.derive(seed, "evaluation"))


def load_agent(checkpoint: Path, config: Config, seed: int, index: int = 1, policy: Any = None) -> Agent:
    """Return the agent of a checkpoint, its draws from the stream ``evaluation`` of ``seed``, by ``index``.

    ``policy`` is the network of a run that was trained with one of the caller's own, as `rl.agent.load` takes it.
    """
    from puffer_core.rl.agent import load
    from puffer_core.rl.streams import derive

    return load(checkpoint, device=choose_device(config), seed=derive(seed, "evaluation", index), policy=policy)


def run_of(checkpoint: Path) -> runs.RunDirectory | None:
    """Return the run that a checkpoint lies in, None if it lies on its own."""
    try:
        return runs.find(str(checkpoint.absolute()))
    except RunError:
        return None


def require_spaces(agent: Agent, envs: Vector, name: str) -> None:
    """Refuse an agent that was trained on other observations or actions.

    Raises:
        RunError: With both spaces.
    """
    pairs = (
        ("observations", agent.observation_space, envs.single_observation_space),
        ("actions", agent.action_space, envs.single_action_space),
    )
    for what, trained, here in pairs:
        if trained != here:
            msg = f"{agent.path} was trained on {what} {trained}, {name} has {here}"
            raise RunError(msg, hint="give the --env.* options it was trained with, or train a new run")
