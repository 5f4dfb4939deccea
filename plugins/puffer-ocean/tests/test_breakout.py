"""The rules of breakout one by one, a plain reimplementation of its frame as oracle, and a player (P17)."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve

TABLE = "puffer_ocean._native:breakout"
STAY, LEFT, RIGHT = range(3)
PADDLE_X, PADDLE_Y, BALL_X, BALL_Y, VX, VY, FIRED, POINTS, SPARE, PADDLE_WIDTH, BRICKS = range(11)
SCORE, PERF, RETURN, LENGTH, ILLEGAL, BALLS_LOST = range(6)
NO_WALL = {"brick_rows": 1, "brick_cols": 1, "brick_width": 1, "brick_height": 1}
"""One brick of one pixel in a corner: a field without a wall for as long as nothing hits it."""
TWO_BRICKS = {"brick_rows": 1, "brick_cols": 2, "brick_width": 288}
DEFAULTS = {
    "frameskip": 4,
    "width": 576,
    "height": 330,
    "paddle_width": 62,
    "paddle_height": 8,
    "ball_width": 32,
    "ball_height": 32,
    "brick_width": 32,
    "brick_height": 12,
    "brick_rows": 6,
    "brick_cols": 18,
    "initial_ball_speed": 256.0,
    "max_ball_speed": 448.0,
    "paddle_speed": 620.0,
}


def assert_close(actual, expected, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def _open(params=None, num_envs=16, seed=1):
    env = NativeEnv(resolve(TABLE), params, num_envs=num_envs, seed=seed)
    env.reset(seed=seed)
    return env


def _stay(env):
    return np.zeros(env.num_agents, np.int32)


def _points(row):
    return max(7 - 3 * (row // 2), 1)


class Player:
    """Keeps the ball, and hits it at another angle each time, so that no column of bricks is safe."""

    def __init__(self, env, seed=0):
        self.generator = np.random.default_rng(seed)
        self.aim = np.zeros(env.num_agents)
        self.rising = np.zeros(env.num_agents, bool)

    def act(self, observations, params=DEFAULTS):
        rising = observations[:, VY] < 0
        struck = rising & ~self.rising
        self.rising = rising
        self.aim[struck] = self.generator.uniform(-0.45, 0.45, struck.sum())
        width = params["paddle_width"] * observations[:, PADDLE_WIDTH]
        paddle = observations[:, PADDLE_X] * params["width"] + width * (0.5 + self.aim)
        ball = observations[:, BALL_X] * params["width"] + params["ball_width"] / 2
        ball = ball + observations[:, VX] * params["max_ball_speed"] / 60 * params["frameskip"]
        step = params["paddle_speed"] / 60 * params["frameskip"] / 2
        return np.where(ball < paddle - step, LEFT, np.where(ball > paddle + step, RIGHT, STAY)).astype(np.int32)


# ----------------------------------------------------------------------------------------------------------------------
# The oracle: one game, one frame after the other, every brick tried every time. In float32 and in the order of the
# rules, so that the comparison needs no tolerance: a game is chaotic, and any tolerance would be used up by 20 bounces.


class Oracle:
    def __init__(self, params):
        p = {**DEFAULTS, **params}
        f = np.float32
        self.frameskip, self.rows, self.cols = p["frameskip"], p["brick_rows"], p["brick_cols"]
        self.width, self.height = f(p["width"]), f(p["height"])
        self.full_width, self.ball_w, self.ball_h = f(p["paddle_width"]), f(p["ball_width"]), f(p["ball_height"])
        self.brick_w, self.brick_h = f(p["brick_width"]), f(p["brick_height"])
        self.paddle_y = f(p["height"] - p["paddle_height"] - 10)
        self.bottom = f(p["height"] - 10)
        self.start_y = f(p["height"] // 2 - 30)
        self.paddle_step = f(p["paddle_speed"] / 60)
        self.initial_speed, self.max_speed = p["initial_ball_speed"], p["max_ball_speed"]
        row, col = np.divmod(np.arange(self.rows * self.cols), self.cols)
        self.left, self.top = f(col) * self.brick_w, f(50) + f(row) * self.brick_h
        self.points = np.array([_points(r) for r in row])
        self.maximum = 2 * int(self.points.sum())
        self.present = np.ones(self.rows * self.cols, bool)
        self.score, self.spare, self.over = 0, 5, False
        self.new_round()

    def new_round(self):
        self.fired, self.hits, self.speed = False, 0, np.float32(self.initial_speed)
        self.paddle_width = self.full_width
        self.paddle_x = (self.width - self.paddle_width) * np.float32(0.5)
        self.x, self.y = (self.width - self.ball_w) * np.float32(0.5), self.start_y
        self.vx = self.vy = np.float32(0)

    def step(self, action, launch):
        """Advance by ``frameskip`` frames; ``launch`` is the direction of a ball fired meanwhile."""
        reward = 0
        for _ in range(self.frameskip):
            reward += self.frame(action, launch)
            if self.over:
                break
        return reward

    def frame(self, action, launch):
        if not self.fired:
            angle = math.pi / 3.25
            self.fired = True
            self.vx = np.float32(launch * np.float32(math.sin(angle) * self.initial_speed / 60))
            self.vy = np.float32(math.cos(angle) * self.initial_speed / 60)
        else:
            move = {STAY: np.float32(0), LEFT: -self.paddle_step, RIGHT: self.paddle_step}[action]
            self.paddle_x = min(max(self.paddle_x + move, np.float32(0)), self.width - self.paddle_width)
        x, y = self.x + self.vx, self.y + self.vy
        contact = min(self.contacts(x, y), default=None, key=lambda c: (c[0], -c[1], c[2]))
        before = self.score
        if contact is None:
            self.x, self.y = x, y
        else:
            self.x, self.y = contact[4], contact[5]
            self.touch(contact[3])
        if self.y >= self.bottom:
            self.lose()
        return self.score - before

    def contacts(self, x, y):
        """Yield (time, common edge, order, what, ball x, ball y) of everything in the way to (x, y)."""
        zero, one = np.float32(0), np.float32(1)
        inverse_x, inverse_y = one / self.vx if self.vx else zero, one / self.vy if self.vy else zero
        sides = self.left - self.ball_w if self.vx > 0 else self.left + self.brick_w
        faces = self.top - self.ball_h if self.vy > 0 else self.top + self.brick_h
        for i in np.flatnonzero(self.present & self.crossed(self.x, x, self.vx, sides)):
            time = (sides[i] - self.x) * inverse_x
            at = self.y + self.vy * time
            common = min(self.top[i] + self.brick_h, at + self.ball_h) - max(self.top[i], at)
            if common > 0:
                yield time, common, 2 * i, ("side", i), sides[i], at
        for i in np.flatnonzero(self.present & self.crossed(self.y, y, self.vy, faces)):
            time = (faces[i] - self.y) * inverse_y
            at = self.x + self.vx * time
            common = min(self.left[i] + self.brick_w, at + self.ball_w) - max(self.left[i], at)
            if common > 0:
                yield time, common, 2 * i + 1, ("face", i), at, faces[i]
        end = 2 * len(self.present)
        right = self.width - self.ball_w
        if (self.vx < 0 and x <= 0) or (self.vx > 0 and x >= right):
            wall = zero if self.vx < 0 else right
            time = max((wall - self.x) * inverse_x, zero)
            yield time, self.ball_h, end, ("side", -1), wall, self.y + self.vy * time
        if self.vy < 0 and y <= 0:
            time = max(-self.y * inverse_y, zero)
            yield time, self.ball_w, end + 1, ("ceiling", -1), self.x + self.vx * time, zero
        line = self.paddle_y - self.ball_h
        if self.vy > 0 and self.y <= line <= y:
            time = (line - self.y) * inverse_y
            at = self.x + self.vx * time
            common = min(self.paddle_x + self.paddle_width, at + self.ball_w) - max(self.paddle_x, at)
            if common > 0:
                yield time, common, end + 2, ("paddle", -1), at, line

    @staticmethod
    def crossed(start, end, velocity, edges):
        if velocity > 0:
            return (start <= edges) & (end >= edges)
        return (start >= edges) & (end <= edges) & (velocity < 0)

    def touch(self, what):
        kind, brick = what
        if kind == "paddle":
            self.strike()
            return
        if kind == "side":
            self.vx = -self.vx
        else:
            self.vy = -self.vy
        if kind == "ceiling":
            self.paddle_width = self.full_width * np.float32(0.5)
        if brick >= 0:
            self.present[brick] = False
            self.score += int(self.points[brick])
            if brick // self.cols < 3:
                self.speed = np.float32(self.max_speed)
            self.over = self.score == self.maximum

    def strike(self):
        centre = self.x + np.float32(0.5) * self.ball_w
        share = (float(centre) - float(self.paddle_x)) / float(self.paddle_width)
        angle = math.pi * (-0.25 + 0.5 * share)
        angle = min(max(angle, -math.radians(89)), math.radians(89))
        speed = float(self.speed) / 60
        self.vx, self.vy = np.float32(math.sin(angle) * speed), np.float32(-math.cos(angle) * speed)
        self.hits += 1
        if self.hits % 4 == 0:
            self.speed = min(self.speed + np.float32(64), np.float32(self.max_speed))
        if self.score == self.maximum // 2:
            self.present[:] = True

    def lose(self):
        if self.spare == 0:
            self.over = True
            return
        self.spare -= 1
        self.new_round()

    def observation(self):
        scalars = [
            self.paddle_x / self.width,
            self.paddle_y / self.height,
            self.x / self.width,
            self.y / self.height,
            self.vx * 60 / self.max_speed,
            self.vy * 60 / self.max_speed,
            self.fired / 5,
            self.score / self.maximum,
            self.spare / 5,
            self.paddle_width / self.full_width,
        ]
        return np.concatenate([np.array(scalars, np.float32), np.float32(~self.present)])


def _follow_with_oracle(params, steps, seed, explore):
    """Play one instance and the oracle side by side; return the games finished and the best score."""
    full = {**DEFAULTS, **params}
    games = best = 0
    with _open(params, num_envs=1, seed=seed) as env:
        oracle, player = Oracle(params), Player(env, seed)
        generator = np.random.default_rng(seed)
        for _ in range(steps):
            action = player.act(env.observations, full)
            if generator.random() < explore:
                action = generator.integers(0, 3, 1).astype(np.int32)
            fork = copy.deepcopy(oracle)
            reward = oracle.step(int(action[0]), 1)
            other = fork.step(int(action[0]), -1)
            env.step(action)
            row = env.final_observations[0] if oracle.over else env.observations[0]
            if abs(row - oracle.observation()).max() > 1e-6:  # the ball was fired to the other side
                oracle, reward = fork, other
            assert_close(row, oracle.observation())
            assert env.rewards[0] == reward
            assert env.terminals[0] == oracle.over
            best = max(best, oracle.score)
            if oracle.over:
                games += 1
                oracle = Oracle(params)
                assert_close(env.observations[0], oracle.observation())
    return games, best


@pytest.mark.parametrize(
    ("params", "explore"),
    [
        ({}, 0.1),
        ({}, 0.6),
        ({"frameskip": 1}, 0.2),
        ({"frameskip": 7, "width": 300, "brick_cols": 9, "brick_width": 33}, 0.2),
        ({"ball_width": 7, "ball_height": 5, "brick_height": 5, "max_ball_speed": 1500.0}, 0.1),
        ({"height": 500, "brick_rows": 13, "brick_height": 11, "paddle_width": 120, "initial_ball_speed": 448.0}, 0.1),
        ({"width": 64, "brick_cols": 64, "brick_width": 1, "paddle_width": 20, "frameskip": 2}, 0.1),
    ],
)
def test_frames_agree_with_the_oracle(params, explore):
    _, best = _follow_with_oracle(params, 500, 3, explore)
    assert best > 0


def test_whole_games_with_a_restored_wall_agree_with_the_oracle():
    games, best = _follow_with_oracle({**TWO_BRICKS, "frameskip": 3}, 700, 5, 0.0)
    assert games >= 2
    assert best == 28


# ----------------------------------------------------------------------------------------------------------------------
# The rules.


def test_first_observation_is_the_published_start():
    with _open() as env:
        first = env.observations
        assert first.shape == (16, 118)
        expected = [257 / 576, 312 / 330, 272 / 576, 135 / 330, 0, 0, 0, 0, 1, 1]
        assert first[:, :BRICKS] == pytest.approx(np.tile(expected, (16, 1)))
        assert not first[:, BRICKS:].any()


def test_ball_is_fired_downwards_to_both_sides_alike():
    with _open({"frameskip": 1}, num_envs=1000) as env:
        env.step(np.full(1000, RIGHT, np.int32))
        speed, angle = 256 / 448, math.pi / 3.25
        assert np.abs(env.observations[:, VX]) == pytest.approx(speed * math.sin(angle))
        assert env.observations[:, VY] == pytest.approx(speed * math.cos(angle))
        assert env.observations[:, FIRED] == pytest.approx(0.2)
        assert abs((env.observations[:, VX] > 0).sum() - 500) < 5 * 250**0.5
        moved = 257 / 576 + 620 / 60 / 576
        assert env.observations[:, PADDLE_X] == pytest.approx(257 / 576)  # the frame that fires moves no paddle
        env.step(np.full(1000, RIGHT, np.int32))
        assert env.observations[:, PADDLE_X] == pytest.approx(moved)


@pytest.mark.parametrize(("action", "end"), [(LEFT, 0.0), (RIGHT, (576 - 62) / 576)])
def test_paddle_stops_at_the_side(action, end):
    with _open() as env:
        actions = np.full(16, action, np.int32)
        for _ in range(12):
            env.step(actions)
            assert (env.observations[:, PADDLE_X] >= 0).all()
            assert (env.observations[:, PADDLE_X] <= np.float32((576 - 62) / 576) + 1e-6).all()
        assert env.observations[:, PADDLE_X] == pytest.approx(end, abs=1e-6)


def test_paddle_moves_by_a_share_of_its_speed_when_continuous():
    with _open({"continuous": True, "frameskip": 1}, num_envs=6) as env:
        actions = np.array([[0.5], [-0.25], [0], [9], [-9], [math.nan]], np.float32)
        env.step(actions)
        before = env.observations[:, PADDLE_X].copy()
        env.step(actions)
        moved = (env.observations[:, PADDLE_X] - before) * 576 / (620 / 60)
        assert moved == pytest.approx([0.5, -0.25, 0, 1, -1, 0], abs=1e-4)


def _strikes(params, steps, num_envs=16):
    """Yield (env, before, after) for the instances whose ball was hit by the paddle in a frame, frame by frame."""
    params = {**params, "frameskip": 1}
    with _open(params, num_envs=num_envs) as env:
        player = Player(env)
        for _ in range(steps):
            before = env.observations.copy()
            env.step(player.act(before, {**DEFAULTS, **params}))
            struck = (before[:, VY] > 0) & (env.observations[:, VY] < 0) & (env.rewards == 0)
            struck &= before[:, BALL_Y] * 330 > 200
            yield np.flatnonzero(struck), before, env.observations


def test_angle_depends_on_where_the_paddle_is_hit():
    seen = []
    for struck, _, after in _strikes({}, 1500):
        for row in after[struck]:
            share = (row[BALL_X] * 576 + 16 - row[PADDLE_X] * 576) / (row[PADDLE_WIDTH] * 62)
            expected = math.pi * (-0.25 + 0.5 * share)
            assert row[BALL_Y] * 330 == pytest.approx(280, abs=1e-3)
            assert math.atan2(row[VX], -row[VY]) == pytest.approx(expected, abs=1e-3)
            seen.append(expected)
    assert len(seen) > 100
    assert min(seen) < -0.5 < 0.5 < max(seen)


def test_every_fourth_hit_of_a_round_adds_64_up_to_448():
    rounds = [[[]] for _ in range(16)]
    for struck, before, after in _strikes(NO_WALL, 4000):
        for i in np.flatnonzero((before[:, FIRED] == 0) | (after[:, POINTS] > 0)):
            rounds[i].append([])
        for i in struck[after[struck, POINTS] == 0]:
            rounds[i][-1].append(round(448 * math.hypot(after[i, VX], after[i, VY])))
    speeds = [hits for instance in rounds for hits in instance if hits]
    expected = [256] * 4 + [320] * 4 + [384] * 4 + [448] * 99
    assert all(hits == expected[: len(hits)] for hits in speeds)
    assert max(map(len, speeds)) > 16


def test_ceiling_halves_the_paddle_until_the_round_ends():
    with _open({**NO_WALL, "frameskip": 1}) as env:
        player, halved, restored = Player(env), 0, 0
        for step in range(3000):
            before = env.observations.copy()
            env.step(player.act(before) if step < 1500 else _stay(env))
            after = env.observations
            touched = (before[:, VY] < 0) & (after[:, VY] > 0) & (after[:, BALL_Y] == 0)
            assert (after[touched, PADDLE_WIDTH] == 0.5).all()
            narrow, new_round = before[:, PADDLE_WIDTH] == 0.5, after[:, FIRED] == 0
            assert (after[narrow & ~new_round, PADDLE_WIDTH] == 0.5).all()
            assert (after[new_round, PADDLE_WIDTH] == 1).all()
            halved += touched.sum()
            restored += (narrow & new_round).sum()
        assert halved > 16
        assert restored > 0


def test_each_row_has_its_points_and_the_top_three_set_full_speed():
    rows_hit = set()
    with _open({"frameskip": 1}, num_envs=32) as env:
        player = Player(env)
        fast = np.zeros(32, bool)
        for _ in range(4000):
            before = env.observations.copy()
            env.step(player.act(before))
            after = env.observations
            broken = (after[:, BRICKS:] > before[:, BRICKS:]).sum(axis=1)
            assert (broken <= 1).all()
            assert np.array_equal(env.rewards > 0, broken == 1)
            for i in np.flatnonzero(broken):
                row = int((after[i, BRICKS:] > before[i, BRICKS:]).argmax()) // 18
                assert env.rewards[i] == _points(row)
                rows_hit.add(row)
                fast[i] |= row < 3
            fast &= after[:, FIRED] > 0
            struck = (before[:, VY] > 0) & (after[:, VY] < 0) & (before[:, BALL_Y] * 330 > 200)
            speed = 448 * np.hypot(after[:, VX], after[:, VY])
            assert_close(speed[struck & fast], 448, atol=1e-3)
    assert rows_hit == set(range(6))


def test_lost_balls_end_the_game_and_leave_the_bricks():
    with _open(num_envs=64) as env:
        lost = np.zeros(64, int)
        ended = np.zeros(64, bool)
        for _ in range(160):
            before = env.observations.copy()
            env.step(_stay(env))
            after = env.observations
            fewer = after[:, SPARE] < before[:, SPARE] - 0.1
            lost += fewer
            assert np.array_equal(after[fewer, BRICKS:], before[fewer, BRICKS:])
            over = env.terminals
            assert (env.log[over, BALLS_LOST] == 6).all()
            assert (env.final_observations[over, SPARE] == 0).all()
            assert (env.final_observations[over, BALL_Y] * 330 >= 320).all()
            assert (lost[over] == 5).all()
            lost[over] = 0
            ended |= over
        assert ended.mean() > 0.5


def test_end_of_a_game_ends_the_repetition():
    with _open({"frameskip": 16}, num_envs=64) as env:
        first = env.observations.copy()
        ended = 0
        for _ in range(100):
            env.step(_stay(env))
            over = env.terminals
            assert np.array_equal(env.observations[over], first[over])
            ended += over.sum()
        assert ended > 64


def test_step_limit_truncates_and_zero_is_no_limit():
    with _open({"max_steps": 25}) as env:
        for step in range(1, 26):
            env.step(_stay(env))
            assert env.truncations.all() == (step == 25)
            assert not env.terminals.any()
        assert (env.log[:, LENGTH] == 25).all()
    with _open({"max_steps": 0, **NO_WALL}) as env:
        player = Player(env)
        for _ in range(500):
            env.step(player.act(env.observations))
            assert not env.truncations.any()


def test_wall_comes_back_at_half_of_the_points_and_the_last_brick_wins():
    with _open({**TWO_BRICKS, "frameskip": 1}, num_envs=8) as env:
        player, restored, won = Player(env), 0, 0
        for _ in range(6000):
            before = env.observations.copy()
            env.step(player.act(before))
            after = env.observations
            back = (after[:, BRICKS:] < before[:, BRICKS:]).any(axis=1) & ~env.terminals
            assert_close(before[back, POINTS], 0.5)
            assert (before[back, VY] > 0).all()
            assert (after[back, VY] < 0).all()
            assert (before[back, BRICKS:] == 1).all()
            assert not after[back, BRICKS:].any()
            complete = env.terminals & (env.log[:, SCORE] == 28)
            assert (env.rewards[complete] == 7).all()
            assert (env.log[complete, PERF] == 1).all()
            assert (env.final_observations[complete, POINTS] == 1).all()
            restored += back.sum()
            won += complete.sum()
        assert restored >= won > 8


def test_rewards_of_a_game_add_up_to_its_score():
    with _open(num_envs=64) as env:
        player, generator = Player(env), np.random.default_rng(1)
        total, length, games = np.zeros(64), np.zeros(64), 0
        for _ in range(1500):
            actions = player.act(env.observations)
            random = generator.random(64) < 0.5
            actions[random] = generator.integers(0, 3, random.sum())
            env.step(actions)
            total += env.rewards
            length += 1
            over = env.terminals
            assert np.array_equal(env.log[over, SCORE], total[over])
            assert np.array_equal(env.log[over, RETURN], total[over])
            assert np.array_equal(env.log[over, LENGTH], length[over])
            assert_close(env.final_observations[over, POINTS], total[over] / 864)
            assert_close(env.log[over, PERF], total[over] / 864)
            assert_close(env.observations[~over, POINTS], total[~over] / 864)
            total[over] = length[over] = 0
            games += over.sum()
        assert games > 20


def test_repeating_an_action_is_the_same_as_skipping_frames():
    with (
        _open({"frameskip": 5, "max_steps": 0}, num_envs=32) as skipping,
        _open({"frameskip": 1}, num_envs=32) as single,
    ):
        player, compared = Player(skipping), 0
        alive = np.ones(32, bool)
        for _ in range(600):
            actions = player.act(skipping.observations)
            skipping.step(actions)
            rewards = np.zeros(32, np.float32)
            for _ in range(5):
                single.step(actions)
                rewards += single.rewards
                alive &= ~single.terminals
            alive &= ~skipping.terminals
            assert np.array_equal(skipping.observations[alive], single.observations[alive])
            assert np.array_equal(skipping.rewards[alive], rewards[alive])
            compared += alive.sum()
        assert compared > 10_000


def test_published_velocity_is_in_pixels_per_frame():
    with _open(num_envs=8) as ours, _open({"published_velocity": True}, num_envs=8) as published:
        assert published.single_observation_space == ours.single_observation_space
        player = Player(ours)
        for _ in range(300):
            actions = player.act(ours.observations)
            ours.step(actions)
            published.step(actions)
            expected = ours.observations.copy()
            expected[:, VX : VY + 1] *= 448 / 60 / 512
            assert_close(published.observations, expected, atol=1e-7)
        assert np.abs(published.observations[:, VX : VY + 1]).max() < 0.02


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"brick_cols": 19}, "brick_cols x brick_width is 608 pixels, more than width=576"),
        ({"paddle_width": 600}, "paddle_width=600 is more than width=576"),
        ({"brick_rows": 8}, "the wall reaches down to 146"),
        ({"height": 1000, "paddle_height": 600}, "the paddle begins at 390"),
        ({"initial_ball_speed": 500.0}, "initial_ball_speed=500 is more than max_ball_speed=448"),
        ({"frameskip": 17}, "frameskip"),
    ],
)
def test_impossible_fields_are_refused(params, match):
    with pytest.raises(ValueError, match=match):
        NativeEnv(resolve(TABLE), params)


# ----------------------------------------------------------------------------------------------------------------------
# A player (P17), and what must hold in every game.


def test_keeping_the_ball_reaches_a_high_score_within_the_rules():
    with _open(num_envs=32) as env:
        player, scores = Player(env), []
        for _ in range(8000):
            before = env.observations.copy()
            env.step(player.act(before))
            after, over = env.observations, env.terminals
            for last in (after[~over], env.final_observations[over]):
                assert (last[:, BALL_X] >= -0.02).all()
                assert (last[:, BALL_X] <= 1.02).all()
                assert (last[:, PADDLE_X] >= 0).all()
                assert (last[:, PADDLE_X] + last[:, PADDLE_WIDTH] * 62 / 576 <= 1 + 1e-6).all()
            back = (after[:, BRICKS:] < before[:, BRICKS:]).any(axis=1) & ~over
            assert_close(before[back, POINTS], 0.5)
            points = np.array([_points(i // 18) for i in range(108)])
            broken = after[:, BRICKS:] @ points
            refilled = after[:, POINTS] * 864 > 432.5
            expected = np.where(refilled, broken + 432, broken)
            half = np.abs(after[:, POINTS] * 864 - 432) < 0.5
            assert_close((after[:, POINTS] * 864)[~half], expected[~half], atol=1e-3)
            scores.extend(env.log[over, SCORE])
        assert len(scores) >= 32
        assert np.mean(scores) >= 820


def test_random_policy_scores_as_published():
    with _open(num_envs=1024) as env:
        generator, scores = np.random.default_rng(1), []
        for _ in range(400):
            env.step(generator.integers(0, 3, 1024).astype(np.int32))
            scores.extend(env.log[env.logged, SCORE])
        assert np.mean(scores) == pytest.approx(0.8, abs=0.15)


def test_pictures_show_bricks_ball_and_paddle():
    with _open() as env:
        picture = env.render(0, "rgb_array")
        assert picture.shape == (330, 576, 3)
        assert picture[56, 16].tolist() == [0xC8, 0x48, 0x48]
        assert picture[151, 288].tolist() == [0xF1, 0xF1, 0xF1]
        assert picture[316, 288].tolist() == [0x00, 0xBB, 0xBB]
        text = env.render(0, "ansi")
        assert text.startswith("score 0  balls 5\n")
        assert {"#", "o", "="} <= set(text)
