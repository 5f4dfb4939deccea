"""What keys mean: a legal action in every state, and nothing of the state changes by asking."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core import abi
from puffer_core.errors import OptionError
from puffer_core.keys import Keys
from puffer_core.testing import head_sizes, random_actions

NAMES = ("up", "down", "left", "right", *"wasd", *"01234567", "space")
WAITING = {"cartpole", "connect4", "memory"}


def held(*names: str) -> Keys:
    return Keys(frozenset(names), frozenset(names))


def assert_legal(env, action) -> None:
    assert action.shape == env.actions.shape[1:]
    assert action.dtype == env.actions.dtype
    sizes = head_sizes(env.single_action_space)
    if sizes:
        assert all(0 <= choice < size for choice, size in zip(action.reshape(-1), sizes, strict=True))
    else:
        assert (np.abs(action) <= 1).all()


def test_every_key_stands_for_a_legal_action_and_leaves_no_trace(opened, sets, table):
    assert abi.open_table(table).human
    for _, params in sets[:6]:
        env = opened(params, num_envs=2, seed=1)
        env.reset(seed=1)
        for step in range(10):
            env.step(random_actions(env, 1, step, env.action_mask))
        before, given = env.save(), set()
        for agent in {0, env.agents_per_env - 1}:
            for keys in (Keys(), held("left", "right"), held(*NAMES), *map(held, NAMES)):
                action, meaning = env.human(keys, agent, 1)
                assert_legal(env, action)
                given.add(meaning)
        assert env.save() == before
        assert 1 in given
        assert given <= {-1, 0, 1}
        env.close()


def test_games_without_an_action_for_no_key_wait(opened):
    env = opened(num_envs=1, seed=1)
    env.reset(seed=1)
    assert env.human(Keys())[1] == (-1 if env.name in WAITING else 0)


def test_mouse_and_buttons_are_taken(opened):
    env = opened(num_envs=1, seed=1)
    env.reset(seed=1)
    for x in (0.0, 0.5, 1.0):
        action, _ = env.human(Keys(mouse=(x, 1.0), button=True))
        assert_legal(env, action)


def test_an_agent_or_instance_that_there_is_not_is_refused(opened):
    env = opened(num_envs=1, seed=1)
    env.reset(seed=1)
    with pytest.raises(OptionError, match="agent=-1 is not an integer from 0"):
        env.human(Keys(), -1)
    with pytest.raises(OptionError, match="index=1 is not an integer from 0 to 0"):
        env.human(Keys(), 0, 1)


@pytest.mark.parametrize("name", ["snake"])
def test_a_snake_goes_straight_on_without_a_key(opened):
    env = opened({"width": 40, "height": 40, "num_snakes": 4, "num_food": 10}, num_envs=1, seed=1)
    env.reset(seed=1)
    env.step(np.array([0, 1, 2, 3], np.int32))
    assert [int(env.human(Keys(), agent)[0]) for agent in range(4)] == [0, 1, 2, 3]
