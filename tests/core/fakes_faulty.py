"""Environments that are wrong on purpose, one per kind of fault, each beside a right one of its form.

`FAULTS` lists them with the check that has to find each, and words of its reason; `WARNED` those that are only
remarked.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text
from pettingzoo import AECEnv, ParallelEnv

from puffer_core.env import PufferEnv


@dataclass(frozen=True)
class Fault:
    """A wrong environment, the check that finds it, and words of the reason."""

    env: type
    check: str
    words: str


FAULTS: list[Fault] = []
WARNED: list[Fault] = []


def fault(check: str, words: str, among: list[Fault] = FAULTS) -> Callable[[type], type]:
    """Plant a fault; one environment may be found by several checks."""

    def plant(env: type) -> type:
        among.append(Fault(env, check, words))
        return env

    return plant


# -- PufferEnv --------------------------------------------------------------------------------------------------------


class Walkers(PufferEnv):
    """Two agents on a line walk right or left; off the end is terminal, after ten steps an agent is cut."""

    single_observation_space = Box(-4.0, 4.0, (2,), np.float32)
    single_action_space: Any = Discrete(2)
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
        self.observations[:, 0], self.observations[:, 1] = self.places, self.times % 4

    def step(self, actions: Any) -> Any:
        self.move(actions)
        self.times += 1
        self.observe()
        self.rewards[:] = self.places
        self.terminals[:] = np.abs(self.places) >= 3
        self.truncations[:] = (self.times == 10) & ~self.terminals
        ended = self.terminals | self.truncations
        self.keep_last(ended)
        if ended.any():
            self.begin(ended)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def move(self, actions: Any) -> None:
        self.places += 2 * actions - 1

    def keep_last(self, ended: Any) -> None:
        self.final_observations[ended] = self.observations[ended]


@fault("an_end_has_one_flag_and_a_last_observation", "final_observations not written")
class NoLastAtCuts(Walkers):
    def keep_last(self, ended: Any) -> None:
        self.final_observations[self.terminals] = self.observations[self.terminals]


@fault("the_next_episode_begins_in_the_same_step", "the last observation is lost")
class LastIsTheNext(Walkers):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        ended = self.terminals | self.truncations
        self.final_observations[ended] = self.observations[ended]
        return result


@fault("the_next_episode_begins_in_the_same_step", "begins a step late")
class DummySteps(Walkers):
    """The step after an end ignores its action and gives the first observation."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.over = np.zeros(2, bool)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.over[:] = False
        return super().reset(seed, index)

    def step(self, actions: Any) -> Any:
        over = self.over.copy()
        self.places += np.where(over, 0, 2 * actions - 1)
        self.times += 1
        if over.any():
            Walkers.begin(self, over)
        self.observe()
        self.rewards[:] = np.where(over, 0, self.places)
        self.terminals[:] = (np.abs(self.places) >= 3) & ~over
        self.truncations[:] = (self.times == 10) & ~self.terminals
        self.over = self.terminals | self.truncations
        self.keep_last(self.over)
        return self.observations, self.rewards, self.terminals, self.truncations, []


@fault("an_end_has_one_flag_and_a_last_observation", "terminal and truncated")
class BothFlags(Walkers):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.truncations[:] |= self.terminals
        return result


@fault("reset_and_step_return_the_environments_own_arrays", "`rewards` was replaced")
class Replaces(Walkers):
    def step(self, actions: Any) -> Any:
        super().step(actions)
        self.rewards = self.rewards.copy()
        return self.observations, self.rewards, self.terminals, self.truncations, []


@fault("reset_and_step_return_the_environments_own_arrays", "an array that is not `observations`")
class ReturnsCopies(Walkers):
    def step(self, actions: Any) -> Any:
        return (self.observations.copy(), *super().step(actions)[1:])


@fault("step_leaves_the_actions_alone", "`actions` was written into")
class WritesActions(Walkers):
    def move(self, actions: Any) -> None:
        actions *= 2
        self.places += actions - 1


@fault("instances_share_nothing", "another instance beside it")
@fault("a_vector_keeps_rows_apart", "environment 0 differs")
class SharedState(Walkers):
    """All instances walk in one array of the class."""

    shared = np.zeros(2)

    def begin(self, which: Any) -> None:
        self.places = self.shared
        super().begin(which)


