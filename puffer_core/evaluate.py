"""Evaluation without bias: which episodes count is decided before the first step.

Every row is given its number of episodes up front and all of them are played to their end; taking the first N that
finish would favour short ones. The seeds are derived from the run's and differ from those it was trained with.
Who plays which rows is said by actors (`puffer_core.actors`): a plain evaluation has one, which plays all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from puffer_core import matches, runs, vector
from puffer_core.actors import Actor, Flags
from puffer_core.config import Config
from puffer_core.console import Reporter
from puffer_core.errors import OptionError
from puffer_core.scores import SCORE_FIELDS
from puffer_core.screens import FilmScreen, Screen, TextScreen, require_renderer, showing_ends
from puffer_core.specs import EnvSpec
from puffer_core.trained import config_for, environment_seed, load_agent, require_spaces, run_of
from puffer_core.training.job import EnvLike, describe_job, locate, named
from puffer_core.training.signals import StopSignals

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
MAX_EPISODES = 10_000_000
"""Episodes that one evaluation may have: it keeps the log of each for the quantiles, some 40 bytes of memory."""
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
        asked: Number assigned; where a person closed the window, as many as had ended by then.
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
    versus: str | os.PathLike[str] | None = None,
    episodes: int | None = None,
    greedy: bool = False,
    render: Render = "none",
    seed: int | None = None,
    options: Mapping[str, str] | None = None,
    output: str | os.PathLike[str] | None = None,
    max_steps: int = MAX_STEPS,
    console: Reporter | None = None,
    policy: Any = None,
) -> dict[str, Any]:
    """Play a trained agent with its weights frozen; return the JSON object of `puffer eval`.

    Args:
        env: Name or spec of the environment, or a class or factory at the top level of a module.
        load: A run, a checkpoint, or ``latest``.
        versus: Another run or checkpoint, or ``random``: it has the other seats of every environment, and the object
            then says who is stronger.
        episodes: How many; None is the run's ``eval_episodes``, or a few where they are rendered. Where nothing
            terminates, the units that the environment logs count.
        greedy: Take the likeliest action instead of drawing one as in training.
        render: ``ansi`` prints, ``video`` films, ``human`` shows the episodes of one environment in a window, ``none``
            plays many at once.
        seed: That the evaluation's are derived from; None takes the run's.
        options: Sections ``env`` and ``vec``, in place of the run's own values.
        output: Path of the video; None puts it into the run directory.
        max_steps: Steps that one episode may take.
        console: Where warnings are told.
        policy: The network of ``load``, where it was trained with one of your own; as `train` was given it.

    Raises:
        RunError: If there is no such checkpoint, it belongs to an environment with other spaces, or needs another
            ``policy``.
        OptionError: If ``versus`` is given and the environment has one agent.
        RenderError: If it can't be rendered here.
        Interrupted: After Ctrl-C or SIGTERM, between two steps and with everything closed.
    """
    with StopSignals(_no_answer, _no_answer) as signals:
        from puffer_core.rl.threads import OneThreadPerOperation

        reporter, options = console or Reporter(), dict(options or {})
        require_renderer(render)
        env = named(env)
        spec, name = locate(env)
        runs_dir = options.pop("runs_dir", None)
        checkpoint = runs.find_checkpoint(os.fspath(load), name, runs_dir)
        config = config_for(env, checkpoint, options)
        seed = config.base.seed if seed is None else seed
        how = Play(_count(episodes, config, render), environment_seed(seed), greedy, _at_least_one(max_steps=max_steps))
        agent = load_agent(checkpoint, config, seed, policy=policy)
        opponent = None if versus is None else matches.find(os.fspath(versus), name, config, seed, runs_dir)
        instances = _instances(config, spec, name, how, render, is_match=opponent is not None)
        # Held, because an exception that a handler raises can be lost where Python calls back from C, as after a fork.
        with (
            signals.held(),
            vector.open_vector(config, spec, name=name, num_envs=instances) as envs,
            OneThreadPerOperation(),
        ):
            signals.raise_if_any()
            require_spaces(agent, envs, name)
            cast, counted = matches.cast(agent, opponent, envs, greedy, name)
            check = signals.raise_if_any
            if render == "none":
                found, path = play(cast, envs, how, counted=counted, check=check), None
            else:
                path = _video_path(checkpoint, agent, output) if render == "video" else None
                with _screen(render, path, reporter, f"{name}, {checkpoint.name}", check) as screen:
                    found = watch(cast, envs, how, screen, check=check)
    result = _summary(name, found, checkpoint, reporter) | ({} if path is None else {"video": str(path.absolute())})
    return result if opponent is None else result | matches.summary(opponent, found.rows, found.fields)


def play(
    cast: Sequence[Actor],
    envs: Vector,
    how: Play,
    *,
    counted: Flags | None = None,
    check: Callable[[], None] = lambda: None,
) -> Episodes:
    """Play the episodes on all rows at once, each row as many as it was given before the first step.

    Args:
        cast: Who acts; every row belongs to one of them.
        envs: The vector.
        how: How many, and from which seed.
        counted: (N,) bool, rows whose episodes are assigned and counted; None for all.
        check: Called before every step; what it raises ends the evaluation.
    """
    left = np.zeros(envs.num_agents, np.int64)
    chosen = slice(None) if counted is None else counted
    left[chosen] = assign(how.episodes, len(left[chosen]))
    envs.reset(how.seed)
    actions = np.zeros_like(envs.actions)
    steps = np.zeros(envs.num_agents, np.int64)
    log, done = np.empty((how.episodes, len(envs.log_fields)), np.float32), 0
    while left.any():
        check()
        # A row that is done goes on for the others of its environment: what it does is part of their game.
        playing = np.repeat((left > 0).reshape(-1, envs.agents_per_env).any(1), envs.agents_per_env)
        for actor in cast:
            actor.act(playing, actions)
        envs.step(actions)
        steps += 1
        ended = envs.logged & (left > 0)
        if count := int(ended.sum()):
            log[done : done + count] = envs.log[ended]
            done += count
            left[ended] -= 1
            steps[ended] = 0
        left[steps >= how.max_steps] = 0
    return Episodes(how.episodes, log[:done], envs.log_fields)


def watch(
    cast: Sequence[Actor],
    envs: Vector,
    how: Play,
    screen: Screen,
    *,
    row: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Episodes:
    """Play the episodes of one row of the first instance, and show every state of theirs that can be drawn.

    These are the first state of each episode, every state between two steps of it, and its last one where the
    environment can be drawn before it begins the next episode (`PufferEnv.before_restart`). One that does so inside
    its own step, as every one in C, is seen for the last time before the step that ends the episode.

    Args:
        cast: As in `play`.
        envs: The vector.
        how: How many, and from which seed.
        screen: Where they are shown; once it is closed, nothing more is played.
        row: Whose episodes are counted.
        check: As in `play`.
    """
    envs.reset(how.seed)
    actions = np.zeros_like(envs.actions)
    everyone = np.ones(envs.num_agents, np.bool_)
    rows: list[npt.NDArray[np.float32]] = []
    steps = 0
    with showing_ends(envs, screen):
        screen.show(envs)
        while screen.is_open and steps < how.max_steps:
            check()
            for actor in cast:
                actor.act(everyone, actions)
            envs.step(actions)
            steps += 1
            if envs.logged[row]:
                rows.append(envs.log[row : row + 1].copy())
                steps = 0
                if len(rows) == how.episodes:
                    break
            screen.show(envs)
    asked = how.episodes if screen.is_open else len(rows)
    return Episodes(asked, _stack(rows, envs), envs.log_fields)


def assign(episodes: int, rows: int) -> npt.NDArray[np.int64]:
    """Return how many of ``episodes`` each row plays: equal numbers, the remainder one each to the first rows."""
    quota = np.full(rows, episodes // rows, np.int64)
    quota[: episodes % rows] += 1
    return quota


def _no_answer(*_: object) -> None:
    """Say nothing from inside a signal handler: who called tells that it was stopped."""


def _at_least_one(**values: int) -> int:
    ((name, value),) = values.items()
    if value < 1:
        raise OptionError(f"{name}={value} is less than 1")
    return value


def _count(episodes: int | None, config: Config, render: str) -> int:
    if episodes is None:
        return config.base.eval_episodes if render == "none" else RENDERED_EPISODES
    if episodes > MAX_EPISODES:
        raise OptionError(f"episodes={episodes:,} is more than {MAX_EPISODES:,}", hint="a thousand give a good mean")
    return _at_least_one(episodes=episodes)


def _screen(render: str, path: Path | None, reporter: Reporter, title: str, check: Callable[[], None]) -> Screen:
    if path is not None:
        return FilmScreen(path)
    if render == "ansi":
        return TextScreen(reporter.console.file)
    from puffer_core.window import WindowScreen

    return WindowScreen(title, check=check)


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


def _instances(config: Config, spec: EnvSpec, name: str, how: Play, render: str, *, is_match: bool) -> int:
    """Return how many instances to open: one to look at, else as many as there are episodes for."""
    if render != "none" and not is_match:
        return 1
    job = describe_job(spec, name, config)
    if is_match:
        matches.require_seats(job.agents_per_env, name)
    if render != "none":
        return 1
    most = (NATIVE_ROWS if job.table is not None else PYTHON_ROWS) // job.agents_per_env
    return max(1, min(most, -(-how.episodes // (1 if is_match else job.agents_per_env))))


def _video_path(checkpoint: Path, agent: Agent, output: str | os.PathLike[str] | None) -> Path:
    if output is not None:
        return Path(output)
    run, name = run_of(checkpoint), f"{agent.step:0{runs.STEP_DIGITS}d}.mp4"
    return Path(name) if run is None else run.path / "videos" / name
