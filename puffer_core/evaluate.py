"""Evaluation without bias: which episodes count is decided before the first step.

Every row is given its number of episodes up front and all of them are played to their end; taking the first N that
finish would favour short ones. The seeds are derived from the run's and differ from those it was trained with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from puffer_core import config as configuration
from puffer_core import runs, vector
from puffer_core.config import Config
from puffer_core.config.options import spell
from puffer_core.console import Reporter
from puffer_core.errors import OptionError, RunError
from puffer_core.scores import SCORE_FIELDS
from puffer_core.screens import FilmScreen, TextScreen, require_renderer
from puffer_core.specs import EnvSpec
from puffer_core.training.job import EnvLike, choose_device, describe_job, locate, named, with_value

if TYPE_CHECKING:
    from puffer_core.rl.agent import Agent
    from puffer_core.vector import Vector

Render = Literal["none", "ansi", "video", "human"]
NATIVE_ROWS = 1024
"""Rows that environments in C are evaluated on at most; more would wait for the longest episode no less."""
PYTHON_ROWS = 64
"""The same for environments in Python, which gain nothing from more."""
MAX_STEPS = 30_000
"""Steps that one episode may take, as long as an episode of Atari; a row beyond it is given up, as is told."""
RENDERED_EPISODES = 3
"""Episodes that are shown or filmed where nothing else is asked for."""
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Play:
    """How many episodes are played, from which seed of the environments, and how."""

    episodes: int
    seed: int
    greedy: bool = False
    max_steps: int = MAX_STEPS


@dataclass(frozen=True)
class Episodes:
    """What was assigned and what was played to its end.

    Attributes:
        asked: Number assigned.
        rows: (n, F) logged values, one row per finished episode.
        fields: Names of the F values.
    """

    asked: int
    rows: npt.NDArray[np.float32]
    fields: tuple[str, ...]

    def values(self, *names: str) -> npt.NDArray[np.float64] | None:
        """Return the column of the first of ``names`` that the environment logs, None if it logs none of them."""
        for name in names:
            if name in self.fields:
                return self.rows[:, self.fields.index(name)].astype(np.float64)
        return None


def evaluate(
    env: EnvLike,
    *,
    load: str | os.PathLike[str] = "latest",
    episodes: int | None = None,
    greedy: bool = False,
    render: Render = "none",
    seed: int | None = None,
    options: Mapping[str, str] | None = None,
    output: str | os.PathLike[str] | None = None,
    max_steps: int = MAX_STEPS,
    console: Reporter | None = None,
) -> dict[str, Any]:
    """Play a trained agent with its weights frozen; return the JSON object of `puffer eval`.

    Args:
        env: Name or spec of the environment, or a class or factory at the top level of a module.
        load: A run, a checkpoint, or ``latest``.
        episodes: How many; None is the run's ``eval_episodes``, or a few where they are rendered. Where nothing
            terminates, the units that the environment logs count.
        greedy: Take the likeliest action instead of drawing one as in training.
        render: ``ansi`` prints, ``video`` films the episodes of one environment, ``none`` plays many at once.
        seed: That the evaluation's are derived from; None takes the run's.
        options: Sections ``env`` and ``vec``, in place of the run's own values.
        output: Path of the video; None puts it into the run directory.
        max_steps: Steps that one episode may take.
        console: Where warnings are told.

    Raises:
        RunError: If there is no such checkpoint, or it belongs to an environment with other spaces.
        RenderError: If it can't be rendered here.
    """
    from puffer_core.rl.threads import OneThreadPerOperation

    env = named(env)
    spec, name = locate(env)
    reporter = console or Reporter()
    require_renderer(render)
    options = dict(options or {})
    checkpoint = runs.find_checkpoint(os.fspath(load), name, options.pop("runs_dir", None))
    config = _config(env, checkpoint, options)
    if episodes is None:
        episodes = config.base.eval_episodes if render == "none" else RENDERED_EPISODES
    if episodes < 1:
        raise OptionError(f"episodes={episodes} is less than 1")
    seed = config.base.seed if seed is None else seed
    agent = _load(checkpoint, config, seed)
    how = Play(episodes, environment_seed(seed), greedy, max_steps)
    instances = _instances(config, spec, name, how, render)
    with vector.open_vector(config, spec, name=name, num_envs=instances) as envs, OneThreadPerOperation():
        _require_spaces(agent, envs, name)
        if render == "none":
            found, extra = play(agent, envs, how), {}
        else:
            path = _video_path(checkpoint, agent, output)
            with FilmScreen(path) if render == "video" else TextScreen(reporter.console.file) as screen:
                found = watch(agent, envs, how, screen.show)
            extra = {"video": str(path.absolute())} if render == "video" else {}
    return _summary(name, found, checkpoint, reporter) | extra


def play(agent: Agent, envs: Vector, how: Play) -> Episodes:
    """Play the episodes on all rows at once, each row as many as it was given before the first step."""
    left = assign(how.episodes, envs.num_agents)
    envs.reset(how.seed)
    actor = _Actor(agent, envs, how.greedy)
    rows, steps = [], np.zeros(envs.num_agents, np.int64)
    while left.any():
        envs.step(actor.act(left > 0))
        steps += 1
        counted = envs.logged & (left > 0)
        if counted.any():
            rows.append(envs.log[counted])
            left[counted] -= 1
            steps[counted] = 0
        left[steps >= how.max_steps] = 0
    return Episodes(how.episodes, _stack(rows, envs), envs.log_fields)


def watch(agent: Agent, envs: Vector, how: Play, show: Callable[[Vector], None]) -> Episodes:
    """Play the episodes of the first row, and call ``show`` for every state of theirs that can be drawn.

    These are the first state of each episode and every state between two steps of it. The state that the last step
    leads to is never there to be drawn: the same step begins the next episode.
    """
    envs.reset(how.seed)
    actor = _Actor(agent, envs, how.greedy)
    everyone = np.ones(envs.num_agents, np.bool_)
    rows: list[npt.NDArray[np.float32]] = []
    show(envs)
    steps = 0
    while steps < how.max_steps:
        envs.step(actor.act(everyone))
        steps += 1
        if envs.logged[0]:
            rows.append(envs.log[:1].copy())
            steps = 0
            if len(rows) == how.episodes:
                break
        show(envs)
    return Episodes(how.episodes, _stack(rows, envs), envs.log_fields)


def assign(episodes: int, rows: int) -> npt.NDArray[np.int64]:
    """Return how many of ``episodes`` each row plays: equal numbers, the remainder one each to the first rows."""
    quota = np.full(rows, episodes // rows, np.int64)
    quota[: episodes % rows] += 1
    return quota


def environment_seed(seed: int) -> int:
    """Return the seed that environments are reset with: of the stream ``evaluation``, as `rl.streams` says."""
    from puffer_core.rl import streams

    return streams.environment_seed(streams.derive(seed, "evaluation"))


class _Actor:
    """Chooses actions for the rows that still play; once half of them are done, the others are no longer computed."""

    def __init__(self, agent: Agent, envs: Vector, greedy: bool) -> None:
        self._agent, self._envs, self._greedy = agent, envs, greedy
        self._rows = np.arange(envs.num_agents)
        self._actions = np.zeros_like(envs.actions)
        self._alive = np.ones(envs.num_agents, np.bool_)
        self._state: Any = None

    def act(self, playing: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """Return actions for all rows; those of rows that don't play are arbitrary, but legal."""
        envs = self._envs
        # A row that is done repeats its last action, which a mask might no longer allow: then all go on.
        if envs.action_mask is None and 2 * np.count_nonzero(playing) < len(self._rows):
            kept = playing[self._rows]
            self._rows = self._rows[kept]
            if self._state is not None:
                self._state = self._state[:, np.flatnonzero(kept)]
        rows = self._rows
        # As in training: the state is zeroed behind an end, and where an agent has just come (it was absent before).
        resets = (envs.terminals | envs.truncations | ~self._alive)[rows] if self._state is not None else None
        self._alive = envs.masks.copy()
        self._actions[rows], self._state = self._agent.act(
            envs.observations[rows],
            self._state,
            greedy=self._greedy,
            resets=resets,
            action_mask=None if envs.action_mask is None else envs.action_mask[rows],
        )
        return self._actions


