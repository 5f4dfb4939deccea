from __future__ import annotations

import math

import pytest

from puffer_core.training.meter import Meter, ScoreWindow


def test_meter_weights_the_environment_by_episodes_and_sums_times() -> None:
    meter = Meter(0, 0.0)
    meter.add(
        {"step": 10, "epoch": 1, "env/score": 1.0, "env/n": 3.0, "loss/policy": 2.0, "perf/env": 0.5, "train/lr": 1}
    )
    meter.add(
        {"step": 20, "epoch": 2, "env/score": 5.0, "env/n": 1.0, "loss/policy": 4.0, "perf/env": 0.25, "train/lr": 9}
    )
    row = meter.take(20, 2.0)
    assert row == {
        "step": 20,
        "epoch": 2,
        "seconds": 2.0,
        "steps_per_second": 10.0,
        "score": 2.0,
        "env/score": 2.0,
        "env/n": 4.0,
        "loss/policy": 3.0,
        "perf/env": 0.75,
        "train/lr": 9,
    }


def test_meter_begins_anew_after_a_row() -> None:
    meter = Meter(0, 0.0)
    meter.add({"epoch": 1, "env/score": 1.0, "env/n": 1.0})
    meter.take(10, 1.0)
    assert meter.is_empty
    meter.add({"epoch": 2})
    assert meter.take(40, 3.0) == {"step": 40, "epoch": 2, "seconds": 3.0, "steps_per_second": 15.0}


def test_meter_leaves_out_what_is_not_defined() -> None:
    meter = Meter(0, 0.0)
    meter.add({"loss/explained_variance": math.nan, "loss/policy": 1.0})
    meter.add({"loss/explained_variance": 0.5, "loss/policy": 3.0})
    row = meter.take(1, 1.0)
    assert row["loss/explained_variance"] == 0.5
    assert row["loss/policy"] == 2.0


def test_meter_replaces_time_speed_and_score_of_single_rollouts() -> None:
    meter = Meter(100, 5.0)
    for step, score in ((10, 1.0), (20, 3.0)):
        meter.add(
            {"step": step, "seconds": 0.1, "steps_per_second": 9.0, "score": score, "env/score": score, "env/n": 1.0}
        )
    row = meter.take(120, 7.0)
    assert (row["step"], row["seconds"], row["steps_per_second"], row["score"]) == (120, 7.0, 10.0, 2.0)
    meter.add({"epoch": 3, "score": 4.0})
    assert "score" not in meter.take(140, 8.0)


def test_score_window_waits_for_a_hundred_episodes() -> None:
    window = ScoreWindow()
    window.add({"env/score": 10.0, "env/n": 99.0})
    assert window.mean is None
    window.add({"env/score": 20.0, "env/n": 1.0})
    assert window.mean == pytest.approx(10.1)


def test_score_window_forgets_whole_rollouts_that_are_no_longer_needed() -> None:
    window = ScoreWindow()
    for score in (0.0, 50.0, 100.0):
        window.add({"env/score": score, "env/n": 60.0})
    assert window.mean == pytest.approx(75.0)
    window.add({})
    assert window.mean == pytest.approx(75.0)
