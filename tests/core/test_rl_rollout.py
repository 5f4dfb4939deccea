from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fakes import LeakyPolicy, ScriptedVector
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core.config.schema import PolicyConfig
from puffer_core.errors import EnvError, NonFiniteError
from puffer_core.policies import Policy, make_policy
from puffer_core.rl.advantage import Estimator, Folded
from puffer_core.rl.rollout import Rollout


def advantages(folded: Folded, values: torch.Tensor, ratio: torch.Tensor, rho: float, c: float) -> torch.Tensor:
    return Estimator(*ratio.shape, ratio).estimate(folded, values, ratio, rho, c)


CPU = torch.device("cpu")


def make_rollout(vector: Any, policy: Any, horizon: int, seed: int = 0, **options: Any) -> Rollout:
    generator = torch.Generator().manual_seed(seed)
    return Rollout(vector, policy, horizon, generator, device=CPU, storage=CPU, **options)


def columns(*rows: Any) -> np.ndarray[Any, Any]:
    """Scripts of rows -> (T, N) in the order of arrivals."""
    return np.array(rows).T


def test_h_vector() -> ScriptedVector:
    return ScriptedVector(
        columns((1, 2, 0, 1, 3), (2, 0, 1, -1, 3))[..., None].astype(np.float32),
        rewards=columns((7, 1, -1, 0.5, 2), (7, 0, 1, 0, -0.5)),
        terminals=columns((0, 0, 1, 0, 0), (1, 0, 0, 0, 0)).astype(bool),
        truncations=columns((0, 0, 0, 0, 0), (0, 0, 0, 0, 1)).astype(bool),
        final_observations=np.array([[[0], [0]]] * 4 + [[[0], [2]]], np.float32),
    )


test_h_vector.__test__ = False  # type: ignore[attr-defined]


def test_rollout_matches_test_h() -> None:
    vector, policy = test_h_vector(), LeakyPolicy()
    rollout = make_rollout(vector, policy, 4)
    rollout.start(0)
    rollout.state[:] = 1.0
    # The carried arrival 0 of Test H: reset() alone never brings a reward or a flag.
    rollout.rewards[4], rollout.terminals[4] = 7.0, (False, True)
    rollout.resets[4] = (False, True)
    assert rollout.collect() == 8
    assert rollout.values[:, 0].tolist() == pytest.approx((0.4, 0.65, 0.1, 0.3, 0.8))
    assert rollout.values[:, 1].tolist() == pytest.approx((0.5, 0.3, 0.4, 0.05, 0.7))
    assert rollout.final_values[4].tolist() == pytest.approx((0.0, 0.475))
    assert rollout.snapshot.flatten().tolist() == [1.0, 0.0]
    assert rollout.state.flatten().tolist() == [1.0, -0.25]
    found = advantages(rollout.fold(0.9, 0.8), rollout.values, torch.ones(4, 2), 1.0, 1.0)
    assert found[:, 0].tolist() == pytest.approx((-0.003, -1.65, 2.4124, 2.42), abs=1e-6)
    assert found[:, 1].tolist() == pytest.approx((0.30344512, 0.740896, -0.4432, -0.1225), abs=1e-6)
    last = rollout.observations[-1].clone()
    rollout.collect()
    assert rollout.values[0].tolist() == pytest.approx((0.8, 0.7))
    # Had the state after o_4 been carried, o_4 would be consumed twice, and the next V_0 1.05 and 1.
    _, _, consumed = policy.forward_eval(last, torch.tensor([[[1.0], [0.0]]]))
    _, twice, _ = policy.forward_eval(last, consumed)
    assert twice.tolist() == pytest.approx((1.05, 1.0))
    assert rollout.snapshot.flatten().tolist() == [1.0, 0.0]


