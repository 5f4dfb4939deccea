"""Runs that are gone on with: bit for bit where everything was saved, by name where something was not."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from puffer_core import config as configuration
from puffer_core import load
from puffer_core.errors import OptionError, RunError
from puffer_core.runs import RunDirectory, find_checkpoint
from puffer_core.specs import EnvSpec
from puffer_core.training import train
from puffer_core.training.resume import resumed_config

SAVING = EnvSpec("fake/saving", make="fakes_env:Saving")
MATCH = EnvSpec("fake/match", make="fakes_env:Match")
DATA = Path(__file__).parent / "data"
TIMED = ("seconds", "steps_per_second", "perf/")
SMALL = {
    "train.device": "cpu",
    "train.horizon": "16",
    "train.minibatch_size": "64",
    "policy.hidden_size": "8",
    "policy.num_layers": "1",
    "vec.num_threads": "1",
    "checkpoint_interval": "1",
}


def options(folder: Path, rows: int = 4, epochs: int = 20, **changes: str) -> dict[str, str]:
    """Options of a run of so many rollouts of rows x 16 steps, with a checkpoint and so a row of metrics after each."""
    given = {key.replace("__", "."): text for key, text in changes.items()}
    return {**SMALL, "train.total_timesteps": str(rows * 16 * epochs), "runs_dir": str(folder), **given}


def tensors(result: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a checkpoint holds: weights, optimiser, generators, environments, what is carried."""
    names = ("model", "arrays")
    return {f"{n}.{k}": v for n in names for k, v in load_file(f"{result['checkpoint']}/{n}.safetensors").items()}


def same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    a, b = tensors(first), tensors(second)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def rows_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = RunDirectory.open(result["run_dir"]).metrics()
    return [{key: value for key, value in row.items() if not key.startswith(TIMED)} for row in rows]


def steps_of(result: Mapping[str, Any]) -> list[int]:
    return [int(path.name) for path in RunDirectory.open(result["run_dir"]).checkpoints()]


CASES: dict[str, tuple[Any, dict[str, str]]] = {
    "python-mingru-muon": (SAVING, {"vec.num_envs": "4"}),
    "python-adam-normalised": (
        SAVING,
        {"vec.num_envs": "4", "train.optimizer": "adam", "policy.normalize_observations": "on", "policy.core": "none"},
    ),
    "python-2-workers": (SAVING, {"vec.num_envs": "4", "vec.num_workers": "2", "vec.backend": "multiprocessing"}),
    "python-lstm": (SAVING, {"vec.num_envs": "4", "policy.core": "lstm"}),
    "squared-native": ("ocean/squared", {"env.num_envs": "4"}),
    "squared-serial": ("ocean/squared", {"env.num_envs": "2", "vec.num_envs": "2", "vec.backend": "serial"}),
    "squared-2-workers": ("ocean/squared", {"env.num_envs": "2", "vec.num_envs": "2", "vec.num_workers": "2"}),
    "memory-adam": ("ocean/memory", {"env.num_envs": "4", "train.optimizer": "adam"}),
    "connect4-masks": ("ocean/connect4", {"env.num_envs": "4", "policy.core": "none"}),
    "breakout-normalised": (
        "ocean/breakout",
        {"env.num_envs": "4", "policy.normalize_observations": "on", "train.anneal_ent_coef": "on"},
    ),
}


