from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core.errors import ShapeError
from puffer_core.rl.advantage import compute_advantages
from puffer_core.rl.replay import normalize

NAN = float("nan")


def column(values: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)[:, None]


def one_row(values: Any, rewards: Any, terminals: Any = None, **options: Any) -> list[float]:
    size = len(values)
    flags = {name: column(options.pop(name), torch.bool) for name in ("truncations", "alive") if name in options}
    numbers = {name: column(options.pop(name)) for name in ("final_values", "ratio") if name in options}
    ends = column([0] * size if terminals is None else terminals, torch.bool)
    return compute_advantages(column(values), column(rewards), ends, **flags, **numbers, **options)[:, 0].tolist()


TEST_2 = {"values": (0.5, 0.4, 0.3, 0.2, 0.1), "rewards": (9, 1, 0, -1, 0.5), "gamma": 0.9, "gae_lambda": 0.8}
END = (0, 0, 0, 1, 0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"terminals": END}, (0.09248, -1.066, -1.3, 0.39)),
        ({"terminals": END, "ratio": (0.5, 2, 1.5, 0.8)}, (0.04624, -1.066, -1.3, 0.312)),
        ({"terminals": END, "ratio": (0.5, 2, 1.5, 0.8), "rho_clip": 1.2}, (-0.030512, -1.2792, -1.56, 0.312)),
        (
            {"terminals": END, "ratio": (0.5, 2, 1.5, 0.8), "rho_clip": 2, "c_clip": 2},
            (-0.67448, -3.068, -1.95, 0.312),
        ),
        ({}, (0.3313587, -0.734224, -0.8392, 0.39)),
        ({"gamma": 1, "gae_lambda": 1}, (0.1, -0.8, -0.7, 0.4)),
        (
            {"truncations": END, "final_values": (NAN, NAN, NAN, 0.7, NAN)},
            (0.419072, -0.6124, -0.67, 0.39),
        ),
    ],
)
def test_advantages_match_test_2(options: dict[str, Any], expected: tuple[float, ...]) -> None:
    assert one_row(**{**TEST_2, **options}) == pytest.approx(expected, abs=1e-7)


def test_a01_advantages_put_rho_outside_the_bracket() -> None:
    scalar_kernel_form = (-0.02376, -1.066, -1.3, 0.29)
    assert one_row(**TEST_2, terminals=END, ratio=(0.5, 2, 1.5, 0.8)) != pytest.approx(scalar_kernel_form, abs=1e-3)


P = {"values": (0.4, 0.65, 0.1, 0.3, 0.8), "rewards": (7, 1, -1, 0.5, 2), "terminals": (0, 0, 1, 0, 0)}
Q = {
    "values": (0.5, 0.3, 0.4, 0.05, 0.7),
    "rewards": (7, 0, 1, 0, -0.5),
    "terminals": (1, 0, 0, 0, 0),
    "truncations": (0, 0, 0, 0, 1),
    "final_values": (NAN, NAN, NAN, NAN, 0.475),
}
RATIO = (0.5, 2, 1.5, 0.8)


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        (P, {"gae_lambda": 0.8}, (-0.003, -1.65, 2.4124, 2.42)),
        (Q, {"gae_lambda": 0.8}, (0.30344512, 0.740896, -0.4432, -0.1225)),
        (P, {"gae_lambda": 1}, (-0.3, -1.65, 2.848, 2.42)),
        (Q, {"gae_lambda": 1}, (0.3471475, 0.641275, -0.46525, -0.1225)),
        (P, {"gae_lambda": 0.8, "ratio": RATIO}, (-0.0015, -1.65, 2.06392, 1.936)),
        (Q, {"gae_lambda": 0.8, "ratio": RATIO}, (0.156294848, 0.7535968, -0.42556, -0.098)),
        (P, {"gae_lambda": 0.8, "ratio": RATIO, "rho_clip": 2, "c_clip": 1.2}, (-0.5955, -3.3, 2.677704, 1.936)),
        (
            Q,
            {"gae_lambda": 0.8, "ratio": RATIO, "rho_clip": 2, "c_clip": 1.2},
            (0.4562348211, 1.586763392, -0.617172, -0.098),
        ),
    ],
)
def test_advantages_match_test_h(row: dict[str, Any], options: dict[str, Any], expected: tuple[float, ...]) -> None:
    assert one_row(**row, gamma=0.9, **options) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("row", "gae_lambda", "expected"),
    [
        (P, 0.8, (0.397, -1, 2.5124, 2.72)),
        (Q, 0.8, (0.80344512, 1.040896, -0.0432, -0.0725)),
        (P, 1, (0.1, -1, 2.948, 2.72)),
        (Q, 1, (0.8471475, 0.941275, -0.06525, -0.0725)),
    ],
)
def test_returns_match_test_h(row: dict[str, Any], gae_lambda: float, expected: tuple[float, ...]) -> None:
    found = one_row(**row, gamma=0.9, gae_lambda=gae_lambda)
    returns = [a + v for a, v in zip(found, row["values"], strict=False)]
    assert returns == pytest.approx(expected, abs=1e-9)


