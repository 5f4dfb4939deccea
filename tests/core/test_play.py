from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes_play import Keyed, Pair, Steps, Turns, Typist, Waiting, keys

from puffer_core import play as play_module
from puffer_core.actors import RandomActor
from puffer_core.errors import OptionError, RenderError
from puffer_core.keys import Keys, parse
from puffer_core.play import Person, choose_view, play, play_on
from puffer_core.specs import EnvSpec
from puffer_core.vector import make

KEYED = EnvSpec("fake/keyed", make="fakes_play:Keyed")
STEPS = EnvSpec("fake/steps", make="fakes_play:Steps")
PAIR = EnvSpec("fake/pair", make="fakes_play:Pair")


def played(env: Any, typed: list[Keys], episodes: int | None = None, key_map: str | None = None, **options: Any) -> Any:
    """Return the screen, what was logged, and the environment as it was left."""
    screen = Typist(typed)
    with make(env, num_envs=1, backend="serial", **options) as envs:
        person = Person(envs, 0, None if key_map is None else parse(key_map))
        rows = play_on(screen, envs, person, [], 1, episodes)
        return screen, rows, envs.members[0].env


def test_keys_become_actions_of_the_environment() -> None:
    screen, rows, env = played(Keyed, [keys("a"), keys(), keys("d"), keys("left"), keys("x")], episodes=1)
    assert env.env.taken == [-1, 0, 1, -1, 0]
    assert (rows[0]["score"], rows[0]["episode_length"], len(rows)) == (-1.0, 5.0, 1)
    assert screen.said == ["episode 1: score -1, 5 steps"]
    assert screen.shown == [0, 1, 2, 3, 4, 5]
    assert screen.waited == 0


def test_a_game_without_an_action_for_no_key_waits() -> None:
    screen, _, env = played(Waiting, [keys(), keys("x"), keys("left"), keys(), keys("right")])
    assert env.env.taken == [-1, 1]
    assert screen.waited == 4  # three times for nothing, and once when it was closed
    assert screen.shown == [0, 1, 2]


def test_a_mapping_of_the_person_goes_before_that_of_the_environment() -> None:
    _, _, env = played(Keyed, [keys("z"), keys("a")], key_map="z=1,none=0")
    assert env.env.taken == [1, 0, 0]


def test_closing_the_screen_ends_the_game() -> None:
    screen, rows, env = played(Keyed, [keys("a"), keys("d")])
    assert (rows, env.env.taken) == ([], [-1, 1, 0])
    assert not screen.is_open


@pytest.mark.parametrize("env", ["memory", "connect4", "cartpole", "snake", "squared", "target", "continuous"])
def test_environments_in_c_take_keys(env: str) -> None:
    pytest.importorskip("puffer_ocean")
    from puffer_core.plugins import find_env

    spec, name = find_env(env)
    with make(name, num_envs=1) as envs:
        row = Person(envs, 0)._choose(keys("left", "1", "d"))
        assert row is not None
        assert envs.single_action_space.contains(np.asarray(row, envs.single_action_space.dtype)[()])
        waits = Person(envs, 0)._choose(Keys()) is None
        assert waits == (env in ("memory", "connect4", "cartpole"))
    assert spec.table


def test_others_play_beside_the_person() -> None:
    screen = Typist([keys("x")] * 8)
    with make(Pair, num_envs=1, backend="serial") as envs:
        person = Person(envs, 1, parse("x=1,none=0"))
        rows = play_on(screen, envs, person, [RandomActor(envs, np.array([0]), 3)], 1, episodes=2)
    assert [row["score"] for row in rows] == [4.0, 4.0]
    assert screen.said == ["episode 1: score 4, 4 steps", "episode 2: score 4, 4 steps"]


