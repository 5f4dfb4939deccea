"""Cases that users of this kind of software meet, by their id, where no test of one module covers the whole of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from fakes_single import Count

from puffer_core.config import load
from puffer_core.errors import OptionError
from puffer_core.rl.advantage import compute_advantages
from puffer_core.runs import RunDirectory
from puffer_core.specs import EnvSpec
from puffer_core.training import train
from puffer_core.vector import Multiprocessing, Serial
from puffer_core.vector import make as make_vector

MATCH = EnvSpec("fake/match", make="fakes_env:Match")


def column(values: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)[:, None]


def advantages(values: Any, rewards: Any, gamma: float, gae_lambda: float, **flags: Any) -> list[float]:
    ends = {name: column(flags.get(name, [0] * len(values)), torch.bool) for name in ("terminals", "truncations")}
    final = column(flags.get("final_values", [0.0] * len(values)))
    found = compute_advantages(
        column(values), column(rewards), **ends, final_values=final, gamma=gamma, gae_lambda=gae_lambda
    )
    return found[:, 0].tolist()


def test_t01_a_time_limit_is_no_death() -> None:
    row = advantages((1, 1, 100, 100, 100), (0,) * 5, 1, 1, truncations=(0, 0, 1, 0, 0), final_values=(0, 0, 1, 0, 0))
    assert row == [0, 0, 0, 0]


@pytest.mark.parametrize("how", ["terminals", "truncations"])
@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_t02_a02_advantages_across_an_end_are_those_of_both_episodes_apart(cut: int, how: str) -> None:
    rng = np.random.default_rng(cut)
    values, rewards, last = rng.normal(size=7), rng.normal(size=7), rng.normal()
    flags = [int(t == cut) for t in range(7)]
    together = advantages(values, rewards, 0.9, 0.8, **{how: flags}, final_values=[last * flag for flag in flags])
    bootstrap = last if how == "truncations" else 0.0
    first = advantages([*values[:cut], bootstrap], rewards[: cut + 1], 0.9, 0.8)
    second = advantages(values[cut:], rewards[cut:], 0.9, 0.8)
    assert together == pytest.approx([*first, *second], abs=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3, 17])
def test_t04_with_lambda_one_every_window_gives_return_minus_value(length: int) -> None:
    rng = np.random.default_rng(length)
    values, rewards = rng.normal(size=length + 1), rng.normal(size=length + 1)
    returns = [
        sum(0.9 ** (k - t) * rewards[k + 1] for k in range(t, length)) + 0.9 ** (length - t) * values[length]
        for t in range(length)
    ]
    assert advantages(values, rewards, 0.9, 1) == pytest.approx(np.array(returns) - values[:length], abs=1e-12)


@pytest.mark.parametrize(
    ("backend", "options"), [(Serial, {}), (Multiprocessing, {"num_workers": 2})], ids=["serial", "multiprocessing"]
)
@pytest.mark.parametrize("how", ["terminate", "truncate"])
def test_t03_reward_and_end_of_an_action_come_with_the_next_observation(backend: Any, options: Any, how: str) -> None:
    with make_vector(Count, num_envs=2, backend=backend, env_kwargs={"limit": 3, "how": how}, **options) as envs:
        envs.async_reset(seed=0)
        for t in range(10):
            observations, rewards, terminals, truncations = envs.recv()[:4]
            ended = t > 0 and t % 3 == 0
            assert observations[:, 1].tolist() == [t % 3] * 2
            assert rewards.tolist() == [float(t > 0)] * 2
            assert terminals.tolist() == [ended and how == "terminate"] * 2
            assert truncations.tolist() == [ended and how == "truncate"] * 2
            envs.send(np.zeros(2, np.int32))


def start(seed: int, backend: Any, **options: Any) -> np.ndarray:
    """Return 60 steps of observations, (60, 4, 4) float32."""
    rng = np.random.default_rng(0)
    rows = []
    with make_vector(lambda: gymnasium.make("CartPole-v1"), num_envs=4, backend=backend, **options) as envs:
        envs.async_reset(seed=seed)
        for _ in range(60):
            rows.append(envs.recv()[0].copy())
            envs.send(rng.integers(0, 2, 4).astype(np.int32))
    return np.stack(rows)


def test_d02_the_seed_of_a_reset_is_obeyed_by_every_backend() -> None:
    rows = start(1, Serial)
    assert np.array_equal(rows, start(1, Serial))
    assert np.array_equal(rows, start(1, Multiprocessing, num_workers=2))
    assert not np.array_equal(rows, start(2, Serial))
    assert len(np.unique(rows[0], axis=0)) == 4


def test_a09_the_seed_of_make_is_that_of_the_first_reset() -> None:
    def begin(seed: int) -> np.ndarray:
        with make_vector(lambda: gymnasium.make("CartPole-v1"), num_envs=2, backend=Serial, seed=seed) as envs:
            envs.async_reset()
            return envs.recv()[0].copy()

    assert np.array_equal(begin(3), begin(3))
    assert not np.array_equal(begin(3), begin(30))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a08_environments_of_all_workers_begin_differently(workers: int) -> None:
    first = start(7, Multiprocessing, num_workers=workers)[0]
    assert len(np.unique(first, axis=0)) == 4


@pytest.mark.parametrize("text", ["False", "false", "0", "no", "off", "FALSE"])
def test_a18_no_spelling_of_false_is_true(text: str) -> None:
    assert load(None, options=[f"--train.anneal-lr={text}"]).train.anneal_lr is False


@pytest.mark.parametrize("option", ["--train.gama", "--train.", "--train.total", "--trian.gamma", "--gama"])
def test_c01_no_misspelt_option_is_ignored(option: str) -> None:
    with pytest.raises(OptionError, match="option"):
        load(None, options=[option, "1"])


@pytest.mark.parametrize("text", ["3e-4", ".0003", "3.0E-4", "0.0003"])
def test_c03_floats_are_read_in_every_notation(text: str) -> None:
    assert load(None, options=["--train.learning-rate", text]).train.learning_rate == 0.0003


def small(tmp_path: Path, **changes: str) -> dict[str, str]:
    options = {
        "train.total_timesteps": "512", "train.device": "cpu", "train.horizon": "16", "train.minibatch_size": "64",
        "vec.num_envs": "4", "policy.hidden_size": "8", "policy.num_layers": "1", "runs_dir": str(tmp_path),
    }  # fmt: skip
    return options | {key.replace("__", "."): text for key, text in changes.items()}


def test_l01_a_run_without_a_tracker_writes_its_own_log(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path))
    assert RunDirectory.open(result["run_dir"]).metrics()[-1]["step"] == 512


@pytest.mark.parametrize(
    "changes",
    [
        {"train__minibatch_size": "128"},
        {"train__minibatch_size": "8"},
        {"train__replay_ratio": "0.01"},
        {"train__total_timesteps": "63"},
    ],
)
def test_t12_a22_a_run_that_would_learn_nothing_is_refused(changes: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\d"):
        train(MATCH, options=small(tmp_path, **changes))
    assert list(tmp_path.iterdir()) == []


def test_t12_what_was_asked_and_what_was_done_are_told(tmp_path: Path) -> None:
    result = train(MATCH, options=small(tmp_path, train__total_timesteps="1000"))
    assert (result["steps_asked"], result["steps"], result["gradient_steps"]) == (1000, 960, 15)
