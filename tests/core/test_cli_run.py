"""The commands `run`, `train`, `eval`, `bench`, `doctor`, from another process, on an environment of a test plugin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

PLUGIN = """
    @hookimpl
    def puffer_envs():
        names = {"match": "Match", "saving": "Saving", "poisoned": "Poisoned"}
        return [EnvSpec(f"fake/{name}", make=f"fakes_env:{kind}", aliases=(name,)) for name, kind in names.items()]
"""
COUNTS = ["--train.total-timesteps=2048", "--train.horizon=16", "--train.minibatch-size=64", "--vec.num-envs=4"]
SMALL = [*COUNTS, "--train.device=cpu", "--policy.hidden-size=8", "--policy.num-layers=1"]
SLOW = """
    import time

    from fakes_env import Match


    class Slow(Match):
        def step(self, actions):
            print("stepping", flush=True)
            time.sleep(60.0)
"""


@pytest.fixture
def fake(site: Any) -> Any:
    site.plugin("fake", PLUGIN)
    (site.path / "fakes_env.py").write_text((Path(__file__).parent / "fakes_env.py").read_text())
    return site


def home(site: Any) -> Path:
    """The folder that commands are started in."""
    return Path(site.path).parent


def start(site: Any, *args: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(site.path), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "puffer_core", *args]
    return subprocess.Popen(words, cwd=home(site), env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read stdout up to the first line that holds ``text``."""
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text!r} never came: {lines}, {process.stderr.read() if process.stderr else ''}")


def tensors(checkpoint: str) -> dict[str, Any]:
    files = ("model", "arrays")
    return {f"{file}.{k}": v for file in files for k, v in load_file(f"{checkpoint}/{file}.safetensors").items()}


def test_run_prints_one_object_with_json(fake: Any) -> None:
    done = fake.run("run", "match", *SMALL, "--episodes", "20", "--json")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    result = json.loads(done.stdout)
    assert (result["env"], result["steps"], result["episodes"]) == ("fake/match", 2048, 20)
    assert (home(fake) / result["checkpoint"] / "model.safetensors").is_file()
    assert done.stderr == ""


def test_run_tells_a_person_what_to_do_next(fake: Any) -> None:
    done = fake.run("run", "match", *SMALL, "--episodes", "20")
    assert done.returncode == 0, done.stderr
    for text in ("match  starting", "trainer torch on cpu", "2,048 steps asked", "score", "(20 episodes)", "steps/s"):
        assert text in done.stdout
    assert "puffer eval fake/match --load runs/fake/match/" in done.stdout.splitlines()[-1]
    assert "\x1b" not in done.stdout


def test_resume_at_the_command_line_equals_a_run_that_was_never_stopped(fake: Any) -> None:
    whole = json.loads(fake.run("train", "saving", *SMALL, "--runs-dir", "a", "--json").stdout)
    part = json.loads(fake.run("train", "saving", *SMALL, "--runs-dir=b", "--train.stop-at", "1e3", "--json").stdout)
    assert part["steps"] == 1024
    rest = json.loads(fake.run("train", "saving", "--resume", "latest", "--runs-dir=b", "--json").stdout)
    assert (rest["steps"], rest["run_dir"]) == (2048, part["run_dir"])
    a, b = (tensors(str(home(fake) / result["checkpoint"])) for result in (whole, rest))
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_eval_finds_the_latest_run(fake: Any) -> None:
    result = json.loads(fake.run("train", "match", *SMALL, "--json").stdout)
    done = fake.run("eval", "match", "--episodes", "1_0", "--json")
    found = json.loads(done.stdout)
    assert (found["episodes"], found["checkpoint"]) == (10, result["checkpoint"])
    person = fake.run("eval", "match", "--episodes", "10", "--greedy", "--load", Path(result["run_dir"]).name)
    assert "(10 episodes)" in person.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("train", "match", "--train.lerning-rate", "1"), "unknown key `train.lerning_rate`"),
        (("train", "match", "--train.stop-at", "soon"), "--train.stop-at soon"),
        (("train", "match", "--train.total-timesteps", "10"), "total_timesteps=10 is less than one rollout"),
        (("run", "match", "--resume", "latest"), "there are no runs of fake/match"),
        (("run", "mach"), "unknown environment `mach`"),
        (("eval", "match"), "there are no runs of fake/match"),
        (("eval", "match", "--render", "movie"), "render='movie' is not one of"),
        (("bench", "train", "match", "--trainer", "slow"), "unknown trainer `slow`"),
        (("bench", "env", "match", "--vec.backend", "serial"), "--vec.backend` has no meaning here"),
        (("doctor", "--train.gamma", "0.5"), "--train.gamma` has no meaning here"),
    ],
)
def test_mistakes_end_with_two_lines_and_code_2(fake: Any, args: tuple[str, ...], message: str) -> None:
    done = fake.run(*args, "--json")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (home(fake) / "runs").exists()


