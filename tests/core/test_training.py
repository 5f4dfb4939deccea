from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from puffer_core import plugins
from puffer_core.errors import EnvError, NonFiniteError, OptionError, RunError, UnknownNameError
from puffer_core.rl.trainer import PuffeRL
from puffer_core.runs import RunDirectory
from puffer_core.specs import EnvSpec, TrainerSpec
from puffer_core.training import run, train
from puffer_core.training.bench import bench_train
from puffer_core.training.job import prepare

MATCH = EnvSpec("fake/match", make="fakes_env:Match")
SAVING = EnvSpec("fake/saving", make="fakes_env:Saving")
BEFORE = ["env", "trainer", "device", "backend", "seed", "steps_asked", "steps", "gradient_steps", "seconds"]
TRAIN_KEYS = [*BEFORE, "steps_per_second", "score_reached_steps", "score_reached_seconds", "run_dir", "checkpoint"]


def small(tmp_path: Path, **changes: str) -> dict[str, str]:
    """Options of a run of 32 rollouts, 4 rows x 16 steps each."""
    options = {
        "train.total_timesteps": "2048",
        "train.device": "cpu",
        "train.horizon": "16",
        "train.minibatch_size": "64",
        "vec.num_envs": "4",
        "policy.hidden_size": "8",
        "policy.num_layers": "1",
        "runs_dir": str(tmp_path / "runs"),
    }
    return options | {key.replace("__", "."): text for key, text in changes.items()}


def tensors(checkpoint: str) -> dict[str, Any]:
    files = ("model", "arrays")
    return {f"{file}.{k}": v for file in files for k, v in load_file(f"{checkpoint}/{file}.safetensors").items()}


def events(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(result["run_dir"]) / "events.jsonl").read_text().splitlines()]


def test_train_returns_the_keys_of_the_interface_in_order(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path))
    assert list(result) == TRAIN_KEYS
    assert (result["env"], result["trainer"], result["device"], result["backend"]) == (
        "fake/match",
        "torch",
        "cpu",
        "serial",
    )
    assert (result["steps_asked"], result["steps"], result["gradient_steps"]) == (2048, 2048, 32)
    assert result["score_reached_steps"] is None
    assert Path(result["checkpoint"]).is_dir()
    saved = json.loads((Path(result["run_dir"]) / "result.json").read_text())
    assert saved == {**result, "status": "finished"}


def test_run_evaluates_the_last_checkpoint(tmp_path: Path) -> None:
    result = run(MATCH, options=small(tmp_path, eval_episodes="40"))
    assert list(result) == [*TRAIN_KEYS, "score", "score_stderr", "episodes"]
    assert result["episodes"] == 40
    assert 0 <= result["score"] <= 8
    assert json.loads((Path(result["run_dir"]) / "result.json").read_text())["score"] == result["score"]


def test_train_writes_rows_with_the_documented_keys(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path))
    rows = RunDirectory.open(result["run_dir"]).metrics()
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert rows[-1]["step"] == 2048
    assert rows[-1]["epoch"] == 32
    for row in rows:
        assert {"step", "epoch", "seconds", "steps_per_second", "score"} <= row.keys()
        assert {"env/score", "env/n", "loss/policy", "loss/total", "train/learning_rate"} <= row.keys()
        assert all(key.startswith(("env/", "loss/", "perf/", "train/")) for key in row if "/" in key)
        assert row["score"] == row["env/score"]
    # Every logged episode is in one row: 4 rows of 512 steps make 64 episodes of 8 steps each.
    assert sum(row["env/n"] for row in rows) == 256


def test_environment_that_leaves_the_program_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(self: PuffeRL) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(PuffeRL, "evaluate", leave)
    with pytest.raises(EnvError, match=r"fake/match called sys.exit\(0\) in a reset or step"):
        train(MATCH, options=small(tmp_path))


