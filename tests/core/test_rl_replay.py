from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core.rl.replay import Replay, draw, importance, normalize, probabilities

ADVANTAGES = torch.tensor([[0.5, -0.5, 0.0], [1, 1, 0], [0, 0.1, 0], [2, -1, 0]], dtype=torch.float64).t()


def test_probabilities_match_test_3_and_sum_to_one() -> None:
    found = probabilities(ADVANTAGES, 0.8)
    assert found.tolist() == pytest.approx((0.1884015, 0.3280259, 0.0298598, 0.4537128), abs=5e-8)
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        (0.2, (1.0582082, 0.947123, 1.5295746, 0.8876296)),
        (0.52, (1.1584704, 0.8682736, 3.0191435, 0.7335043)),
        (1.0, (1.3269535, 0.762135, 8.3724658, 0.5510093)),
        (0.0, (1.0, 1.0, 1.0, 1.0)),
    ],
)
def test_importance_matches_test_3(beta: float, expected: tuple[float, ...]) -> None:
    found = importance(probabilities(ADVANTAGES, 0.8), torch.arange(4), beta)
    assert found.tolist() == pytest.approx(expected, abs=2e-5)


def test_draw_inverts_the_distribution_function() -> None:
    rows = draw(probabilities(ADVANTAGES, 0.8), torch.tensor([0.1, 0.5, 0.9, 0.05, 0.0, 1 - 2**-24]))
    assert rows.tolist() == [0, 1, 3, 0, 0, 3]


def test_a03_zero_advantages_are_drawn_uniformly() -> None:
    probability = probabilities(torch.zeros(3, 4), 0.8)
    assert probability.tolist() == [0.25] * 4
    assert draw(probability, torch.tensor([0.1, 0.3, 0.6, 0.9])).tolist() == [0, 1, 2, 3]


def test_alpha_zero_draws_uniformly_and_non_finite_rows_count_as_zero() -> None:
    assert probabilities(ADVANTAGES, 0.0).tolist() == [0.25] * 4
    broken = ADVANTAGES.clone()
    broken[0, 3] = float("nan")
    assert float(probabilities(broken, 0.8)[3]) < 1e-5


def test_normalize_matches_test_3() -> None:
    rows = ADVANTAGES[:, [3, 1]]
    normal = normalize(rows, None)
    assert normal.t().flatten().tolist() == pytest.approx(
        (1.4301939, -1.4301939, -0.4767313, 0.4767313, 0.4767313, -0.4767313), abs=5e-8
    )
    weights = importance(probabilities(ADVANTAGES, 0.8), torch.tensor([3, 1]), 0.2)
    assert (normal * weights).t().flatten().tolist() == pytest.approx(
        (1.2694824, -1.2694824, -0.4231608, 0.4515232, 0.4515232, -0.4515232), abs=1e-6
    )


def test_normalize_of_test_h_has_its_mean_and_deviation() -> None:
    rows = torch.tensor([[-0.003, -1.65, 2.4124, 2.42], [0.30344512, 0.740896, -0.4432, -0.1225]], dtype=torch.float64)
    assert torch.allclose(normalize(rows, None), (rows - 0.45725514) / 1.3927549, atol=1e-6)


@pytest.mark.parametrize(
    "advantages", [torch.tensor([[3.7]]), torch.full((64, 8), 0.1), torch.full((64, 8), 1e8), torch.zeros(4, 2)]
)
def test_t08_normalize_of_one_or_equal_advantages_is_zero(advantages: torch.Tensor) -> None:
    assert torch.equal(normalize(advantages, None), torch.zeros_like(advantages))
    assert torch.equal(normalize(advantages, torch.ones_like(advantages, dtype=torch.bool)), advantages * 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_normalize_over_live_steps_equals_normalising_only_them(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    live = torch.rand(6, 5, generator=generator) > 0.4
    advantages = torch.where(live, torch.randn(6, 5, generator=generator, dtype=torch.float64), 0.0)
    found = normalize(advantages, live)
    assert torch.equal(found[~live], torch.zeros(int((~live).sum()), dtype=torch.float64))
    assert torch.allclose(found[live], normalize(advantages[live], None), atol=1e-12)


def test_replay_without_priority_visits_every_row_once_per_pass() -> None:
    replay = Replay(3, prio=False, alpha=0.8, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        replay.begin_epoch()
        drawn = [replay.next_rows(torch.zeros(2, 6), 0.5) for _ in range(4)]
        assert all(weights is None for _, weights in drawn)
        rows = torch.cat([rows for rows, _ in drawn]).tolist()
        assert sorted(rows[:6]) == sorted(rows[6:]) == list(range(6))


def test_replay_with_priority_follows_the_generator_and_the_priorities() -> None:
    advantages = torch.zeros(4, 50)
    advantages[:, 7] = 5.0
    first, second = (Replay(64, prio=True, alpha=1.0, generator=torch.Generator().manual_seed(4)) for _ in range(2))
    rows, weights = first.next_rows(advantages, 1.0)
    assert torch.equal(rows, second.next_rows(advantages, 1.0)[0])
    assert set(rows.tolist()) == {7}
    assert weights is not None
    assert float(weights[0]) == pytest.approx(1 / 50, rel=1e-4)
