"""`puffer eval` and `puffer play` from another process: signals, and machines without a display."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from puffer_core.video import missing_encoder

PLUGIN = """
    @hookimpl
    def puffer_envs():
        return [EnvSpec("fake/match", make="fakes_env:Match", aliases=("match",))]
"""
COUNTS = ["--train.total-timesteps=512", "--train.horizon=16", "--train.minibatch-size=64", "--vec.num-envs=4"]
SMALL = [*COUNTS, "--train.device=cpu", "--policy.hidden-size=8", "--policy.num-layers=1"]
HEADLESS = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "SDL_VIDEODRIVER": ""}


@pytest.fixture
def fake(site: Any) -> Any:
    site.plugin("fake", PLUGIN)
    (site.path / "fakes_env.py").write_text((Path(__file__).parent / "fakes_env.py").read_text())
    return site


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, "1"), (signal.SIGINT, "2")])
def test_signal_ends_an_evaluation_with_one_line(fake: Any, number: signal.Signals, workers: str) -> None:
    fake.run("train", "match", *SMALL)
    backend = "multiprocessing" if workers == "2" else "serial"
    words = ["eval", "match", "--episodes", "10_000_000", "--vec.backend", backend, "--vec.num-workers", workers]
    process = subprocess.Popen(
        [sys.executable, "-m", "puffer_core", *words],
        cwd=fake.path.parent,
        env={**os.environ, "PYTHONPATH": str(fake.path), "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    time.sleep(3)
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", f"stopped by {number.name}\n")
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_r01_eval_and_play_without_a_display(fake: Any) -> None:
    fake.run("train", "match", *SMALL)
    for words, message in (
        (("eval", "match", "--render", "human"), "render=human: there is no display to open a window on"),
        (("play", "match", "--keys", "a=1,none=0"), "there is nothing to play in: there is no display"),
        (("play", "match"), "fake/match does not say what keys do"),
    ):
        done = fake.run(*words, **HEADLESS)
        lines = done.stderr.splitlines()
        assert (done.returncode, done.stdout, len(lines)) == (2, "", 2), done.stderr
        assert lines[0].startswith(f"error: {message}")
        assert lines[1].startswith("hint: ")
    if missing_encoder() is None:
        done = fake.run("eval", "match", "--render", "video", "--json", **HEADLESS)
        assert Path(json.loads(done.stdout)["video"]).stat().st_size > 0