def random_scripts(seed: int, steps: int, rows: int, truncating: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shape = (steps + 1, rows)
    kind, alive = rng.integers(0, 8, shape), rng.random(shape) > 0.2
    alive[0] = True
    acted = np.vstack([np.zeros((1, rows), bool), alive[:-1]])
    observations = rng.normal(size=(*shape, 3)).astype(np.float32)
    rewards = rng.normal(size=shape).astype(np.float32)
    observations[~alive], rewards[~acted] = np.nan, np.nan
    rewards[0] = 0.0
    return {
        "observations": observations,
        "rewards": rewards,
        "terminals": (kind == 0) & acted,
        "truncations": (kind == 1) & acted & truncating,
        "masks": alive,
        "final_observations": rng.normal(size=(*shape, 3)).astype(np.float32),
    }


def mingru(seed: int = 0, space: spaces.Space[Any] | None = None, observed: int = 3, **config: Any) -> Policy:
    options = PolicyConfig(**{"hidden_size": 8, "num_layers": 2, **config})
    box = spaces.Box(-np.inf, np.inf, (observed,), np.float32)
    return make_policy(options, box, space or spaces.Discrete(2), torch.Generator().manual_seed(seed))


def collect_in(parts: list[int], scripts: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """Collect the scripts in rollouts of these lengths; return what holds per arrival, and check the seams."""
    vector, found = ScriptedVector(**scripts), {"values": [], "advantages": [], "resets": []}
    last, state, done = None, policy.initial_state(vector.num_agents), 0
    for length in parts:
        rollout = make_rollout(vector, policy, length)
        if last is None:
            rollout.start(0)
        else:
            rollout.set_carry(last.carry())
        rollout.collect()
        rollout.check(0)
        if last is not None:
            alive = scripts["masks"][done]
            assert torch.allclose(last.values[-1][alive], rollout.values[0][alive], atol=1e-6)
        last, state = rollout, rollout.state
        done += length
        ratio = torch.ones(length, vector.num_agents)
        found["advantages"].append(advantages(rollout.fold(0.9, 0.0), rollout.values, ratio, 1.0, 1.0))
        found["values"].append(rollout.values[:-1])
        found["resets"].append(torch.from_numpy(rollout.resets[:-1].copy()))
    return {name: torch.cat(parts) for name, parts in found.items()} | {"state": state}


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["mingru", "none"]))
def test_splitting_the_steps_into_rollouts_changes_nothing(seed: int, core: str) -> None:
    scripts, policy = random_scripts(seed, 24, 5), mingru(core=core)
    whole = collect_in([24], scripts, policy)
    alive = torch.from_numpy(scripts["masks"][:-1])
    assert bool(whole["values"].isfinite().all())
    for parts in ([1] * 24, [3] * 8, [4] * 6, [12, 12], [5, 7, 12]):
        split = collect_in(parts, scripts, policy)
        assert torch.equal(split["resets"], whole["resets"])
        assert torch.allclose(split["state"], whole["state"], atol=1e-6)
        for name in ("values", "advantages"):
            assert torch.allclose(split[name][alive], whole[name][alive], atol=1e-5)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["mingru", "none"]))
def test_training_forward_reproduces_acting_through_ends_and_deaths(seed: int, core: str) -> None:
    scripts, policy = random_scripts(seed, 20, 6), mingru(core=core)
    rollout = make_rollout(ScriptedVector(**scripts), policy, 10)
    rollout.start(0)
    for _ in range(2):
        rollout.collect()
        rows = torch.tensor([4, 1, 3, 1])
        segments = rollout.gather(rows)
        logits, values = policy(segments.observations, segments.state, segments.resets)
        assert torch.allclose(values.view(10, 4), rollout.values[:-1, rows], atol=1e-5)
        logprobs = policy.layout.log_prob(logits, segments.actions.flatten(), None, None)
        assert torch.allclose(logprobs.view(10, 4), segments.logprobs, atol=1e-5)


def test_a_rollout_takes_the_same_random_numbers_with_and_without_truncations() -> None:
    after = []
    for truncating in (True, False):
        scripts = random_scripts(3, 12, 5, truncating)
        rollout = make_rollout(ScriptedVector(**scripts), mingru(), 6, seed=11)
        rollout.start(0)
        rollout.collect()
        rollout.collect()
        after.append(rollout.generator.get_state())
    assert torch.equal(*after)


