from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes_env import Count, Endless, ShortOrLong
from rich.console import Console
from safetensors.numpy import load_file

from puffer_core.actors import AgentActor, RandomActor
from puffer_core.console import PlainReporter
from puffer_core.errors import OptionError, RenderError, RunError
from puffer_core.evaluate import Play, assign, environment_seed, evaluate, play, watch
from puffer_core.screens import Screen, TextScreen
from puffer_core.specs import EnvSpec
from puffer_core.training import train
from puffer_core.training.signals import Interrupted
from puffer_core.vector import make
from puffer_core.video import VideoWriter

KEYS = ["env", "episodes", "score", "score_stderr", "episode_length", "perf", "checkpoint", "unfinished", "quantiles"]
MATCH = EnvSpec("fake/match", make="fakes_env:Match")


def read_video(path: str, height: int, width: int) -> Any:
    """Return the frames of an mp4, (n, height, width, 3), decoded by the ffmpeg that wrote it."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed").get_ffmpeg_exe()
    command = [ffmpeg, "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


class Script:
    """An agent whose actions are counted, not computed."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.resets = 0

    def act(self, observations: Any, state: Any, *, greedy: bool, resets: Any, action_mask: Any) -> Any:
        rows = len(observations)
        self.rows.append(rows)
        self.resets += 0 if resets is None else int(resets.sum())
        state = torch.zeros(1, rows, 2) if state is None else state
        return np.zeros(rows, np.int32), state


class Picky(ShortOrLong):
    """Only one action is legal, and which one changes with every step."""

    def __init__(self, buf: Any = None) -> None:
        self.has_action_mask = True
        super().__init__(buf)

    def draw_length(self) -> int:
        return int(self.rng.integers(1, 60))

    def reward(self, action: int) -> float:
        if self.legal[action] == 0:
            raise ValueError(f"action {action} is illegal at time {self.time}")
        return 1.0

    def observe(self, out: Any) -> None:
        super().observe(out)
        assert self.action_mask is not None
        self.legal = [1, 0] if self.time % 2 else [0, 1]
        self.action_mask[:] = self.legal


class Obedient(Script):
    """Takes the legal action."""

    def act(self, observations: Any, state: Any, *, greedy: bool, resets: Any, action_mask: Any) -> Any:
        _, state = super().act(observations, state, greedy=greedy, resets=resets, action_mask=action_mask)
        return action_mask.argmax(1).astype(np.int32), state


def cast(agent: Any, envs: Any) -> list[AgentActor]:
    return [AgentActor(agent, envs)]


class Notebook(Screen):
    """Writes down what it is shown."""

    def __init__(self, look: Any) -> None:
        self.look = look
        self.seen: list[Any] = []

    def show(self, envs: Any) -> None:
        self.seen.append(self.look(envs))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    options = {
        "train.total_timesteps": "512",
        "train.device": "cpu",
        "train.horizon": "16",
        "train.minibatch_size": "64",
        "vec.num_envs": "4",
        "policy.hidden_size": "8",
        "policy.num_layers": "1",
        "runs_dir": str(folder),
    }
    return train(MATCH, options=options)


def test_ev01_evaluation_does_not_favour_short_episodes() -> None:
    # Taking the first 32 episodes that end on 16 rows would give a mean near 2.
    with make(ShortOrLong, num_envs=16) as envs:
        found = play(cast(Script(), envs), envs, Play(32, environment_seed(42)))
    returns = found.values("score")
    assert len(returns) == 32
    assert set(returns) == {2.0, 200.0}
    # 32 draws from {2, 200}: the standard error of the mean is 99 / sqrt(32) = 17.5.
    assert returns.mean() == pytest.approx(101, abs=3 * 17.5)


def test_evaluation_over_many_seeds_has_the_true_mean() -> None:
    means = []
    with make(ShortOrLong, num_envs=16) as envs:
        for seed in range(12):
            means.append(play(cast(Script(), envs), envs, Play(16, environment_seed(seed))).values("score").mean())
    # 192 draws: standard error 99 / sqrt(192) = 7.1.
    assert np.mean(means) == pytest.approx(101, abs=3 * 7.1)


