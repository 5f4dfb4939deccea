from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes_resume import Clock, Pair
from gymnasium.wrappers import TimeLimit

from puffer_core.emulation import GymnasiumPufferEnv, PettingZooPufferEnv
from puffer_core.vector import Serial

ACTIONS = np.zeros(1, np.int32)


def limited() -> Any:
    return gymnasium.make("puffer/Clock-v0", max_episode_steps=5)


@pytest.fixture(autouse=True)
def registered() -> Any:
    gymnasium.register("puffer/Clock-v0", entry_point=Clock)
    yield
    del gymnasium.registry["puffer/Clock-v0"]


def test_a_time_limit_goes_on_counting_where_it_was() -> None:
    first, second = (GymnasiumPufferEnv(limited()) for _ in range(2))
    first.reset(0), second.reset(0)
    for _ in range(3):
        first.step(ACTIONS)
    blob = first.save()
    assert blob is not None
    second.load(blob)
    for step in range(4):
        first.step(ACTIONS), second.step(ACTIONS)
        assert bool(second.truncations[0]) == (step == 1)
        for name in ("observations", "truncations", "final_observations"):
            assert np.array_equal(getattr(first, name), getattr(second, name)), name


class Unknown(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper of which nothing is known."""


@pytest.mark.parametrize("make", [lambda: gymnasium.make("CartPole-v1"), lambda: Unknown(limited())])
def test_what_has_no_methods_for_it_is_not_saved(make: Any) -> None:
    env = GymnasiumPufferEnv(make())
    env.reset(0)
    assert env.save() is None


def test_a_limit_that_has_not_begun_is_saved() -> None:
    env = GymnasiumPufferEnv(TimeLimit(Clock(), 5))
    env.env.unwrapped.time = 0
    assert env.save() is not None


def test_a_parallel_environment_goes_on_with_the_agents_it_had() -> None:
    with Serial(lambda buf=None: PettingZooPufferEnv(Pair(), buf=buf), 2) as first:
        first.reset(0)
        for _ in range(3):
            first.step(np.zeros(4, np.int32))
        assert first.masks.tolist() == [True, False] * 2
        state = first.save()
        assert state is not None
        with Serial(lambda buf=None: PettingZooPufferEnv(Pair(), buf=buf), 2) as second:
            second.reset(1)
            second.load(state)
            for _ in range(7):
                assert np.array_equal(first.observations, second.observations)
                assert np.array_equal(first.masks, second.masks)
                first.step(np.zeros(4, np.int32)), second.step(np.zeros(4, np.int32))
                assert np.array_equal(first.rewards, second.rewards)
                assert np.array_equal(first.terminals, second.terminals)