def test_only_steps_of_live_agents_are_counted() -> None:
    scripts = random_scripts(5, 12, 7)
    rollout = make_rollout(ScriptedVector(**scripts), mingru(), 6)
    rollout.start(0)
    assert rollout.collect() == scripts["masks"][:6].sum()
    assert rollout.collect() == scripts["masks"][6:12].sum()


def counting(limit: int, steps: int) -> dict[str, Any]:
    """`Count(limit)` as a script: the episode ends after ``limit`` steps."""
    t = np.arange(steps + 1)
    return {"observations": np.ones((steps + 1, 1, 1), np.float32), "terminals": ((t > 0) & (t % limit == 0))[:, None]}


def test_t07_a06_state_is_zeroed_at_episode_ends_in_acting_and_in_training() -> None:
    policy = LeakyPolicy(decay=1.0)
    rollout = make_rollout(ScriptedVector(**counting(3, 16)), policy, 8)
    rollout.start(0)
    for first in (0, 2):
        policy.seen.clear()
        rollout.collect()
        expected = [float((first + t) % 3) for t in range(8)]
        assert [seen.item() for seen in policy.seen[:8]] == expected
        segments = rollout.gather(torch.tensor([0]))
        policy.seen.clear()
        policy(segments.observations, segments.state, segments.resets)
        assert [seen.item() for seen in policy.seen] == expected


def test_reset_state_starts_every_rollout_from_zero() -> None:
    policy = LeakyPolicy(decay=1.0)
    vector = ScriptedVector(np.ones((20, 1, 1), np.float32))
    rollout = make_rollout(vector, policy, 4, reset_state=True)
    rollout.start(0)
    for _ in range(2):
        policy.seen.clear()
        rollout.collect()
        assert [seen.item() for seen in policy.seen[:4]] == [0, 1, 2, 3]
        assert rollout.snapshot.item() == 0.0


def test_an_agent_that_comes_back_starts_from_zero() -> None:
    policy = LeakyPolicy(decay=1.0)
    masks = np.array([1, 1, 0, 0, 1, 1, 1], bool)[:, None]
    rollout = make_rollout(ScriptedVector(np.ones((7, 1, 1), np.float32), masks=masks), policy, 6)
    rollout.start(0)
    rollout.collect()
    assert [policy.seen[t].item() for t in (0, 1, 4, 5)] == [0, 1, 0, 1]


def test_t06_rewards_are_clipped_when_stored_and_box_actions_when_sent() -> None:
    space = spaces.Box(-1, 1, (2,))
    vector = ScriptedVector(np.ones((9, 50, 3), np.float32), space, rewards=np.full((9, 50), 5.0))
    policy = mingru(space=space)
    rollout = make_rollout(vector, policy, 8, reward_clip=1.0)
    rollout.start(0)
    rollout.collect()
    assert (rollout.rewards[1:] == 1.0).all()
    stored, sent = rollout.actions.numpy(), np.array(vector.received)
    assert np.abs(stored).max() > 1.0
    assert np.array_equal(sent, stored.clip(-1, 1))
    logprobs = policy.layout.log_prob(rollout.logits.flatten(0, 1), rollout.actions.flatten(0, 1), None, policy.logstd)
    assert torch.allclose(logprobs, rollout.logprobs.flatten())


