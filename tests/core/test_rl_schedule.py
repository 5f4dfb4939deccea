from __future__ import annotations

import pytest

from puffer_core.config.schema import TrainConfig
from puffer_core.rl.schedule import cosine, prio_beta, rates_at
from puffer_core.rl.streams import STREAMS, derive, generator


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.015), (1, 0.01463292), (5, 0.0075), (9, 0.00036708), (10, 0.0)])
def test_cosine_to_zero_matches_reference(epoch: int, rate: float) -> None:
    assert cosine(0.015, 0.0, epoch, 10) == pytest.approx(rate, abs=5e-9)


@pytest.mark.parametrize(("epoch", "rate"), [(0, 0.001), (5, 0.00055), (9, 0.00012202)])
def test_cosine_to_a_minimum_matches_reference(epoch: int, rate: float) -> None:
    assert cosine(0.001, 0.0001, epoch, 10) == pytest.approx(rate, abs=5e-9)


@pytest.mark.parametrize(("epoch", "total", "rate"), [(-3, 10, 1.0), (25, 10, 0.5), (4, 0, 1.0)])
def test_cosine_clamps_progress_and_stays_at_base_without_a_length(epoch: int, total: int, rate: float) -> None:
    assert cosine(1.0, 0.5, epoch, total) == rate


@pytest.mark.parametrize(("epoch", "beta"), [(0, 0.2), (5, 0.52), (9, 0.776)])
def test_prio_beta_matches_reference(epoch: int, beta: float) -> None:
    assert prio_beta(0.2, 0.8, epoch, 10) == pytest.approx(beta)


def test_rates_follow_the_switches() -> None:
    fixed = rates_at(TrainConfig(anneal_lr=False), 7, 10)
    moving = rates_at(TrainConfig(anneal_ent_coef=True, min_lr_ratio=0.1, min_ent_coef_ratio=0.5), 10, 10)
    assert (fixed.learning_rate, fixed.ent_coef) == (0.015, 0.001)
    assert moving.learning_rate == pytest.approx(0.0015)
    assert moving.ent_coef == pytest.approx(0.0005)


def test_streams_are_distinct_and_fixed() -> None:
    seeds = {derive(seed, stream, index) for seed in range(50) for stream in STREAMS for index in range(4)}
    assert len(seeds) == 50 * len(STREAMS) * 4
    assert generator(3, "actions").initial_seed() == generator(3, "actions").initial_seed() == derive(3, "actions")
