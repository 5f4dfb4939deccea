from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from puffer_core.env import PufferEnv
from puffer_core.errors import UsageError
from puffer_core.specs import EnvSpec
from puffer_core.testing import EnvContract


class Walk(PufferEnv):
    """Two agents on a line walk right or left; off the end is terminal, after ten steps an agent is cut."""

    single_observation_space = Box(-4.0, 4.0, (2,), np.float32)
    single_action_space = Discrete(2)
    num_agents = 2

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.rng = np.random.default_rng(0)
        self.places, self.times = np.zeros(2), np.zeros(2, np.int64)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng([seed, index])
        self.begin(np.ones(2, bool))
        return self.observations, []

    def begin(self, which: Any) -> None:
        self.places[which] = self.rng.integers(-1, 2, which.sum())
        self.times[which] = 0
        self.observe()

    def observe(self) -> None:
        self.observations[:, 0], self.observations[:, 1] = self.places, 1

    def step(self, actions: Any) -> Any:
        self.places += 2 * actions - 1
        self.times += 1
        self.observe()
        self.rewards[:] = self.places
        self.terminals[:] = np.abs(self.places) == 3
        self.truncations[:] = (self.times == 10) & ~self.terminals
        ended = self.terminals | self.truncations
        self.keep_last(ended)
        if ended.any():
            self.begin(ended)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def keep_last(self, ended: Any) -> None:
        self.final_observations[ended] = self.observations[ended]


class WalkContract(EnvContract):
    kind: ClassVar[type[PufferEnv]] = Walk

    def make(self, buf: Any = None) -> PufferEnv:
        return self.kind(buf)


class TestGoodEnvironment(WalkContract):
    pass


class NoLast(Walk):
    def keep_last(self, ended: Any) -> None:
        pass


class BothFlags(Walk):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.truncations[:] |= self.terminals
        return result


class Replaces(Walk):
    def step(self, actions: Any) -> Any:
        super().step(actions)
        self.rewards = self.rewards.copy()
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Unseeded(Walk):
    """Every reset begins elsewhere, whatever the seed."""

    starts = itertools.count()

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        super().reset(seed, index)
        self.places[:] = next(self.starts) % 3 - 1
        self.observe()
        return self.observations, []


class OneSeed(Walk):
    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        return super().reset(7, index)


class OutOfBounds(Walk):
    def observe(self) -> None:
        super().observe()
        self.observations[:, 1] = 5 if self.times.max() > 3 else 1


class OwnArrays(Walk):
    def __init__(self, buf: Any = None) -> None:
        super().__init__(None)


class WrongDtype(Walk):
    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.rewards = np.zeros(2, np.float64)


class Infinite(Walk):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.rewards[0] = np.inf
        return result


class GhostAgent(Walk):
    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        result = super().reset(seed, index)
        self.masks[1] = False
        return result


class NoInfos(Walk):
    def step(self, actions: Any) -> Any:
        return (*super().step(actions)[:4], [None])


class ClosesOnce(Walk):
    is_open = True

    def close(self) -> None:
        assert self.is_open, "closed twice"
        self.is_open = False


class Unbounded(Walk):
    single_action_space = Box(-np.inf, np.inf, (1,), np.float32)


@pytest.mark.parametrize(
    ("kind", "test", "words"),
    [
        (NoLast, "an_end_has_one_flag_and_a_last_observation", "final_observations not written"),
        (BothFlags, "an_end_has_one_flag_and_a_last_observation", "terminal and truncated"),
        (Replaces, "reset_and_step_return_the_environments_own_arrays", "`rewards` was replaced"),
        (Unseeded, "one_seed_gives_one_trajectory", "seed 3 gave two trajectories"),
        (Unseeded, "reset_with_a_seed_starts_over", "another first observation"),
        (OneSeed, "two_seeds_give_two_trajectories", "seeds 3 and 4 gave one trajectory"),
        (OutOfBounds, "observations_and_rewards_stay_in_bounds", "above the space"),
        (Infinite, "observations_and_rewards_stay_in_bounds", "rewards"),
        (OwnArrays, "given_buffers_are_used_and_give_the_same_results", "`observations` was given and is not used"),
        (OwnArrays, "wrong_buffers_are_refused", "was accepted"),
        (WrongDtype, "arrays_match_the_spaces", "`rewards` has dtype float64, not float32"),
        (GhostAgent, "absent_agents_have_blank_rows", "observes something"),
        (NoInfos, "infos_are_dictionaries", "None"),
        (ClosesOnce, "close_can_be_called_twice", "closed twice"),
        (Unbounded, "spaces_are_supported", "no lower bound"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_contract_names_what_an_environment_breaks(kind, test, words):
    suite = WalkContract()
    suite.kind = kind
    with pytest.raises(AssertionError, match=words):
        getattr(suite, f"test_{test}")()


def test_limits_of_a_framework_are_not_failures():
    suite = WalkContract()
    suite.kind, suite.limits = NoLast, ("no-final-observation",)
    suite.test_an_end_has_one_flag_and_a_last_observation()
    suite.kind, suite.limits = Unseeded, ("no-seed",)
    suite.test_one_seed_gives_one_trajectory()
    suite.test_reset_with_a_seed_starts_over()


def test_make_may_be_extended():
    class Extended(EnvContract):
        env = Walk
        made = 0

        def make(self, buf: Any = None) -> PufferEnv:
            self.made += 1
            return super().make(buf)

    suite = Extended()
    suite.test_one_seed_gives_one_trajectory()
    suite.test_a_vector_keeps_rows_apart()
    assert suite.made > 2


def test_suite_without_an_environment_says_so():
    with pytest.raises(UsageError, match="EnvContract names no environment"):
        EnvContract().test_one_seed_gives_one_trajectory()


def test_a_limit_that_the_spec_declares_is_no_failure():
    class Limited(EnvContract):
        env = EnvSpec("fakes/unseeded", make="fakes_faulty:PartlySeeded", limits=("no-seed",))

    Limited().test_one_seed_gives_one_trajectory()
    assert Limited().all_limits == ("no-seed",)