def test_train_learns_the_match(tmp_path: Path) -> None:
    options = small(tmp_path, train__total_timesteps="8192", train__ent_coef="0")
    assert run(MATCH, options=options)["score"] > 6.5


def test_d01_train_is_the_same_twice(tmp_path: Path) -> None:
    first, second = (train(MATCH, options=small(tmp_path)) for _ in range(2))
    a, b = tensors(first["checkpoint"]), tensors(second["checkpoint"])
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert first["run_dir"] != second["run_dir"]


@pytest.mark.parametrize("stops", [(640,), (64, 1000)])
def test_resume_equals_a_run_that_was_never_stopped(tmp_path: Path, stops: tuple[int, ...]) -> None:
    whole = train(SAVING, options=small(tmp_path / "a"))
    where = {"runs_dir": str(tmp_path / "b" / "runs")}
    part = train(SAVING, options=small(tmp_path / "b"), stop_at=stops[0])
    assert part["steps"] == -(-stops[0] // 64) * 64
    for stop in stops[1:]:
        part = train(SAVING, options=where, resume="latest", stop_at=stop)
    rest = train(SAVING, options=where, resume=Path(part["run_dir"]).name)
    assert rest["run_dir"] == part["run_dir"]
    assert (rest["steps"], rest["gradient_steps"]) == (whole["steps"], whole["gradient_steps"])
    a, b = tensors(whole["checkpoint"]), tensors(rest["checkpoint"])
    assert a.keys() == b.keys()
    assert all(np.array_equal(a[name], b[name]) for name in a)
    rows = RunDirectory.open(rest["run_dir"]).metrics()
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert [event["kind"] for event in events(rest)].count("started") == len(stops) + 1


def test_resume_says_when_the_environments_begin_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = train(MATCH, options=small(tmp_path), stop_at=640)
    rest = train(MATCH, options={"runs_dir": str(tmp_path / "runs")}, resume=part["run_dir"])
    assert rest["steps"] == 2048
    assert "begin anew" in capsys.readouterr().err


def test_resume_drops_the_rows_after_the_checkpoint(tmp_path: Path) -> None:
    part = train(SAVING, options=small(tmp_path), stop_at=640)
    directory = RunDirectory.open(part["run_dir"])
    directory.append_metrics({"step": 1280, "seconds": 99.0})
    train(SAVING, options={"runs_dir": str(tmp_path / "runs")}, resume="latest", stop_at=1000)
    assert all(row["seconds"] < 99 for row in directory.metrics())


def test_resume_of_a_finished_run_has_nothing_to_do(tmp_path: Path) -> None:
    first = train(SAVING, options=small(tmp_path))
    again = train(SAVING, options={"runs_dir": str(tmp_path / "runs")}, resume="latest")
    assert (again["steps"], again["checkpoint"]) == (first["steps"], first["checkpoint"])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"train.gamma": "0.5"}, "train.gamma 0.5` can't change in a resumed run"),
        ({"seed": "7"}, "--seed 7` can't change"),
        ({"train.total_timesteps": "4096"}, "total-timesteps 4096` can't change"),
        ({"train.gama": "0.5"}, "unknown key"),
    ],
)
def test_resume_refuses_options_that_would_change_the_run(tmp_path: Path, options: dict[str, str], match: str) -> None:
    train(SAVING, options=small(tmp_path), stop_at=640)
    with pytest.raises(OptionError, match=match):
        train(SAVING, options={"runs_dir": str(tmp_path / "runs"), **options}, resume="latest")


def test_resume_takes_options_that_change_nothing_learnt(tmp_path: Path) -> None:
    train(SAVING, options=small(tmp_path), stop_at=640)
    options = {"runs_dir": str(tmp_path / "runs"), "checkpoint_interval": "4", "train.horizon": "16"}
    rest = train(SAVING, options=options, resume="latest")
    steps = [event["step"] for event in events(rest) if event["kind"] == "checkpoint"]
    assert steps == [640, *range(768, 2048, 256), 2048]


