"""Whole runs on worker processes with partial batches: training, resuming, evaluation, and what ends them early."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fakes_env import Fake
from safetensors.numpy import load_file

from puffer_core.errors import WorkerError
from puffer_core.training import run, train

OPTIONS = {
    "train.total_timesteps": "1536",
    "train.device": "cpu",
    "train.horizon": "16",
    "train.minibatch_size": "64",
    "vec.num_envs": "6",
    "vec.num_workers": "3",
    "vec.backend": "multiprocessing",
    "policy.hidden_size": "8",
    "policy.num_layers": "1",
    "policy.normalize_observations": "on",
    "eval_episodes": "20",
}
BATCHES = {
    "ring": {"vec.batch_size": "2"},
    "first ready": {"vec.batch_size": "4", "vec.zero_copy": "off"},
}


class Short(Fake):
    def draw_length(self) -> int:
        return int(self.rng.integers(1, 9))


class Killed(Short):
    """Ends its process at step 40."""

    steps = 0

    def step(self, actions: Any) -> Any:
        self.steps += 1
        if self.steps == 40:
            os._exit(7)
        return super().step(actions)


class Hanging(Short):
    """Never comes back from step 40."""

    steps = 0

    def step(self, actions: Any) -> Any:
        self.steps += 1
        while self.steps == 40:
            time.sleep(0.05)
        return super().step(actions)


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES.keys())
def test_a_run_on_partial_batches_is_trained_resumed_and_evaluated(batches: dict[str, str], tmp_path: Path) -> None:
    options = {**OPTIONS, **batches, "runs_dir": str(tmp_path)}
    first = train(Short, options=options, stop_at=700)
    assert (first["backend"], first["steps"]) == ("multiprocessing", 768)
    result = run(Short, options={"runs_dir": str(tmp_path)}, resume=first["run_dir"])
    assert (result["steps"], result["episodes"]) == (1536, 20)
    assert 1 <= result["score"] <= 8
    assert not psutil.Process().children()


@pytest.mark.parametrize(("kind", "reason"), [(Killed, "exit"), (Hanging, "within 0.5 s")])
def test_a_worker_that_fails_ends_the_run_with_one_error_and_leaves_no_process(
    kind: Any, reason: str, tmp_path: Path
) -> None:
    options = {**OPTIONS, **BATCHES["ring"], "runs_dir": str(tmp_path), "vec.timeout": "0.5"}
    with pytest.raises(WorkerError, match=reason):
        train(kind, options=options)
    assert not psutil.Process().children()
    (written,) = tmp_path.glob("local/*/*/result.json")
    assert '"status": "failed"' in written.read_text("utf-8")


class Kept(Short):
    """As `Short`, and it can be saved."""

    def save(self) -> bytes:
        return json.dumps([self.rng.bit_generator.state, self.time, self.length, self.total]).encode()

    def load(self, blob: bytes) -> None:
        self.rng.bit_generator.state, self.time, self.length, self.total = json.loads(blob)
        self.observe(self.observations)


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES.keys())
def test_environments_in_partial_batches_are_restored(
    batches: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**OPTIONS, **batches, "runs_dir": str(tmp_path)}
    whole = train(Kept, options=options)
    first = train(Kept, options=options, stop_at=700)
    rest = train(Kept, options={"runs_dir": str(tmp_path)}, resume=first["run_dir"])
    assert "not restored" not in capsys.readouterr().err
    assert rest["steps"] == whole["steps"]
    if "vec.zero_copy" not in batches:  # else sums are rounded in the order of who is ready first
        a, b = (load_file(f"{result['checkpoint']}/model.safetensors") for result in (whole, rest))
        assert all(np.array_equal(a[name], b[name]) for name in a)