@fault("instances_share_nothing", "another instance beside it")
class GlobalGenerator(Walkers):
    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            np.random.seed(seed + index)
        return super().reset(seed, index)

    def begin(self, which: Any) -> None:
        super().begin(which)
        self.places[which] = np.random.randint(-1, 2, which.sum())
        self.observe()


@fault("one_seed_gives_one_trajectory", "seed 3 gave two trajectories")
class PartlySeeded(Walkers):
    """Where it begins is seeded, what happens is not."""

    def move(self, actions: Any) -> None:
        self.places += np.where(np.random.default_rng().random(2) < 0.2, 0, 2 * actions - 1)


@fault("two_seeds_give_two_trajectories", "seeds 3 and 4 gave one trajectory")
class SeedIgnored(Walkers):
    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        return super().reset(None if seed is None else 7, index)


class Constant(Walkers):
    """Nothing is drawn at random, so that no seed matters."""

    def begin(self, which: Any) -> None:
        super().begin(which)
        self.places[which] = 0
        self.observe()


@fault("two_instances_with_one_seed_differ", "gave one trajectory")
class IndexIgnored(Walkers):
    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        return super().reset(seed)


@fault("reset_with_a_seed_starts_over", "did not start over")
class RemembersBeforeReset(Walkers):
    """A wind that grows with the steps of its life moves the agents, whatever the seed."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.life = 0

    def move(self, actions: Any) -> None:
        self.life += 1
        super().move(actions)
        if self.life % 7 == 0:
            self.places[0] = 0


@fault("given_buffers_are_used_and_give_the_same_results", "`observations` was given and is not used")
@fault("wrong_buffers_are_refused", "was accepted")
class OwnArrays(Walkers):
    def __init__(self, buf: Any = None) -> None:
        super().__init__(None)


@fault("arrays_match_the_spaces", "`rewards` has dtype float64")
class WrongDtype(Walkers):
    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.rewards = np.zeros(2, np.float64)


@fault("reset_writes_every_row", "agents [1] unwritten")
class WritesOneRow(Walkers):
    def observe(self) -> None:
        self.observations[0, 0], self.observations[0, 1] = self.places[0], 1


@fault("agents_do_not_all_observe_the_same", "all 2 agents observe the same", WARNED)
class OneRowForAll(Walkers):
    def observe(self) -> None:
        super().observe()
        self.observations[:] = self.observations[0]


@fault("observations_and_rewards_stay_in_bounds", "rewards of agents [0] are [inf]")
class InfiniteReward(Walkers):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.rewards[0] = np.inf
        return result


@fault("observations_and_rewards_stay_in_bounds", "observations are not finite: nan at agent 0, index (1,)")
class NanObservation(Walkers):
    def observe(self) -> None:
        super().observe()
        if self.times.max() > 3:
            self.observations[0, 1] = np.nan


@fault("observations_and_rewards_stay_in_bounds", "observations above the space: 5.0 at agent 0, index (1,)")
class OutOfBounds(Walkers):
    def observe(self) -> None:
        super().observe()
        self.observations[:, 1] = 5 if self.times.max() > 3 else 1


class Mortal(Walkers):
    """Agent 1 leaves at step 3 of an episode and is back when agent 0 has ended."""

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.masks[:] = True
        return super().reset(seed, index)

    def step(self, actions: Any) -> Any:
        was_there = bool(self.masks[1])
        super().step(actions)
        if self.terminals[0] or self.truncations[0]:
            self.restore()
        elif self.times[0] == 3 and was_there:
            self.truncations[1], self.terminals[1], self.masks[1] = False, True, False
            self.final_observations[1] = self.observations[1]
        if not self.masks[1]:
            self.silence(was_there)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def restore(self) -> None:
        self.masks[1] = True

    def silence(self, was_there: bool) -> None:
        self.observations[1] = 0
        if not was_there:
            self.rewards[1], self.terminals[1], self.truncations[1] = 0, False, False


@fault("absent_agents_have_blank_rows", "an absent agent observes something: agents [1]")
class GhostObserves(Mortal):
    def silence(self, was_there: bool) -> None:
        super().silence(was_there)
        self.observations[1] = 1


@fault("absent_agents_have_blank_rows", "absent agents [1] are rewarded")
class GhostIsPaid(Mortal):
    def silence(self, was_there: bool) -> None:
        super().silence(was_there)
        self.rewards[1] = 1


@fault("absent_agents_have_blank_rows", "absent agents [1] end once more")
class GhostEndsAgain(Mortal):
    def silence(self, was_there: bool) -> None:
        super().silence(was_there)
        self.terminals[1], self.truncations[1] = True, False


@fault("agents_that_left_come_back", "agents [1] left and have not come back")
class NeverComesBack(Mortal):
    def restore(self) -> None:
        pass


@fault("agents_that_left_come_back", "no agent is present")
class AllGone(Walkers):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        if self.terminals.any() or not self.masks.any():
            self.masks[:] = False
            self.observations[:] = 0
        return result


@fault("spaces_stay_as_declared", "num_agents is 3, declared was 2")
class GrowsAgents(Walkers):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.num_agents = 3 if self.times[0] == 5 else 2
        return result


@fault("spaces_stay_as_declared", "after reset: single_observation_space is")
class WidensSpace(Walkers):
    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.single_observation_space = Box(-9.0, 9.0, (2,), np.float32)
        return super().reset(seed, index)


@fault("opens_steps_and_closes", "single_action_space is Discrete(2, start=1), not a Discrete or MultiDiscrete from 0")
class StartsAtOne(Walkers):
    single_action_space = Discrete(2, start=1)


@fault("spaces_are_supported", "no lower bound")
class Unbounded(Walkers):
    single_action_space = Box(-np.inf, np.inf, (1,), np.float32)

    def move(self, actions: Any) -> None:
        self.places += np.clip(np.nan_to_num(actions[:, 0]), -1, 1)


@fault("actions_outside_a_box_do_no_harm", "AssertionError: action outside the space")
class RefusesBadly(Walkers):
    single_action_space = Box(-1, 1, (1,), np.float32)

    def move(self, actions: Any) -> None:
        assert (np.abs(actions) <= 1).all(), "action outside the space"
        self.places += actions[:, 0]


@fault("actions_outside_a_box_do_no_harm", "the space: ")
class HandsActionsThrough(Walkers):
    single_action_space = Box(-1, 1, (1,), np.float32)

    def move(self, actions: Any) -> None:
        self.places = np.where(np.abs(actions[:, 0]) > 1, actions[:, 0], np.clip(self.places + actions[:, 0], -3, 3))


class Masked(Walkers):
    """Walks that may be barred."""

    has_action_mask = True

    def observe(self) -> None:
        super().observe()
        self.action_mask[:] = 1


@fault("action_mask_leaves_a_choice", "an agent has no legal action, agents [1]")
class AllBarred(Masked):
    def observe(self) -> None:
        super().observe()
        self.action_mask[1] = 0 if self.times[1] == 2 else 1


@fault("action_mask_leaves_a_choice", "action_mask holds 7")
class MaskOfSevens(Masked):
    def observe(self) -> None:
        super().observe()
        self.action_mask[:] = 7


@fault("infos_are_dictionaries", "infos holds None, not a dict")
class InfosOfNone(Walkers):
    def step(self, actions: Any) -> Any:
        return (*super().step(actions)[:4], [None])


@fault("close_can_be_called_twice", "a second close raised AssertionError: closed twice")
class ClosesOnce(Walkers):
    is_open = True

    def close(self) -> None:
        assert self.is_open, "closed twice"
        self.is_open = False


@fault("opens_steps_and_closes", "opening it raised RuntimeError: no display")
class NeedsDisplay(Walkers):
    def __init__(self, buf: Any = None) -> None:
        if "DISPLAY" not in os.environ:
            raise RuntimeError("no display")
        super().__init__(buf)


@fault("opens_steps_and_closes", "step 0 with actions [")
class StepRaises(Walkers):
    def step(self, actions: Any) -> Any:
        raise ZeroDivisionError("in the middle")


@fault("resets_leak_nothing", "memory grows by")
class Leaks(Walkers):
    kept: ClassVar[list[Any]] = []

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.kept.append(np.ones(1 << 10))
        return super().reset(seed, index)


@fault("slow_reset", "a reset takes", WARNED)
class SlowReset(Walkers):
    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        time.sleep(0.06)
        return super().reset(seed, index)


class CrashesAfterClose(Walkers):
    """Dies as C code does that has freed its state."""

    is_open = True

    def close(self) -> None:
        self.is_open = False

    def step(self, actions: Any) -> Any:
        if not self.is_open:
            os.abort()
        return super().step(actions)


class HangsAfterClose(CrashesAfterClose):
    def step(self, actions: Any) -> Any:
        while not self.is_open:
            time.sleep(1)
        return super().step(actions)


class CrashesAtOnce(Walkers):
    def __init__(self, buf: Any = None) -> None:
        os._exit(7)


# -- Gymnasium and plain classes --------------------------------------------------------------------------------------


class Gym(gymnasium.Env[Any, Any]):
    """One agent walks a line: off the end is terminal, after ten steps it is cut."""

    observation_space: Any = Box(-4.0, 4.0, (2,), np.float32)
    action_space: Any = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(-1, 2)), 0
        return self.observe(), {}

    def observe(self) -> Any:
        return np.array([self.place, self.time % 4], np.float32)

    def step(self, action: Any) -> Any:
        self.move(action)
        self.time += 1
        over = abs(self.place) >= 3
        return self.observe(), self.reward(), over, self.time == 10 and not over, {}

    def move(self, action: Any) -> None:
        self.place += 2 * int(action) - 1

    def reward(self) -> Any:
        return float(self.place)


_FIT = "single_observations_fit_the_declared_space"


@fault(_FIT, "reset: observation has dtype float64, declared is float32 (2,)")
class Float64(Gym):
    def observe(self) -> Any:
        return super().observe().astype(np.float64)


@fault(_FIT, "reset: observation has shape (2, 1), declared is float32 (2,)")
class Column(Gym):
    def observe(self) -> Any:
        return super().observe()[:, None]


@fault(_FIT, "reset: observation is a list, declared is float32 (2,)")
class List(Gym):
    def observe(self) -> Any:
        return super().observe().tolist()


@fault("single_step_returns_five_values", "step 0 returned 4 values")
class FourValues(Gym):
    def step(self, action: Any) -> Any:
        observation, reward, over, cut, info = super().step(action)
        return observation, reward, over or cut, info


@fault(_FIT, "step 0 with action")
class StartIgnored(Gym):
    """Declares actions 2 and 3, and takes 0 and 1."""

    action_space = Discrete(2, start=2)

    def move(self, action: Any) -> None:
        self.place += (-1, 1)[action]


class Continuous(Gym):
    """The same with an action between -1 and 1, and nothing else is taken."""

    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def move(self, action: Any) -> None:
        assert action in self.action_space, f"{action} is outside the space"
        self.place += 1 if action[0] > 0 else -1


class Keyed(Gym):
    """The same with a dictionary to observe."""

    observation_space = Dict({"b": Box(-4.0, 4.0, (1,), np.float32), "a": Discrete(4, start=3)})

    def observe(self) -> Any:
        return {"a": 3 + self.time % 4, "b": np.array([self.place], np.float32)}


@fault(_FIT, "reset: observation['a'] is array(")
class KeysSwapped(Keyed):
    def observe(self) -> Any:
        found = super().observe()
        return {"a": found["b"], "b": found["a"]}


@fault(_FIT, "observation['a'] is 0, declared is an integer from 3 to 6")
class ObservedStartIgnored(Keyed):
    def observe(self) -> Any:
        return {**super().observe(), "a": self.time % 4}


@fault(_FIT, "observation lacks the key 'a'")
class KeyMissing(Keyed):
    def observe(self) -> Any:
        return {"b": super().observe()["b"]}


@fault(_FIT, "observation has the key 'c'")
class KeyUnknown(Keyed):
    def observe(self) -> Any:
        return {**super().observe(), "c": 1}


@fault("single_rewards_are_finite_numbers", "reward is array([0.]), not one real number")
class RewardArray(Gym):
    def reward(self) -> Any:
        return np.zeros(1)


@fault("single_rewards_are_finite_numbers", "reward is nan, not finite")
class RewardNan(Gym):
    def reward(self) -> Any:
        return float("nan") if self.time == 4 else 1.0


@fault(_FIT, "observation holds NaN at index (0,)")
class NanSeen(Gym):
    def observe(self) -> Any:
        return np.array([np.nan if self.time == 3 else 0, 0], np.float32)


@fault("single_flags_are_booleans", "terminated is None, not a bool")
class FlagNone(Gym):
    def step(self, action: Any) -> Any:
        observation, reward, over, cut, info = super().step(action)
        return observation, reward, over or None, cut, info


@fault("single_infos_are_dictionaries", "info is [], not a dict")
class InfoList(Gym):
    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], [])


@fault("single_spaces_stay_as_declared", "observation_space is")
class SpaceChanges(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed)
        self.observation_space = Box(-9.0, 9.0, (2,), np.float32)
        return result


@fault("opens_steps_and_closes", "Text")
class Worded(Gym):
    observation_space = Text(8)

    def observe(self) -> Any:
        return "right"


@fault("two_seeds_give_two_trajectories", "seeds 3 and 4 gave one trajectory")
class GymSeedIgnored(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None if seed is None else 5)


@fault("one_seed_gives_one_trajectory", "seed 3 gave two trajectories")
class GymPythonRandom(Gym):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = random.randint(-1, 1)
        return self.observe(), {}


@fault(_FIT, "observation is above the space: 4.5", WARNED)
class GymOutOfBounds(Gym):
    def observe(self) -> Any:
        return np.array([self.place, 4.5 if self.time == 5 else 0], np.float32)


class Plain:
    """A plain class of the oldest form: no base, ``reset() -> observation``, four values of a step."""

    observation_space = Box(-4.0, 4.0, (2,), np.float32)
    action_space = MultiDiscrete([2, 2])

    def __init__(self) -> None:
        self.time = 0

    def reset(self) -> Any:
        self.time = 0
        return np.zeros(2, np.float32)

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.array([self.time % 4, 0], np.float32), 1, self.time == 5, {}


WARNED.append(Fault(Plain, "single_step_returns_five_values", "step returns 4 values"))


# -- PettingZoo -------------------------------------------------------------------------------------------------------


class Parallel(ParallelEnv[str, Any, Any]):
    """Three agents count; `b` leaves at step 2, the others after six."""

    metadata: ClassVar[dict[str, Any]] = {"name": "parallel"}
    possible_agents: ClassVar[list[str]] = ["a", "b", "c"]

    def __init__(self) -> None:
        self.spaces = {agent: Box(-8.0, 8.0, (2,), np.float32) for agent in self.possible_agents}
        self.moves = {agent: Discrete(3) for agent in self.possible_agents}
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self.spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.moves[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.time, self.start = list(self.possible_agents), 0, int(self.rng.integers(0, 3))
        return self.observe(self.agents), {agent: {} for agent in self.agents}

    def observe(self, agents: Any) -> Any:
        return {agent: np.array([self.start, self.time], np.float32) for agent in agents}

    def leaving(self) -> set[str]:
        return {"b"} if self.time == 2 else set(self.agents) if self.time == 6 else set()

    def step(self, actions: Any) -> Any:
        self.time += 1
        acted = list(self.agents)
        gone = self.leaving()
        self.agents = [agent for agent in self.agents if agent not in gone]
        return (
            self.observe(acted),
            {agent: float(actions[agent]) for agent in acted},
            {agent: agent in gone for agent in acted},
            dict.fromkeys(acted, False),
            {agent: {} for agent in acted},
        )


@fault("parallel_results_cover_every_agent", "step 1: observations lacks the agents ['b']")
class LastSightLost(Parallel):
    def observe(self, agents: Any) -> Any:
        return super().observe(self.agents)


@fault("parallel_agents_leave_when_they_end", "['b'] ended and are still in `agents`")
class Lingers(Parallel):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        if self.time == 2:
            self.agents = list(self.possible_agents)
        return result


@fault("parallel_agents_leave_when_they_end", "['b'] left `agents` without an end")
class LeavesSilently(Parallel):
    def step(self, actions: Any) -> Any:
        observations, rewards, ends, cuts, infos = super().step(actions)
        return observations, rewards, {**ends, **({"b": False} if "b" in ends else {})}, cuts, infos


@fault("multi_agents_are_declared", "agents ['d'] are not in possible_agents")
class Stranger(Parallel):
    def step(self, actions: Any) -> Any:
        result = super().step({**actions})
        if self.time == 4:
            self.agents.append("d")
        return result

    def observation_space(self, agent: str) -> Any:
        return self.spaces["a"]

    def action_space(self, agent: str) -> Any:
        return self.moves["a"]


@fault("multi_agents_are_declared", "possible_agents is ['a', 'b', 'c', 'd'], was ['a', 'b', 'c']")
class GrowsPossible(Parallel):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.possible_agents = ["a", "b", "c", "d"]
        return result


@fault("parallel_observations_and_rewards_fit", "observation of a has dtype float64")
class ParallelFloat64(Parallel):
    def observe(self, agents: Any) -> Any:
        return {agent: row.astype(np.float64) for agent, row in super().observe(agents).items()}


@fault("parallel_observations_and_rewards_fit", "reward of a is None, not one real number")
class RewardNone(Parallel):
    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        return result[0], dict.fromkeys(result[1]), *result[2:]


@fault("multi_spaces_stay_as_declared", "observation_space('a') is")
class AgentSpaceChanges(Parallel):
    def step(self, actions: Any) -> Any:
        self.spaces["a"] = Box(-99.0, 99.0, (2,), np.float32)
        return super().step(actions)


class Turns(AECEnv[str, Any, Any]):
    """Three agents in turn; the fourth move of an episode kills one before its turn; after nine moves it is over."""

    metadata: ClassVar[dict[str, Any]] = {"name": "turns"}
    possible_agents: ClassVar[list[str]] = ["a", "b", "c"]

    def __init__(self) -> None:
        super().__init__()
        self.spaces = {agent: Box(-64.0, 64.0, (2,), np.float32) for agent in self.possible_agents}
        self.moves = {agent: Discrete(3) for agent in self.possible_agents}
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self.spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.moves[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.time, self.start = list(self.possible_agents), 0, int(self.rng.integers(0, 3))
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "a"

    def observe(self, agent: str) -> Any:
        return np.array([self.start, self.time], np.float32)

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self.take_none(action)
            return
        self._cumulative_rewards[agent] = 0.0
        following = self.following(agent)
        self.time += 1
        self.rewards = {other: float(action) if other == agent else -1.0 for other in self.agents}
        if self.time == 4:
            self.terminations[self.agents[-1]] = True
        if self.time == 9:
            self.terminations = dict.fromkeys(self.agents, True)
        self.pay()
        self.agent_selection = following
        self._deads_step_first()

    def following(self, agent: str) -> str:
        return self.agents[(self.agents.index(agent) + 1) % len(self.agents)]

    def take_none(self, action: Any) -> None:
        self._was_dead_step(action)

    def pay(self) -> None:
        self._accumulate_rewards()


@fault("turns_rewards_out_of_turn_are_kept", "since its last turn it got")
class DropsRewards(Turns):
    def pay(self) -> None:
        self._cumulative_rewards[self.agent_selection] += self.rewards[self.agent_selection]


@fault("turns_finished_agents_take_none", "which has ended, with action None raised TypeError")
class NoneRefused(Turns):
    def take_none(self, action: Any) -> None:
        self.time += action
        super().take_none(None)


@fault("turns_finished_agents_take_none", "was stepped with None, and is still in `agents`")
class DeadStay(Turns):
    def take_none(self, action: Any) -> None:
        self.agent_selection = self.following(self.agent_selection)


@fault("turns_observations_fit_the_declared_space", "observation of a has shape (1, 2)")
class TurnsColumn(Turns):
    def observe(self, agent: str) -> Any:
        return super().observe(agent)[None]


RIGHT = (Walkers, Mortal, Masked, Gym, Continuous, Keyed, Parallel, Turns)
"""The right environments beside them, in which nothing is found."""
