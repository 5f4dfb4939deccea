"""`puffer runs`: what is listed of each run, and sending one to a logger that was not there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from puffer_core import run_list
from puffer_core.cli.main import main
from puffer_core.config import load
from puffer_core.errors import OptionError, RunError, UnknownNameError
from puffer_core.run_list import describe, last_row, list_rows
from puffer_core.runs import RunDirectory
from puffer_core.specs import LoggerSpec
from puffer_core.sync import sync_run

ENV = "gym/CartPole-v1"


def run_in(root: Path, *steps: int, end: str | None = "finished", result: Mapping[str, Any] | None = None) -> Any:
    run = RunDirectory.create(load(ENV), ENV, root)
    run.event("started", step=0)
    for step in steps:
        run.append_metrics({"step": step, "epoch": step // 64, "score": step / 2})
    if end is not None:
        run.event(end, step=max(steps, default=0))
    if result is not None:
        run.write_result({**result, "status": end})
    return run


def test_list_shows_what_became_of_each_run(tmp_path: Path) -> None:
    runs = [
        run_in(tmp_path, 64, 128, result={"score": 9.5, "steps": 128}),
        run_in(tmp_path, 64, end="interrupted"),
        run_in(tmp_path, 64, end=None),
        run_in(tmp_path, end=None),
    ]
    (runs[2].path / ".lock").write_text(str(os.getpid()))
    rows = list_rows(tmp_path)
    assert [row["run"] for row in rows] == sorted(run.id for run in runs)
    found = {row["run"]: (row["status"], row["steps"], row["score"]) for row in rows}
    assert [found[run.id] for run in runs] == [
        ("finished", 128, 9.5),
        ("interrupted", 64, 32.0),
        ("training", 64, 32.0),
        ("killed", 0, None),
    ]
    assert {row["env"] for row in rows} == {ENV}
    assert rows[0]["started"].startswith(f"{rows[0]['run'][:4]}-")


def test_list_takes_runs_that_are_damaged(tmp_path: Path) -> None:
    run = run_in(tmp_path, 64)
    (run.path / "result.json").write_text("{")
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 128, "sc')
    (run.path / "config.ini").write_text("[")
    row = describe(run.path)
    assert (row["env"], row["status"], row["steps"]) == (None, "finished", 64)


def test_last_row_is_found_in_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"step": step, "pad": "x" * 100}) + "\n" for step in range(2000)) + "{")
    assert last_row(path)["step"] == 1999
    assert last_row(tmp_path / "nothing") == {}


def test_runs_prints_a_table_or_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--runs-dir", str(tmp_path)]
    assert main(["runs", *place]) == 0
    assert capsys.readouterr().out == "there are no runs\n"
    run = run_in(tmp_path, 64)
    assert main(["runs", *place]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "env", "status", "steps", "score", "started"]
    assert line.split()[:5] == [run.id, ENV, "finished", "64", "32"]
    assert main(["runs", ENV, "--json", *place]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert list(row) == ["run", "env", "status", "steps", "score", "started", "run_dir"]
    assert main(["runs", "gym/Pendulum-v1", "--json", *place]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": []}
    assert main(["runs", "gim/CartPole-v1", *place]) == 2


def test_runs_show_prints_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_in(tmp_path, 64, result={"score": 1.5})
    assert main(["runs", "show", str(run.path)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (lines["run"], lines["status"], lines["score"]) == (run.id, "finished", "1.5")
    assert main(["runs", "show", run.id[:-2], "--runs-dir", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["result"]["score"], found["metrics"]["step"], found["checkpoints"]) == (1.5, 64, [])
    assert found["config"]["train.gamma"] == run.config.train.gamma


class Ledger:
    """A logger without a start; fails at the row ``fails``."""

    def __init__(self, fails: int = 0) -> None:
        self.rows: list[int] = []
        self.results: list[Mapping[str, Any]] = []
        self.fails, self.closed = fails, 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == self.fails:
            raise ConnectionError("no network")
        self.rows.append(step)

    def finish(self, result: Mapping[str, Any]) -> None:
        self.results.append(result)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    made = Ledger()
    registry = SimpleNamespace(get=lambda name: LoggerSpec(name, make="a:b"), names=lambda: ["jsonl", "ledger"])
    monkeypatch.setattr("puffer_core.sync.manager", lambda: SimpleNamespace(loggers=registry))
    monkeypatch.setattr("puffer_core.sync.resolve", lambda target: lambda run: made)
    return made


def test_sync_goes_on_where_it_stopped(tmp_path: Path, ledger: Ledger) -> None:
    run, warnings = run_in(tmp_path, 64, 128, 192, result={"score": 2.0}), []
    ledger.fails = 128
    with pytest.raises(RunError, match="logger `ledger` failed after step 64: ConnectionError: no network"):
        sync_run(run, "ledger", {}, warnings.append)
    ledger.fails = 0
    assert sync_run(run, "ledger", {}, warnings.append) == 2
    assert sync_run(run, "ledger", {}, warnings.append) == 0
    assert ledger.rows == [64, 128, 192]
    assert [result["score"] for result in ledger.results] == [2.0]
    assert warnings == []
    run.append_metrics({"step": 256})
    assert sync_run(run, "ledger", {}, warnings.append) == 1
    assert sync_run(run, "ledger", {}, warnings.append, again=True) == 4


def test_sync_drops_damaged_rows_with_a_warning(tmp_path: Path, ledger: Ledger) -> None:
    run, warnings = run_in(tmp_path, 64), []
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('oops\n{"step": 128}\n{"step": 19')
    assert sync_run(run, "ledger", {}, warnings.append) == 2
    assert ledger.rows == [64, 128]
    assert len(warnings) == 1
    assert warnings[0].startswith("1 damaged lines of ")


def test_sync_refuses_a_run_in_use_and_lets_go_of_it(tmp_path: Path, ledger: Ledger) -> None:
    run = run_in(tmp_path, 64)
    other = RunDirectory.open(run.path)
    other.acquire()
    with pytest.raises(RunError, match="is in use by pid"):
        sync_run(run, "ledger", {}, print)
    other.release()
    assert sync_run(run, "ledger", {}, print) == 1
    other.acquire()
    other.release()


def test_sync_takes_the_options_of_its_logger_and_no_others(tmp_path: Path) -> None:
    run = run_in(tmp_path, 64)
    with pytest.raises(OptionError, match=r"`--train.gamma` is no option of the logger `tensorboard`"):
        sync_run(run, "tensorboard", {"train.gamma": "0.5"}, print)
    with pytest.raises(OptionError, match="`jsonl` is the file that rows are read from"):
        sync_run(run, "jsonl", {}, print)
    with pytest.raises(UnknownNameError, match="unknown logger `wandbb`"):
        sync_run(run, "wandbb", {}, print)
    with pytest.raises(OptionError, match="unknown"):
        sync_run(run, "tensorboard", {"tensorboard.folder": "x"}, print)


def test_a_number_that_belongs_to_a_younger_process_now_is_not_the_run(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(str(os.getpid()))
    assert run_list._is_worked_on(tmp_path)
    began = psutil.Process().create_time()
    os.utime(tmp_path / ".lock", (began - 60, began - 60))
    assert not run_list._is_worked_on(tmp_path)