def test_out_of_turn_the_person_is_not_asked() -> None:
    screen = Typist([keys("x")] * 3)
    with make(Turns, num_envs=1, backend="serial") as envs:
        person = Person(envs, 1, parse("x=2"))
        rows = play_on(screen, envs, person, [RandomActor(envs, np.array([0, 2]), 3)], 1, episodes=1)
        taken = envs.members[0].env.env.taken
    assert (len(rows), screen.typed, screen.waited) == (1, [], 0)
    assert [action for name, action in taken if name == "b"] == [2, 2, 2]


def test_a_person_has_one_of_the_agents() -> None:
    with make(Pair, num_envs=1) as envs, pytest.raises(OptionError, match="agent=2 is not one of the 2 of"):
        Person(envs, 2, parse("x=1"))


def test_an_environment_that_says_nothing_needs_a_mapping() -> None:
    with make(Steps, num_envs=1) as envs, pytest.raises(OptionError, match="does not say what keys do") as caught:
        Person(envs, 0)
    assert caught.value.hint == 'say what keys do: --keys "left=0,right=1,up=2"; the actions are Discrete(3)'


@pytest.mark.parametrize(("text", "action"), [("x=2", "2"), ("x=0.5", "0.5"), ("x=1:1", r"\[1, 1\]")])
def test_an_action_that_there_is_not_is_refused(text: str, action: str) -> None:
    with make(Steps, num_envs=1) as envs, pytest.raises(OptionError, match=f"the action {action} is not from the"):
        Person(envs, 0, parse(text))


def test_continuous_and_several_actions() -> None:
    pytest.importorskip("puffer_ocean")
    with make("ocean/continuous", num_envs=1) as envs:
        assert Person(envs, 0, parse("w=0.5:-1"))._choose(keys("w")).tolist() == [0.5, -1]
    with make("ocean/target", num_envs=1) as envs:
        assert Person(envs, 0, parse("w=8:0,none=4:2"))._choose(keys()).tolist() == [4, 2]
        with pytest.raises(OptionError, match=r"the action \[9, 0\] is not from the action space MultiDiscrete"):
            Person(envs, 0, parse("w=9:0"))


def test_a_move_that_is_not_legal_is_waited_over_and_the_only_one_taken() -> None:
    pytest.importorskip("puffer_ocean")
    screen = Typist([keys("1")])
    with make("ocean/connect4", num_envs=1) as envs:
        envs.reset(1)
        person, actions = Person(envs, 0), np.zeros_like(envs.actions)
        assert envs.action_mask is not None
        envs.action_mask[0, 0] = 0
        assert not person.act(screen, actions)
        envs.action_mask[0] = [0, 0, 0, 1, 0, 0, 0]
        assert person.act(screen, actions)
        assert actions[0] == 3


def test_an_absent_person_is_not_asked() -> None:
    screen = Typist([])
    with make(Pair, num_envs=1, backend="serial") as envs:
        envs.reset(1)
        envs.masks[0] = False
        assert Person(envs, 0, parse("x=1")).act(screen, np.zeros_like(envs.actions))
    assert screen.is_open


def test_play_returns_the_keys_of_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Typist([keys("d")] * 10)
    monkeypatch.setattr(play_module, "open_screen", lambda *args: screen)
    result = play(KEYED, render="ansi", episodes=2, seed=1)
    assert result == {
        "env": "fake/keyed",
        "agent": 0,
        "render": "ansi",
        "episodes": 2,
        "score": 5.0,
        "scores": [5.0, 5.0],
        "episode_lengths": [5.0, 5.0],
    }
    screen = Typist([])
    assert play(KEYED, render="ansi")["score"] is None


