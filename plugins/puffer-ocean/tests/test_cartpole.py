"""The dynamics of cartpole against a float64 reference and Gymnasium, its rules, and a linear controller (P17)."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest

from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve

TABLE = "puffer_ocean._native:cartpole"
LEFT, RIGHT = range(2)
SCORE, PERF, RETURN, LENGTH, ILLEGAL, X_OUT, ANGLE_OUT, TIMED_OUT = range(8)
DEFAULTS = {
    "cart_mass": 1.0,
    "pole_mass": 0.1,
    "pole_length": 0.5,
    "gravity": 9.8,
    "force_mag": 10.0,
    "dt": 0.02,
}


def assert_close(actual, expected, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def _open(params=None, num_envs=64, seed=1):
    env = NativeEnv(resolve(TABLE), params, num_envs=num_envs, seed=seed)
    env.reset(seed=seed)
    return env


def _random(env, seed):
    return np.random.default_rng(seed).integers(0, 2, env.num_agents).astype(np.int32)


def _controller(observations):
    """Push towards where the pole falls, and a little towards the middle."""
    x, x_dot, angle, angle_dot = observations.T
    return (angle + 0.5 * angle_dot + 0.05 * x + 0.1 * x_dot > 0).astype(np.int32)


def _reference(state, force, p):
    """Return the next state in float64 from (N, 4) states and (N,) forces. Source: Florian 2007, equations 23, 24."""
    x, x_dot, angle, angle_dot = np.asarray(state, np.float64).T
    mass, length = p["cart_mass"] + p["pole_mass"], p["pole_length"]
    polemass_length = p["pole_mass"] * length
    sine, cosine = np.sin(angle), np.cos(angle)
    temp = (force + polemass_length * angle_dot**2 * sine) / mass
    alpha = (p["gravity"] * sine - cosine * temp) / (length * (4 / 3 - p["pole_mass"] * cosine**2 / mass))
    accel = temp - polemass_length * alpha * cosine / mass
    dt = p["dt"]
    return np.stack([x + dt * x_dot, x_dot + dt * accel, angle + dt * angle_dot, angle_dot + dt * alpha], axis=1)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"continuous": True},
        {"pole_length": 2.0, "pole_mass": 0.5, "dt": 0.01},
        {"cart_mass": 0.3, "gravity": 3.7, "force_mag": 4.0, "reset_range": 0.1},
        {"pole_mass": 3.0, "cart_mass": 5.0, "force_mag": 40.0, "continuous": True},
    ],
)
def test_trajectory_agrees_with_float64_over_50_steps(params):
    p = {**DEFAULTS, **{k: v for k, v in params.items() if k in DEFAULTS}}
    with _open({**params, "max_steps": 10_000}, num_envs=256) as env:
        state = env.observations.astype(np.float64)
        running = np.ones(256, bool)
        generator = np.random.default_rng(2)
        for _ in range(50):
            if env.single_action_space.dtype == np.float32:
                # A controller keeps episodes long, noise makes them differ.
                actions = np.clip(2 * _controller(env.observations) - 1 + generator.normal(0, 0.5, 256), -1, 1)
                actions = actions.astype(np.float32)[:, None]
                force = actions[:, 0].astype(np.float64) * p["force_mag"]
            else:
                explore = generator.random(256) < 0.2
                actions = np.where(explore, generator.integers(0, 2, 256), _controller(env.observations))
                actions = actions.astype(np.int32)
                force = np.where(actions == RIGHT, p["force_mag"], -p["force_mag"])
            state = _reference(state, force, p)
            env.step(actions)
            ended = running & (env.terminals | env.truncations)
            assert_close(env.final_observations[ended], state[ended], atol=1e-4)
            running &= ~ended
            assert_close(env.observations[running], state[running], atol=1e-4)
        assert running.sum() > 25


def test_trajectory_agrees_with_gymnasium_step_by_step():
    upstream = gymnasium.make("CartPole-v1").unwrapped
    upstream.reset(seed=1)
    with _open({"max_steps": 500, "gym_reward": True}, num_envs=1) as env:
        for step in range(300):
            upstream.state = tuple(float(x) for x in env.observations[0])
            upstream.steps_beyond_terminated = None
            action = _random(env, step)
            expected, reward, terminated, _, _ = upstream.step(int(action[0]))
            env.step(action)
            last = env.final_observations[0] if terminated else env.observations[0]
            assert_close(last, expected, atol=1e-5)
            assert env.rewards[0] == reward == 1
            assert env.terminals[0] == terminated
    upstream.close()


def test_mirrored_actions_give_the_mirrored_trajectory():
    with _open({"reset_range": 0.0}) as env, _open({"reset_range": 0.0}) as mirror:
        ends = 0
        for step in range(200):
            actions = _random(env, step)
            env.step(actions)
            mirror.step(1 - actions)
            assert np.array_equal(env.observations, -mirror.observations)
            assert np.array_equal(env.terminals, mirror.terminals)
            ends += env.terminals.sum()
        assert ends > 64


def test_first_states_fill_the_reset_range():
    with _open({"reset_range": 0.2}, num_envs=4096) as env:
        first = env.observations
        assert np.abs(first).max() <= 0.2
        assert (first.min(axis=0) < -0.19).all()
        assert (first.max(axis=0) > 0.19).all()
        assert np.abs(first.mean(axis=0)).max() < 5 * 0.2 / math.sqrt(3 * 4096)


def test_scaled_observations_are_divided_by_the_limits():
    with _open() as plain, _open({"scaled": True}) as scaled:
        for step in range(100):
            actions = _random(plain, step)
            plain.step(actions)
            scaled.step(actions)
            expected = plain.observations / np.array([2.4, 3, math.radians(12), 3], np.float32)
            assert_close(scaled.observations, expected)
            assert np.array_equal(plain.terminals, scaled.terminals)


@pytest.mark.parametrize("gym_reward", [False, True])
def test_last_step_pays_only_with_gym_reward(gym_reward):
    with _open({"max_steps": 30, "gym_reward": gym_reward}) as env:
        total, length = np.zeros(64), np.zeros(64)
        for step in range(200):
            env.step(_random(env, step) if step % 60 < 30 else _controller(env.observations))
            over = env.terminals | env.truncations
            assert (env.rewards[~over] == 1).all()
            assert (env.rewards[over] == gym_reward).all()
            total += env.rewards
            length += 1
            assert np.array_equal(env.log[over, RETURN], total[over])
            assert np.array_equal(env.log[over, LENGTH], length[over])
            assert np.array_equal(env.log[over, SCORE], length[over])
            assert_close(env.log[over, PERF], total[over] / 30)
            total[over] = length[over] = 0


def _ends(params, actions_of, steps, num_envs=64):
    """Return log rows, last observations and terminal flags of every episode that ended."""
    rows, last, terminal = [], [], []
    with _open(params, num_envs=num_envs) as env:
        for step in range(steps):
            env.step(actions_of(env, step))
            over = env.terminals | env.truncations
            assert np.array_equal(env.logged, over)
            rows.append(env.log[over].copy())
            last.append(env.final_observations[over].copy())
            terminal.append(env.terminals[over].copy())
    return np.concatenate(rows), np.concatenate(last), np.concatenate(terminal)


def test_every_episode_has_one_reason_to_end():
    weak = {"gravity": 0.001, "pole_length": 100.0, "max_steps": 60}  # the cart leaves long before this pole leans
    runs = [
        (_ends({}, _random, 300), ANGLE_OUT),
        (_ends(weak, lambda env, step: np.full(env.num_agents, RIGHT, np.int32), 300), X_OUT),
        (_ends({"max_steps": 50}, lambda env, step: _controller(env.observations), 300), TIMED_OUT),
    ]
    for (rows, last, terminal), reason in runs:
        assert len(rows) >= 64
        assert (rows[:, X_OUT : TIMED_OUT + 1].sum(axis=1) == 1).all()
        assert rows[:, reason].mean() > 0.9
        assert np.array_equal(rows[:, TIMED_OUT] == 0, terminal)
        assert np.array_equal(rows[:, X_OUT] == 1, np.abs(last[:, 0]) > np.float32(2.4))
        leaning = np.abs(last[:, 2]) > np.float32(math.radians(12))
        assert np.array_equal(rows[:, ANGLE_OUT] == 1, leaning & (rows[:, X_OUT] == 0))


def test_length_never_exceeds_max_steps_and_a_fall_on_the_last_step_is_terminal():
    rows, last, terminal = _ends({"max_steps": 12}, lambda env, step: np.full(env.num_agents, LEFT, np.int32), 200)
    assert rows[:, LENGTH].max() <= 12
    on_time = rows[:, LENGTH] == 12
    assert np.array_equal(terminal[on_time], np.abs(last[on_time, 2]) > np.float32(math.radians(12)))


def test_stagger_cuts_first_episodes_at_random_steps_and_does_not_log_them():
    with _open({"stagger": True, "max_steps": 40}, num_envs=512) as env:
        cut_at = np.zeros(512, int)
        for step in range(1, 41):
            env.step(_controller(env.observations))
            first = env.truncations & (cut_at == 0)
            assert not env.logged[first].any()
            assert np.array_equal(env.logged, env.truncations & ~first)
            cut_at[first] = step
        assert set(cut_at) == set(range(1, 41))
        for _ in range(40):
            env.step(_controller(env.observations))
            assert (env.log[env.logged, LENGTH] == 40).all()


def test_continuous_force_is_clipped():
    with _open({"continuous": True, "reset_range": 0.0, "max_steps": 1}, num_envs=6) as env:
        env.step(np.array([[1.0], [5.0], [math.inf], [-2.0], [0.0], [math.nan]], np.float32))
        velocity = env.final_observations[:, 1]
        assert velocity[0] == velocity[1] == velocity[2] == -velocity[3] > 0
        assert velocity[4] == velocity[5] == 0
        assert env.log[:, ILLEGAL].tolist() == [0, 1, 1, 1, 0, 1]


def test_linear_feedback_balances_for_500_steps():
    rows, _, _ = _ends({"max_steps": 500}, lambda env, step: _controller(env.observations), 1100)
    assert len(rows) >= 128
    assert rows[:, LENGTH].mean() >= 495


def test_random_policy_lasts_22_steps():
    rows, _, _ = _ends({}, _random, 500, num_envs=512)
    assert rows[:, LENGTH].mean() == pytest.approx(22.2, abs=0.5)


def test_pictures_show_cart_and_pole():
    with _open({"reset_range": 0.0}) as env:
        picture = env.render(0, "rgb_array")
        assert picture.shape == (400, 600, 3)
        assert picture[305, 310].tolist() == [0x00, 0xBB, 0xBB]
        assert picture[200, 300].tolist() == [0xBB, 0x00, 0x00]
        head, top, track = env.render(0, "ansi").splitlines()
        assert head.startswith("step 0")
        assert top.index("o") == track.index("H") == 24