def _stack(rows: list[npt.NDArray[np.float32]], envs: Vector) -> npt.NDArray[np.float32]:
    return np.concatenate(rows) if rows else np.empty((0, len(envs.log_fields)), np.float32)


def _summary(name: str, found: Episodes, checkpoint: Path, reporter: Reporter) -> dict[str, Any]:
    scores, finished = found.values(*SCORE_FIELDS), len(found.rows)
    if finished < found.asked:
        reporter.warn(
            f"only {finished:,} of {found.asked:,} episodes ended within the step limit: "
            "the mean is over those, and favours short ones"
        )
    spread = scores.std(ddof=1) / np.sqrt(finished) if scores is not None and finished > 1 else None
    return {
        "env": name,
        "episodes": finished,
        "score": _mean(scores),
        "score_stderr": None if spread is None else float(spread),
        "episode_length": _mean(found.values("episode_length")),
        "perf": _mean(found.values("perf")),
        "checkpoint": str(checkpoint.absolute()),
        "unfinished": found.asked - finished,
        "quantiles": None if scores is None or not finished else np.quantile(scores, QUANTILES).tolist(),
    }


def _mean(values: npt.NDArray[np.float64] | None) -> float | None:
    return float(values.mean()) if values is not None and len(values) else None


def _config(env: str | EnvSpec, checkpoint: Path, options: Mapping[str, str]) -> Config:
    """Return the configuration of the checkpoint's run, its environments without staggered starts."""
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
    shipped = configuration.load(env, options=options)
    run, name = _run_of(checkpoint), locate(env)[1]
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