def test_a_trained_agent_plays_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from puffer_core.training import train

    sizes = {"train.total_timesteps": "64", "train.horizon": "16", "train.minibatch_size": "32", "vec.num_envs": "1"}
    run = train(PAIR, options={**sizes, "policy.hidden_size": "8", "train.device": "cpu", "runs_dir": str(tmp_path)})
    monkeypatch.setattr(play_module, "open_screen", lambda *args: Typist([keys("x")] * 4))
    result = play(PAIR, render="ansi", episodes=1, load=run["run_dir"], keys="x=1,none=0", agent=1)
    assert (result["agent"], result["scores"]) == (1, [4.0])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"render": "video"}, "render='video' is not one of auto, human, ansi"),
        ({"fps": 0}, "fps=0 is not above 0 and at most 1000"),
        ({"episodes": 0}, "episodes=0 is less than 1"),
        ({"seed": -1}, "seed=-1 is not an integer from 0"),
        ({"options": {"vec.backend": "multiprocessing"}}, "--vec.backend` has no meaning here: a game takes --env"),
        ({"options": {"train.gamma": "0.5"}}, "--train.gamma` has no meaning here"),
        ({"keys": "q"}, "`q` is no key and its action"),
    ],
)
def test_play_refuses(arguments: Any, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        play(KEYED, **arguments)


def test_nobody_to_play_for_a_trained_agent(tmp_path: Path) -> None:
    with make(Keyed, num_envs=1) as envs, pytest.raises(OptionError, match="has one agent, the person"):
        play_module._others(envs, 0, tmp_path, None, 0)  # type: ignore[arg-type]  # refused before it is read


def test_a_game_that_can_not_be_seen_here_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind(Typist):
        def show(self, envs: Any) -> None:
            raise RenderError("Keyed has no ansi view", hint="use another")

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(play_module, "open_screen", lambda *args: Blind([]))
    with pytest.raises(RenderError, match="it can't be played here: Keyed has no ansi view") as caught:
        play(KEYED)
    assert caught.value.hint == "there is no display to open a window on"
    with pytest.raises(RenderError, match=r"^Keyed has no ansi view"):
        play(KEYED, render="ansi")


def test_views_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(RenderError, match=r"nothing to play in: there is no display .*, and no terminal"):
        choose_view("auto")
    with pytest.raises(RenderError, match="render=human: there is no display"):
        choose_view("human")
    assert choose_view("ansi") == "ansi"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    assert choose_view("auto") == "ansi"
    pytest.importorskip("pygame", reason="the extra `window` is not installed")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert choose_view("auto") == choose_view("human") == "human"


class Console:
    """`puffer play` in a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.before = self.settings(slave)
        environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
        environment.pop("SDL_VIDEODRIVER", None)
        command = [sys.executable, "-m", "puffer_core", "play", *words]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        self.slave = slave
        self.text = ""

    @staticmethod
    def settings(descriptor: int) -> Any:
        import termios

        return termios.tcgetattr(descriptor)

    def until(self, text: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while text not in self.text:
            assert time.monotonic() < end, f"no {text!r} in {self.text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 4096).decode(errors="replace")

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def console() -> Any:
    pytest.importorskip("puffer_ocean")
    opened: list[Console] = []

    def make_console(*words: str) -> Console:
        opened.append(Console(*words))
        return opened[-1]

    yield make_console
    for one in opened:
        one.close()


def test_play_in_a_terminal(console: Any) -> None:
    here = console("connect4", "--seed", "1", "--episodes", "1")
    here.until("\x1b[H")
    for _ in range(60):
        here.type(b"1234567")
        time.sleep(0.05)
        if select.select([here.master], [], [], 0)[0]:
            here.text += os.read(here.master, 1 << 16).decode(errors="replace")
        if here.process.poll() is not None:
            break
    here.until("mean")
    assert here.process.wait(30) == 0
    assert here.settings(here.slave) == here.before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_terminal_back(console: Any, number: int, code: int) -> None:
    here = console("squared")
    here.until("\x1b[H")
    assert here.settings(here.slave) != here.before
    here.process.send_signal(number)
    assert here.process.wait(30) == code
    here.until(f"stopped by {signal.Signals(number).name}")
    assert here.settings(here.slave) == here.before


def test_escape_closes(console: Any) -> None:
    here = console("squared")
    here.until("\x1b[H")
    here.type(b"\x1b")
    assert here.process.wait(30) == 0
    here.until("no episode was played to its end")
    assert here.settings(here.slave) == here.before
