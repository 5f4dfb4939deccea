"""Cases of acting and learning through the whole path: environment, vector, rollout buffer, advantage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from fakes import make_trainer, run
from fakes_single import Count
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.config.schema import PolicyConfig
from puffer_core.policies import ActionLayout, Policy, make_policy
from puffer_core.rl.advantage import Estimator
from puffer_core.rl.rollout import Rollout
from puffer_core.vector import Multiprocessing, Serial, make

CPU = torch.device("cpu")
BACKENDS = pytest.mark.parametrize(
    ("backend", "options"), [(Serial, {}), (Multiprocessing, {"num_workers": 2})], ids=["serial", "multiprocessing"]
)


class ValueTable(nn.Module):
    """Values that a function of (episode, step) gives; equal logits, no state."""

    def __init__(self, value: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layout, self.logstd, self.normalizer = ActionLayout.from_space(spaces.Discrete(2)), None, None
        self.value = value

    def initial_state(self, rows: int) -> Tensor:
        return torch.zeros(0, rows, 0)

    def forward_eval(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(len(observations), 2), self.value(observations[:, 0], observations[:, 1]), state


def by_episode(episode: Tensor, step: Tensor) -> Tensor:
    """5 in the first episode, 100 afterwards."""
    return torch.where(episode == 0, 5.0, 100.0)


def rollout_of(vector: Any, policy: Any, horizon: int) -> Rollout:
    rollout = Rollout(vector, policy, horizon, torch.Generator().manual_seed(0), device=CPU, storage=CPU)
    rollout.start(0)
    return rollout


def advantages(rollout: Rollout, gamma: float, gae_lambda: float) -> Tensor:
    ratio = torch.ones(rollout.horizon, rollout.rows)
    estimator = Estimator(rollout.horizon, rollout.rows, ratio)
    return estimator.estimate(rollout.fold(gamma, gae_lambda), rollout.values, ratio, 1.0, 1.0)


@BACKENDS
@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (2, (-2.38, -4.0, -9.0)),
        (1, (-4.0, -99.0, -99.0)),
        # The third action ends its episode: no value but its own enters.
        (3, (0.5 + 0.72 * (0.5 + 0.72 * -4.0), 0.5 + 0.72 * -4.0, -4.0)),
    ],
)
def test_t03_a_death_counts_where_it_is_from_the_environment_to_the_advantage(
    limit: int, expected: tuple[float, ...], backend: Any, options: Any
) -> None:
    with make(Count, num_envs=2, backend=backend, env_kwargs={"limit": limit, "how": "terminate"}, **options) as envs:
        rollout = rollout_of(envs, ValueTable(by_episode), 3)
        rollout.collect()
        for row in advantages(rollout, 0.9, 0.8).T:
            assert row.tolist() == pytest.approx(expected, abs=1e-5)


@BACKENDS
@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_t01_a_value_of_ten_is_right_at_every_time_limit_and_wrong_at_a_death(
    limit: int, backend: Any, options: Any
) -> None:
    found = {}
    for how in ("truncate", "terminate"):
        with make(Count, num_envs=2, backend=backend, env_kwargs={"limit": limit, "how": how}, **options) as envs:
            rollout = rollout_of(envs, ValueTable(lambda episode, step: torch.full_like(step, 10.0)), 7)
            rollout.collect()
            found[how] = advantages(rollout, 0.9, 0.8)
    assert found["truncate"].abs().max() < 1e-5
    assert found["terminate"].min() == pytest.approx(-9.0, abs=1e-5)


def test_t01_a_time_limit_takes_the_value_of_its_own_last_observation() -> None:
    # Values are the step of the episode: 2 at the cut, 0 at the start of the next.
    with make(Count, num_envs=1, backend=Serial, env_kwargs={"limit": 2}) as envs:
        rollout = rollout_of(envs, ValueTable(lambda episode, step: step), 4)
        rollout.collect()
    assert advantages(rollout, 1.0, 0.0)[:, 0].tolist() == [2.0, 2.0, 2.0, 2.0]


class SameView(Count):
    """`Count`, of which nothing can be seen."""

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return np.ones(2, np.float32), *rest

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return np.ones(2, np.float32), {}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["truncate", "terminate"])
def test_t01_a_network_learns_that_a_time_limit_is_worth_ten(how: str) -> None:
    # 4 x 50 steps: each row meets one end in a rollout of 50.
    envs = make(SameView, num_envs=4, backend=Serial, env_kwargs={"limit": 50 if how == "truncate" else 5, "how": how})
    trainer = make_trainer(
        envs, epochs=120, horizon=50, minibatch_size=50, policy_core="none", gamma=0.9, vf_clip_coef=math.inf,
        ent_coef=0.0, optimizer="adam", learning_rate=0.02, prio=False,
    )  # fmt: skip
    run(trainer, 120)
    value = float(trainer.rollout.values.mean())
    trainer.close()
    assert value == pytest.approx(10.0, abs=0.3) if how == "truncate" else value < 6.0


def step_counter(core: str) -> Policy:
    """A policy whose state, and through it the value, tells how many steps it has seen since the episode began."""
    config = PolicyConfig(core=core, hidden_size=2, num_layers=1, bias=True)
    box = spaces.Box(-1e6, 1e6, (2,), np.float32)
    policy = make_policy(config, box, spaces.Discrete(2), torch.Generator().manual_seed(0))
    for parameter in policy.parameters():
        parameter.data.zero_()
    if core == "lstm":  # all gates are open and c grows by 1
        policy.layers[0].bias.data[:] = 40.0
    else:  # the input is 1, the candidate 1, the gate a half and the highway shows h
        policy.encoder.bias.data[:] = 1.0
        policy.layers[0].weight.data[:2, 0] = 0.5
        policy.layers[0].weight.data[4:, 0] = 40.0
    policy.decoder.weight.data[-1, 0] = 1.0
    return policy


def entering(core: str, values: Tensor) -> list[float]:
    """Return the steps that the state had seen before each of these values."""
    values = values.double()
    counts = values.atanh() if core == "lstm" else -torch.log2(1.0 - values)
    return (counts - 1.0).tolist()


@BACKENDS
@pytest.mark.parametrize("how", ["terminate", "truncate"])
@pytest.mark.parametrize("core", ["lstm", "mingru"])
def test_t07_a06_state_counts_anew_in_every_episode_in_acting_and_in_training(
    core: str, how: str, backend: Any, options: Any
) -> None:
    policy = step_counter(core)
    with make(Count, num_envs=2, backend=backend, env_kwargs={"limit": 3, "how": how}, **options) as envs:
        rollout = rollout_of(envs, policy, 8)
        for expected in ([0, 1, 2, 0, 1, 2, 0, 1], [2, 0, 1, 2, 0, 1, 2, 0], [1, 2, 0, 1, 2, 0, 1, 2]):
            rollout.collect()
            segments = rollout.gather(torch.tensor([1, 0]))
            _, values = policy(segments.observations, segments.state, segments.resets)
            for row in (0, 1):
                assert entering(core, rollout.values[:-1, row]) == pytest.approx(expected, abs=1e-3)
                assert entering(core, values.view(8, 2)[:, row]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("limits", "horizon"), [((1, 2), 5), ((4, 7), 4)])
@pytest.mark.parametrize("core", ["lstm", "mingru"])
def test_t07_rows_whose_episodes_end_apart_do_not_share_their_ends(
    core: str, limits: tuple[int, int], horizon: int
) -> None:
    policy = step_counter(core)
    with make(Count, num_envs=2, backend=Serial, env_kwargs=[{"limit": limit} for limit in limits]) as envs:
        rollout = rollout_of(envs, policy, horizon)
        for first in range(0, 3 * horizon, horizon):
            rollout.collect()
            for row, limit in enumerate(limits):
                expected = [(first + t) % limit for t in range(horizon)]
                assert entering(core, rollout.values[:-1, row]) == pytest.approx(expected, abs=1e-2)


class Flat(Count):
    """The same reward and view for ever."""

    def step(self, action: Any) -> Any:
        _, _, *rest = super().step(action)
        return np.ones(2, np.float32), 0.0, *rest


@pytest.mark.parametrize(
    ("rows", "horizon", "minibatch"), [(1, 1, 1), (33, 1, 32), (5, 8, 32), (2, 1, 1)],
    ids=["one sample", "one too many", "a segment too many", "one of two"],
)  # fmt: skip
@pytest.mark.parametrize("prio", [True, False])
def test_t08_small_or_uneven_minibatches_of_equal_advantages_stay_finite(
    rows: int, horizon: int, minibatch: int, prio: bool
) -> None:
    trainer = make_trainer(
        make(Flat, num_envs=rows, backend=Serial), epochs=4, horizon=horizon, minibatch_size=minibatch, prio=prio
    )
    metrics = run(trainer, 4)
    weights = [parameter.detach() for parameter in trainer.policy.parameters()]
    trainer.close()
    assert trainer.gradient_steps == 4 * (rows * horizon // minibatch)
    assert all(bool(weight.isfinite().all()) for weight in weights)
    losses = {name: value for row in metrics for name, value in row.items() if name.startswith("loss/")}
    assert [name for name, value in losses.items() if not math.isfinite(value)] in ([], ["loss/explained_variance"])


def test_a10_every_step_of_an_emulated_environment_is_one_of_the_learner() -> None:
    made: list[Count] = []

    def factory() -> gymnasium.Env[Any, Any]:
        made.append(Count(limit=3))
        return made[-1]

    with make(factory, num_envs=1, backend=Serial) as envs:
        envs.async_reset(seed=0)
        envs.recv()
        for step in range(1, 11):
            envs.send(np.zeros(1, np.int32))
            _, rewards, _, truncations = envs.recv()[:4]
            assert made[-1].n == step
            assert rewards.tolist() == [1.0]
            assert truncations.tolist() == [step % 3 == 0]
            if step % 3 == 0:
                assert envs.final_observations[0, 1] == 3.0


@pytest.mark.parametrize("core", ["lstm", "mingru", "none"])
def test_a07_no_core_changes_how_the_heads_begin(core: str) -> None:
    config = PolicyConfig(core=core, hidden_size=64, num_layers=1)
    box = spaces.Box(-1, 1, (4,), np.float32)
    policy = make_policy(config, box, spaces.Discrete(40), torch.Generator().manual_seed(0))
    bound = 1 / math.sqrt(64)
    assert policy.decoder.weight.abs().max() <= bound
    assert float(policy.decoder.weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
