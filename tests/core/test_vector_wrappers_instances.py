"""Wrappers of single environments: repeated actions, time limits, statistics of episodes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes_env import Count
from fakes_wrap import Departing, Tally
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.spaces import Box, Discrete

from puffer_core import vector
from puffer_core.emulation import GymnasiumPufferEnv, adapt
from puffer_core.env import PufferEnv
from puffer_core.errors import EnvError, OptionError
from puffer_core.vector.source import source_of
from puffer_core.vector.wrap import EpisodeStats, TimeLimit, checked, wrap_sources
from puffer_core.vector.wrap.instances import EnvWrapper

ARRAYS = ("observations", "rewards", "terminals", "truncations", "masks")


def open_(make: Any, num_envs: int = 1, **wrap: Any) -> Any:
    return vector.make(make, num_envs, "serial", wrap=wrap)


def step(opened: Any, action: int = 0) -> Any:
    return opened.step(np.full(opened.num_agents, action))


# -- action repeat ----------------------------------------------------------------------------------------------------


def test_action_repeat_sums_rewards_and_shows_the_last_observation() -> None:
    with open_(Tally, 2, action_repeat=2) as opened:
        opened.reset(1)
        observations, rewards, terminals, _, infos = step(opened, 1)
        assert observations[:, 0].tolist() == [102, 202]
        assert rewards.tolist() == [11 + 12] * 2
        assert [info["name"] for info in infos] == ["t2", "t2"]
        step(opened)
        *_, rewards, terminals, _, _ = step(opened)
        assert terminals.all()
        assert rewards.tolist() == [5, 5], "the end cuts the repetition short"
        assert opened.final_observations[:, 0].tolist() == [105, 205]
        assert opened.observations[:, 0].tolist() == [100, 200]
        assert opened.log[:, 2:].tolist() == [[23 + 7 + 5, 3]] * 2
        assert not step(opened)[2].any()


def test_action_repeat_equals_repeating_by_hand() -> None:
    with open_(CartPoleEnv, 3, action_repeat=3) as opened:
        raw = [CartPoleEnv() for _ in range(3)]
        opened.reset(4)
        for i, env in enumerate(raw):
            env.reset(seed=4 + i)
        rng, ends = np.random.default_rng(0), 0
        for _ in range(60):
            actions = rng.integers(0, 2, 3)
            opened.step(actions)
            for i, env in enumerate(raw):
                total = 0.0
                for _ in range(3):
                    observation, reward, terminal, _, _ = env.step(int(actions[i]))
                    total += reward
                    if terminal:
                        break
                assert (opened.rewards[i], opened.terminals[i]) == (total, terminal)
                if terminal:
                    ends += 1
                    assert np.array_equal(opened.final_observations[i], observation)
                    observation, _ = env.reset()
                assert np.array_equal(opened.observations[i], observation)
        assert ends > 5


def test_action_repeat_stops_where_an_agent_leaves() -> None:
    with open_(Departing, action_repeat=4) as opened:
        opened.reset(0)
        step(opened)
        assert opened.observations[0, 0] == 2
        assert (opened.terminals.tolist(), opened.masks.tolist()) == ([False, True], [True, False])
        step(opened)
        assert opened.final_observations[0, 0] == 5
        assert (opened.terminals.tolist(), opened.masks.tolist()) == ([True, False], [True, True])


class Sparse(Tally):
    """Writes a reward at the first tick only, as an environment may: a vector clears rewards before each step."""

    def step(self, actions: Any) -> Any:
        kept = self.rewards.copy()
        result = super().step(actions)
        self.rewards[:] = 1 if self.tick == 1 else kept
        return result


def test_action_repeat_clears_rewards_as_a_vector_does() -> None:
    with open_(Sparse, action_repeat=3) as opened:
        opened.reset(0)
        assert step(opened)[1].tolist() == [1]
        assert step(opened)[1].tolist() == [0]


def test_action_repeat_keeps_the_log_of_the_environment() -> None:
    with open_(Count, action_repeat=2) as opened:
        opened.reset(0)
        step(opened)
        assert not opened.logged.any()
        step(opened)
        assert opened.logged.all()
        assert opened.log[0].tolist() == pytest.approx([3, 0.015, 3, 3])


# -- time limit -------------------------------------------------------------------------------------------------------


def test_time_limit_equals_that_of_gymnasium() -> None:
    def limited() -> Any:
        return gymnasium.wrappers.TimeLimit(CartPoleEnv(), 15)

    with open_(CartPoleEnv, 4, time_limit=15) as ours, open_(limited, 4) as theirs:
        rng, cut = np.random.default_rng(0), 0
        for envs in (ours, theirs):
            envs.reset(8)
        for _ in range(200):
            actions = rng.integers(0, 2, 4)
            for envs in (ours, theirs):
                envs.step(actions)
            for name in (*ARRAYS, "logged"):
                assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
            ended = ours.terminals | ours.truncations
            cut += ours.truncations.sum()
            assert np.array_equal(ours.final_observations[ended], theirs.final_observations[ended])
            assert np.array_equal(ours.log[ended], theirs.log[ended], equal_nan=True)
        assert cut > 10


def test_time_limit_truncates_agents_that_are_there_and_resets_the_environment() -> None:
    with open_(Departing, time_limit=4) as opened:
        opened.reset(3)
        for _ in range(3):
            step(opened)
        assert opened.masks.tolist() == [True, False]
        step(opened, 2)
        assert opened.truncations.tolist() == [True, False]
        assert not opened.terminals.any()
        assert opened.final_observations[0, 0] == 304
        assert opened.rewards[0] == 4 + 20
        assert opened.observations[:, 0].tolist() == [300, 300]
        assert opened.masks.all()
        assert opened.members[0].env.env.resets == 2
        step(opened)
        assert opened.observations[:, 0].tolist() == [301, 301]


class Leaving(Departing):
    """Agent 1 is truncated where `Departing` has a terminal."""

    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.truncations[1], self.terminals[1] = self.terminals[1], False
        return result


@pytest.mark.parametrize("make", [Departing, Leaving])
def test_time_limit_keeps_the_flags_of_agents_that_end_by_themselves(make: Any) -> None:
    with open_(make, time_limit=2) as opened:
        opened.reset(0)
        step(opened)
        step(opened)
        assert opened.truncations.tolist() == [True, make is Leaving]
        assert opened.terminals.tolist() == [False, make is Departing]
        assert opened.final_observations[:, 0].tolist() == [2, 2]


@pytest.mark.parametrize("make", [Tally, Departing, lambda limit: Plain(limit)], ids=["puffer", "two", "adapter"])
def test_time_limit_counts_anew_in_each_episode(make: Any) -> None:
    with vector.make(make, 1, params={"limit": 3}, wrap={"time_limit": 4}) as opened:
        opened.reset(0)
        for _ in range(12):
            assert not step(opened)[3].any()


def test_an_end_at_the_limit_is_terminal() -> None:
    with open_(Tally, time_limit=5) as opened:
        opened.reset(0)
        for _ in range(5):
            step(opened)
        assert (opened.terminals.all(), opened.truncations.any()) == (True, False)
        for _ in range(4):
            step(opened)
            assert not (opened.terminals | opened.truncations).any()


def test_time_limit_refuses_environments_that_log_themselves() -> None:
    with pytest.raises(OptionError, match=r"wrap.time_limit=9 can't be applied to Count: it logs score,") as caught:
        open_(Count, time_limit=9)
    assert "a parameter for it" in caught.value.hint


# -- one agent behind an adapter --------------------------------------------------------------------------------------


class Plain:
    """Four values a step, or five; counts; done at ``limit``."""

    observation_space, action_space = Box(0, 99, (1,), np.float32), Discrete(2)

    def __init__(self, limit: int = 7, values: int = 4) -> None:
        self.limit, self.values, self.tick = limit, values, 0

    def reset(self) -> Any:
        self.tick = 0
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> Any:
        self.tick += 1
        flags = [self.tick >= self.limit] if self.values == 4 else [self.tick >= self.limit, False]
        return np.full(1, self.tick, np.float32), float(self.tick + action), *flags, {"tick": self.tick}

    def save(self) -> bytes:
        return bytes([self.tick])

    def load(self, blob: bytes) -> None:
        self.tick = blob[0]


class Inside(EnvWrapper):
    """Nothing but a wrapper of any environment: what is around it can't be one of the environment in the adapter."""

    key = "nothing"

    def step(self, actions: Any) -> Any:
        return self.env.step(actions)