@pytest.mark.parametrize("episodes", [1, 5, 8, 13])
def test_every_episode_assigned_is_played_once(episodes: int) -> None:
    script = Script()
    with make(Count, num_envs=5) as envs:
        found = play(cast(script, envs), envs, Play(episodes, 0))
    assert found.values("score").tolist() == [3.0] * episodes
    assert found.values("episode_length").tolist() == [3.0] * episodes
    assert len(script.rows) == 3 * -(-episodes // 5)


def test_assignment_is_fair() -> None:
    assert assign(13, 5).tolist() == [3, 3, 3, 2, 2]
    assert assign(2, 4).tolist() == [1, 1, 0, 0]


def test_rows_that_are_done_are_no_longer_computed() -> None:
    script = Script()
    with make(ShortOrLong, num_envs=64) as envs:
        play(cast(script, envs), envs, Play(40, environment_seed(1)))
    assert script.rows[0] == 64
    assert script.rows[-1] < 64
    assert len(script.rows) == 200


def test_states_are_reset_behind_every_end() -> None:
    script = Script()
    with make(Count, num_envs=4) as envs:
        play(cast(script, envs), envs, Play(12, 0))
    assert script.resets == 8  # the ends of the first two episodes of four rows; the third ends the evaluation


def test_step_cap_says_how_many_finished() -> None:
    with make(Endless, num_envs=2) as envs:
        found = play(cast(Script(), envs), envs, Play(2, 0, max_steps=50))
    assert (found.asked, len(found.rows)) == (2, 0)


def test_step_cap_is_that_of_an_episode() -> None:
    script = Script()
    with make(ShortOrLong, num_envs=16) as envs:
        found = play(cast(script, envs), envs, Play(64, environment_seed(3), max_steps=50))
    # A row has three short episodes at most before the one that it is given up for.
    assert len(script.rows) <= 3 * 2 + 50
    assert 16 <= len(found.rows) < 64
    assert set(found.values("score")) == {2.0}


def test_rows_that_are_done_play_on_for_the_others_of_their_environment() -> None:
    class Recorded(Script):
        def act(self, observations: Any, state: Any, **options: Any) -> Any:
            _, state = super().act(observations, state, **options)
            return np.full(len(observations), len(self.rows) % 2, np.int32), state

    script, taken = Recorded(), []
    with make(Count, num_envs=2, env_kwargs={"limit": 4, "agents": 3}) as envs:
        actor = AgentActor(script, envs)
        act = actor.act
        actor.act = lambda playing, actions: (act(playing, actions), taken.append(playing.copy()))  # type: ignore
        found = play([actor], envs, Play(8, 0))
    assert len(found.rows) == 8  # two rows of the first environment have a second episode
    assert [playing.tolist() for playing in taken] == [[True] * 6] * 4 + [[True] * 3 + [False] * 3] * 4


def test_only_counted_rows_have_episodes_of_the_evaluation() -> None:
    with make(Count, num_envs=2, env_kwargs={"limit": 2, "agents": 2}) as envs:
        counted = np.array([True, False, True, False])
        actors = [AgentActor(Script(), envs, rows=np.flatnonzero(part)) for part in (counted, ~counted)]
        found = play(actors, envs, Play(6, 0), counted=counted)
    assert len(found.rows) == 6


def test_an_agent_that_needs_to_know_which_it_plays_is_told() -> None:
    class Typed(Script):
        policy = type("Policy", (), {"needs_agents": True})

        def act(self, observations: Any, state: Any, *, agents: Any, **options: Any) -> Any:
            self.agents = agents
            return super().act(observations, state, **options)

    script = Typed()
    with make(Count, num_envs=2, env_kwargs={"agents": 3}) as envs:
        envs.reset(0)
        AgentActor(script, envs, rows=np.array([1, 2, 4])).act(np.ones(6, np.bool_), envs.actions.copy())
    assert script.agents.tolist() == [1, 2, 1]


def test_random_actors_draw_every_legal_action() -> None:
    class Masked(Count):
        has_action_mask = True

    with make(Masked, num_envs=3) as envs:
        envs.reset(0)
        assert envs.action_mask is not None
        envs.action_mask[:] = [[1, 1], [0, 1], [1, 0]]
        actor, actions = RandomActor(envs, np.arange(3), 5), np.zeros_like(envs.actions)
        drawn = []
        for _ in range(40):
            actor.act(np.ones(3, np.bool_), actions)
            drawn.append(actions.tolist())
    assert [set(column) for column in zip(*drawn, strict=True)] == [{0, 1}, {1}, {0}]


def test_what_check_raises_ends_the_evaluation_between_two_steps() -> None:
    calls: list[int] = []

    def check() -> None:
        calls.append(len(calls))
        if len(calls) == 4:
            raise KeyboardInterrupt

    with make(Endless, num_envs=2) as envs:
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            play(cast(Script(), envs), envs, Play(2, 0), check=check)
        assert envs.members[0].env.time == 3


def test_a_signal_stops_an_evaluation_that_is_held(trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    module = sys.modules["puffer_core.evaluate"]

    def load(*_: Any, **__: Any) -> Script:
        os.kill(os.getpid(), signal.SIGINT)
        return Script()

    monkeypatch.setattr(module, "load_agent", load)
    monkeypatch.setattr(module, "require_spaces", lambda *_: None)
    with pytest.raises(Interrupted, match="stopped by SIGINT") as caught:
        evaluate(MATCH, load=trained["run_dir"], episodes=20)
    assert caught.value.exit_code == 130
    assert signal.getsignal(signal.SIGINT) == before


def test_masked_rows_that_are_done_take_legal_actions_only() -> None:
    with make(Picky, num_envs=16) as envs:
        found = play(cast(Obedient(), envs), envs, Play(16, environment_seed(5)))
    assert len(found.rows) == 16
    assert len(set(found.values("episode_length"))) > 1


def test_environment_seeds_are_apart_from_those_of_training() -> None:
    seeds = {environment_seed(seed) for seed in range(200)}
    assert len(seeds) == 200
    assert not seeds & set(range(200 + 10_000))
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_evaluate_returns_the_keys_of_the_interface(trained: dict[str, Any]) -> None:
    before = load_file(f"{trained['checkpoint']}/model.safetensors")
    result = evaluate(MATCH, load=trained["run_dir"], episodes=20)
    assert list(result) == KEYS
    assert (result["env"], result["episodes"], result["unfinished"]) == ("fake/match", 20, 0)
    assert result["checkpoint"] == trained["checkpoint"]
    assert result["episode_length"] == 8
    assert result["perf"] == pytest.approx(result["score"] / 200)
    assert result["quantiles"][0] <= result["score"] <= result["quantiles"][-1]
    after = load_file(f"{trained['checkpoint']}/model.safetensors")
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_evaluate_is_the_same_twice_and_differs_between_seeds(trained: dict[str, Any]) -> None:
    first, second = (evaluate(MATCH, load=trained["checkpoint"], episodes=20) for _ in range(2))
    assert first == second
    assert evaluate(MATCH, load=trained["checkpoint"], episodes=20, seed=1)["score"] != first["score"]


def test_evaluate_greedy_has_no_spread_where_the_environment_has_none(trained: dict[str, Any]) -> None:
    result = evaluate(MATCH, load=trained["checkpoint"], episodes=20, greedy=True)
    assert result["score_stderr"] == 0


def test_evaluate_warns_about_the_step_cap(trained: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluate(MATCH, load=trained["checkpoint"], episodes=20, max_steps=4)
    assert (result["episodes"], result["unfinished"], result["score"]) == (0, 20, None)
    assert "only 0 of 20 episodes ended within the step limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"episodes": 0}, OptionError, "episodes=0 is less than 1"),
        ({"episodes": 10**12}, OptionError, "episodes=1,000,000,000,000 is more than 10,000,000"),
        ({"max_steps": 0}, OptionError, "max_steps=0 is less than 1"),
        ({"render": "movie"}, OptionError, "render='movie' is not one of none, ansi, video, human"),
        ({"options": {"train.gamma": "0.5"}}, OptionError, "--train.gamma` has no meaning here"),
        ({"options": {"vec.num_envs": "2"}}, OptionError, "--vec.num-envs` has no meaning here"),
        ({"options": {"vec.batch_size": "2"}}, OptionError, "--vec.batch-size` has no meaning here: .* together"),
        ({"options": {"vec.zero_copy": "off"}}, OptionError, "--vec.zero-copy` has no meaning here: .* together"),
        ({"load": "nothing-like-it"}, RunError, "no runs of fake/match"),
    ],
)
def test_evaluate_refuses(
    trained: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, error: Any, match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=match):
        evaluate(MATCH, **{"load": trained["checkpoint"], **arguments})


def test_evaluate_refuses_a_run_of_another_environment(trained: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="is one of fake/match, not of fake/count"):
        evaluate(EnvSpec("fake/count", make="fakes_env:Count"), load=trained["run_dir"])


def test_render_human_needs_a_display(trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RenderError, match="render=human: there is no display to open a window on"):
        evaluate(MATCH, load=trained["run_dir"], render="human")


def test_render_human_shows_the_episodes_in_a_window(trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="the extra `window` is not installed")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    result = evaluate(MATCH, load=trained["run_dir"], render="human", episodes=1)
    assert (result["episodes"], result["unfinished"]) == (1, 0)
    assert list(result) == KEYS


def test_render_ansi_needs_a_text(trained: dict[str, Any]) -> None:
    with pytest.raises(RenderError, match="has no ansi view"):
        evaluate(MATCH, load=trained["run_dir"], render="ansi")


def test_render_ansi_prints_frames(trained: dict[str, Any]) -> None:
    console = Console(file=io.StringIO(), width=80)
    spec = EnvSpec("fake/match", make="fakes_env:Written")
    result = evaluate(spec, load=trained["run_dir"], render="ansi", episodes=2, console=PlainReporter(console))
    assert result["episodes"] == 2
    assert console.file.getvalue().split() == [f"t={time}" for time in range(8)] * 2


def test_live_frames_leave_nothing_of_the_frame_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    terminal, frames = Terminal(), iter(("long\nlines\n", "s\n"))
    with make(Count, num_envs=1) as envs:
        monkeypatch.setattr(envs, "render", lambda index, mode: next(frames))
        with TextScreen(terminal) as screen:
            screen.show(envs)
            screen.show(envs)
    assert terminal.getvalue() == "\x1b[2J\x1b[Hlong\x1b[K\nlines\x1b[K\n\x1b[J\x1b[Hs\x1b[K\n\x1b[J"


def test_video_that_ffmpeg_gives_up_is_a_render_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def append_data(self, frame: Any) -> None:
            raise OSError("[Errno 32] Broken pipe\n\nFFMPEG COMMAND: ...")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    writer = pytest.importorskip("imageio.v2", reason="the extra `video` is not installed")
    monkeypatch.setattr(writer, "get_writer", lambda *args, **options: Broken())
    frame = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(RenderError, match=r"Broken pipe$"), VideoWriter(tmp_path / "a.mp4", 30) as film:
        film.add(frame)
    monkeypatch.setattr(Broken, "append_data", lambda self, frame: None)
    film = VideoWriter(tmp_path / "b.mp4", 30)
    film.add(frame)
    with pytest.raises(RenderError, match=r"b\.mp4` can't be written: No space left"):
        film.close()


def test_frames_shown_begin_and_end_with_their_episode() -> None:
    screen = Notebook(lambda envs: envs.members[0].env.time)
    with make(Count, num_envs=1) as envs:
        found = watch(cast(Script(), envs), envs, Play(2, 0), screen)
    # Three steps each: states 0, 1, 2; the third step ends the episode and shows the first state of the next one.
    assert screen.seen == [0, 1, 2, 0, 1, 2]
    assert len(found.rows) == 2


def test_video_has_every_frame_from_the_first_to_the_last(trained: dict[str, Any]) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    result = evaluate(MATCH, load=trained["run_dir"], render="video", episodes=2)
    path = Path(result["video"])
    assert path.parent == Path(trained["run_dir"]) / "videos"
    assert list(path.parent.iterdir()) == [path]
    frames = read_video(result["video"], 22, 32)  # 21 x 31, with even sides
    assert len(frames) == 16
    # The fake's frame at time t is grey 5 t; two episodes of times 0 to 7.
    assert frames.mean((1, 2, 3)) == pytest.approx([5 * time for time in range(8)] * 2, abs=3)


def test_video_goes_where_it_is_told_to(trained: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    path = tmp_path / "deep" / "film.mp4"
    assert evaluate(MATCH, load=trained["run_dir"], render="video", episodes=1, output=path)["video"] == str(path)
    assert path.stat().st_size > 0


def test_video_without_its_extra_says_what_to_install(trained: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(RenderError, match="imageio-ffmpeg is not installed") as caught:
        evaluate(MATCH, load=trained["run_dir"], render="video")
    assert caught.value.hint == "pip install 'puffer-core[video]'"