def test_resume_refuses_a_run_of_another_environment(tmp_path: Path) -> None:
    part = train(SAVING, options=small(tmp_path), stop_at=640)
    with pytest.raises(RunError, match="is one of fake/saving, not of fake/match"):
        train(MATCH, resume=part["run_dir"])


def test_resume_refuses_a_run_that_is_in_use(tmp_path: Path) -> None:
    part = train(SAVING, options=small(tmp_path), stop_at=640)
    other = RunDirectory.open(part["run_dir"])
    other.acquire()
    with pytest.raises(RunError, match=f"in use by pid {os.getpid()}"):
        train(SAVING, resume=part["run_dir"])
    other.release()
    assert train(SAVING, resume=part["run_dir"])["steps"] == 2048


def test_resume_refuses_an_empty_name(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`--resume` is empty"):
        train(SAVING, resume="")
    with pytest.raises(OptionError, match="`--runs-dir` is empty"):
        train(SAVING, options={"runs_dir": ""}, resume="latest")


def test_resume_refuses_a_configuration_with_other_counts(tmp_path: Path) -> None:
    part = train(SAVING, options=small(tmp_path), stop_at=640)
    ini = Path(part["run_dir"]) / "config.ini"
    ini.write_text(ini.read_text().replace("total_timesteps = 2048", "total_timesteps = 4096"))
    with pytest.raises(RunError, match="`total_epochs` is 32 there, 64 here"):
        train(SAVING, resume=part["run_dir"])


def test_resume_refuses_a_stop_behind_the_run(tmp_path: Path) -> None:
    part = train(SAVING, options=small(tmp_path), stop_at=640)
    directory = RunDirectory.open(part["run_dir"])
    directory.append_metrics({"step": 1280, "seconds": 99.0})
    with pytest.raises(OptionError, match="stop-at 640 is behind the run"):
        train(SAVING, resume=part["run_dir"], stop_at=640)
    assert directory.metrics()[-1]["step"] == 1280  # a command that is refused drops no rows


def test_checkpoints_come_at_their_interval_and_at_the_end(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path, checkpoint_interval="10"))
    names = sorted(path.name for path in (Path(result["run_dir"]) / "checkpoints").iterdir() if path.is_dir())
    assert [int(name) for name in names] == [640, 1280, 1920, 2048]
    # A run that is killed goes on from a checkpoint, so everything up to there is in the rows.
    assert {640, 1280, 1920, 2048} <= {row["step"] for row in RunDirectory.open(result["run_dir"]).metrics()}


def test_checkpoints_come_after_seconds(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path, train__checkpoint_seconds="1e-9"))
    assert len(list((Path(result["run_dir"]) / "checkpoints").glob("0*"))) == 32


def test_stop_at_score_ends_at_a_whole_rollout_and_says_when(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path), stop_at_score=-1.0)
    # 100 episodes of 8 steps on 4 rows: the 13th rollout of 64 steps has logged 104.
    assert result["steps"] == result["score_reached_steps"] == 13 * 64
    assert 0 < result["score_reached_seconds"] <= result["seconds"]
    assert json.loads((Path(result["run_dir"]) / "result.json").read_text())["status"] == "stopped"


def test_non_finite_reward_ends_the_run_and_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    spec = EnvSpec("fake/poisoned", make="fakes_env:Poisoned")
    options = small(tmp_path, env__at="200", checkpoint_interval="5")
    with pytest.raises(NonFiniteError, match="reward"):
        train(spec, options=options)
    (folder,) = (path for path in (tmp_path / "runs/fake/poisoned").iterdir() if path.is_dir())
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "failed"
    assert "reward" in result["error"]
    assert Path(result["checkpoint"]).name.endswith("640")
    assert all(np.isfinite(tensor).all() for tensor in load_file(f"{result['checkpoint']}/model.safetensors").values())


