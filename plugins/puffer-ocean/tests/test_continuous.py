"""The dynamics and rules of continuous against a float64 reference, and a controller that brakes (P17)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve

TABLE = "puffer_ocean._native:continuous"
LEFT, RIGHT, UP, DOWN = range(4)
POSITION, VELOCITY, TARGET = slice(0, 2), slice(2, 4), slice(4, 6)
SCORE, PERF, RETURN, LENGTH, ILLEGAL, OUT = range(6)
PUSHES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)


def assert_close(actual, expected, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def _open(params=None, num_envs=64, seed=1):
    env = NativeEnv(resolve(TABLE), params, num_envs=num_envs, seed=seed)
    env.reset(seed=seed)
    return env


def _random(env, seed):
    generator = np.random.default_rng(seed)
    if env.single_action_space.dtype == np.float32:
        return generator.uniform(-1, 1, (env.num_agents, 2)).astype(np.float32)
    return generator.integers(0, 4, env.num_agents).astype(np.int32)


def _controller(observations, accel):
    """Accelerate towards the target as far as the way left allows braking."""
    gap = observations[:, TARGET] - observations[:, POSITION]
    wanted = np.sign(gap) * np.minimum(np.abs(gap), np.sqrt(accel * np.abs(gap)))
    return np.clip((wanted - observations[:, VELOCITY]) / accel, -1, 1).astype(np.float32)


@pytest.mark.parametrize(
    "params", [{}, {"discretize": True}, {"accel": 0.01, "radius": 0.3, "max_steps": 37}, {"accel": 1.0}]
)
def test_every_step_agrees_with_the_rules_in_float64(params):
    accel, radius = params.get("accel", 0.1), params.get("radius", 0.1)
    max_steps = params.get("max_steps", 100)
    with _open(params, num_envs=256) as env:
        total, length = np.zeros(256), np.zeros(256)
        ends = np.zeros(3, int)
        for step in range(400):
            before = env.observations.astype(np.float64)
            actions = _random(env, step)
            if step % 3 and not params.get("discretize"):
                actions = _controller(env.observations, accel)
            env.step(actions)
            push = actions if actions.ndim == 2 else PUSHES[actions]
            velocity = before[:, VELOCITY] + accel * push
            position = before[:, POSITION] + velocity
            length += 1
            over = env.terminals | env.truncations
            last = np.where(over[:, None], env.final_observations, env.observations)
            assert_close(last[:, POSITION], position)
            assert_close(last[:, VELOCITY], velocity)
            assert np.array_equal(last[:, TARGET], before[:, TARGET])

            distance = np.hypot(*(before[:, TARGET] - position).T)
            edge = np.abs(position).max(axis=1)
            clear = (np.abs(distance - radius) > 1e-6) & (np.abs(edge - 1) > 1e-6)  # float32 may decide either way
            out = edge > 1
            reached = ~out & (distance < radius)
            late = ~out & ~reached & (length == max_steps)
            assert np.array_equal(env.terminals[clear], (out | reached)[clear])
            assert np.array_equal(env.truncations[clear], late[clear])
            expected = np.select([out, reached, late], [-1, 5, 0], 0.02 * (1 - distance))
            assert_close(env.rewards[clear], expected[clear])

            total += env.rewards
            known = over & clear
            assert np.array_equal(env.log[known, OUT], out[known])
            assert np.array_equal(env.log[known, SCORE], reached[known])
            assert np.array_equal(env.log[known, PERF], reached[known])
            assert_close(env.log[over, RETURN], total[over], atol=1e-4)
            assert np.array_equal(env.log[over, LENGTH], length[over])
            total[over] = length[over] = 0
            ends += [out.sum(), reached.sum(), late.sum()]
        assert ends[:2].min() > 0


def test_staying_put_is_truncated_at_max_steps_and_pays_nothing_then():
    with _open({"max_steps": 7, "radius": 0.01}, num_envs=512) as env:
        stay = np.zeros((512, 2), np.float32)
        waiting = np.ones(512, bool)
        for step in range(1, 8):
            env.step(stay)
            waiting &= ~env.terminals
            assert np.array_equal(env.truncations, waiting & (step == 7))
        assert waiting.sum() > 500
        assert not env.rewards[waiting].any()
        assert (env.log[waiting, LENGTH] == 7).all()


def test_first_states_are_at_rest_anywhere_in_the_square():
    with _open(num_envs=4096) as env:
        first = env.observations
        assert not first[:, VELOCITY].any()
        places = first[:, [0, 1, 4, 5]]
        assert (places.min(axis=0) < -0.99).all()
        assert (places.max(axis=0) > 0.99).all()
        assert np.abs(places.mean(axis=0)).max() < 5 / math.sqrt(3 * 4096)
        assert np.abs(np.corrcoef(places.T) - np.eye(4)).max() < 5 / math.sqrt(4096)


def test_positions_stay_inside_until_the_end():
    with _open() as env:
        for step in range(300):
            env.step(_random(env, step))
            assert (np.abs(env.observations[:, POSITION]) <= 1).all()
            assert not (env.terminals & env.truncations).any()


@pytest.mark.parametrize(("action", "axis", "sign"), [(LEFT, 0, -1), (RIGHT, 0, 1), (UP, 1, -1), (DOWN, 1, 1)])
def test_discrete_actions_push_along_one_axis(action, axis, sign):
    with _open({"discretize": True, "accel": 0.25, "max_steps": 1, "radius": 0.01}) as env:
        env.step(np.full(64, action, np.int32))
        velocity = env.final_observations[:, VELOCITY]
        assert (velocity[:, axis] == sign * 0.25).all()
        assert not velocity[:, 1 - axis].any()


def test_illegal_actions_are_replaced_and_counted():
    with _open({"max_steps": 1, "radius": 0.01}, num_envs=3) as env:
        env.step(np.array([[math.nan, 1], [2, -math.inf], [-1, 0.5]], np.float32))
        accel = np.float32(0.1)
        pushes = np.array([[0, 1], [1, -1], [-1, 0.5]], np.float32)
        assert np.array_equal(env.final_observations[:, VELOCITY], accel * pushes)
        assert env.log[:, ILLEGAL].tolist() == [1, 2, 0]


def test_success_reward_is_a_parameter():
    with _open({"radius": 1.0, "success_reward": 42.0}) as env:
        env.step(np.zeros((64, 2), np.float32))
        near = env.terminals
        assert near.any()
        assert (env.rewards[near] == 42).all()


def test_braking_controller_reaches_the_target():
    with _open() as env:
        scores = []
        for _ in range(500):
            env.step(_controller(env.observations, 0.1))
            scores.extend(env.log[env.logged, SCORE])
        assert len(scores) > 1000
        assert np.mean(scores) > 0.99


def test_random_policy_leaves_the_square():
    with _open(num_envs=512) as env:
        rows = []
        for step in range(200):
            env.step(_random(env, step))
            rows.append(env.log[env.logged].copy())
        rows = np.concatenate(rows)
        assert rows[:, SCORE].mean() == pytest.approx(0.04, abs=0.01)
        assert rows[:, OUT].mean() == pytest.approx(0.96, abs=0.01)


def test_pictures_show_agent_and_target():
    with _open() as env:
        picture = env.render(0, "rgb_array")
        assert picture.shape == (512, 512, 3)
        x, y = (256 + 256 * env.observations[0, TARGET]).astype(int)
        assert picture[y, x].tolist() == [0xBB, 0x00, 0x00]
        lines = env.render(0, "ansi").splitlines()
        assert len(lines) == 21
        assert "".join(lines).count("A") == 1