def test_t13_masked_actions_are_never_sent_and_masks_belong_to_their_row() -> None:
    rows, steps = 6, 300
    legal = (np.arange(steps + 1)[:, None] + np.arange(rows)) % 4
    masks = np.eye(4, dtype=np.uint8)[legal]
    vector = ScriptedVector(np.ones((steps + 1, rows, 3), np.float32), spaces.Discrete(4), action_mask=masks)
    rollout = make_rollout(vector, mingru(space=spaces.Discrete(4)), steps // 2)
    rollout.start(0)
    for _ in range(2):
        rollout.collect()
        rollout.check(0)
        assert bool((rollout.logprobs == 0).all())
    assert np.array_equal(np.array(vector.received), legal[:-1])


def test_t13_a_mask_without_a_legal_action_names_the_environment() -> None:
    masks = np.ones((9, 4, 5), np.uint8)
    masks[3, 2, 2:] = 0
    vector = ScriptedVector(np.ones((9, 4, 3), np.float32), spaces.MultiDiscrete([2, 3]), agents=2, action_mask=masks)
    rollout = make_rollout(vector, mingru(space=spaces.MultiDiscrete([2, 3])), 4)
    rollout.start(0)
    rollout.collect()
    with pytest.raises(EnvError, match="environment 1, agent 0, step 112: the action mask allows no action"):
        rollout.check(100)


@pytest.mark.parametrize(("name", "number"), [("observations", np.nan), ("observations", np.inf), ("rewards", np.nan)])
def test_a_number_that_is_not_finite_is_named_with_environment_and_step(name: str, number: float) -> None:
    scripts: dict[str, Any] = {"observations": np.ones((9, 4, 3), np.float32), "rewards": np.ones((9, 4))}
    scripts[name][3, 2] = number
    rollout = make_rollout(ScriptedVector(agents=2, **scripts), mingru(), 4)
    rollout.start(0)
    rollout.collect()
    with pytest.raises(NonFiniteError, match=rf"environment 1, agent 0, step 112: {name[:-1]} is not finite"):
        rollout.check(100)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_clipping_does_not_hide_a_reward_that_is_not_finite(number: float) -> None:
    rewards = np.full((9, 4), 5.0)
    rewards[4, 2] = number
    rollout = make_rollout(
        ScriptedVector(np.ones((9, 4, 3), np.float32), rewards=rewards), mingru(), 4, reward_clip=1.0
    )
    rollout.start(0)
    rollout.collect()
    assert (rollout.rewards[1:4] == 1.0).all()
    with pytest.raises(NonFiniteError, match="environment 2, agent 0, step 16: reward is not finite"):
        rollout.check(0)


def test_a25_a_policy_that_gives_nan_stops_the_run() -> None:
    policy = mingru()
    policy.decoder.weight.data[0, 0] = float("nan")
    rollout = make_rollout(ScriptedVector(np.ones((9, 4, 3), np.float32)), policy, 4)
    rollout.start(0)
    rollout.collect()
    with pytest.raises(NonFiniteError, match="environment 0, agent 0, step 0: logit is not finite"):
        rollout.check(0)


def test_integer_observations_keep_their_type() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (9, 4, 2, 3)).astype(np.uint8)
    box = spaces.Box(0, 255, (2, 3), np.uint8)
    policy = make_policy(PolicyConfig(hidden_size=8), box, spaces.Discrete(2), torch.Generator().manual_seed(0))
    rollout = make_rollout(ScriptedVector(pixels), policy, 4)
    rollout.start(0)
    rollout.collect()
    rollout.check(0)
    assert rollout.observations.dtype == torch.uint8
    assert np.array_equal(rollout.observations.numpy(), pixels[:5])
    assert np.array_equal(rollout.gather(torch.tensor([2, 0])).observations.numpy(), pixels[:4, [2, 0]])


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int64, np.float32])
def test_observations_of_absent_agents_are_zero_whatever_their_type(kind: Any) -> None:
    masks = np.ones((9, 4), np.bool_)
    masks[2, 1] = False
    rollout = make_rollout(ScriptedVector(np.full((9, 4, 3), 7, kind), masks=masks), mingru(), 4)
    rollout.start(0)
    rollout.collect()
    assert rollout.observations[2, :2].tolist() == [[7, 7, 7], [0, 0, 0]]


class Refusing(ScriptedVector):
    def send(self, actions: Any, hold: bool = False) -> None:
        raise EnvError("no such action")


def test_actions_that_are_refused_are_the_policys_fault_where_it_gave_nan() -> None:
    box = spaces.Box(-1, 1, (2,), np.float32)
    for number, error, told in (
        (float("nan"), NonFiniteError, "the policy's output for agent 0 is not finite"),
        (0.0, EnvError, "no such action"),
    ):
        policy = mingru(space=box)
        policy.decoder.weight.data[:] = number
        rollout = make_rollout(Refusing(np.ones((9, 4, 3), np.float32), box), policy, 4)
        rollout.start(0)
        with pytest.raises(error, match=told):
            rollout.collect()
