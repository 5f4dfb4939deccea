"""TensorBoard, Weights & Biases and Neptune, offline: what arrives there is what is in metrics.jsonl."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from puffer_core.config import load
from puffer_core.errors import PluginError
from puffer_core.loggers import make_loggers
from puffer_core.loggers.tracked import flat_config, flat_result
from puffer_core.loggers.wandb import WandbLogger
from puffer_core.plugins import manager
from puffer_core.runs import RunDirectory

Rows = dict[int, dict[str, float]]
TRACKERS = ("tensorboard", "wandb", "neptune")
TRAIN = (
    "train gym/CartPole-v1 --json --train.total-timesteps 1024 --vec.num-envs 4 --vec.backend serial "
    "--logger tensorboard --logger wandb,neptune --wandb.mode offline --wandb.project mine --wandb.tags a,b "
    "--neptune.mode offline --neptune.tags c --runs-dir runs"
)


def puffer(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own: trackers leave threads in theirs."""
    command = [sys.executable, "-m", "puffer_core", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


class Tracked:
    """A run that all three have mirrored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = puffer(folder, *TRAIN.split())
        assert self.done.returncode == 0, self.done.stderr
        self.run = RunDirectory.open(json.loads(self.done.stdout)["run_dir"])
        self.rows: Rows = {row.pop("step"): _numbers(row) for row in self.run.metrics()}


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {key: math.nan if value is None else float(value) for key, value in row.items()}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    return Tracked(tmp_path_factory.mktemp("tracked"))


def test_trackers_print_nothing_and_leave_one_object_on_stdout(tracked: Tracked) -> None:
    assert len(tracked.done.stdout.splitlines()) == 1
    assert "warning" not in tracked.done.stderr
    for word in ("wandb", "neptune"):
        assert word not in tracked.done.stderr


@pytest.mark.parametrize("name", TRACKERS)
def test_trackers_note_how_far_they_are(tracked: Tracked, name: str) -> None:
    noted = json.loads((tracked.run.path / "loggers" / f"{name}.json").read_text())
    assert noted == {"step": max(tracked.rows), "closed": True}


def tensorboard_rows(folder: Path) -> Rows:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    rows: Rows = {}
    for file in folder.glob("events.*"):
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    rows.setdefault(event.step, {})[value.tag] = value.simple_value
    return rows


def wandb_records(folder: Path) -> Iterator[Any]:
    """Read a log in the format of LevelDB: blocks of 32 KiB, records with a checksum, a length and a type before."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    data, at, parts = file.read_bytes(), 7, b""
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def wandb_rows(records: list[Any]) -> Rows:
    rows: Rows = {}
    for record in records:
        if record.HasField("history"):
            items = {
                (item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item
            }
            step = int(items.pop("_step"))
            rows[step] = {key: float(value) for key, value in items.items() if not key.startswith("_")}
    return rows


def neptune_operations(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.glob(".neptune/offline/*/data-1.log")
    decoder, text, found, at = json.JSONDecoder(), file.read_text(), [], 0
    while at < len(text.rstrip()):
        entry, at = decoder.raw_decode(text, at)
        at += len(text[at:]) - len(text[at:].lstrip())
        found.append(entry["obj"])
    return found


def neptune_rows(operations: list[dict[str, Any]]) -> Rows:
    rows: Rows = {}
    for operation in operations:
        if operation["type"] == "LogFloats":
            for value in operation["values"]:
                rows.setdefault(int(value["step"]), {})["/".join(operation["path"][1:])] = value["value"]
    return rows


def assert_rows(found: Rows, wanted: Rows, *, dtype: type[Any] = np.float64) -> None:
    assert found.keys() == wanted.keys()
    for step, row in wanted.items():
        assert found[step].keys() == row.keys()
        for key, value in row.items():
            np.testing.assert_equal(dtype(found[step][key]), dtype(value), err_msg=f"{step} {key}")


def test_tensorboard_has_every_value(tracked: Tracked) -> None:
    assert_rows(tensorboard_rows(tracked.run.path / "tensorboard"), tracked.rows, dtype=np.float32)


def test_wandb_has_every_value_the_configuration_and_the_result(tracked: Tracked) -> None:
    records = list(wandb_records(tracked.run.path / "loggers"))
    assert_rows(wandb_rows(records), tracked.rows)
    first = next(record.run for record in records if record.HasField("run"))
    assert (first.run_id, first.project, list(first.tags)) == (tracked.run.id, "mine", ["a", "b"])
    config = {item.key: json.loads(item.value_json) for item in first.config.update}
    assert flat_config(tracked.run.config).items() <= config.items()
    summary = {}
    for record in records:
        if record.HasField("summary"):
            summary |= {item.key: item.value_json for item in record.summary.update}
    assert json.loads(summary["result/steps"]) == 1024


def test_neptune_has_every_value_the_configuration_and_the_result(tracked: Tracked) -> None:
    operations = neptune_operations(tracked.folder)
    finite = {
        step: {key: value for key, value in row.items() if math.isfinite(value)} for step, row in tracked.rows.items()
    }
    assert_rows(neptune_rows(operations), finite)
    values = {"/".join(operation["path"]): operation.get("value") for operation in operations}
    assert values["sys/name"] == tracked.run.id
    assert values["config/train/gamma"] == tracked.run.config.train.gamma
    assert values["result/steps"] == 1024


def test_sync_finds_nothing_missing_after_a_mirrored_run(tracked: Tracked) -> None:
    done = puffer(tracked.folder, "runs", "sync", str(tracked.run.path), "--logger", "wandb", "--json")
    assert json.loads(done.stdout) == {"run": tracked.run.id, "logger": "wandb", "rows": 0}


def test_sync_sends_a_whole_run_again_elsewhere(tracked: Tracked, tmp_path: Path) -> None:
    place = ["--again", "--tensorboard.directory", str(tmp_path)]
    done = puffer(tracked.folder, "runs", "sync", str(tracked.run.path), "--logger", "tensorboard", "--json", *place)
    assert json.loads(done.stdout)["rows"] == len(tracked.rows), done.stderr
    assert_rows(tensorboard_rows(tmp_path / tracked.run.id), tracked.rows, dtype=np.float32)


@pytest.mark.parametrize("name", TRACKERS)
def test_trackers_name_the_extra_before_training_starts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    run = SimpleNamespace(directory=tmp_path, config=load(None, options={"logger": name}))
    with pytest.raises(PluginError, match=f"logger `{name}` needs the package {name}") as caught:
        make_loggers(run, print)
    assert caught.value.hint == f"pip install 'puffer-core[{name}]'"


@pytest.mark.parametrize("name", TRACKERS)
def test_trackers_have_options(name: str) -> None:
    assert manager().loggers.get(name).options is not None
    assert load(None, options={"logger": name}).options_of(name) is not None


def test_wandb_ends_its_own_process_only_where_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    services = [SimpleNamespace(pid=pid, kill=lambda pid=pid: killed.append(pid)) for pid in (1, 2)]
    package = SimpleNamespace(teardown=lambda: killed.append(0))
    logger = WandbLogger(SimpleNamespace(directory=tmp_path, config=load(None)))
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.setattr("puffer_core.loggers.wandb._services", lambda: services)
    logger._others = {1, 2}
    logger.abandon()
    assert killed == []
    logger._others = {1}
    logger.abandon()
    assert killed == [2, 0]


@pytest.mark.slow
def test_wandb_that_can_not_be_reached_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    words = TRAIN.replace("wandb,neptune", "wandb").replace("offline", "online", 1).split()
    start = time.monotonic()
    done = puffer(tmp_path, *words)
    assert done.returncode == 0
    assert json.loads(done.stdout)["steps"] == 1024
    assert done.stderr.count("warning: logger `wandb` ") == 1
    assert "Traceback" not in done.stderr
    assert time.monotonic() - start < 80, "wandb itself gives up after 90 s"


def test_flat_result_leaves_out_what_is_not_known() -> None:
    assert flat_result({"score": None, "steps": 3, "at": Path("x")}) == {"result/steps": 3, "result/at": "x"}


def test_flat_config_has_numbers_and_texts_that_every_tracker_takes() -> None:
    found = flat_config(load(None, options={"logger": "wandb,tensorboard", "wandb.tags": "a,b"}))
    assert found["wandb.tags"] == "a, b"
    for value in found.values():
        assert isinstance(value, str | int) or math.isfinite(value)