def test_priorities_and_normalisation_match_test_h() -> None:
    both = torch.tensor([one_row(**row, gamma=0.9, gae_lambda=0.8) for row in (P, Q)], dtype=torch.float64).t()
    assert both.abs().sum(0).tolist() == pytest.approx((6.4854, 1.61004112), abs=1e-9)
    assert (float(both.mean()), float(both.std())) == pytest.approx((0.45725514, 1.3927549), abs=1e-7)
    assert torch.allclose(normalize(both, None), (both - 0.45725514) / 1.3927549, atol=1e-6)


def test_advantages_read_the_last_column() -> None:
    lost = (-0.003, -1.65, 0.67, 0)
    assert one_row(**P, gamma=0.9, gae_lambda=0.8) != pytest.approx(lost)
    shorter = {name: column[:-1] for name, column in P.items()}
    assert one_row(**shorter, gamma=0.9, gae_lambda=0.8) == pytest.approx(lost[:-1])


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"truncations": (0,) * 5}, (0.37902784, 0.845872, -0.2974, 0.08)),
        ({"truncations": (0,) * 5, "terminals": (1, 0, 0, 0, 1)}, (0.1438816, 0.51928, -0.751, -0.55)),
        ({"final_values": (0, 0, 0, 0, 0.5)}, (0.3118432, 0.75256, -0.427, -0.1)),
    ],
)
def test_advantages_of_known_mistakes_differ_from_ours(change: dict[str, Any], wrong: tuple[float, ...]) -> None:
    mistaken = one_row(**{**Q, **change}, gamma=0.9, gae_lambda=0.8)
    assert mistaken == pytest.approx(wrong, abs=1e-7)
    assert mistaken != pytest.approx(one_row(**Q, gamma=0.9, gae_lambda=0.8), abs=1e-3)


def test_advantages_of_a_dead_agent_are_zero_and_its_values_unread() -> None:
    result = one_row((0.5, 0.4, NAN, NAN, 0.1), (0, 1, -1, 0.5, 2), alive=(1, 1, 0, 0, 1), gamma=0.9, gae_lambda=0.8)
    assert result == pytest.approx((-0.148, -1.4, 0, 0))


def test_t01_advantages_bootstrap_a_time_limit_from_its_own_last_observation() -> None:
    row = one_row(
        (1, 1, 100, 100, 100),
        (0,) * 5,
        truncations=(0, 0, 1, 0, 0),
        final_values=(0, 0, 1, 0, 0),
        gamma=1,
        gae_lambda=1,
    )
    assert row == pytest.approx((0, 0, 0, 0))


def test_t03_advantages_stop_at_the_step_that_ended() -> None:
    row = one_row((5, 5, 100, 100), (1,) * 4, (0, 0, 1, 0), gamma=0.9, gae_lambda=0.8)
    assert row == pytest.approx((-2.38, -4, -9))


def test_t04_advantages_with_lambda_one_are_return_minus_value() -> None:
    row = one_row((0.5, 0.25, 0.125, 4), (0, 1, 2, 3), gamma=0.9, gae_lambda=1)
    assert row == pytest.approx((7.646, 7.69, 6.475))


def test_advantages_of_one_step_learn_one_step_targets() -> None:
    assert one_row((0.5, 2.0), (NAN, 1.0), gamma=0.9, gae_lambda=0.8) == pytest.approx((1 + 0.9 * 2 - 0.5,))


def test_terminal_wins_over_a_truncation_that_comes_with_it() -> None:
    ends = (0, 1)
    row = one_row((0.5, 2.0), (0, 1), ends, truncations=ends, final_values=(0, 9), gamma=0.9, gae_lambda=0.8)
    assert row == pytest.approx((0.5,))


def test_advantages_refuse_arrays_of_other_shapes() -> None:
    with pytest.raises(ShapeError, match=r"\(3, 2\)"):
        compute_advantages(torch.zeros(4, 2), torch.zeros(3, 2), torch.zeros(4, 2), gamma=0.9, gae_lambda=0.9)
    with pytest.raises(ShapeError, match="H >= 1"):
        compute_advantages(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2), gamma=0.9, gae_lambda=0.9)


