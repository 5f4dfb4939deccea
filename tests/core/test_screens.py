"""Every state that can be drawn is drawn, in its order: the first and the last of an episode too."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_env import Count
from fakes_play import GREY, Pair, Steps

from puffer_core.actors import RandomActor
from puffer_core.emulation import GymnasiumPufferEnv
from puffer_core.errors import RenderError
from puffer_core.evaluate import Play, evaluate, watch
from puffer_core.screens import FilmScreen, Screen, frames_per_second, missing_display, require_window
from puffer_core.specs import EnvSpec
from puffer_core.training import train
from puffer_core.vector import make


class Notebook(Screen):
    """Writes down the step that is drawn; closes itself after ``most`` pictures."""

    def __init__(self, most: int = 1000) -> None:
        self.seen: list[int] = []
        self.most = most

    def show(self, envs: Any) -> None:
        self.seen.append(int(envs.render(0, "rgb_array")[0, 0, 0]) // GREY)
        self.is_open = len(self.seen) < self.most


def shown(env: Any, episodes: int, screen: Any = None, **options: Any) -> list[int]:
    screen = screen or Notebook()
    with make(env, num_envs=1, backend="serial", **options) as envs, screen:
        watch([RandomActor(envs, np.arange(envs.num_agents), 1)], envs, Play(episodes, 0), screen)
    return screen.seen if isinstance(screen, Notebook) else []


def read_video(path: Path, height: int, width: int) -> Any:
    """Return the frames of an mp4, (n, height, width, 3)."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed").get_ffmpeg_exe()
    command = [ffmpeg, "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def test_the_last_state_of_an_environment_of_gymnasium_is_shown() -> None:
    assert shown(Steps, 2) == [0, 1, 2, 3, 4, 5] * 2


def test_the_last_state_of_an_environment_of_pettingzoo_is_shown() -> None:
    assert shown(Pair, 2) == [0, 1, 2, 3, 4] * 2


def test_the_last_state_before_a_time_limit_is_shown() -> None:
    assert shown(Steps, 2, wrap={"time_limit": 3}) == [0, 1, 2, 3] * 2


def test_the_last_state_is_shown_through_wrappers_of_the_vector() -> None:
    assert shown(Steps, 1, wrap={"reward_scale": 0.5}) == [0, 1, 2, 3, 4, 5]


def test_an_environment_that_restarts_inside_its_step_is_last_shown_before_it() -> None:
    class Drawn(Count):
        def render(self) -> Any:
            return np.full((8, 8, 3), GREY * self.time, np.uint8)

    assert shown(Drawn, 2) == [0, 1, 2] * 2


def test_an_environment_of_ones_own_may_show_its_last_state() -> None:
    class Telling(Count):
        def begin(self) -> None:
            if self.before_restart is not None and self.time:
                self.before_restart()
            super().begin()

        def render(self) -> Any:
            return np.full((8, 8, 3), GREY * self.time, np.uint8)

    assert shown(Telling, 2) == [0, 1, 2, 3] * 2


def test_nothing_is_called_before_a_restart_once_it_is_over() -> None:
    screen = Notebook()
    with make(Steps, num_envs=1) as envs:
        watch([RandomActor(envs, np.arange(1), 1)], envs, Play(1, 0), screen)
        for _ in range(20):
            envs.step(np.zeros(1, np.int32))
    assert screen.seen == [0, 1, 2, 3, 4, 5]


def test_closing_the_screen_ends_the_evaluation_with_what_was_played() -> None:
    screen = Notebook(most=9)
    with make(Steps, num_envs=1) as envs:
        found = watch([RandomActor(envs, np.arange(1), 1)], envs, Play(5, 0), screen)
    assert screen.seen == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert (found.asked, len(found.rows)) == (1, 1)


def test_every_frame_of_a_video_is_the_state_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "steps.mp4"
    pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    shown(Steps, 3, FilmScreen(path))
    frames = read_video(path, 32, 48)
    assert frames.mean((1, 2, 3)) == pytest.approx([GREY * time for time in (0, 1, 2, 3, 4, 5)] * 3, abs=3)


def test_eval_films_whole_episodes(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    spec = EnvSpec("fake/steps", make="fakes_play:Steps")
    sizes = {"train.total_timesteps": "64", "train.horizon": "16", "train.minibatch_size": "32", "vec.num_envs": "2"}
    trained = train(
        spec, options={**sizes, "policy.hidden_size": "8", "train.device": "cpu", "runs_dir": str(tmp_path)}
    )
    result = evaluate(spec, load=trained["run_dir"], render="video", episodes=2)
    assert (result["episodes"], result["episode_length"]) == (2, 5)
    frames = read_video(Path(result["video"]), 32, 48)
    assert frames.mean((1, 2, 3)) == pytest.approx([GREY * time for time in range(6)] * 2, abs=3)


def test_frames_per_second_are_those_of_the_environment_inside_wrappers() -> None:
    with make(Steps, num_envs=1, wrap={"reward_scale": 0.5}) as envs:
        assert frames_per_second(envs) == 25
    with make(Count, num_envs=1) as envs:
        assert frames_per_second(envs) == 30


def test_a_restart_is_told_once_where_an_adapter_is_used_alone() -> None:
    env, told = GymnasiumPufferEnv(Steps(length=2)), []
    env.before_restart = lambda: told.append(env.env.time)
    env.reset(seed=0)
    for _ in range(4):
        env.step(np.zeros(1, np.int32))
    assert told == [2, 2]


def test_a_machine_without_a_display_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert missing_display() == "there is no display to open a window on"
    with pytest.raises(RenderError, match="no display to open a window on") as caught:
        require_window()
    assert caught.value.hint == "use `--render video` or `--render ansi`"
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert missing_display() is None
    monkeypatch.delenv("WAYLAND_DISPLAY")
    monkeypatch.setattr("sys.platform", "darwin")
    assert missing_display() is None


def test_a_window_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    with pytest.raises(RenderError, match="pygame-ce is not installed") as caught:
        require_window()
    assert caught.value.hint == "pip install 'puffer-core[window]'"
