"""A curriculum: memory's delay grows with success; its state has room for the longest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from puffer_core.native import table_params
from puffer_core.runs import RunDirectory
from puffer_core.training import train
from puffer_ocean import _native

TOP = 6


class Longer:
    """Makes the delay two steps longer whenever nine of ten episodes end well; the run ends when `TOP` is mastered."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    def puffer_epoch_finished(self, run: Any, metrics: Mapping[str, float]) -> None:
        delay = run.env.values.get("delay", run.config.env["delay"])
        self.lengths.append(metrics.get("env/episode_length", 0.0))
        if metrics.get("env/perf", 0.0) < 0.9:
            return
        if delay < TOP:
            run.env.set(delay=delay + 2)
        else:
            run.stop(f"{TOP} steps are mastered")


def test_only_the_delay_of_memory_may_change() -> None:
    assert [param.name for param in table_params(_native.memory) if param.live] == ["delay"]


def test_the_delay_grows_with_success_and_a_resumed_run_has_it(tmp_path: Path) -> None:
    options = {"env.delay": "2", "seed": "1", "train.device": "cpu", "vec.num_threads": "1", "runs_dir": str(tmp_path)}
    first, second = Longer(), Longer()
    half = train("memory", options=options, observers=[first], stop_at=130_000)
    run = RunDirectory.open(half["run_dir"])
    rest = train("memory", resume=half["run_dir"], observers=[second])
    assert rest["steps"] < 600_000  # of a million: it was stopped by the observer
    assert "steps are mastered" in (run.path / "events.jsonl").read_text()
    lengths = first.lengths + second.lengths
    assert min(lengths) == 4  # 2 seq_len + delay
    assert max(lengths) == 2 + TOP
