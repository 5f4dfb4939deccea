"""Snake against a plain Python world that draws the same random numbers, and its rules one by one."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from puffer_core.errors import OptionError
from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve
from puffer_core.testing import random_actions
from puffer_core.testing.generator import Generator

TABLE = "puffer_ocean._native:snake"
UP, DOWN, LEFT, RIGHT = range(4)
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
EMPTY, FOOD, CORPSE, WALL, COLOR = range(5)
SCORE, PERF, RETURN, LENGTH, ILLEGAL, FOOD_EATEN = range(6)
SMALL = {"width": 30, "height": 24, "num_snakes": 8, "num_food": 40}


class Body:
    def __init__(self, cell):
        self.cells = deque([cell])  # head first
        self.direction = UP
        self.life = self.food = self.illegal = 0
        self.total = 0.0


class World:
    """The rules as prose has them; only the order of the random draws is taken from the environment."""

    def __init__(self, env, seed, index=0):
        self.p, self.rng = env.params, Generator(seed, index)
        v, (rows, columns) = self.p["vision"], (self.p["height"], self.p["width"])
        self.inside = [(r, c) for r in range(v, rows - v) for c in range(v, columns - v)]
        self.grid = np.full((rows, columns), WALL, np.uint8)
        self.grid[v : rows - v, v : columns - v] = EMPTY
        self.snakes = []
        for _ in range(self.p["num_snakes"]):
            self.snakes.append(self.born(len(self.snakes)))
        for _ in range(self.p["num_food"]):
            self.place_food()

    def color(self, i):
        return 7 if i == 0 else 4 + i % 4

    def free_cell(self):
        v, (rows, columns) = self.p["vision"], self.grid.shape
        for _ in range(64):
            cell = v + self.rng.below(rows - 2 * v), v + self.rng.below(columns - 2 * v)
            if self.grid[cell] in (EMPTY, CORPSE):
                return cell
        free = [cell for cell in self.inside if self.grid[cell] in (EMPTY, CORPSE)]
        return free[self.rng.below(len(free))] if free else None

    def born(self, i):
        cell = self.free_cell()
        self.grid[cell] = self.color(i)
        return Body(cell)

    def place_food(self):
        cell = self.free_cell()
        if cell is not None:
            self.grid[cell] = FOOD
        return cell is not None

    def drop_tail(self, snake):
        self.grid[snake.cells.pop()] = EMPTY

    def view(self, i):
        v, (r, c) = self.p["vision"], self.snakes[i].cells[0]
        view = self.grid[r - v : r + v + 1, c - v : c + v + 1].copy()
        if self.p["relative_colors"]:
            own = np.zeros_like(self.grid)
            own[tuple(zip(*self.snakes[i].cells, strict=True))] = 1
            own = own[r - v : r + v + 1, c - v : c + v + 1]
            view = np.where(view >= COLOR, np.where(own == 1, 4, 5), view)
        return view

    def end(self, i, out, key):
        snake = self.snakes[i]
        length = len(snake.cells)
        out["final"][i] = self.view(i)
        out[key][i] = True
        perf = min(length / 120, 1)
        out["log"][i] = (length, perf, snake.total, snake.life, snake.illegal, snake.food)
        for left, cell in zip(range(length, 0, -1), snake.cells, strict=True):
            self.grid[cell] = CORPSE if self.p["leave_corpse"] and left % 2 == 0 else EMPTY
        self.snakes[i] = self.born(i)

    def reward(self, i, out, name):
        out["rewards"][i] = np.float32(self.p[name])
        self.snakes[i].total += out["rewards"][i]

    def move(self, i, action, out):
        snake = self.snakes[i]
        snake.life += 1
        if not 0 <= action < 4:
            snake.illegal += 1
            action = snake.direction
        head = snake.cells[0]
        ahead = tuple(np.add(head, MOVES[action]))
        if len(snake.cells) > 1 and ahead == snake.cells[1]:
            action = snake.direction
            ahead = tuple(np.add(head, MOVES[action]))
        tile = self.grid[ahead]
        if tile >= WALL:
            self.reward(i, out, "reward_death")
            return self.end(i, out, "terminals")
        snake.direction = action
        snake.cells.appendleft(ahead)
        self.grid[ahead] = self.color(i)
        grows = tile != EMPTY and len(snake.cells) <= self.p["max_snake_length"] - 1
        if not grows:
            self.drop_tail(snake)
        if tile != EMPTY:
            self.reward(i, out, "reward_food" if tile == FOOD else "reward_corpse")
        if tile == FOOD:
            snake.food += 1
            if not self.place_food():
                self.drop_tail(snake)
                assert self.place_food()
        if self.p["max_life"] and snake.life >= self.p["max_life"]:
            self.end(i, out, "truncations")
        return None

    def step(self, actions):
        n, d = len(self.snakes), 2 * self.p["vision"] + 1
        out = {key: np.zeros(n, bool) for key in ("terminals", "truncations")}
        out |= {"rewards": np.zeros(n, np.float32), "log": {}, "final": {}}
        for i in range(n):
            self.move(i, actions[i], out)
        out["observations"] = np.array([self.view(i) for i in range(n)]).reshape(n, d, d)
        return out


def _open(**params):
    return NativeEnv(resolve(TABLE), {**SMALL, **params}, num_envs=1, seed=1)


def _grid(env):
    """Return the world as the text view shows it; bodies are 4..7, the head of snake 0 is 7."""
    tiles = {mark: value for value, mark in enumerate(".*%#abcd")} | {"@": 7}
    return np.array([[tiles[mark] for mark in line] for line in env.render(0, "ansi").splitlines()])


def _head(env):
    """Return (row, column) of the head of snake 0."""
    lines = env.render(0, "ansi").splitlines()
    return next((row, line.index("@")) for row, line in enumerate(lines) if "@" in line)


CASES = {
    "defaults": {},
    "no corpses": {"leave_corpse": False},
    "own colours": {"relative_colors": True},
    "short snakes": {"max_snake_length": 4},
    "length one": {"max_snake_length": 2},
    "short lives": {"max_life": 7},
    "far sight": {"vision": 15, "width": 40, "height": 34, "num_snakes": 5, "num_food": 10},
    "near sight": {"vision": 1, "width": 12, "height": 9, "num_snakes": 3, "num_food": 20},
    "odd copies": {"vision": 2, "width": 16, "height": 11, "num_snakes": 6, "num_food": 30},
    "wide copies": {"vision": 8, "width": 40, "height": 30, "num_snakes": 20, "num_food": 100},
    "crowded": {"vision": 1, "width": 6, "height": 6, "num_snakes": 1, "num_food": 12},
    "rewards": {"reward_food": 2.5, "reward_corpse": -0.5, "reward_death": 3.0},
}


@pytest.mark.parametrize("case", CASES)
def test_world_is_that_of_the_plain_implementation(case):
    with _open(**CASES[case]) as env:
        env.reset(seed=11)
        world = World(env, seed=11)
        assert np.array_equal(env.observations, [world.view(i) for i in range(env.num_agents)])
        for step in range(300):
            actions = random_actions(env, 5, step)
            if step % 3 == 0:  # now and then an illegal one
                actions[step % env.num_agents] = (-1, 4, 2**31 - 1)[step // 3 % 3]
            expected = world.step(actions)
            env.step(actions)
            for key in ("observations", "rewards", "terminals", "truncations"):
                assert np.array_equal(getattr(env, key), expected[key]), f"{key}, step {step}"
            assert np.array_equal(np.flatnonzero(env.logged), sorted(expected["log"])), f"step {step}"
            for i, row in expected["log"].items():
                assert env.log[i] == pytest.approx(row, rel=1e-5, abs=1e-5), f"snake {i}, step {step}"
                assert np.array_equal(env.final_observations[i], expected["final"][i]), f"snake {i}, step {step}"
        assert np.array_equal(_grid(env), world.grid)


def test_generators_of_instances_are_those_of_their_index():
    with NativeEnv(resolve(TABLE), SMALL, num_envs=3, seed=1, first_index=40) as env:
        env.reset(seed=7)
        for instance in range(3):
            world = World(env, seed=7, index=40 + instance)
            rows = env.observations[instance * 8 : instance * 8 + 8]
            assert np.array_equal(rows, [world.view(i) for i in range(8)])


def test_counts_of_a_crowded_world_hold_at_every_step():
    """Food is constant, every body cell belongs to one snake, and the centre of a view has the own colour."""
    params = {"width": 60, "height": 40, "num_snakes": 60, "num_food": 300, "leave_corpse": True}
    with _open(**params) as env:
        env.reset(seed=3)
        lengths = np.ones(60)
        colors = np.where(np.arange(60) == 0, 7, 4 + np.arange(60) % 4)
        for step in range(400):
            env.step(random_actions(env, 3, step))
            ended = env.terminals
            assert not env.truncations.any()
            assert np.array_equal(env.log[ended, SCORE], lengths[ended])
            lengths = np.where(ended, 1, lengths + np.isclose(env.rewards, 0.1))
            grid = _grid(env)
            assert (grid == FOOD).sum() == 300
            assert (grid >= COLOR).sum() == lengths.sum()
            assert (env.observations[:, 5, 5] == colors).all()
        assert lengths.max() > 3


def _go(env, action, steps):
    """Step every snake in one direction."""
    for _ in range(steps):
        env.step(np.full(env.num_agents, action, np.int32))


def test_wall_kills_and_the_last_view_shows_it():
    with _open(num_snakes=1, num_food=0) as env:
        env.reset(seed=1)
        for _ in range(40):
            before = env.observations.copy()
            _go(env, LEFT, 1)
            if env.terminals[0]:
                break
        assert env.terminals[0]
        assert before[0, 5, 4] == WALL
        assert np.array_equal(env.final_observations, before)  # the world had not moved yet
        assert env.rewards[0] == -1
        assert env.log[0, SCORE] == 1
        assert env.log[0, PERF] == pytest.approx(1 / 120)


def test_a_snake_of_one_cell_may_turn_round():
    with _open(num_snakes=1, num_food=0) as env:
        env.reset(seed=2)
        start = _head(env)
        _go(env, RIGHT, 1)
        _go(env, LEFT, 1)
        assert _head(env) == start
        assert not env.terminals[0]


def test_a_longer_snake_that_turns_into_its_neck_goes_straight_on():
    turned = 0
    with _open(num_snakes=1, num_food=140, leave_corpse=False) as env:
        env.reset(seed=2)
        for _step in range(300):
            view = env.observations[0]
            ahead, is_long = view[4, 5], view[6, 5] == 7
            row, column = _head(env)
            if is_long and ahead < WALL:
                _go(env, DOWN, 1)
                assert _head(env) == (row - 1, column)
                assert not env.terminals[0]
                turned += 1
            else:
                _go(env, UP if ahead < WALL else RIGHT, 1)
    assert turned > 10


def test_max_life_truncates_and_is_no_death():
    with _open(num_snakes=1, num_food=0, max_life=3) as env:
        env.reset(seed=1)
        for life in range(6):
            for step in range(3):
                action = UP if env.observations[0, 4, 5] < WALL else DOWN
                _go(env, action, 1)
                assert env.truncations[0] == (step == 2), f"life {life}, step {step}"
                assert not env.terminals[0]
            assert env.rewards[0] == 0
            assert env.log[0, LENGTH] == 3


def test_a_death_in_the_last_step_of_a_life_is_terminal():
    with _open(num_snakes=1, num_food=0, max_life=1, width=14, height=14) as env:
        env.reset(seed=1)
        seen = set()
        for step in range(100):
            env.step(random_actions(env, 1, step))
            seen.add((bool(env.terminals[0]), bool(env.truncations[0])))
        assert seen == {(True, False), (False, True)}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"width": 13}, "width=13 and height=24 must be at least"),
        ({"height": 13}, "width=30 and height=13 must be at least"),
        ({"width": 6, "height": 6, "vision": 1, "num_snakes": 1, "num_food": 19}, "num_food=19 is more than half"),
        ({"num_food": 249}, r"4\*num_snakes \+ num_food = 281 cells, 280 are inside"),
    ],
)
def test_cross_rules_name_the_values(params, message):
    with pytest.raises(OptionError, match=message):
        _open(**params)


def test_a_random_policy_lives_as_long_as_published():
    with NativeEnv(resolve(TABLE), num_envs=4, seed=1) as env:
        env.reset(seed=1)
        for step in range(600):
            env.step(random_actions(env, 1, step))
        log = env.drain_log()
        assert 3.5 < log["score"] < 5.5
        assert 120 < log["episode_length"] < 200
