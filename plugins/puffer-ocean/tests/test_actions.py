"""P10: no action breaks an environment; substitutions are counted; strict refuses before anything has changed."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from puffer_core.errors import EnvError
from puffer_core.testing import head_sizes, random_actions, random_bits

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
ILLEGAL = 4


def _spoil(actions, space, step):
    """Return a copy with about a third of the entries illegal, and which they are."""
    bits = random_bits(99, step, actions.size).reshape(actions.shape)
    bad = (bits >> np.uint64(20)) % 3 == 0
    pick = (bits >> np.uint64(40)) % 5
    if isinstance(space, Box):
        values = np.array([np.nan, np.inf, -np.inf, 1.5, -1e30], np.float32)[pick]
    else:
        sizes = np.broadcast_to(np.array(head_sizes(space)), (len(actions), len(head_sizes(space))))
        past = sizes.reshape(actions.shape)
        choices = np.stack([np.full_like(past, v) for v in (INT_MIN, INT_MAX, -1)] + [past, past + 1000])
        values = np.take_along_axis(choices, pick[None].astype(np.int64), axis=0)[0]
    return np.where(bad, values, actions).astype(actions.dtype), bad


def test_fuzzed_actions_keep_every_promise(opened, sets):
    for label, params in sets:
        env = opened(params, num_envs=3, seed=1)
        env.reset(seed=1)
        space = env.single_observation_space
        for step in range(60):
            actions, _ = _spoil(random_actions(env, 1, step), env.single_action_space, step)
            env.step(actions)
            assert np.isfinite(env.rewards).all(), label
            assert env.observations.min() >= space.low.min(), label
            assert env.observations.max() <= space.high.max(), label
        env.close()


def test_illegal_actions_are_counted_in_the_log(opened):
    env = opened(rows=32, seed=1)
    env.reset(seed=1)
    counts = np.zeros(env.num_agents)
    seen = 0
    for step in range(400):
        actions, bad = _spoil(random_actions(env, 2, step, env.action_mask), env.single_action_space, step)
        env.step(actions)
        counts += bad.reshape(env.num_agents, -1).sum(axis=1)
        logged = env.logged
        assert (env.log[logged, ILLEGAL] <= counts[logged]).all(), f"step {step}"
        if env.action_mask is None:
            assert np.array_equal(env.log[logged, ILLEGAL], counts[logged]), f"step {step}"
        seen += env.log[logged, ILLEGAL].sum()
        counts[logged | env.terminals | env.truncations] = 0
    assert seen > 0


def test_a_substituted_action_acts_as_a_legal_one(opened):
    """An out-of-range index is one of the legal actions in disguise, and NaN is 0."""
    env = opened(num_envs=1, seed=1)
    space = env.single_action_space
    if isinstance(space, Box):
        stand_ins = [(np.nan, 0.0), (7.5, 1.0), (-np.inf, -1.0)]
    else:
        stand_ins = [(INT_MIN, None), (INT_MAX, None)]
    for illegal, legal in stand_ins:
        outcomes = []
        candidates = [legal] if legal is not None else range(max(head_sizes(space)))
        for value in [illegal, *candidates]:
            env.reset(seed=5)
            actions = random_actions(env, 3, 0)
            actions.reshape(-1)[0] = value
            env.step(actions)
            outcomes.append((env.observations.tobytes(), env.rewards.tobytes(), env.terminals.tobytes()))
        assert outcomes[0] in outcomes[1:], f"{illegal}"


def test_strict_names_the_action_and_changes_nothing(opened, name):
    env = opened(num_envs=3, seed=1, strict=True)
    env.reset(seed=1)
    legal = random_actions(env, 4, 0, env.action_mask)
    env.step(legal)
    before = env.save(), env.observations.tobytes(), env.rewards.tobytes()
    bad = np.nan if isinstance(env.single_action_space, Box) else 1_000_003
    actions = random_actions(env, 4, 1, env.action_mask)
    actions.reshape(len(actions), -1)[-1, -1] = bad
    with pytest.raises(EnvError, match=f"(?s){name}.*{bad}"):
        env.step(actions)
    assert (env.save(), env.observations.tobytes(), env.rewards.tobytes()) == before
    env.step(random_actions(env, 4, 1, env.action_mask))


def test_strict_lets_legal_play_pass(opened):
    plain, strict = opened(num_envs=3, seed=1), opened(num_envs=3, seed=1, strict=True)
    for env in (plain, strict):
        env.reset(seed=1)
    for step in range(100):
        actions = random_actions(plain, 4, step, plain.action_mask)
        plain.step(actions)
        strict.step(actions)
    assert plain.save() == strict.save()