# -- properties on random rollouts, against trajectories computed one by one -------------------------------------------


def random_rollout(seed: int, horizon: int, rows: int = 3) -> dict[str, torch.Tensor]:
    """Random arrays with NaN in every cell that must not be read."""
    rng = np.random.default_rng(seed)
    shape = (horizon + 1, rows)
    kind = rng.integers(0, 6, shape)
    alive = rng.random(shape) > 0.2
    acted = np.vstack([np.ones((1, rows), bool), alive[:-1]])
    terminals, truncations = (kind == 0) & acted, (kind == 1) & acted
    values, rewards, finals = rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape)
    values[~alive] = NAN
    values[-1][terminals[-1] | truncations[-1]] = NAN
    rewards[~acted] = NAN
    rewards[0] = NAN
    finals[~truncations] = NAN
    arrays = {"values": values, "rewards": rewards, "terminals": terminals, "truncations": truncations}
    arrays |= {"final_values": finals, "alive": alive}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def trajectory_return(data: dict[str, torch.Tensor], t: int, row: int, gamma: float, steps: int) -> tuple[float, bool]:
    """The discounted return of up to ``steps`` steps from t, bootstrapped, and whether it reached an end on the way."""
    horizon, total, discount = len(data["values"]) - 1, 0.0, 1.0
    for k in range(t + 1, min(t + steps, horizon) + 1):
        total += discount * float(data["rewards"][k, row])
        discount *= gamma
        if data["terminals"][k, row]:
            return total, True
        if data["truncations"][k, row]:
            return total + discount * float(data["final_values"][k, row]), True
        if not data["alive"][k, row]:
            return total, True
    last = min(t + steps, horizon)
    return total + discount * float(data["values"][last, row]), last == horizon


def lambda_return(data: dict[str, torch.Tensor], t: int, row: int, gamma: float, lam: float) -> float:
    total, weight = 0.0, 1.0
    for steps in range(1, 1000):
        value, is_last = trajectory_return(data, t, row, gamma, steps)
        if is_last:
            return total + weight * value
        total += weight * (1 - lam) * value
        weight *= lam
    raise AssertionError


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_t02_advantages_equal_the_mixture_of_returns_inside_each_trajectory(
    seed: int, horizon: int, lam: float
) -> None:
    data = random_rollout(seed, horizon)
    result = compute_advantages(**data, gamma=0.9, gae_lambda=lam)
    assert bool(result.isfinite().all())
    for t in range(horizon):
        for row in range(3):
            if not data["alive"][t, row]:
                assert result[t, row] == 0
                continue
            expected = lambda_return(data, t, row, 0.9, lam) - float(data["values"][t, row])
            assert float(result[t, row]) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_every_reward_of_a_live_step_enters_exactly_one_delta(seed: int, horizon: int) -> None:
    data = random_rollout(seed, horizon)
    data["rewards"] = data["rewards"].clone().nan_to_num(0.0)
    base = compute_advantages(**data, gamma=0.9, gae_lambda=0.0)
    moved = torch.zeros_like(base)
    for t in range(horizon + 1):
        rewards = data["rewards"].clone()
        rewards[t] += 1.0
        change = compute_advantages(**{**data, "rewards": rewards}, gamma=0.9, gae_lambda=0.0) - base
        moved += change
        assert change.abs().sum() == pytest.approx(0.0 if t == 0 else float(data["alive"][t - 1].sum()))
    assert torch.allclose(moved, data["alive"][:-1].double())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7))
def test_flags_of_column_0_change_nothing(seed: int, horizon: int) -> None:
    data = random_rollout(seed, horizon)
    base = compute_advantages(**data, gamma=0.9, gae_lambda=0.8)
    for name in ("terminals", "truncations"):
        changed = data[name].clone()
        changed[0] = ~changed[0]
        assert torch.equal(compute_advantages(**{**data, name: changed}, gamma=0.9, gae_lambda=0.8), base)


def test_float32_agrees_with_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    values, rewards = (torch.randn(65, 1024, generator=generator, dtype=torch.float64) for _ in range(2))
    ends = torch.rand(65, 1024, generator=generator) < 0.02
    exact = compute_advantages(values, rewards, ends, gamma=0.99, gae_lambda=0.95)
    rounded = compute_advantages(values.float(), rewards.float(), ends, gamma=0.99, gae_lambda=0.95)
    assert float((exact - rounded).abs().max()) < 1e-5