def test_full_disk_while_saving_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = PuffeRL.save

    def save_but_once(self: PuffeRL, path: Path) -> None:
        if self.global_step == 640:
            raise OSError(28, "No space left on device")
        save(self, path)

    monkeypatch.setattr(PuffeRL, "save", save_but_once)
    result = train(MATCH, options=small(tmp_path, checkpoint_interval="10"))
    assert result["steps"] == 2048
    assert "No space left on device; training goes on" in capsys.readouterr().err
    names = sorted(int(path.name) for path in (Path(result["run_dir"]) / "checkpoints").glob("0*"))
    assert names == [1280, 1920, 2048]


def test_full_disk_at_the_last_checkpoint_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = PuffeRL.save

    def save_but_last(self: PuffeRL, path: Path) -> None:
        if self.global_step == 2048:
            raise OSError(28, "No space left on device")
        save(self, path)

    monkeypatch.setattr(PuffeRL, "save", save_but_last)
    with pytest.raises(RunError, match=r"not saved: .*No space left on device") as caught:
        train(MATCH, options=small(tmp_path, checkpoint_interval="10"))
    assert "1920; free some space" in str(caught.value.hint)
    (folder,) = (path for path in (tmp_path / "runs/fake/match").iterdir() if path.is_dir())
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], Path(result["checkpoint"]).name[-4:]) == ("failed", "1920")


class Ledger:
    def __init__(self) -> None:
        self.rows: list[tuple[int, Mapping[str, float]]] = []
        self.closed = 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append((step, metrics))

    def close(self) -> None:
        self.closed += 1


def test_loggers_get_the_rows_and_are_closed_once(tmp_path: Path) -> None:
    ledger = Ledger()
    result = train(MATCH, options=small(tmp_path), loggers={"ledger": ledger})
    assert [step for step, _ in ledger.rows] == [row["step"] for row in RunDirectory.open(result["run_dir"]).metrics()]
    assert ledger.closed == 1


def test_logger_that_fails_does_not_stop_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(Ledger):
        def log(self, step: int, metrics: Mapping[str, float]) -> None:
            raise ConnectionError("the tracker is gone")

    assert train(MATCH, options=small(tmp_path), loggers={"broken": Broken()})["steps"] == 2048
    assert capsys.readouterr().err.count("the tracker is gone") == 1


OBSERVER = """
    seen = []

    @hookimpl
    def puffer_run_started(run):
        seen.append(("started", run.step, run.epoch, run.config.base.seed, run.directory.name))

    @hookimpl
    def puffer_epoch_finished(run, metrics):
        seen.append(("epoch", run.epoch))
        assert run.metrics == metrics and metrics["epoch"] == run.epoch
        if run.epoch == 2:
            run.save()
        if run.epoch == 3:
            run.stop("seen enough")

    @hookimpl
    def puffer_run_finished(run, result):
        seen.append(("finished", result["steps"]))
"""