@pytest.mark.parametrize(("env", "changes"), CASES.values(), ids=CASES)
def test_k01_ten_epochs_and_ten_more_are_twenty(
    env: Any, changes: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(env, str):
        pytest.importorskip("puffer_ocean")
    given = options(tmp_path / "runs", **changes)
    whole = train(env, options=given)
    half = train(env, options=given, stop_at=640)
    rest = train(env, options={"runs_dir": given["runs_dir"]}, resume=half["run_dir"])
    assert (half["steps"], rest["steps"], rest["gradient_steps"]) == (640, 1280, whole["gradient_steps"])
    assert same(whole, rest)
    assert rows_of(rest) == rows_of(whole)
    assert "not restored" not in capsys.readouterr().err


def test_k01_weights_alone_go_on_otherwise(tmp_path: Path) -> None:
    given = options(tmp_path / "runs", vec__num_envs="4")
    half = train(SAVING, options=given, stop_at=640)
    arrays = Path(half["checkpoint"]) / "arrays.safetensors"
    momentum = [value for name, value in load_file(arrays).items() if name.startswith("optimizer.momentum")]
    assert any(value.any() for value in momentum)  # a cold optimiser would begin with zeros


def test_k03_what_normalises_observations_is_in_the_checkpoint_and_is_not_changed_by_acting(tmp_path: Path) -> None:
    given = options(tmp_path / "runs", vec__num_envs="4", policy__normalize_observations="on")
    agent = load(train(SAVING, options=given)["run_dir"])
    normalizer = agent.policy.normalizer
    assert normalizer is not None
    before = {name: buffer.clone() for name, buffer in normalizer.state_dict().items()}
    assert max(float(buffer.abs().max()) for buffer in before.values()) > 100  # it has seen something
    agent.act(np.full((3, 3), 1e3, np.float32))
    assert all(bool((normalizer.state_dict()[name] == buffer).all()) for name, buffer in before.items())


@pytest.mark.parametrize("workers", [{}, {"vec__backend": "multiprocessing", "vec__num_workers": "2"}])
def test_d01_one_seed_is_one_run(workers: dict[str, str], tmp_path: Path) -> None:
    first, second = (train(SAVING, options=options(tmp_path, vec__num_envs="4", epochs=5, **workers)) for _ in range(2))
    other = train(SAVING, options=options(tmp_path, vec__num_envs="4", epochs=5, seed="7", **workers))
    assert same(first, second)
    assert not same(first, other)


# -- what is not restored ---------------------------------------------------------------------------------------------


def test_a_run_of_format_1_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(DATA / "run_format_1", run)
    agent = load(run)
    assert agent.step == 640
    result = train(SAVING, resume=str(run))
    told = capsys.readouterr().err
    assert "not restored: the global random generators of torch, numpy, python: they go on from where they are" in told
    assert "environments" not in told
    assert (result["steps"], result["seed"]) == (2048, 42)
    state = json.loads((Path(result["checkpoint"]) / "state.json").read_text())
    assert (state["format"], sorted(state["sha256"])) == (2, ["arrays.safetensors", "model.safetensors"])
    assert train(SAVING, resume=str(run))["checkpoint"] == result["checkpoint"]


def test_environments_that_can_not_be_saved_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = train(MATCH, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    assert train(MATCH, resume=half["run_dir"])["steps"] == 1280
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "not restored" in line]
    assert line == (
        "warning: not restored: the environments: their state can't be saved, and they begin anew; "
        "the run goes on, but not bit for bit"
    )


# -- another total ----------------------------------------------------------------------------------------------------


def test_a_larger_total_needs_a_choice(tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    with pytest.raises(OptionError, match=r"total-timesteps 2560` can't change .* without a choice: .* 1280") as caught:
        train(SAVING, options={"train.total_timesteps": "2560"}, resume=half["run_dir"])
    assert "--resume-schedule stretch" in str(caught.value.hint)
    assert "keep" in str(caught.value.hint)
    assert RunDirectory.open(half["run_dir"]).config.train.total_timesteps == 1280


@pytest.mark.parametrize("schedule", ["stretch", "keep"])
def test_schedules_follow_the_new_total_or_keep_to_the_old(schedule: str, tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4", train__min_lr_ratio="0.1"), stop_at=640)
    longer = {"train.total_timesteps": "2560"}
    part = train(SAVING, options=longer, resume=half["run_dir"], resume_schedule=schedule, stop_at=1600)
    rest = train(SAVING, resume=half["run_dir"])  # it knows
    again = train(SAVING, options=longer, resume=half["run_dir"], resume_schedule=schedule)  # no change: no question
    assert (part["steps"], part["steps_asked"], rest["steps"], again["steps"]) == (1600, 2560, 2560, 2560)
    span = 40 if schedule == "stretch" else 20
    rows = rows_of(rest)
    for row in rows:
        total = 20 if row["epoch"] <= 10 else span
        share = min(1.0, (row["epoch"] - 1) / total)
        expected = 0.015 * (0.1 + 0.45 * (1 + np.cos(np.pi * share)))
        assert row["train/learning_rate"] == pytest.approx(expected, rel=1e-9), row["epoch"]
    assert [row["epoch"] for row in rows] == list(range(1, 41))


def test_a_run_that_is_extended_has_the_environments_it_had(tmp_path: Path) -> None:
    given = options(tmp_path, train__total_timesteps="2048")
    half = train(SAVING, options=given, stop_at=1024)
    rest = train(
        SAVING, options={"train.total_timesteps": "1e5"}, resume=half["run_dir"], resume_schedule="keep", stop_at=4096
    )
    before, after = (len(tensors(result)["arrays.carry.alive"]) for result in (half, rest))
    assert before == after == 16


def test_keep_says_where_nothing_more_is_learnt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    longer = {"train.total_timesteps": "2560"}
    train(SAVING, options=longer, resume=half["run_dir"], resume_schedule="keep", stop_at=704)
    assert "the learning rate is 0 from step 1,280 on" in capsys.readouterr().err


def test_a_total_behind_the_run_is_refused(tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    shorter = {"train.total_timesteps": "320"}
    with pytest.raises(RunError, match="at epoch 10, behind the end of this run: 5 epochs"):
        train(SAVING, options=shorter, resume=half["run_dir"], resume_schedule="stretch")
    assert RunDirectory.open(half["run_dir"]).config.train.total_timesteps == 1280
    assert train(SAVING, resume=half["run_dir"])["steps"] == 1280


def test_a_schedule_needs_a_resumed_run_and_another_total(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`--resume-schedule keep` goes with `--resume`"):
        train(SAVING, options=options(tmp_path), resume_schedule="keep")
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    with pytest.raises(OptionError, match="goes with another total of steps"):
        train(SAVING, resume=half["run_dir"], resume_schedule="keep")
    with pytest.raises(OptionError, match="is not one of refuse, stretch, keep"):
        train(SAVING, resume=half["run_dir"], resume_schedule="maybe")


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "arrays.safetensors", "state.json"])
def test_a_damaged_checkpoint_names_the_one_before(name: str, tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    file = Path(half["checkpoint"]) / name
    file.write_bytes(file.read_bytes()[:-20])
    older = find_checkpoint(half["run_dir"]).parent / "00000000000576"
    with pytest.raises(RunError, match="00640 is damaged") as caught:
        train(SAVING, resume=half["run_dir"])
    assert f"--resume {older} " in str(caught.value.hint)
    with pytest.raises(RunError, match="00640 is damaged"):
        load(half["run_dir"])
    assert train(SAVING, resume=str(older), stop_at=640)["steps"] == 640


def test_a_checkpoint_that_is_missing_is_named(tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    shutil.rmtree(half["checkpoint"])
    with pytest.raises(RunError, match="00640 is missing") as caught:
        train(SAVING, resume=half["run_dir"])
    assert "--resume" in str(caught.value.hint)
    assert "00000000000576" in str(caught.value.hint)


def test_going_on_from_an_older_checkpoint_sets_later_ones_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(SAVING, options=options(tmp_path, vec__num_envs="4"))
    expected = tensors(whole)
    folder = Path(whole["checkpoint"]).parent
    part = train(SAVING, resume=str(folder / "00000000000640" / "state.json"), stop_at=704)
    assert steps_of(part) == list(range(64, 705, 64))
    assert [row["step"] for row in rows_of(part)] == steps_of(part)
    assert capsys.readouterr().err.count("a later checkpoint is set aside as") == 10
    aside = folder / "00000000001280.aside"
    assert load(aside).step == 1280
    with pytest.raises(RunError, match="was set aside") as caught:
        train(SAVING, resume=str(aside))
    assert f"rename it to {folder / '00000000001280'}" in str(caught.value.hint)
    rest = tensors(train(SAVING, resume=whole["run_dir"]))
    assert all(np.array_equal(rest[name], expected[name]) for name in expected)


@pytest.mark.parametrize("tail", [b'{"step": 70', b"garbage\n", b"\xff\xfe\n", b"[1]\n", b"17\n", b'{"step": "x"}\n'])
def test_damaged_metrics_never_keep_a_run_from_going_on(tail: bytes, tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    with (Path(half["run_dir"]) / "metrics.jsonl").open("ab") as file:
        file.write(tail)
    rest = train(SAVING, resume=half["run_dir"])
    assert [row["step"] for row in rows_of(rest)] == list(range(64, 1281, 64))


def test_lines_of_metrics_that_are_dropped_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    file = Path(half["run_dir"]) / "metrics.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], "garbage", *lines[5:], "garbage", ""]))
    rest = train(SAVING, resume=half["run_dir"])
    assert "metrics.jsonl had 2 damaged lines, which can't be read: dropped" in capsys.readouterr().err
    assert [row["epoch"] for row in rows_of(rest)] == [1, 2, 3, 4, *range(6, 21)]


def test_what_a_kill_amid_a_save_left_is_removed(tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4"), stop_at=640)
    run, folder = Path(half["run_dir"]), Path(half["checkpoint"]).parent
    (folder / "00000000000704.partial").mkdir()
    (folder / "00000000000576.replaced").mkdir()
    Path(half["checkpoint"]).rename(folder / "00000000000640.replaced")
    for path in (run / ".metrics.jsonl-0123abcd", folder / ".latest-0123abcd"):
        path.touch()
    train(SAVING, resume=half["run_dir"])
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"{step:014d}" for step in range(64, 1281, 64)),
        "latest",
    ]
    assert not list(run.glob(".metrics*"))


def test_only_the_newest_checkpoints_are_kept_where_that_is_asked(tmp_path: Path) -> None:
    half = train(SAVING, options=options(tmp_path, vec__num_envs="4", keep_checkpoints="3"), stop_at=640)
    assert steps_of(half) == [512, 576, 640]
    rest = train(SAVING, options={"keep_checkpoints": "1"}, resume=half["run_dir"])
    assert steps_of(rest) == [1280]
    assert [path.name for path in Path(rest["checkpoint"]).parent.iterdir() if path.name != "latest"] == [
        "00000000001280"
    ]


FULL = """
import resource, sys
from fakes_env import Saving
from puffer_core import training

class Fill:
    def puffer_epoch_finished(self, run, metrics):
        if run.epoch == 5:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        if run.epoch == 8:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print(training.train(Saving, options=options, observers=[Fill()])["run_dir"])
"""


def test_k07_a_full_disk_is_a_warning_and_the_checkpoint_before_survives(tmp_path: Path) -> None:
    given = options(tmp_path, vec__num_envs="4", epochs=10, policy__hidden_size="32")
    words = [word for pair in given.items() for word in pair]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert hard == resource.RLIM_INFINITY or hard > 10**6, (soft, hard)
    done = subprocess.run(
        [sys.executable, "-c", FULL, *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("training goes on") >= 3
    run = RunDirectory.open(done.stdout.strip())
    assert [int(path.name) // 64 for path in run.checkpoints()] == [1, 2, 3, 4, 8, 9, 10]
    assert not list((run.path / "checkpoints").glob("*.partial"))
    for path in run.checkpoints():
        assert load(path).step == int(path.name)
    assert [row["step"] for row in run.metrics()] == sorted({row["step"] for row in run.metrics()})


def test_options_of_a_logger_may_change() -> None:
    saved = configuration.load("gym/CartPole-v1", options={"seed": "3"})
    resumed = resumed_config("gym/CartPole-v1", saved, {"logger": "wandb", "wandb.project": "mine"})
    assert resumed.config.base.logger == ("wandb",)
    assert resumed.config.options_of("wandb").project == "mine"
    again = resumed_config("gym/CartPole-v1", resumed.config, {"wandb.mode": "offline"})
    assert (again.config.options_of("wandb").project, again.config.options_of("wandb").mode) == ("mine", "offline")


@pytest.mark.parametrize(("name", "count"), [("mlp", 0), ("cnn", 1), ("auto", 1)])
def test_another_number_of_threads_is_a_warning_where_it_may_change_bits(name: str, count: int) -> None:
    saved = configuration.load("gym/CartPole-v1", options={"policy.name": name, "vec.num_threads": "1"})
    options = {"vec.num_threads": "2", "train.total_timesteps": "99999999"}
    resumed = resumed_config("gym/CartPole-v1", saved, options, "stretch")
    assert sum("may go on with other last bits" in warning for warning in resumed.warnings) == count
    assert resumed.config.vec.num_threads == 2
    assert not resumed_config("gym/CartPole-v1", saved, {"vec.num_threads": "1"}).warnings
