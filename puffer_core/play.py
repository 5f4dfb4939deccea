"""A person plays an environment: `puffer play`.

The person is one agent. The others are played by a trained agent, or draw their actions. What keys do comes from the
environment (`PufferEnvTable.human` of one in C, `get_keys_to_action` or ``play_keys`` of one in Python), or from the
person. Where no key stands for doing nothing, the game waits for one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, MultiDiscrete

from puffer_core import keys as keyboard
from puffer_core import runs, vector
from puffer_core.actors import Actor, AgentActor, RandomActor, head_sizes
from puffer_core.config import Config
from puffer_core.config.options import spell
from puffer_core.console import Reporter
from puffer_core.emulation.spaces import action_codec
from puffer_core.errors import OptionError, RenderError
from puffer_core.keys import KeyMap, Keys
from puffer_core.native import NativeEnv
from puffer_core.scores import SCORE_FIELDS
from puffer_core.screens import PlayScreen, first_environment, missing_display, require_window, showing_ends
from puffer_core.specs import EnvSpec
from puffer_core.trained import config_for, environment_seed, load_agent, require_spaces
from puffer_core.training.job import EnvLike, locate, named, with_value
from puffer_core.training.signals import StopSignals
from puffer_core.vector.wrap.instances import EnvWrapper

if TYPE_CHECKING:
    from puffer_core.vector import Vector

View = Literal["auto", "human", "ansi"]
VIEWS = ("auto", "human", "ansi")
CONTROLS = {"human": "Esc closes, F1 pauses, F2 steps, F3 slower, F4 faster", "ansi": "Esc closes"}


class Person:
    """Turns the keys of a person into the actions of one row.

    Args:
        envs: A vector of one instance.
        agent: Which of its agents the person is.
        key_map: What keys do; None asks the environment.

    Raises:
        OptionError: If there is no such agent, nobody says what keys do, or an action is not from the action space.
    """

    def __init__(self, envs: Vector, agent: int, key_map: KeyMap | None = None) -> None:
        if not 0 <= agent < envs.num_agents:
            raise OptionError(f"agent={agent} is not one of the {envs.num_agents} of {envs.name}, counted from 0")
        self._envs, self.agent = envs, agent
        env = _environment(envs)
        if key_map is None and isinstance(env, NativeEnv):
            self._choose: Callable[[Keys], Any] = lambda keys: _native_action(env, keys, agent)
            self._choose(Keys())
            return
        key_map = key_map or keyboard.find_map(env)
        if key_map is None:
            example = keyboard.example(envs.single_action_space)
            hint = f'say what keys do: --keys "{example}"; the actions are {envs.single_action_space}'
            raise OptionError(f"{envs.name} does not say what keys do", hint=hint)
        actions = key_map.translated(_writer(env, agent))
        self._choose = lambda keys: actions.action(keys.down)

    def act(self, screen: PlayScreen, actions: npt.NDArray[Any]) -> bool:
        """Write the person's action; return False where the game waits for a key.

        Where one choice only is legal, as out of turn, nobody is asked for it.
        """
        envs, row = self._envs, self.agent
        mask = None if envs.action_mask is None else envs.action_mask[row]
        forced = None if mask is None else _only_choice(envs.single_action_space, mask)
        if forced is not None or not envs.masks[row]:
            actions[row] = 0 if forced is None else np.reshape(forced, actions.shape[1:])
            return True
        action = self._choose(screen.keys(is_waiting=self._choose(Keys()) is None))
        if action is None or not _is_legal(envs.single_action_space, mask, action):
            return False
        actions[row] = action
        return True


def play(
    env: EnvLike,
    *,
    agent: int = 0,
    load: str | os.PathLike[str] | None = None,
    episodes: int | None = None,
    keys: str | None = None,
    render: View = "auto",
    fps: float | None = None,
    seed: int | None = None,
    options: Mapping[str, str] | None = None,
    console: Reporter | None = None,
) -> dict[str, Any]:
    """Let a person play; return the JSON object of `puffer play`.

    Args:
        env: Name or spec of the environment, or a class or factory at the top level of a module.
        agent: Which agent of the environment the person is.
        load: A run, a checkpoint or ``latest`` that plays the other agents; None draws their actions.
        episodes: After how many it ends; None goes on until the person closes it.
        keys: What keys do, as in `puffer_core.keys.parse`; None asks the environment.
        render: ``human`` opens a window, ``ansi`` plays in the terminal, ``auto`` takes the first that can be had.
        fps: Steps per second of a game that goes on by itself; None for what the environment says.
        seed: Of the environment and of the others' draws; None takes a new one each time.
        options: Section ``env``, in place of the environment's or the run's own values.
        console: Where scores are told.

    Raises:
        OptionError: If nobody says what keys do, or an argument is illegal.
        RenderError: If there is neither a window nor a terminal to play in.
        Interrupted: After Ctrl-C or SIGTERM.
    """
    reporter, options = console or Reporter(), dict(options or {})
    _require(render, fps, episodes, seed)
    key_map = None if keys is None else keyboard.parse(keys)
    env = named(env)
    spec, name = locate(env)
    folder = options.pop("runs_dir", None)
    checkpoint = None if load is None else runs.find_checkpoint(os.fspath(load), name, folder)
    config = _config(env, checkpoint, options)
    seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1) if seed is None else seed
    opened = ExitStack()  # closed by the handler too, where a second signal ends the process
    with StopSignals(lambda _: None, opened.close) as signals, signals.held(), opened:
        envs = opened.enter_context(vector.open_vector(config, spec, name=name, num_envs=1))
        person = Person(envs, agent, key_map)
        cast = _others(envs, agent, checkpoint, config, seed)
        view = choose_view(render)
        screen = opened.enter_context(open_screen(view, name, reporter.console.file, signals.raise_if_any, fps))
        reporter.say(CONTROLS[view])
        try:
            rows = play_on(screen, envs, person, cast, environment_seed(seed), episodes, check=signals.raise_if_any)
        except RenderError as error:
            if view == render:
                raise
            raise RenderError(f"it can't be played here: {error}", hint=_no_window() or error.hint) from error
        return _result(name, person, view, rows)


def play_on(
    screen: PlayScreen,
    envs: Vector,
    person: Person,
    others: Sequence[Actor],
    seed: int,
    episodes: int | None = None,
    *,
    check: Callable[[], None] = lambda: None,
) -> list[dict[str, float]]:
    """Play until the screen is closed or so many episodes are over; return what was logged of each.

    Args:
        screen: What the person sees and types into.
        envs: A vector of one instance.
        person: Who acts for one row.
        others: Who acts for the rest.
        seed: That the environment is reset with.
        episodes: How many; None for as many as the person likes.
        check: Called before every step.
    """
    envs.reset(seed)
    actions = np.zeros_like(envs.actions)
    everyone = np.ones(envs.num_agents, np.bool_)
    done: list[dict[str, float]] = []
    with showing_ends(envs, screen):
        screen.show(envs)
        while screen.is_open and len(done) != episodes:
            check()
            if not person.act(screen, actions):
                screen.wait()
                continue
            for actor in others:
                actor.act(everyone, actions)
            envs.step(actions)
            if envs.logged[person.agent]:
                done.append(dict(zip(envs.log_fields, envs.log[person.agent].tolist(), strict=True)))
                screen.say(_told(len(done), done[-1]))
            if len(done) != episodes:
                screen.show(envs)
    return done


def _no_window() -> str | None:
    """Return why no window can be opened here, None where one can."""
    try:
        require_window()
    except RenderError as error:
        return str(error).removeprefix("render=human: ")
    return None


def choose_view(render: str) -> str:
    """Return ``human`` or ``ansi``: what was asked for, if it can be had here.

    Raises:
        RenderError: If it can't; the text says why.
    """
    if render == "human":
        require_window()
    if render != "auto":
        return render
    reason = _no_window()
    if reason is None:
        return "human"
    if sys.stdin is not None and sys.stdin.isatty():
        return "ansi"
    hint = (
        "play in a terminal, or where there is a display" if missing_display() else "pip install 'puffer-core[window]'"
    )
    raise RenderError(f"there is nothing to play in: {reason}, and no terminal to read keys from", hint=hint)


def open_screen(view: str, name: str, stdout: IO[str], check: Callable[[], None], fps: float | None) -> PlayScreen:
    """Return the window or the terminal, which is entered to be used."""
    if view == "human":
        from puffer_core.window import WindowScreen

        return WindowScreen(f"{name}: {CONTROLS[view]}", check=check, is_watched=False, fps=fps)
    from puffer_core.terminal import TerminalScreen

    return TerminalScreen(sys.stdin, stdout, check=check, fps=fps)


def _others(envs: Vector, agent: int, checkpoint: Path | None, config: Config, seed: int) -> list[Actor]:
    """Return who plays the agents that the person is not."""
    rows = np.delete(np.arange(envs.num_agents), agent)
    if not len(rows):
        if checkpoint is not None:
            raise OptionError(f"{envs.name} has one agent, the person: --load has nobody to play", hint="leave it out")
        return []
    if checkpoint is None:
        return [RandomActor(envs, rows, seed)]
    trained = load_agent(checkpoint, config, seed)
    require_spaces(trained, envs, envs.name)
    return [AgentActor(trained, envs, rows=rows)]


def _config(env: str | EnvSpec, checkpoint: Path | None, options: Mapping[str, str]) -> Config:
    """Return the configuration of the one environment, which is stepped in this process."""
    refused = [key for key in options if not key.startswith("env.")]
    if refused:
        raise OptionError(f"`{spell(refused[0])}` has no meaning here: a game takes --env.* only", hint="leave it out")
    config = config_for(env, checkpoint, options)
    return config if locate(env)[0].table else with_value(config, "vec.backend", "serial")


def _require(render: str, fps: float | None, episodes: int | None, seed: int | None) -> None:
    if render not in VIEWS:
        raise OptionError(f"render={render!r} is not one of {', '.join(VIEWS)}")
    if fps is not None and not 0 < fps <= 1000:
        raise OptionError(f"fps={fps} is not above 0 and at most 1000")
    if episodes is not None and episodes < 1:
        raise OptionError(f"episodes={episodes} is less than 1")
    if seed is not None and not 0 <= seed < 2**63:
        raise OptionError(f"seed={seed} is not an integer from 0 to {2**63 - 1}")


def _told(number: int, logged: Mapping[str, float]) -> str:
    score = next((f"score {logged[name]:g}, " for name in SCORE_FIELDS if name in logged), "")
    return f"episode {number}: {score}{logged.get('episode_length', 0):g} steps"


def _result(name: str, person: Person, view: str, rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    field = next((field for field in SCORE_FIELDS if rows and field in rows[0]), None)
    scores = [row[field] for row in rows] if field else []
    return {
        "env": name,
        "agent": person.agent,
        "render": view,
        "episodes": len(rows),
        "score": float(np.mean(scores)) if scores else None,
        "scores": scores,
        "episode_lengths": [row["episode_length"] for row in rows if "episode_length" in row],
    }


def _environment(envs: Vector) -> Any:
    """Return the one environment of a vector, without wrappers of ours."""
    env = first_environment(envs)
    return env.unwrapped if isinstance(env, EnvWrapper) else env


def _native_action(env: NativeEnv, keys: Keys, agent: int) -> Any:
    action, meaning = env.human(keys, agent)
    return None if meaning < 0 else action


def _writer(env: Any, agent: int) -> Callable[[Any], Any]:
    """Return what makes a row of an action as the environment itself takes it.

    Raises:
        OptionError: If it is not from the action space of the agent.
    """
    space = _action_space(env, agent)
    codec = action_codec(space)

    def write(action: Any) -> Any:
        found = action
        if isinstance(space, Box | MultiDiscrete):
            found = np.asarray(action, space.dtype)
            found = found.reshape(space.shape) if found.size == np.prod(space.shape) else found
        if not space.contains(found):
            raise OptionError(f"keys: the action {action} is not from the action space {space}")
        return codec.write(found)

    return write


def _action_space(env: Any, agent: int) -> Any:
    inner = getattr(env, "env", None) if getattr(env, "is_adapter", False) else None
    names = getattr(env, "possible_agents", None)
    if inner is None:
        return env.single_action_space
    return inner.action_space(names[agent]) if names else inner.action_space


def _only_choice(space: Any, mask: npt.NDArray[np.uint8]) -> list[int] | None:
    """Return the one legal choice of every head, or None where there is more than one."""
    heads = head_sizes(space)
    legal = [np.flatnonzero(part) for part in np.split(mask, np.cumsum(heads)[:-1])] if heads else []
    return [int(choices[0]) for choices in legal] if legal and all(len(choices) == 1 for choices in legal) else None


def _is_legal(space: Any, mask: npt.NDArray[np.uint8] | None, action: Any) -> bool:
    heads = head_sizes(space)
    if mask is None or not heads:
        return True
    starts = np.concatenate(([0], np.cumsum(heads)[:-1]))
    return bool(mask[starts + np.reshape(action, -1)].all())