@pytest.mark.parametrize(
    "keys", [{"time_limit": 3}, {"action_repeat": 2}, {"time_limit": 5, "action_repeat": 3}], ids=str
)
@pytest.mark.parametrize("make", [Plain, lambda: Plain(values=5), CartPoleEnv], ids=["four", "five", "cartpole"])
def test_wrappers_in_the_adapter_do_what_those_around_it_do(make: Any, keys: Any) -> None:
    around = source_of(make)
    around = wrap_sources(replace(around, wraps=(Inside,)), None, checked(keys))
    with open_(make, 3, **keys) as inside, vector.make(around, 3, "serial") as outside:
        assert type(inside.members[0].env) is GymnasiumPufferEnv
        assert isinstance(outside.members[0].env, EnvWrapper)
        rng = np.random.default_rng(0)
        for envs in (inside, outside):
            envs.reset(5)
        for _ in range(60):
            actions = rng.integers(0, 2, 3)
            for envs in (inside, outside):
                envs.step(actions)
            ended = inside.terminals | inside.truncations
            for name in (*ARRAYS, "logged"):
                assert np.array_equal(getattr(inside, name), getattr(outside, name)), name
            assert np.array_equal(inside.final_observations[ended], outside.final_observations[ended])
            assert np.array_equal(inside.log[ended], outside.log[ended], equal_nan=True)


