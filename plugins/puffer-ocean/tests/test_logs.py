"""P6: what is logged equals what the test adds up itself, nothing is logged twice, and nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core.testing import random_actions

SCORE, PERF, RETURN, LENGTH, ILLEGAL = range(5)
EPISODES, MOST_STEPS = 100_000, 20_000


class Ledger:
    """The test's own account of each row: return and length since its last end, or since its last log entry.

    Environments that log units other than episodes (a goal taken) log rows that did not end.
    """

    def __init__(self, env):
        self.returns = np.zeros(env.num_agents)
        self.lengths = np.zeros(env.num_agents, np.int64)
        self.by_unit = False

    def add(self, env):
        """Account for one step; return the rows logged, with the test's own return and length of each."""
        self.returns += env.rewards
        self.lengths += env.masks | env.terminals | env.truncations
        logged = env.logged.copy()
        ended = env.terminals | env.truncations
        self.by_unit |= bool((logged & ~ended).any())
        result = logged, self.returns[logged], self.lengths[logged]
        over = logged if self.by_unit else ended
        self.returns[over], self.lengths[over] = 0, 0
        return result


def test_the_first_five_fields_are_the_common_ones(opened):
    env = opened()
    assert env.log_fields[:5] == ("score", "perf", "episode_return", "episode_length", "illegal_actions")
    assert len(set(env.log_fields)) == len(env.log_fields)


def test_rows_equal_the_tests_own_account(opened, sets, steps):
    for label, params in sets:
        env = opened(params, num_envs=6, seed=1)
        env.reset(seed=1)
        ledger = Ledger(env)
        for step in range(steps(env, 600 if label == "defaults" else 80, 1000)):
            env.step(random_actions(env, 1, step, env.action_mask))
            logged, returns, lengths = ledger.add(env)
            rows = env.log[logged]
            where = f"{label}, step {step}"
            assert np.isfinite(rows).all(), where
            assert ((rows[:, PERF] >= 0) & (rows[:, PERF] <= 1)).all(), f"{where}: perf {rows[:, PERF]}"
            assert np.array_equal(rows[:, LENGTH], lengths), f"{where}: {rows[:, LENGTH]} is not {lengths}"
            assert np.allclose(rows[:, RETURN], returns, rtol=1e-4, atol=1e-3), f"{where}: {rows[:, RETURN]}, {returns}"
            assert not rows[:, ILLEGAL].any(), where
        env.close()


def test_an_ended_episode_is_logged_once(opened):
    """Every end is logged, but for first episodes of staggered instances and for units that are not episodes."""
    env = opened(rows=64, seed=1)
    env.reset(seed=1)
    ledger = Ledger(env)
    ends = logs = 0
    for step in range(400):
        env.step(random_actions(env, 1, step, env.action_mask))
        ledger.add(env)
        ends += int((env.terminals | env.truncations).sum())
        logs += int(env.logged.sum())
    assert logs > 0
    if not ledger.by_unit:
        assert logs == ends


def test_drained_means_equal_the_rows_over_100000_episodes(opened):
    env = opened(rows=4096, seed=1, num_threads=2)
    env.reset(seed=1)
    assert env.drain_log() is None
    actions = [random_actions(env, 1, step) for step in range(8)]
    total, sums = 0, np.zeros(len(env.log_fields))
    drained, drained_sums = 0, np.zeros(len(env.log_fields))
    for step in range(MOST_STEPS):
        env.step(actions[step % 8])
        total += np.count_nonzero(env.logged)
        sums += env.log[env.logged].sum(axis=0, dtype=np.float64)
        if step % 10 == 9 and (means := env.drain_log()) is not None:
            drained += means["n"]
            drained_sums += [means[field] * means["n"] for field in env.log_fields]
        if total >= EPISODES:
            break
    if (means := env.drain_log()) is not None:
        drained += means["n"]
        drained_sums += [means[field] * means["n"] for field in env.log_fields]
    assert total >= EPISODES
    assert drained == total
    assert drained_sums == pytest.approx(sums, rel=1e-6, abs=1e-6)
    assert env.drain_log() is None


def test_a_reset_starts_new_accounts(opened):
    """A step of an episode that a reset cut off is in no later log row."""
    env = opened(rows=64, seed=1)
    for seed in (1, 2, None):
        env.reset(seed=seed)
        ledger = Ledger(env)
        for step in range(120):
            env.step(random_actions(env, 2, step, env.action_mask))
            logged, returns, lengths = ledger.add(env)
            assert np.array_equal(env.log[logged, LENGTH], lengths), f"reset(seed={seed}), step {step}"
            assert env.log[logged, RETURN] == pytest.approx(returns, rel=1e-4, abs=1e-3)
