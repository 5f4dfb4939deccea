"""The rules of memory, and a solver that remembers (P17)."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve
from puffer_core.testing import random_actions

TABLE = "puffer_ocean._native:memory"
SCORE, PERF, RETURN, LENGTH, ILLEGAL, FRAC = range(6)
CASES = [(1, 8), (1, 0), (3, 2), (64, 0), (5, 40)]


def _play_episode(env, seq_len, delay, answer):
    """Play one episode of every instance; return its observations and rewards by step.

    ``answer(bits, t)`` gives the actions that recall bit t.
    """
    observations, rewards = [], []
    total = 2 * seq_len + delay
    for step in range(total):
        observations.append(env.observations[:, 0].copy())
        recall = step - seq_len - delay
        actions = answer(observations, recall) if recall >= 0 else random_actions(env, 1, step)
        env.step(actions.astype(np.int32))
        rewards.append(env.rewards.copy())
        assert env.terminals.all() == (step == total - 1)
        assert env.terminals.any() == (step == total - 1)
        assert not env.truncations.any()
    return np.array(observations), np.array(rewards)


@pytest.mark.parametrize(("seq_len", "delay"), CASES)
def test_remembering_scores_one(seq_len, delay):
    with NativeEnv(resolve(TABLE), {"seq_len": seq_len, "delay": delay}, num_envs=32, seed=1) as env:
        env.reset(seed=1)
        for _ in range(3):
            observations, rewards = _play_episode(env, seq_len, delay, lambda seen, bit: seen[bit] > 0)
            assert (np.abs(observations[:seq_len]) == 1).all()
            assert not observations[seq_len:].any()
            assert not rewards[: seq_len + delay].any()
            assert rewards[seq_len + delay :] == pytest.approx(1 / seq_len)
            assert env.logged.all()
            assert (env.log[:, [SCORE, PERF, FRAC]] == 1).all()
            assert (env.log[:, LENGTH] == 2 * seq_len + delay).all()
            assert not env.final_observations.any()


def test_forgetting_one_bit_scores_zero_and_the_other_three_quarters():
    with NativeEnv(resolve(TABLE), {"seq_len": 4, "delay": 3}, num_envs=16, seed=1) as env:
        env.reset(seed=1)
        _, rewards = _play_episode(env, 4, 3, lambda seen, bit: (seen[bit] > 0) ^ (bit == 2))
        assert rewards[-4:, 0].tolist() == [0.25, 0.25, 0.0, 0.25]
        assert not env.log[:, [SCORE, PERF]].any()
        assert (env.log[:, FRAC] == 0.75).all()


def test_bits_are_fair_and_guessing_stays_at_chance():
    with NativeEnv(resolve(TABLE), {"seq_len": 1, "delay": 0}, num_envs=1000, seed=1) as env:
        env.reset(seed=1)
        ones = score = 0
        for step in range(200):
            ones += int((env.observations > 0).sum()) if step % 2 == 0 else 0
            env.step(random_actions(env, 1, step))
            score += int(env.log[env.logged, SCORE].sum())
        sigma = (100_000 * 0.25) ** 0.5
        assert abs(ones - 50_000) < 5 * sigma
        assert abs(score - 50_000) < 5 * sigma


def test_published_settings_are_the_defaults():
    with NativeEnv(resolve(TABLE), num_envs=8, seed=1) as env:
        env.reset(seed=1)
        _, rewards = _play_episode(env, 1, 8, lambda seen, bit: seen[bit] > 0)
        assert (rewards[-1] == 1).all()
        assert (env.log[:, LENGTH] == 10).all()