@pytest.mark.parametrize("values", [4, 5])
def test_an_end_at_the_limit_is_terminal_in_the_adapter_too(values: int) -> None:
    with open_(lambda: Plain(3, values), 2, time_limit=3) as opened:
        opened.reset(0)
        for _ in range(3):
            step(opened)
        assert (opened.terminals.all(), opened.truncations.any()) == (True, False)


def test_an_adapter_with_a_limit_is_saved_and_names_the_environment() -> None:
    first, second = (open_(Plain, 2, time_limit=4) for _ in range(2))
    first.reset(0)
    for _ in range(3):
        step(first)
    second.reset(0)
    second.load(first.save())
    for opened in (first, second):
        assert step(opened)[3].all()
    adapter = first.members[0].env
    assert adapter.kind is Plain
    with pytest.raises(EnvError, match="the saved state has 1 bytes, and the wrapper time_limit alone has 8"):
        adapter.env.load(b"a")
    assert not hasattr(open_(CartPoleEnv, 1, time_limit=4).members[0].env.env, "save")


@pytest.mark.parametrize("keys", [{"time_limit": 1}, {"action_repeat": 2}], ids=str)
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "Wrong: step returned NoneType, not 4 or 5 values"),
        ((np.zeros(1), "x", False, False, {}), "Wrong gave reward='x', which is not one real number"),
        ((np.zeros(1), 1.0, "no", False, {}), "Wrong gave terminated='no', which is not one boolean"),
    ],
)
def test_wrong_answers_are_named_behind_wrappers(answer: Any, message: str, keys: Any) -> None:
    class Wrong(Plain):
        def step(self, action: Any) -> Any:
            return answer

    with open_(Wrong, 1, **keys) as opened:
        opened.reset(0)
        with pytest.raises(EnvError, match=message):
            step(opened)


# -- order, statistics, state -----------------------------------------------------------------------------------------


def test_order_of_limit_and_repetition_matters() -> None:
    with open_(Tally, time_limit=4, action_repeat=2) as inner, open_(Tally, action_repeat=2, time_limit=4) as outer:
        for opened in (inner, outer):
            opened.reset(0)
            step(opened)
            step(opened)
        assert inner.truncations.all(), "4 steps of the environment"
        assert not outer.truncations.any()
        step(outer)
        assert outer.terminals.all(), "the environment ends by itself before its 8th"


