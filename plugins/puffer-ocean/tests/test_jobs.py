"""The jobs of the command line on environments in C: training, resuming, evaluating, filming."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from puffer_core.evaluate import evaluate
from puffer_core.training import run, train
from puffer_core.vector import make

SMALL = {
    "train.total_timesteps": "16384",
    "train.device": "cpu",
    "train.horizon": "16",
    "train.minibatch_size": "512",
    "env.num_envs": "64",
    "policy.hidden_size": "16",
    "policy.num_layers": "1",
}


def read_video(path: str, height: int, width: int) -> Any:
    """Return the frames of an mp4, (n, height, width, 3), decoded by the ffmpeg that wrote it."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed").get_ffmpeg_exe()
    command = [ffmpeg, "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def small(name: str, folder: Path, **changes: str) -> dict[str, str]:
    """Options of a run of 16 rollouts; an instance of snake has 256 agents of its own."""
    instances = {"env.num_envs": "1", "train.total_timesteps": "65536"} if name == "snake" else {}
    return {**SMALL, **instances, "runs_dir": str(folder), **changes}


def tensors(checkpoint: str) -> dict[str, Any]:
    files = ("model", "arrays")
    return {f"{file}.{k}": v for file in files for k, v in load_file(f"{checkpoint}/{file}.safetensors").items()}


@pytest.mark.parametrize("backend", ["native", "serial"])
@pytest.mark.parametrize("name", ["breakout", "connect4", "continuous"])
def test_resume_equals_a_run_that_was_never_stopped(tmp_path: Path, name: str, backend: str) -> None:
    options = {**SMALL, "vec.backend": backend}
    whole = train(name, options={**options, "runs_dir": str(tmp_path / "a")})
    part = train(name, options={**options, "runs_dir": str(tmp_path / "b")}, stop_at=6000)
    assert part["steps"] == 6144
    rest = train(name, options={"runs_dir": str(tmp_path / "b")}, resume="latest")
    a, b = tensors(whole["checkpoint"]), tensors(rest["checkpoint"])
    assert whole["backend"] == rest["backend"] == backend
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", ["breakout", "memory", "squared", "connect4", "snake", "cartpole", "continuous"])
def test_run_evaluates_exactly_the_episodes_it_was_asked_for(tmp_path: Path, name: str) -> None:
    result = run(name, options=small(name, tmp_path, eval_episodes="70"))
    assert result["episodes"] == 70
    assert np.isfinite([result["score"], result["score_stderr"]]).all()


def test_evaluation_counts_logged_units_where_nothing_terminates(tmp_path: Path) -> None:
    result = run("target", options=small("target", tmp_path, eval_episodes="100"))
    assert result["episodes"] == 100


def test_evaluation_takes_other_parameters_than_training_did(tmp_path: Path) -> None:
    made = train("cartpole", options={**small("cartpole", tmp_path), "env.max_steps": "12"})
    lengths = [
        evaluate("cartpole", load=made["run_dir"], episodes=64, options=options)["episode_length"]
        for options in ({}, {"env.max_steps": "5"})
    ]
    assert lengths[1] <= 5 < lengths[0] <= 12


def test_video_shows_the_first_state_of_every_episode(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="the extra `video` is not installed")
    made = train("memory", options=small("memory", tmp_path))
    found = evaluate("memory", load=made["run_dir"], render="video", episodes=3)
    with make("memory", num_envs=1) as envs:
        envs.reset(0)
        height, width, _ = envs.render(0, "rgb_array").shape
    frames = read_video(found["video"], height, width)
    assert len(frames) == 3 * found["episode_length"]
    assert frames.std() > 0


@pytest.mark.parametrize("name", ["breakout", "snake", "connect4", "squared"])
def test_ansi_prints_one_frame_per_state(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = train(name, options=small(name, tmp_path))
    capsys.readouterr()
    found = evaluate(name, load=made["run_dir"], render="ansi", episodes=1)
    text = capsys.readouterr().err
    assert text.count("\n\n") >= found["episode_length"] - 1