def _instances(config: Config, spec: EnvSpec, name: str, how: Play, render: str) -> int:
    """Return how many instances to open: one to look at, else as many as there are episodes for."""
    if render != "none":
        return 1
    job = describe_job(spec, name, config)
    most = (NATIVE_ROWS if job.table is not None else PYTHON_ROWS) // job.agents_per_env
    return max(1, min(most, -(-how.episodes // job.agents_per_env)))


def _video_path(checkpoint: Path, agent: Agent, output: str | os.PathLike[str] | None) -> Path:
    if output is not None:
        return Path(output)
    run, name = _run_of(checkpoint), f"{agent.step:0{runs.STEP_DIGITS}d}.mp4"
    return Path(name) if run is None else run.path / "videos" / name


def _run_of(checkpoint: Path) -> runs.RunDirectory | None:
    """Return the run that a checkpoint lies in, None if it lies on its own."""
    try:
        return runs.find(str(checkpoint.absolute()))
    except RunError:
        return None


def _load(checkpoint: Path, config: Config, seed: int) -> Agent:
    from puffer_core.rl.agent import load
    from puffer_core.rl.streams import derive

    return load(checkpoint, device=choose_device(config), seed=derive(seed, "evaluation", 1))


def _require_spaces(agent: Agent, envs: Vector, name: str) -> None:
    """Refuse an agent that was trained on other observations or actions."""
    pairs = (
        ("observations", agent.observation_space, envs.single_observation_space),
        ("actions", agent.action_space, envs.single_action_space),
    )
    for what, trained, here in pairs:
        if trained != here:
            raise RunError(f"{agent.path} was trained on {what} {trained}, {name} has {here}")
