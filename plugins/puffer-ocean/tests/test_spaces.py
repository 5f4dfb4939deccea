"""P1: dtype, shape and bounds hold for random, lowest and highest actions; no episode is blank from end to end."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from puffer_core.native import spaces_of
from puffer_core.testing import random_actions


def _check_rows(env, label):
    space = env.single_observation_space
    assert np.isfinite(env.rewards).all(), label
    if space.dtype == np.float32:
        assert np.isfinite(env.observations).all(), label
    low, high = float(space.low.flat[0]), float(space.high.flat[0])
    assert env.observations.min() >= low, f"{label}: {env.observations.min()} below {low}"
    assert env.observations.max() <= high, f"{label}: {env.observations.max()} above {high}"


def _check_arrays(env, label):
    rows, space = env.num_agents, env.single_observation_space
    assert space.dtype in (np.uint8, np.int8, np.float32), label
    assert env.observations.shape == (rows, *space.shape), label
    assert env.final_observations.shape == env.observations.shape, label
    assert env.observations.dtype == env.final_observations.dtype == space.dtype, label
    for array, dtype in (
        (env.rewards, np.float32),
        (env.terminals, np.bool_),
        (env.truncations, np.bool_),
        (env.masks, np.bool_),
        (env.logged, np.bool_),
    ):
        assert array.shape == (rows,), label
        assert array.dtype == dtype, label
    assert env.log.shape == (rows, len(env.log_fields)), label
    actions = env.single_action_space
    assert env.actions.dtype == (np.float32 if isinstance(actions, Box) else np.int32), label
    assert env.actions.shape == (rows, *actions.shape), label


def test_default_observations_stay_in_bounds_for_5000_steps(opened):
    env = opened(num_envs=2, seed=1)
    env.reset(seed=1)
    for step in range(5000):
        env.step(random_actions(env, 1, step))
        _check_rows(env, "defaults")


def test_every_set_has_the_declared_arrays_and_bounds(opened, table, sets, steps):
    for label, params in sets:
        env = opened(params, num_envs=3, seed=1)
        env.reset(seed=1)
        _check_arrays(env, label)
        space, actions, agents, mask_width = spaces_of(table, params)
        assert (space, actions) == (env.single_observation_space, env.single_action_space), label
        assert env.num_agents == 3 * agents, label
        assert (env.action_mask is None) == (mask_width == 0), label
        _check_rows(env, label)
        for step in range(steps(env, 80, 5000)):
            env.step(random_actions(env, 2, step))
            _check_rows(env, label)
        env.close()


@pytest.mark.parametrize("extreme", ["lowest", "highest"])
def test_extreme_actions_keep_observations_in_bounds(opened, sets, steps, extreme):
    for label, params in sets:
        env = opened(params, num_envs=3, seed=1)
        env.reset(seed=1)
        space = env.single_action_space
        if isinstance(space, Box):
            actions = np.broadcast_to(space.low if extreme == "lowest" else space.high, env.actions.shape)
        else:
            sizes = getattr(space, "nvec", getattr(space, "n", None))
            actions = np.zeros_like(env.actions) if extreme == "lowest" else np.zeros_like(env.actions) + sizes - 1
        actions = np.ascontiguousarray(actions, env.actions.dtype)
        for _ in range(steps(env, 50, 1000)):
            env.step(actions)
            _check_rows(env, f"{label}, {extreme}")
        env.close()


def test_no_episode_is_blank_from_end_to_end(opened):
    env = opened(num_envs=4, seed=1)
    env.reset(seed=1)
    space = env.single_observation_space
    if not space.low.any() and not space.high.any():
        pytest.skip("the observation is constant zero by its declared bounds")
    flat = env.observations.reshape(env.num_agents, -1)
    final = env.final_observations.reshape(env.num_agents, -1)
    seen = flat.any(axis=1)
    for step in range(1000):
        env.step(random_actions(env, 3, step))
        ended = env.terminals | env.truncations
        seen |= ended & final.any(axis=1)
        assert seen[ended].all(), f"step {step}: rows {np.flatnonzero(ended & ~seen)} never saw anything"
        seen = np.where(ended, flat.any(axis=1), seen | flat.any(axis=1))
    assert seen[env.masks].all()
