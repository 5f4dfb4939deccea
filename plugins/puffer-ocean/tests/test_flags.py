"""P4: an end has one flag and a last observation, and the next observation opens a new episode."""

from __future__ import annotations

import numpy as np

from puffer_core.testing import random_actions

PATTERN = 0xA5


def _rows_of(array):
    return array.view(np.uint8).reshape(len(array), -1)


def test_flags_are_exclusive_and_final_rows_are_written_where_an_agent_ends(opened, sets, steps):
    for label, params in sets:
        env = opened(params, num_envs=4, seed=1)
        env.reset(seed=1)
        for step in range(steps(env, 600 if label == "defaults" else 80, 1000)):
            env.final_observations.view(np.uint8)[...] = PATTERN
            env.step(random_actions(env, 1, step, env.action_mask))
            where = f"{label}, step {step}"
            assert not (env.terminals & env.truncations).any(), where
            for flags in (env.terminals, env.truncations, env.masks, env.logged):
                assert flags.view(np.uint8).max() <= 1, where
            ended = env.terminals | env.truncations
            kept = (_rows_of(env.final_observations) == PATTERN).all(axis=1)
            assert np.array_equal(kept, ~ended), f"{where}: rows {np.flatnonzero(kept == ended)}"
        env.close()


def test_rewards_and_flags_are_of_the_present_step(opened):
    env = opened(rows=16, seed=1)
    env.reset(seed=1)
    assert not env.rewards.any()
    assert not (env.terminals | env.truncations | env.logged).any()
    for step in range(300):
        for stale in (env.terminals, env.truncations, env.logged):
            stale[...] = True
        env.rewards[...] = 1e9
        env.step(random_actions(env, 2, step, env.action_mask))
        assert np.abs(env.rewards).max() < 1e9
        assert not (env.terminals & env.truncations).any()
    env.rewards[...] = 1e9
    env.terminals[...] = True
    env.reset()
    assert not env.rewards.any()
    assert not (env.terminals | env.truncations | env.logged).any()


def test_observation_after_an_end_is_a_first_observation(opened):
    """Bounds of each observed value over many resets hold for the first observation of every later episode."""
    fresh = opened(rows=1024, seed=3)
    fresh.reset(seed=3)
    agents = fresh.num_agents // fresh.num_envs
    firsts = fresh.observations.reshape(fresh.num_envs, agents, -1).astype(np.float64)
    low, high = firsts.min(axis=0), firsts.max(axis=0)
    slack = 0.2 * (high - low)
    env = opened(rows=32, seed=4)
    env.reset(seed=4)
    for step in range(400):
        env.step(random_actions(env, 4, step, env.action_mask))
        over = (env.terminals | env.truncations).reshape(env.num_envs, agents).all(axis=1)
        now = env.observations.reshape(env.num_envs, agents, -1)[over]
        assert ((now >= low - slack) & (now <= high + slack)).all(), f"step {step}"


def test_absent_agents_have_blank_rows(opened, sets, steps):
    for label, params in sets:
        env = opened(params, num_envs=3, seed=1)
        env.reset(seed=1)
        assert env.masks.any(), label
        absent = ~env.masks
        for step in range(steps(env, 50, 500)):
            env.step(random_actions(env, 5, step, env.action_mask))
            gone = ~env.masks
            assert not env.observations[gone].any(), f"{label}, step {step}"
            assert not env.rewards[gone & absent].any(), f"{label}, step {step}"
            absent = gone
            if env.masks.all() and step > 20:
                break
        env.close()