def test_episode_stats_tell_sums_over_the_episode() -> None:
    with open_(Tally, 2, episode_stats=True) as opened:
        assert opened.reset(0)[1] == []
        for _ in range(4):
            assert step(opened, 1)[4] == []
        told = {
            "speed": 1 + 2 + 3 + 4 + 5.0,
            "score": 12.0,
            "name": "t5",
            "episode_return": 50 + 15.0,
            "episode_length": 5,
        }
        assert step(opened, 1)[4] == [told, told]
        assert opened.log[:, 0].tolist() == [12, 12]
        assert opened.drain_log() == {"speed": 15, "score": 12, "episode_return": 65, "episode_length": 5, "n": 2}
        assert step(opened)[4] == []


def test_episode_stats_tell_episodes_that_are_cut() -> None:
    with open_(Tally, time_limit=3, episode_stats=True) as opened:
        opened.reset(0)
        told = [step(opened)[4] for _ in range(6)]
        assert [len(infos) for infos in told] == [0, 0, 1] * 2
        assert (
            told[2]
            == told[5]
            == [{"speed": 6.0, "score": 10.0, "name": "t3", "episode_return": 6.0, "episode_length": 3}]
        )


def test_episode_stats_wait_for_the_last_agent() -> None:
    with open_(Departing, episode_stats=True) as opened:
        opened.reset(0)
        told = [step(opened)[4] for _ in range(10)]
        assert [len(infos) for infos in told] == [0, 0, 0, 0, 1] * 2
        assert told[4][0]["episode_length"] == told[9][0]["episode_length"] == 5


def test_state_of_a_time_limit_is_saved_with_the_environment() -> None:
    first, second = (open_(Tally, 2, time_limit=4, frame_stack=2) for _ in range(2))
    first.reset(0)
    for _ in range(3):
        step(first)
    second.reset(0)
    second.load(first.save())
    for opened in (first, second):
        step(opened)
        assert opened.truncations.all()
    with pytest.raises(EnvError, match="the saved state has 3 bytes, and the wrapper time_limit alone has 8"):
        TimeLimit(Tally(), 3).load(b"abc")
    assert EpisodeStats(Tally()).save() is None


def test_wrapped_sources_can_be_sent_to_workers() -> None:
    source = wrap_sources(source_of(Tally, {"limit": 3}), None, checked({"time_limit": 2, "action_repeat": 2}))
    env = pickle.loads(pickle.dumps(source)).open()
    assert isinstance(env, PufferEnv)
    env.reset(seed=1)
    env.step(env.actions)
    assert env.truncations.all()


class Unseeded(gymnasium.Env[Any, Any]):
    observation_space, action_space = CartPoleEnv().observation_space, CartPoleEnv().action_space

    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), 1.0, False, False, {}


def test_seeds_limits_and_parameters_reach_through() -> None:
    with open_(Unseeded, time_limit=3) as opened:
        assert opened.limits == ("no-seed",)
        opened.reset(1)
    with open_(Tally, 2, time_limit=3, action_repeat=2) as opened:
        assert opened.limits == ()
        assert opened.reset(7)[0][:, 0].tolist() == [700, 800]
        with pytest.raises(OptionError, match="Tally has no parameters that change while running: speed"):
            opened.set_params(speed=1)


def test_pictures_reach_through() -> None:
    with open_(Count, 2, action_repeat=2, reward_scale=2.0) as opened:
        opened.reset(0)
        assert opened.render(1, "rgb_array").shape == (21, 31, 3)


def test_an_environment_whose_wrapper_is_refused_is_closed() -> None:
    closed = []

    class Closing(Count):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(OptionError, match="time_limit"):
        open_(Closing, time_limit=3)
    assert len(closed) == 1


# -- environments whose rows begin episodes by themselves -------------------------------------------------------------


