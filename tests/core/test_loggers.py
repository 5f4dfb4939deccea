"""Loggers: one that fails is detached with one warning, and training goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from puffer_core.config import Config
from puffer_core.errors import OptionError, UnknownNameError
from puffer_core.loggers import Loggers, make_loggers
from puffer_core.loggers.jsonl import JsonlLogger
from puffer_core.specs import LoggerSpec

WAIT = 30.0
"""Seconds that a test waits for a thread, which takes a moment."""


class Recorder:
    """Keeps rows; raises ``error`` in the calls that are listed."""

    def __init__(self, error: BaseException | None = None, fails: tuple[int, ...] = (), fails_closing: bool = False):
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.ended = threading.Event()
        self.calls = self.closed = 0
        self.error, self.fails, self.fails_closing = error or ValueError("no network"), fails, fails_closing

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.calls += 1
        if self.calls in self.fails:
            raise self.error
        self.rows.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed += 1
        self.ended.set()
        if self.fails_closing:
            raise self.error


def run_in(folder: Path, *names: str) -> Any:
    config = Config()
    return SimpleNamespace(directory=folder, config=replace(config, base=replace(config.base, logger=names)))


@pytest.mark.parametrize("error", [ValueError("no network"), SystemExit(3), OSError("gone")])
def test_loggers_detach_one_that_raises_with_one_warning(error: BaseException) -> None:
    warnings: list[str] = []
    good, bad = Recorder(), Recorder(error, fails=(2,))
    loggers = Loggers({"bad": bad, "good": good}, warnings.append)
    for step in range(4):
        loggers.log(step, {"x": 1.0})
        assert step != 1 or bad.ended.wait(WAIT)
    assert loggers.names == ("good",)
    loggers.close()
    assert [step for step, _ in good.rows] == [0, 1, 2, 3]
    assert bad.calls == 2
    assert len(warnings) == 1
    assert warnings[0].startswith("logger `bad` failed: ")
    assert warnings[0].endswith("it is detached; training goes on")


def test_loggers_let_ctrl_c_through_while_the_own_file_is_written() -> None:
    loggers = Loggers({"jsonl": Recorder(KeyboardInterrupt(), fails=(1,))}, print)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        loggers.log(0, {})


def test_loggers_take_ctrl_c_raised_by_a_logger_for_a_failure() -> None:
    warnings: list[str] = []
    loggers = Loggers({"bad": Recorder(KeyboardInterrupt(), fails=(1,))}, warnings.append)
    loggers.log(0, {})
    loggers.close()
    assert warnings == ["logger `bad` failed: it raised KeyboardInterrupt: "]


def test_loggers_keep_the_run_directorys_own_file_and_warn_once_per_failure() -> None:
    warnings: list[str] = []
    own = Recorder(fails=(1, 2, 4))
    loggers = Loggers({"jsonl": own}, warnings.append)
    for step in range(5):
        loggers.log(step, {})
    assert [step for step, _ in own.rows] == [2, 4]
    assert len(warnings) == 2
    assert "detached" not in warnings[0]


def test_loggers_close_each_once_even_if_one_raises() -> None:
    warnings: list[str] = []
    bad, good = Recorder(fails_closing=True), Recorder()
    loggers = Loggers({"bad": bad, "good": good}, warnings.append)
    loggers.close()
    loggers.close()
    assert (bad.closed, good.closed) == (1, 1)
    assert len(warnings) == 1
    assert warnings[0].startswith("logger `bad` could not be closed: ")


def test_jsonl_writes_one_line_per_row(tmp_path: Path) -> None:
    logger = JsonlLogger(SimpleNamespace(directory=tmp_path))
    logger.log(64, {"step": 64, "env/score": 0.5, "loss/total": float("nan")})
    logger.log(128, {"epoch": 2})
    logger.close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"step": 64, "env/score": 0.5, "loss/total": None}, {"step": 128, "epoch": 2}]


def test_l01_make_loggers_always_has_jsonl_first_and_once(tmp_path: Path) -> None:
    assert list(make_loggers(run_in(tmp_path), print)) == ["jsonl"]
    assert list(make_loggers(run_in(tmp_path, "jsonl", "jsonl"), print)) == ["jsonl"]


def test_make_loggers_refuses_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown logger `wandbb`"):
        make_loggers(run_in(tmp_path, "wandbb"), print)


@pytest.mark.usefixtures("toy")
def test_make_loggers_closes_what_it_made_where_a_later_one_can_not_be(tmp_path: Path) -> None:
    for names, error, told in (
        (("recording", "refusing"), OptionError, "no project is named"),
        (("recording", "interrupted"), KeyboardInterrupt, "^$"),
        (("recording", "nobody"), KeyError, "nobody"),
    ):
        made.clear()
        with pytest.raises(error, match=told):
            make_loggers(run_in(tmp_path, *names), print)
        assert [logger.closed for logger in made] == ([] if names[1] == "nobody" else [1])


made: list[Recorder] = []


def recording(run: object) -> Recorder:
    made.append(Recorder())
    return made[-1]


def interrupted(run: object) -> None:
    raise KeyboardInterrupt


def failing(run: object) -> None:
    raise ConnectionError("offline")


def refusing(run: object) -> None:
    raise OptionError("no project is named", hint="set --wandb.project")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = {"jsonl": LoggerSpec("jsonl", make="puffer_core.loggers.jsonl:JsonlLogger")}
    specs |= {
        name: LoggerSpec(name, make=f"toy:{name}") for name in ("failing", "refusing", "recording", "interrupted")
    }
    resolved = {f"toy:{name}": globals()[name] for name in ("failing", "refusing", "recording", "interrupted")}
    registry = SimpleNamespace(loggers=SimpleNamespace(get=specs.__getitem__))
    monkeypatch.setattr("puffer_core.loggers.manager", lambda: registry)
    monkeypatch.setattr("puffer_core.loggers.resolve", lambda target: resolved.get(target, JsonlLogger))


@pytest.mark.usefixtures("toy")
def test_make_loggers_goes_on_without_one_that_can_not_start(tmp_path: Path) -> None:
    warnings: list[str] = []
    assert list(make_loggers(run_in(tmp_path, "failing"), warnings.append)) == ["jsonl"]
    assert len(warnings) == 1
    assert warnings[0].startswith("logger `failing` can't start: ConnectionError: offline")


@pytest.mark.usefixtures("toy")
def test_make_loggers_passes_on_what_a_person_must_do(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no project is named"):
        make_loggers(run_in(tmp_path, "refusing"), print)