def test_non_finite_reward_ends_with_code_2_and_a_result(fake: Any) -> None:
    done = fake.run("run", "poisoned", *SMALL, "--env.at", "200", "--checkpoint-interval", "5", "--json")
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    (result,) = (home(fake) / "runs/fake/poisoned").glob("*/result.json")
    assert json.loads(result.read_text())["status"] == "failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_saves_a_checkpoint_and_the_run_goes_on_from_it(fake: Any, number: signal.Signals) -> None:
    process = start(fake, "run", "saving", *SMALL[1:], "--train.total-timesteps", "100_000_000")
    wait_for(process, "steps/s")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"{number.name}: the run is saved after this rollout" in err
    assert "Traceback" not in err
    assert "saved" in out
    (folder,) = (path for path in (home(fake) / "runs/fake/saving").iterdir() if path.is_dir())
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "interrupted"
    assert result["score"] is None
    assert int(Path(result["checkpoint"]).name) == result["steps"]
    stop = str(result["steps"] + 64)
    rest = json.loads(fake.run("train", "saving", "--resume", "latest", "--train.stop-at", stop, "--json").stdout)
    assert rest["steps"] == result["steps"] + 64


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_evaluation_and_leaves_the_result_of_training(fake: Any, number: signal.Signals) -> None:
    process = start(fake, "run", "match", *SMALL, "--episodes", "10_000_000")
    wait_for(process, "evaluating")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, "")
    assert "2,048 of 2,048 asked" in out
    (result,) = (home(fake) / "runs/fake/match").glob("*/result.json")
    saved = json.loads(result.read_text())
    assert (saved["status"], saved["steps"], saved["score"]) == ("interrupted", 2048, None)


def test_signal_before_training_leaves_nothing_behind(fake: Any) -> None:
    fake.add("slow-env", modules={"slow_env": SLOW.replace("def step(self, actions):", "def __init__(self):")})
    source = '@hookimpl\ndef puffer_envs():\n    return [EnvSpec("slow/start", make="slow_env:Slow")]\n'
    fake.plugin("slow", source)
    with start(fake, "train", "slow/start", *SMALL) as process:
        wait_for(process, "stepping")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert not (home(fake) / "runs").exists()


def test_second_signal_ends_at_once(fake: Any) -> None:
    fake.add("slow-env", modules={"slow_env": SLOW})
    source = '@hookimpl\ndef puffer_envs():\n    return [EnvSpec("slow/step", make="slow_env:Slow")]\n'
    fake.plugin("slow", source)
    with start(fake, "train", "slow/step", *SMALL) as process:
        wait_for(process, "stepping")
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert "once more ends it at once" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


def test_bench_train_prints_speed_and_phases(fake: Any) -> None:
    done = fake.run("bench", "train", "match", *SMALL, "--seconds", "0.01", "--json")
    result = json.loads(done.stdout)
    assert list(result) == ["env", "trainer", "steps_per_second", "phases"]
    assert result["phases"]["env"] > 0
    person = fake.run("bench", "train", "match", *SMALL, "--seconds", "0.01")
    assert "fake/match, trainer torch:" in person.stdout
    assert " %" in person.stdout


def test_bench_env_takes_the_number_of_environments_from_the_options(fake: Any) -> None:
    done = fake.run("bench", "env", "match", "--vec.num-envs", "8", "--seconds", "0.01", "--json")
    result = json.loads(done.stdout)
    assert list(result) == ["env", "num_envs", "threads", "steps_per_second", "steps_per_cpu_second"]
    assert (result["env"], result["num_envs"], result["threads"]) == ("fake/match", 8, 1)


def test_bench_env_counts_environments_in_c_as_a_run_does(fake: Any) -> None:
    source = """
    import sys
    sys.path.insert(0, TESTS)
    from counter import counter_table
    table = counter_table()
    """
    fake.add("counted", modules={"counted": f"TESTS = {str(Path(__file__).parent)!r}\n" + dedent(source)})
    hook = '@hookimpl\ndef puffer_envs():\n    return [EnvSpec("c/count", table="counted:table")]\n'
    fake.plugin("c", hook)
    args = ("--env.num-envs", "3", "--vec.num-envs", "2", "--seconds", "0.01", "--json")
    assert json.loads(fake.run("bench", "env", "c/count", *args).stdout)["num_envs"] == 6


def test_doctor_tells_about_this_machine(fake: Any) -> None:
    report = json.loads(fake.run("doctor", "--json").stdout)
    assert report["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert report["torch"]["version"]
    assert report["torch"]["auto"] in ("cpu", "cuda")
    assert {"name": "torch", "priority": 0, "plugin": "core"} in report["trainers"]
    assert [row["name"] for row in report["backends"]][:2] == ["native", "serial"]
    assert report["cpu"]["usable"] >= 1
    assert {"core", "fake"} <= {row["name"] for row in report["plugins"]}
    assert report["runs_dir"] == {**report["runs_dir"], "path": str(home(fake) / "runs"), "writable": True}
    assert not (home(fake) / "runs").exists()
    (home(fake) / "file").write_text("in the way")
    person = fake.run("doctor", PUFFER_RUNS="file/runs")
    assert person.returncode == 0
    assert "file/runs can't be written" in person.stdout


@pytest.mark.parametrize(
    "command", [("run",), ("train",), ("eval",), ("bench", "env"), ("bench", "train"), ("doctor",)]
)
def test_commands_have_help(fake: Any, command: tuple[str, ...]) -> None:
    done = fake.run(*command, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout
