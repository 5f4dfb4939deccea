"""The rules of squared, and a solver that walks straight to the target (P17)."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve
from puffer_core.testing import random_actions

TABLE = "puffer_ocean._native:squared"
STAY, DOWN, UP, LEFT, RIGHT = range(5)
EMPTY, AGENT, TARGET = range(3)
SCORE, PERF, RETURN, LENGTH, ILLEGAL = range(5)


@pytest.fixture
def squared():
    with NativeEnv(resolve(TABLE), {"size": 11}, num_envs=64, seed=1) as env:
        env.reset(seed=1)
        yield env


def _find(env, value):
    """Return (row, column) of ``value`` in every observation, which must hold it once."""
    size = int(env.single_observation_space.shape[0] ** 0.5)
    where = env.observations == value
    assert (where.sum(axis=1) == 1).all()
    return np.divmod(where.argmax(axis=1), size)


def _towards(env):
    """Return the first step of a shortest path, rows before columns."""
    (row, column), (target_row, target_column) = _find(env, AGENT), _find(env, TARGET)
    down, right = target_row - row, target_column - column
    across = np.where(right > 0, RIGHT, LEFT)
    return np.where(down > 0, DOWN, np.where(down < 0, UP, across)).astype(np.int32)


@pytest.mark.parametrize("size", [3, 11, 31])
def test_shortest_path_wins_in_as_many_steps_as_cells(size):
    with NativeEnv(resolve(TABLE), {"size": size}, num_envs=64, seed=1) as env:
        env.reset(seed=2)
        distances, wins = None, 0
        for _ in range(4 * size):
            if distances is None:
                distances = np.abs(np.subtract(_find(env, AGENT), _find(env, TARGET))).sum(axis=0)
            env.step(_towards(env))
            over = env.terminals
            assert not env.truncations.any()
            assert (env.rewards == over).all()
            assert (env.log[over, PERF] == 1).all()
            assert np.array_equal(env.log[over, LENGTH], distances[over])
            wins += over.sum()
            fresh = np.abs(np.subtract(_find(env, AGENT), _find(env, TARGET))).sum(axis=0)
            distances = np.where(over, fresh, distances)
        assert wins > 64


def test_agent_starts_in_the_centre_and_targets_reach_every_other_cell():
    with NativeEnv(resolve(TABLE), {"size": 3}, num_envs=512, seed=1) as env:
        env.reset(seed=1)
        assert (env.observations[:, 4] == AGENT).all()
        counts = (env.observations == TARGET).sum(axis=0)
        assert counts[4] == 0
        expected = 512 / 8
        assert (np.abs(np.delete(counts, 4) - expected) < 5 * expected**0.5).all()


@pytest.mark.parametrize(("action", "steps"), [(DOWN, 6), (UP, 6), (LEFT, 6), (RIGHT, 6)])
def test_leaving_the_board_loses(squared, action, steps):
    actions = np.full(squared.num_agents, action, np.int32)
    ended = np.zeros(squared.num_agents, bool)
    for step in range(steps):
        squared.step(actions)
        lost = squared.terminals & (squared.rewards == -1)
        assert not (lost & ~ended).any() or step == steps - 1
        ended |= squared.terminals
    assert lost.sum() > squared.num_agents // 2
    assert (squared.log[lost, PERF] == 0).all()


@pytest.mark.parametrize("timeout_reward", [-1.0, -0.25, 0.0])
def test_staying_is_truncated_after_three_sizes(timeout_reward):
    params = {"size": 5, "timeout_reward": timeout_reward}
    with NativeEnv(resolve(TABLE), params, num_envs=4, seed=1) as env:
        env.reset(seed=1)
        stay = np.zeros(4, np.int32)
        for _ in range(15):
            env.step(stay)
            assert not (env.terminals | env.truncations).any()
        before = env.observations.copy()
        env.step(stay)
        assert env.truncations.all()
        assert not env.terminals.any()
        assert (env.rewards == np.float32(timeout_reward)).all()
        assert (env.log[:, LENGTH] == 16).all()
        assert np.array_equal(env.final_observations, before)


def test_last_observation_shows_the_final_move(squared):
    ends = 0
    for step in range(200):
        before = squared.observations.copy()
        actions = _towards(squared) if step % 2 else random_actions(squared, 1, step)
        squared.step(actions)
        won = squared.terminals & (squared.rewards > 0)
        last = squared.final_observations[won]
        assert ((last == AGENT).sum(axis=1) == 1).all()
        assert not (last == TARGET).any()
        assert np.array_equal(last.argmax(axis=1), (before[won] == TARGET).argmax(axis=1))
        ends += won.sum()
    assert ends > 0


def test_stagger_cuts_first_episodes_at_all_steps_and_does_not_log_them():
    with NativeEnv(resolve(TABLE), {"size": 5, "stagger": True}, num_envs=256, seed=1) as env:
        env.reset(seed=1)
        stay = np.zeros(256, np.int32)
        cut_at = np.zeros(256, np.int64)
        for step in range(1, 17):
            env.step(stay)
            first = env.truncations & (cut_at == 0)
            assert not env.logged[first].any()
            assert not env.rewards[first].any()
            cut_at[first] = step
        assert set(cut_at) == set(range(1, 17))
        later = np.zeros(256, bool)
        for _ in range(16):
            env.step(stay)
            later |= env.logged
            assert (env.log[env.logged, LENGTH] == 16).all()
        assert later.all()


def test_ansi_draws_the_board(squared):
    lines = squared.render(0, "ansi").splitlines()
    assert len(lines) == 11
    assert {len(line) for line in lines} == {11}
    assert lines[5][5] == "A"
    assert "".join(lines).count("X") == 1