def test_observers_see_the_run_and_may_save_and_stop(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("watcher", OBSERVER)
    monkeypatch.setattr(plugins, "_manager", site.manager())
    result = train(MATCH, options=small(tmp_path))
    import puffer_watcher_entry

    name = Path(result["run_dir"]).name
    assert puffer_watcher_entry.seen == [
        ("started", 0, 0, 42, name),
        ("epoch", 1),
        ("epoch", 2),
        ("epoch", 3),
        ("finished", 192),
    ]
    assert sorted(int(path.name) for path in (Path(result["run_dir"]) / "checkpoints").glob("0*")) == [128, 192]
    assert events(result)[-1]["reason"] == "seen enough"


def test_observer_that_raises_is_told_once_and_training_goes_on(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin(
        "clumsy",
        """
        @hookimpl
        def puffer_epoch_finished(run):
            raise KeyError("lost")
        """,
    )
    monkeypatch.setattr(plugins, "_manager", site.manager())
    assert train(MATCH, options=small(tmp_path))["steps"] == 2048
    assert capsys.readouterr().err.count("lost") == 1


def test_trainer_of_highest_priority_that_supports_the_job_is_chosen(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin(
        "fast",
        """
        def supports(job):
            return f"it can't do {job.env_name} on {job.device}"

        @hookimpl
        def puffer_trainers():
            entry = "puffer_fast_entry"
            return [TrainerSpec("fast", priority=9, supports=f"{entry}:supports", make=f"{entry}:make")]
        """,
    )
    monkeypatch.setattr(plugins, "_manager", site.manager())
    prepared = prepare(MATCH, options=small(tmp_path))
    assert prepared.trainer.name == "torch"
    assert "not trainer `fast`: it can't do fake/match on cpu" in prepared.notes
    assert prepared.job.config.base.trainer == "torch"
    with pytest.raises(OptionError, match="trainer `fast` does not support fake/match: it can't do fake/match"):
        prepare(MATCH, options=small(tmp_path, trainer="fast"))
    with pytest.raises(UnknownNameError, match="unknown trainer `slow`"):
        prepare(MATCH, options=small(tmp_path, trainer="slow"))


def test_trainer_that_is_broken_stops_only_those_who_name_it(
    site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin(
        "fast",
        """
        def supports(job):
            raise OSError("no driver")

        @hookimpl
        def puffer_trainers():
            entry = "puffer_fast_entry"
            return [TrainerSpec("fast", priority=9, supports=f"{entry}:supports", make=f"{entry}:make")]
        """,
    )
    monkeypatch.setattr(plugins, "_manager", site.manager())
    prepared = prepare(MATCH, options=small(tmp_path))
    assert prepared.trainer.name == "torch"
    assert prepared.notes[0].startswith("not trainer `fast`: it can't be asked: OSError: no driver")
    with pytest.raises(OSError, match="no driver"):
        prepare(MATCH, options=small(tmp_path, trainer="fast"))


def test_prepare_makes_no_directory_and_tells_the_counts(tmp_path: Path) -> None:
    prepared = prepare(MATCH, options=small(tmp_path))
    assert isinstance(prepared.trainer, TrainerSpec)
    assert (prepared.plan.num_agents, prepared.plan.epochs, prepared.plan.gradient_steps) == (4, 32, 32)
    assert not (tmp_path / "runs").exists()


def test_t12_too_few_steps_are_refused_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="total_timesteps=10 is less than one rollout"):
        train(MATCH, options=small(tmp_path, train__total_timesteps="10"))
    assert not (tmp_path / "runs").exists()


def test_bench_train_measures_and_writes_nothing(tmp_path: Path) -> None:
    result = bench_train(MATCH, options=small(tmp_path), seconds=0.0)
    assert list(result) == ["env", "trainer", "steps_per_second", "phases"]
    assert result["steps_per_second"] > 0
    assert sum(result["phases"].values()) > 0
    assert not (tmp_path / "runs").exists()


def test_a_run_whose_logger_is_unknown_leaves_no_trace(tmp_path: Path) -> None:
    first = train(MATCH, options=small(tmp_path))
    with pytest.raises(UnknownNameError, match="nosuch"):
        train(MATCH, options=small(tmp_path, logger="nosuch"))
    folder = Path(first["run_dir"]).parent
    assert (folder / "latest").read_text().strip() == Path(first["run_dir"]).name
    assert len(list(folder.glob("*/config.ini"))) == 1


def test_options_from_python_may_be_values(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path) | {"train.total_timesteps": 1024, "train.anneal_lr": False})
    assert result["steps_asked"] == 1024
    with pytest.raises(OptionError, match=r"`train\.gamma` = `\[1\]` is not"):
        train(MATCH, options=small(tmp_path) | {"train.gamma": [1]})
