"""Loggers in threads: one that blocks, floods, raises or exits costs the run nothing but a warning."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from puffer_core import sync
from puffer_core.errors import RunError
from puffer_core.files import append_json
from puffer_core.loggers import Loggers, Mirror, mirrored
from puffer_core.loggers.tracked import Progress, rows_of

WAIT = 30.0


class Tracker:
    """Keeps what it is given; waits for `gate` in the call named ``blocks``, raises in the one named ``raises``."""

    def __init__(self, blocks: str = "", raises: str = "", error: BaseException | None = None) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.calls: list[str] = []
        self.results: list[Mapping[str, Any]] = []
        self.threads: set[str] = set()
        self.gate, self.reached, self.closed = (threading.Event() for _ in range(3))
        self._blocks, self._raises, self._error = blocks, raises, error or ConnectionError("no network")

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.threads.add(threading.current_thread().name)
        if name == self._blocks:
            self.reached.set()
            self.gate.wait(WAIT)
        if name == self._raises:
            raise self._error

    def start(self) -> None:
        self._call("start")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._call("log")
        self.rows.append((step, dict(metrics)))

    def finish(self, result: Mapping[str, Any]) -> None:
        self._call("finish")
        self.results.append(result)

    def abandon(self) -> None:
        self.calls.append("abandon")

    def close(self) -> None:
        self.closed.set()
        self._call("close")


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    made = Tracker()
    yield made
    made.gate.set()


def test_mirror_calls_in_order_from_one_thread_that_is_not_the_runs(tracker: Tracker) -> None:
    mirror = Mirror("toy", tracker)
    assert not tracker.calls
    for step in range(3):
        mirror.log(step, {"x": step})
    mirror.finish({"score": 1.0})
    mirror.end()
    mirror.wait(time.monotonic() + WAIT)
    assert tracker.calls == ["start", "log", "log", "log", "finish", "close"]
    assert [step for step, _ in tracker.rows] == [0, 1, 2]
    assert tracker.results == [{"score": 1.0}]
    assert tracker.threads == {"puffer-logger-toy"}


def test_mirror_keeps_rows_as_they_were(tracker: Tracker) -> None:
    mirror, row = Mirror("toy", tracker), {"x": 1.0}
    mirror.log(1, row)
    row["x"] = 2.0
    mirror.end()
    mirror.wait(time.monotonic() + WAIT)
    assert tracker.rows == [(1, {"x": 1.0})]


def test_mirror_that_was_never_used_is_closed_without_a_start(tracker: Tracker) -> None:
    mirror = Mirror("toy", tracker)
    mirror.end()
    mirror.end()
    mirror.wait(time.monotonic() + WAIT)
    assert tracker.calls == ["close"]


@pytest.mark.parametrize("blocks", ["start", "log"])
def test_loggers_detach_one_that_blocks_for_ever_once_its_queue_is_full(blocks: str) -> None:
    stuck, good, warnings = Tracker(blocks=blocks), Tracker(), []
    loggers = Loggers({"stuck": Mirror("stuck", stuck, capacity=8), "good": good}, warnings.append)
    loggers.log(0, {})
    assert stuck.reached.wait(WAIT)
    for step in range(1, 100):
        loggers.log(step, {})
    assert loggers.names == ("good",)
    assert warnings == ["logger `stuck` failed: it is 8 rows behind; it is detached; training goes on"]
    loggers.close()
    assert [step for step, _ in good.rows] == list(range(100))
    stuck.gate.set()


def test_mirror_that_was_given_up_is_called_no_more() -> None:
    stuck = Tracker(blocks="log")
    mirror = Mirror("stuck", stuck, capacity=4)
    mirror.log(0, {})
    assert stuck.reached.wait(WAIT)
    for step in range(1, 5):
        mirror.log(step, {})
    with pytest.raises(RunError, match="4 rows behind"):
        mirror.log(5, {})
    stuck.gate.set()
    mirror._thread.join(WAIT)
    assert stuck.calls == ["start", "log", "abandon"]


@pytest.mark.parametrize("blocks", ["start", "log", "finish", "close"])
def test_close_waits_no_longer_than_it_says(blocks: str) -> None:
    stuck, warnings = Tracker(blocks=blocks), []
    loggers = Loggers({"stuck": stuck}, warnings.append, close_seconds=0.05)
    loggers.log(0, {})
    loggers.finish({})
    assert blocks == "close" or stuck.reached.wait(WAIT)
    loggers.close()
    assert len(warnings) == 1
    assert warnings[0].startswith("logger `stuck` could not be closed: it did not end in time; ")
    stuck.gate.set()


@pytest.mark.parametrize("raises", ["start", "log", "finish"])
@pytest.mark.parametrize("error", [ConnectionError("gone"), SystemExit(3), MemoryError(), KeyboardInterrupt()])
def test_loggers_survive_whatever_one_raises(raises: str, error: BaseException) -> None:
    bad, good, warnings = Tracker(raises=raises, error=error), Tracker(), []
    loggers = Loggers({"bad": bad, "good": good}, warnings.append)
    loggers.log(0, {})
    loggers.finish({})
    assert bad.closed.wait(WAIT)
    loggers.log(1, {})
    loggers.close()
    assert [step for step, _ in good.rows] == [0, 1]
    assert len(warnings) == 1
    assert warnings[0].startswith("logger `bad` failed: ")


def test_loggers_warn_in_the_thread_of_the_run(tracker: Tracker) -> None:
    threads = []
    bad = Tracker(raises="log")
    loggers = Loggers({"bad": bad}, lambda _: threads.append(threading.current_thread()))
    loggers.log(0, {})
    assert bad.closed.wait(WAIT)
    loggers.log(1, {})
    assert threads == [threading.current_thread()]


def test_loggers_name_the_command_that_sends_what_is_missing() -> None:
    bad, warnings = Tracker(raises="start"), []
    loggers = Loggers({"wandb": bad, "mine": Tracker(raises="start")}, warnings.append, sync="sync R --logger NAME")
    loggers.log(0, {})
    loggers.close()
    assert "; later, `sync R --logger wandb` sends what is missing" in warnings[0]
    assert "later" not in warnings[1]


def directory_with(folder: Path, *steps: int) -> Any:
    for step in steps:
        append_json(folder / "metrics.jsonl", {"step": step, "x": float(step)})
    return SimpleNamespace(directory=folder)


def test_mirrored_notes_how_far_it_is_and_goes_on_from_there(tmp_path: Path, tracker: Tracker) -> None:
    run = directory_with(tmp_path, 1, 2, 3)
    first = Tracker(raises="finish")
    for made, rows in ((first, (3, 4)), (tracker, (6,))):
        mirror = mirrored(run, "toy", made)
        for step in rows:
            mirror.log(step, {"x": float(step)})
        mirror.end()
        mirror.wait(time.monotonic() + WAIT)
        directory_with(tmp_path, 4, 5)
    assert [step for step, _ in first.rows] == [1, 2, 3, 4]
    assert [step for step, _ in tracker.rows] == [5, 6]
    assert json.loads((tmp_path / "loggers" / "toy.json").read_text()) == {"step": 6, "closed": True}


def test_progress_starts_anew_where_its_file_is_damaged(tmp_path: Path) -> None:
    progress = Progress(tmp_path, "toy")
    assert progress.step == -1
    progress.advance(7)
    assert Progress(tmp_path, "toy").step == 7
    (tmp_path / "loggers" / "toy.json").write_text("[")
    assert Progress(tmp_path, "toy").step == -1


def test_progress_does_without_a_place_to_write(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "nowhere", "toy")
    progress.advance(3)
    assert progress.step == 3


def test_rows_of_leaves_out_what_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "x": null}\n{"x": 2}\n[1\n{"step": 3, "x": 0.5}\n{"step": 4')
    rows, damaged = rows_of(tmp_path)
    assert [step for step, _ in rows] == [1, 3]
    assert str(rows[0][1]) == "{'x': nan}"
    assert damaged == 2


@pytest.mark.parametrize("ends", ["fails", "hangs"])
def test_what_a_session_could_not_send_counts_as_not_sent(tmp_path: Path, ends: str) -> None:
    Progress(tmp_path, "toy").advance(4)
    tracker = Tracker(raises="close") if ends == "fails" else Tracker(blocks="close")
    mirror = mirrored(SimpleNamespace(directory=tmp_path), "toy", tracker)
    mirror.log(5, {"x": 1.0})
    mirror.end()
    assert tracker.closed.wait(WAIT)
    with pytest.raises((ConnectionError, RunError), match=r"no network|; 0 entries that waited"):
        mirror.wait(time.monotonic() + (WAIT if ends == "fails" else 0.0))
    tracker.gate.set()
    mirror._thread.join(WAIT)
    after = Progress(tmp_path, "toy")
    assert (after.step, after.is_closed) == (4, False)


def test_a_session_that_ended_well_is_closed_until_the_next_begins(tmp_path: Path, tracker: Tracker) -> None:
    mirror = mirrored(SimpleNamespace(directory=tmp_path), "toy", tracker)
    mirror.log(5, {"x": 1.0})
    mirror.end()
    mirror.wait(time.monotonic() + WAIT)
    progress = Progress(tmp_path, "toy")
    assert (progress.step, progress.is_closed) == (5, True)
    progress.open()
    assert not Progress(tmp_path, "toy").is_closed


@pytest.mark.parametrize("raises", ["", "log", "close"])
def test_sync_keeps_what_was_sent_and_sends_the_rest_with_the_result(tmp_path: Path, raises: str) -> None:
    tracker, progress = Tracker(raises=raises), Progress(tmp_path, "toy")
    with pytest.raises(RunError, match="no network") if raises else nullcontext():
        sync._send(tracker, "toy", [(1, {"x": 1.0})], progress, {"score": 1.0})
    after = Progress(tmp_path, "toy")
    assert (after.step, after.is_closed) == ((-1, False) if raises else (1, True))
    assert tracker.calls[-1] == "close"