def two_vectors() -> Any:
    return gymnasium.vector.SyncVectorEnv([lambda: Plain2(7), lambda: Plain2(100)])


class Plain2(gymnasium.Env[Any, Any]):
    """Shows the tick; done at ``limit``."""

    observation_space, action_space = Box(0, 200, (1,), np.float32), Discrete(2)
    render_mode = "rgb_array"

    def __init__(self, limit: int) -> None:
        self.limit, self.tick = limit, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.tick = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.tick += 1
        return np.full(1, self.tick, np.float32), 1.0, self.tick == self.limit, False, {}

    def render(self) -> Any:
        return np.full((2, 2, 3), self.limit, np.uint8)


@pytest.mark.parametrize("keys", [{"time_limit": 10}, {"episode_stats": True}, {"action_repeat": 2}], ids=str)
def test_what_counts_by_episode_refuses_several_instances_in_one(keys: Any) -> None:
    message = f"wrap.{next(iter(keys))} can't be applied to VectorPufferEnv: its 2 instances end by themselves"
    with pytest.raises(OptionError, match=message) as caught:
        open_(two_vectors, **keys)
    assert "around each of them" in caught.value.hint


class Restarting(Tally):
    """Two agents; agent 0 ends every third tick and goes on at once, agent 1 never ends."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf, limit=10**6, agents=2)

    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        self.terminals[0] = self.tick % 3 == 0
        self.final_observations[:] = self.observations
        return result


@pytest.mark.parametrize("keys", [{"time_limit": 10}, {"episode_stats": True}], ids=str)
def test_what_counts_by_episode_refuses_agents_that_restart_while_others_go_on(keys: Any) -> None:
    with open_(Restarting, **keys) as opened:
        opened.reset(0)
        step(opened)
        step(opened)
        with pytest.raises(OptionError, match="Restarting: agent 0 ended and began an episode while others went on"):
            step(opened)


# -- what else is kept behind wrappers --------------------------------------------------------------------------------


class Unfinal(Tally):
    """Truncates at ``limit``, and writes no final observations."""

    def step(self, actions: Any) -> Any:
        kept = self.final_observations.copy()
        result = super().step(actions)
        self.final_observations[:] = kept
        self.truncations[:], self.terminals[:] = self.terminals, False
        return result


@pytest.mark.filterwarnings("ignore:.* truncates and does not write:UserWarning")
@pytest.mark.parametrize(
    "keys",
    [{"action_repeat": 4}, {"action_repeat": 2, "time_limit": 9}, {"time_limit": 9, "action_repeat": 4}],
    ids=str,
)
def test_repeats_bootstrap_from_the_observation_before_the_cut(keys: Any) -> None:
    with vector.make(Unfinal, 1, "serial", params={"limit": 4}, wrap=keys) as opened:
        opened.reset(1)
        while not step(opened)[3].any():
            pass
        assert opened.final_observations[0, 0] == 103


class Deaf(Tally):
    """Takes no seed."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


@pytest.mark.parametrize("keys", [{}, {"time_limit": 9}, {"time_limit": 9, "action_repeat": 2}], ids=str)
def test_no_seed_is_told_behind_wrappers_too(keys: Any) -> None:
    with open_(Deaf, **keys) as opened:
        opened.reset(3)
        assert opened.limits == ("no-seed",)


def test_pictures_behind_a_wrapper_are_of_the_instance_asked_for() -> None:
    with vector.make(lambda: EnvWrapper(adapt(two_vectors())), 2) as opened:
        assert [int(opened.render(i)[0, 0, 0]) for i in range(4)] == [7, 100] * 2


def test_wrapped_environments_can_be_copied() -> None:
    with open_(Plain, 1, time_limit=4) as opened:
        opened.reset(0)
        step(opened)
        limited = opened.members[0].env.env
        assert copy.copy(limited).save() == limited.save()
        other = copy.deepcopy(limited)
        other.step(0)
        assert (other.save(), limited.save()) == (bytes([2, *[0] * 7, 2]), bytes([1, *[0] * 7, 1]))
