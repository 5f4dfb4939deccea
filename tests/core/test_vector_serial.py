"""The serial backend: Python environments of every form, and the rules it holds them to."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from counter import counter_table
from fakes_single import Count, Motley, Nested, Probe, make_count
from gymnasium.spaces import Box, Discrete, Text

from puffer_core import vector
from puffer_core.emulation import GymnasiumPufferEnv
from puffer_core.env import PufferEnv
from puffer_core.errors import EnvError, OptionError
from puffer_core.vector.logs import EPISODE_FIELDS, LogSums


class Pair(PufferEnv):
    """Two agents that see (seed, tick); agent 0 ends with a terminal, agent 1 with a truncation."""

    def __init__(self, buf=None, limit=3, agents=2):
        self.single_observation_space = Box(-1, 1e6, (2,))
        self.single_action_space = Discrete(3)
        self.num_agents = agents
        self.limit, self.seed, self.tick = limit, 0, 0
        super().__init__(buf)

    def reset(self, seed=None, index=0):
        self.seed = self.seed if seed is None else seed + 1000 * index
        self.tick = 0
        self.observe()
        return self.observations, []

    def observe(self):
        self.observations[:] = self.seed, self.tick

    def step(self, actions):
        self.tick += 1
        self.rewards[:] = actions
        self.observe()
        if self.tick == self.limit:
            self.end()
            self.tick = 0
            self.observe()
        return self.observations, self.rewards, self.terminals, self.truncations, self.infos()

    def end(self):
        self.terminals[:1] = True
        self.truncations[1:] = True
        self.final_observations[:] = self.observations

    def infos(self):
        return []


def test_members_write_rows_of_one_set_of_arrays():
    with vector.make(Pair, num_envs=3, params={"limit": 4}) as opened:
        observations, infos = opened.reset(seed=5)
        assert infos == []
        assert observations[:, 0].tolist() == [5, 5, 1005, 1005, 2005, 2005]
        assert (opened.num_envs, opened.agents_per_env, opened.num_agents) == (3, 2, 6)
        observations, rewards, terminals, truncations, _ = opened.step(np.arange(6) % 3)
        assert rewards.tolist() == [0, 1, 2, 0, 1, 2]
        assert observations[:, 1].tolist() == [1] * 6
        assert not (terminals | truncations).any()
        for member in opened.members:
            assert np.shares_memory(member.env.observations, opened.observations)


def test_first_index_counts_instances_before():
    with vector.make(Pair, num_envs=2, first_index=7) as opened:
        assert opened.reset(seed=0)[0][:, 0].tolist() == [7000, 7000, 8000, 8000]


def test_ends_carry_last_observations_and_flags_of_one_step():
    with vector.make(Pair, num_envs=2) as opened:
        opened.reset(seed=1)
        for step in range(1, 7):
            opened.step(np.ones(4, int))
            ended = step % 3 == 0
            assert opened.terminals.tolist() == [ended, False] * 2
            assert opened.truncations.tolist() == [False, ended] * 2
            if ended:
                assert opened.final_observations[:, 1].tolist() == [3] * 4
                assert opened.observations[:, 1].tolist() == [0] * 4


def test_episodes_are_logged_for_environments_that_log_nothing():
    with vector.make(Pair, num_envs=2) as opened:
        opened.reset(seed=1)
        assert opened.log_fields == ("score", "perf", "episode_return", "episode_length")
        for step in range(6):
            opened.step(np.array([0, 1, 2, 0]))
            assert opened.logged.all() == (step % 3 == 2)
        assert opened.log[:, 0].tolist() == opened.log[:, 2].tolist() == [0, 3, 6, 0]
        assert opened.log[:, 3].tolist() == [3] * 4
        assert opened.drain_log() == {"score": 2.25, "episode_return": 2.25, "episode_length": 3, "n": 8}
        assert opened.drain_log() is None


def test_a_seeded_reset_forgets_what_was_logged():
    with vector.make(Pair) as opened:
        opened.reset(seed=1)
        for _ in range(4):
            opened.step(np.ones(2, int))
        opened.reset(seed=1)
        assert opened.drain_log() is None
        for _ in range(3):
            opened.step(np.ones(2, int))
        assert opened.drain_log()["episode_return"] == 3


class Informed(Pair):
    def infos(self):
        if self.tick:
            return [{"speed": 1.0, "name": "x"}, {"speed": 4.0, "n": 2}]
        return [{"score": 7.0, "perf": 0.25}]


def test_numbers_in_infos_are_averaged_by_weight():
    with vector.make(Informed, params={"agents": 1}) as opened:
        opened.reset(seed=1)
        for _ in range(2):
            infos = opened.step(np.ones(1, int))[4]
        assert infos == opened.infos == [{"speed": 1.0, "name": "x"}, {"speed": 4.0, "n": 2}]
        assert opened.drain_log() == {"speed": 3.0, "n": 6}
        opened.step(np.ones(1, int))
        assert opened.log.tolist() == [[7, 0.25, 3, 3]]
        assert opened.drain_log() == {"score": 7, "perf": 0.25, "episode_return": 3, "episode_length": 3, "n": 1}


class Reported(Pair):
    """Says every step what a log row says at the end, and one thing of no weight."""

    def infos(self):
        return [{"score": 1.0, "perf": 0.5, "height": float(self.tick)}, {"depth": 9.0, "n": 0}]


def test_infos_never_stand_in_for_log_fields_and_those_of_ends_are_means_of_episodes():
    with vector.make(Reported, params={"agents": 1}) as opened:
        opened.reset(seed=1)
        opened.step(np.ones(1, int))
        assert opened.drain_log() == {"height": 1, "n": 1}
        for _ in range(5):
            opened.step(np.ones(1, int))
        assert opened.log[:, 0].tolist() == [1]
        means = {"score": 1, "perf": 0.5, "episode_return": 3, "episode_length": 3}
        assert opened.drain_log() == {**means, "height": 0, "n": 2}
        opened.step(np.ones(1, int))
        assert opened.drain_log() is None


class Each(Pair):
    def infos(self):
        return [{"score": 1.0 + row} for row in range(self.num_agents)]


def test_one_info_for_each_row_is_that_rows():
    with vector.make(Each) as opened:
        opened.reset(seed=1)
        for _ in range(3):
            opened.step(np.ones(2, int))
        assert opened.log[:, 0].tolist() == [1, 2]


class Logged(Pair):
    log_fields = ("score", "gems")

    def end(self):
        super().end()
        self.log[:] = 2, 5
        self.logged[:] = True


def test_an_environment_that_logs_is_left_alone():
    with vector.make(Logged, num_envs=2) as opened:
        opened.reset(seed=1)
        for _ in range(4):
            opened.step(np.ones(4, int))
        assert not opened.logged.any()
        assert opened.drain_log() == {"score": 2, "gems": 5, "n": 4}


class Other(Pair):
    log_fields = ("score", "keys")


class Forgetful(Pair):
    def end(self):
        self.terminals[:1] = True
        self.truncations[1:] = True


def test_missing_final_observations_are_those_before_the_cut_with_one_warning():
    with vector.make(Forgetful) as opened:
        opened.reset(seed=1)
        for _ in range(2):
            opened.step(np.ones(2, int))
        with pytest.warns(UserWarning, match="Forgetful truncates and does not write final_observations"):
            opened.step(np.ones(2, int))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert opened.final_observations[:, 1].tolist() == [2, 2]
            for _ in range(3):
                opened.final_observations[:] = 0
                opened.step(np.ones(2, int))
            assert opened.final_observations[:, 1].tolist() == [2, 2]


class LaterForgetful(Pair):
    def end(self):
        (self.truncations if self.limit == 4 else self.terminals)[:] = True
        self.limit = 4


def test_the_warning_comes_with_the_first_cut():
    with vector.make(LaterForgetful) as opened:
        opened.reset(seed=1)
        for _ in range(6):
            opened.step(np.ones(2, int))
        with pytest.warns(UserWarning, match="truncates"):
            opened.step(np.ones(2, int))
        assert opened.final_observations[:, 1].tolist() == [3, 3]


class Sometimes(Pair):
    """Writes last observations only where it truncates, and ends with a terminal first."""

    def end(self):
        self.ends = getattr(self, "ends", 0) + 1
        if self.ends % 2:
            self.terminals[:] = True
        else:
            self.truncations[:] = True
            self.final_observations[:] = 7, 7


def test_last_observations_are_supplied_in_the_rows_that_lack_them():
    with vector.make(Sometimes) as opened, warnings.catch_warnings():
        warnings.simplefilter("error")
        opened.reset(seed=1)
        for end in range(4):
            for _ in range(3):
                opened.step(np.ones(2, int))
            assert opened.final_observations.tolist() == [[7, 7] if end % 2 else [1, 2]] * 2


class Undecided(Pair):
    def end(self):
        super().end()
        self.terminals[:] = self.truncations[:] = True


class Replacing(Pair):
    def observe(self):
        super().observe()
        if self.tick == 2:
            self.rewards = self.rewards.copy()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Undecided, "Undecided: agent 2 is terminal and truncated"),
        (Replacing, "Replacing replaced its array `rewards`"),
    ],
)
def test_breaches_of_the_contract_are_refused(kind, words):
    with vector.make([Pair, kind], num_envs=2, params={"limit": 3}) as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match=words):  # noqa: PT012 - the third step ends the episode
            for _ in range(3):
                opened.step(np.ones(4, int))


class Own(Pair):
    """Takes no arrays: it has its own, which are copied."""

    def __init__(self):
        super().__init__()


class Masked(Own):
    has_action_mask = True


class Closing(Pair):
    opened = 0

    def __init__(self, buf=None, agents=2):
        super().__init__(buf, agents=agents)
        Closing.opened += 1

    def close(self):
        Closing.opened -= 1


@pytest.mark.parametrize("params", [{"agents": 3}, {"agents": "many"}])
def test_what_was_opened_is_closed_where_a_later_one_fails(params):
    with pytest.raises(EnvError, match="environment 2"):
        vector.make(Closing, num_envs=3, params=[{}, {}, params])
    assert Closing.opened == 0


def test_environments_of_a_vector_must_agree():
    with pytest.raises(EnvError, match="environment 1 does not fit into the rows of the first"):
        vector.make(Pair, num_envs=2, params=[{}, {"agents": 3}])
    with pytest.raises(EnvError, match="environment 1 has log_fields"):
        vector.make([Logged, Other], num_envs=2)
    with pytest.raises(EnvError, match="environment 1 has has_action_mask True, the first has False"):
        vector.make([Pair, Masked], num_envs=2)
    with pytest.raises(OptionError, match="1 parameter sets were given for num_envs=2"):
        vector.make(Pair, num_envs=2, params=[{}])


def test_each_environment_can_have_parameters_of_its_own():
    with vector.make(Pair, num_envs=3, params=[{"limit": 3 + i} for i in range(3)]) as opened:
        opened.reset(seed=1)
        for _ in range(3):
            opened.step(np.ones(6, int))
        assert opened.observations[:, 1].tolist() == [0, 0, 3, 3, 3, 3]


def test_strict_refuses_illegal_actions():
    with vector.make(Pair, strict=True) as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match="Pair: agent 1, head 0: action 3 is not from 0 to 2"):
            opened.step(np.array([0, 3]))


# -- other forms ------------------------------------------------------------------------------------------------------


class Walk:
    """The plain form, as small as it gets: to the right end of a line of four cells."""

    def __init__(self, wide=False):
        self.observation_space = Box(0, 1, (4,))
        self.action_space = Discrete(2)
        self.wide = wide

    def reset(self):
        self.cell = 1
        return self.observe()

    def observe(self):
        return np.eye(5 if self.wide else 4, dtype=np.float32)[self.cell]

    def step(self, action):
        assert type(action) is int
        self.cell += 1 if action else -1
        return self.observe(), float(self.cell == 3), self.cell in (0, 3), {"cell": self.cell}


def test_a_plain_class_is_a_single_agent():
    with vector.make(Walk, num_envs=2) as opened:
        assert opened.limits == ("no-seed",)
        assert opened.reset(seed=1)[0].argmax(axis=1).tolist() == [1, 1]
        opened.step(np.array([1, 0]))
        assert opened.terminals.tolist() == [False, True]
        assert opened.observations.argmax(axis=1).tolist() == [2, 1]
        assert opened.final_observations.argmax(axis=1).tolist()[1] == 0
        opened.step(np.array([1, 1]))
        assert opened.rewards.tolist() == [1, 0]
        assert opened.drain_log() == {"score": 0.5, "episode_return": 0.5, "episode_length": 1.5, "cell": 1.5, "n": 2}


class WalkEnv(Walk, PufferEnv):
    """The same on the base class, which then holds no arrays of its own."""

    def __init__(self, buf=None):
        PufferEnv.__init__(self, buf)
        Walk.__init__(self)
        self.reset()


def test_a_plain_class_on_the_base_class_is_adapted_too():
    with vector.make(WalkEnv, num_envs=2) as opened:
        opened.reset(seed=1)
        assert opened.step(np.array([1, 0]))[2].tolist() == [False, True]


def test_an_observation_of_another_shape_is_refused():
    words = r"Walk gave an observation of shape \(5,\), declared is \(4,\)"
    with vector.make(Walk, params={"wide": True}) as opened, pytest.raises(EnvError, match=words):
        opened.reset(seed=1)


def test_a_gymnasium_environment_is_seeded_and_truncated():
    def make():
        return gymnasium.make("CartPole-v1", max_episode_steps=5)

    with vector.make(make, num_envs=2) as opened, vector.make(make, num_envs=1, first_index=1) as second:
        assert opened.limits == ()
        assert np.array_equal(opened.reset(seed=3)[0][1:], second.reset(seed=3)[0])
        for _ in range(5):
            opened.step(np.array([0, 1]))
        assert opened.truncations.all()
        assert not opened.terminals.any()
        assert not np.array_equal(opened.final_observations, opened.observations)


class SeedOnly(Pair):
    def reset(self, seed=None):
        return super().reset(seed)


@pytest.mark.parametrize(("kind", "first_column"), [(SeedOnly, [4, 4, 5, 5]), (Own, [4, 4, 1004, 1004])])
def test_other_signatures_are_served(kind, first_column):
    with vector.make(kind, num_envs=2) as opened:
        assert opened.reset(seed=4)[0][:, 0].tolist() == first_column
        for _ in range(3):
            opened.step(np.array([0, 1, 2, 0]))
        assert opened.rewards.tolist() == [0, 1, 2, 0]
        assert opened.final_observations[:, 1].tolist() == [3] * 4
        assert opened.drain_log()["episode_return"] == 2.25


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (dict, "dict is no PufferEnv and has no observation_space and action_space"),
        (lambda: type("Odd", (), {"observation_space": Text(5), "action_space": Discrete(2)})(), "Odd has no reset"),
        (lambda: Plain(None, space=Text(5)), "Plain: observation_space: .*Text"),
    ],
)
def test_what_is_no_environment_is_refused(kind, words):
    with pytest.raises((EnvError, OptionError), match=words):
        vector.make(kind)


# -- environments in C, one object each -------------------------------------------------------------------------------


def test_serial_and_native_give_the_same_rows():
    table = counter_table()
    serial = vector.make(table, num_envs=3, backend="serial", params={"num_envs": 2})
    native = vector.make(table, num_envs=3, backend="native", params={"num_envs": 2})
    serial.reset(seed=6)
    native.reset(seed=6)
    fields = ("observations", "rewards", "terminals", "truncations", "masks", "action_mask", "log", "logged")
    for step in range(20):
        for name in fields:
            assert np.array_equal(getattr(serial, name), getattr(native, name)), f"{name} at step {step}"
        actions = np.full((12, 2), step % 3)
        serial.step(actions)
        native.step(actions)
    assert serial.drain_log() == pytest.approx(native.drain_log())
    assert serial.num_envs == native.num_envs == 6
    assert serial.render(5, "ansi") == native.render(5, "ansi")
    serial.close()
    native.close()


def test_serial_saves_and_restores_what_can_be():
    table = counter_table()
    with vector.make(table, num_envs=2, backend="serial") as one, vector.make(table, 2, backend="serial") as other:
        one.reset(seed=1)
        for _ in range(7):
            one.step(np.ones((4, 2), int))
        other.load(one.save())
        assert np.array_equal(one.step(np.ones((4, 2), int))[0], other.step(np.ones((4, 2), int))[0])
        one.set_params(bonus=1)
        with pytest.raises(EnvError, match="the saved state has 0 environments, not 2"):
            other.load({"episodes": b""})
    with vector.make(Pair) as opened:
        assert opened.save() is None
        with pytest.raises(OptionError, match="index=1 is not an integer from 0 to 0"):
            opened.render(1)


# -- what step returns ------------------------------------------------------------------------------------------------


class Answering(Pair):
    """Answers as ``change`` makes of the right answer."""

    def __init__(self, buf=None, change=None):
        super().__init__(buf)
        self.change = change

    def step(self, actions):
        return self.change(self, super().step(actions))


def grow(env, result):
    env.num_agents = 3
    return result


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda env, r: None, "Answering: step returned NoneType, not 5 values"),
        (lambda env, r: r[:4], "Answering: step returned 4 values, not 5"),
        (lambda env, r: (r[0].copy(), *r[1:]), "Answering: step returned observations that are not its own"),
        (lambda env, r: (r[0], [0.0, 1.0], *r[2:]), "Answering: step returned rewards that are not its own"),
        (lambda env, r: (*r[:4], "none"), "Answering: step returned infos='none', not a list of dicts"),
        (lambda env, r: (*r[:4], [3]), r"Answering: step returned infos=\[3\]"),
        (grow, "Answering changed num_agents from 2 to 3"),
    ],
)
def test_results_that_would_be_lost_are_refused(change, words):
    with vector.make(Answering, params={"change": change}) as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match=words):
            opened.step(np.array([0, 1]))


@pytest.mark.parametrize("infos", [None, {"a": 1.0}, ({"a": 1.0},), [{"a": 1.0}]])
def test_views_and_infos_of_every_form_are_taken(infos):
    def change(env, result):
        return (*(array[:] for array in result[:4]), infos)

    with vector.make(Answering, params={"change": change}) as opened:
        opened.reset(seed=1)
        assert opened.step(np.array([0, 1]))[4] == ([{"a": 1.0}] if infos else [])


class Plain:
    """Answers what it is given."""

    def __init__(self, answer, dtype=np.float32, space=None):
        self.observation_space = space or Box(0, 1, (2,), dtype)
        self.action_space = Discrete(2)
        self.answer = answer

    def reset(self):
        return np.zeros(2, self.observation_space.dtype)

    def step(self, action):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (([0, 0], None, False, {}), "Plain gave reward=None, which is not one real number"),
        (([0, 0], "1", False, {}), "Plain gave reward='1'"),
        (([0, 0], np.zeros(2), False, {}), r"Plain gave reward=array\(\[0., 0.\]\)"),
        (([0, 0], 1e300, False, {}), r"Plain gave reward=1e\+300, .* float32 can hold"),
        (([0, 0], 0, "no", {}), "Plain gave done='no', which is not one boolean"),
        (([0, 0], 0, None, False, {}), "Plain gave terminated=None"),
        (([0, 0], 0, False, [], {}), r"Plain gave truncated=\[\]"),
        (([0, 0], 0, False, 3), "Plain gave info=3, which is not a dict"),
        ((None, 0, False, {}), "Plain gave observation=None, which is not an array of float32"),
        ((["a", "b"], 0, False, {}), r"Plain gave observation=\['a', 'b'\]"),
        (([[0], [0, 1]], 0, False, {}), "Plain gave observation=.* not an array of numbers"),
        ((np.zeros(2, complex), 0, False, {}), "Plain gave observation=array.*not an array of float32"),
        ((np.array([0, 1e300]), 0, False, {}), "Plain gave observation=array.*what float32, the dtype"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(answer, words):
    with vector.make(Plain, params={"answer": answer}) as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match=words):
            opened.step(np.array([0]))


def test_numbers_of_every_kind_are_taken():
    answer = ([1, np.inf], np.float64(2), np.bool_(False), np.array([True]), None)
    with vector.make(Plain, params={"answer": answer}) as opened:
        opened.reset(seed=1)
        with pytest.warns(UserWarning, match=r"gives observations as list, as float64 \(2,\), declared is float32"):
            opened.step(np.array([0]))
        assert opened.final_observations.tolist() == [[1, np.inf]]
        assert (opened.rewards[0], opened.terminals[0], opened.truncations[0]) == (2, False, True)


def test_an_observation_that_wraps_around_is_refused():
    with vector.make(Plain, params={"answer": ([0, 300], 0, False, {}), "dtype": np.uint8}) as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match="what uint8, the dtype of the observation space, can hold"):
            opened.step(np.array([0]))


def test_a_backend_that_is_none_is_refused():
    with pytest.raises(OptionError, match="backend=3 is not `auto`, the name of a backend or its class"):
        vector.make(Pair, backend=3)


# -- instances --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", [Walk, WalkEnv, Pair, lambda: gymnasium.make("CartPole-v1")])
def test_an_instance_is_a_vector_of_one(instance):
    env = instance()
    with vector.make(env) as opened:
        opened.reset(seed=1)
        opened.step(np.zeros(opened.num_agents, int))
        assert vector.describe(env)[2] == opened.num_agents
        opened.step(np.ones(opened.num_agents, int))


def test_an_instance_is_refused_where_it_would_be_several():
    walk = Walk()
    with pytest.raises(OptionError, match="one instance of Walk can't be several of num_envs=2 environments") as error:
        vector.make(walk, num_envs=2)
    assert error.value.hint == "give its class or a factory, which makes one for each"
    with pytest.raises(OptionError, match="one instance of Walk"):
        vector.make([walk, Walk(), walk], num_envs=3)
    with pytest.raises(OptionError, match="parameters were given for an environment that is there already: wide"):
        vector.make(walk, params={"wide": True})
    with vector.make([walk, Walk()], num_envs=2) as opened:
        opened.reset(seed=1)


# -- single agents in one loop ----------------------------------------------------------------------------------------


FIELDS = ("observations", "rewards", "terminals", "truncations", "masks", "final_observations")


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1,), (400,), ()])
@pytest.mark.parametrize("values", [4, 5])
@pytest.mark.parametrize("wild", ["none", "one", "all"])
@pytest.mark.filterwarnings("ignore:Motley gives observations as")
def test_the_loop_gives_what_adapters_give_alone(shape, values, wild):
    def make(i):
        return Motley(i, values, is_wild=wild == "all" or (wild == "one" and i == 2), shape=shape)

    count, rng = 5, np.random.default_rng(0)
    alone = [GymnasiumPufferEnv(make(i)) for i in range(count)]
    with vector.make([make(i) for i in range(count)], count, "serial") as opened:
        opened.reset(seed=9)
        for i, env in enumerate(alone):
            env.reset(seed=9, index=i)
        returns, lengths = np.zeros(count), np.zeros(count, int)
        for step in range(150):
            actions = rng.integers(0, 4, count)
            infos = opened.step(actions)[4]
            expected = [env.step(actions[i : i + 1])[4] for i, env in enumerate(alone)]
            assert infos == [info for each in expected for info in each], f"step {step}"
            for name in FIELDS:
                rows = np.concatenate([getattr(env, name) for env in alone])
                assert np.array_equal(getattr(opened, name), rows), f"{name} at step {step}"
            returns += opened.rewards
            lengths += 1
            ended = opened.terminals | opened.truncations
            assert np.array_equal(opened.logged, ended)
            assert np.array_equal(opened.log[ended, 2], returns[ended].astype(np.float32))
            assert np.array_equal(opened.log[ended, 3], lengths[ended])
            returns[ended] = lengths[ended] = 0


@pytest.mark.parametrize(
    "env", [Count, make_count, lambda limit, how="": make_count(limit=limit, how=how or "truncate")]
)
def test_every_row_is_that_of_its_environment(env):
    with vector.make(env, num_envs=8, env_kwargs=[{"limit": 3 + i} for i in range(8)]) as opened:
        opened.reset(seed=1)
        for _ in range(3):
            opened.step(np.zeros(8, int))
        assert opened.observations.tolist() == [[1, 0]] + [[0, 3]] * 7
        assert opened.final_observations[0].tolist() == [0, 3]
        assert opened.truncations.tolist() == [True] + [False] * 7
        for _ in range(7):
            opened.step(np.zeros(8, int))
        assert opened.observations[:, 1].tolist() == [10 % (3 + i) for i in range(8)]


def test_returns_and_lengths_of_every_episode_are_exact():
    with vector.make(make_count, num_envs=2, env_kwargs={"limit": 3}) as opened:
        opened.reset(seed=1)
        for step in range(1, 100):
            opened.step(np.zeros(2, int))
            assert opened.logged.all() == (step % 3 == 0)
            if step % 3 == 0:
                assert opened.log[:, 2:].tolist() == [[3, 3], [3, 3]]
        assert opened.drain_log() == {"score": 3, "episode_return": 3, "episode_length": 3, "n": 66}


@pytest.mark.parametrize("env", [Count, Nested, lambda: Probe(observation_space=Discrete(9, start=4), first=5)])
def test_arrays_of_the_vector_are_those_of_its_adapters(env):
    with vector.make(env, num_envs=3) as opened:
        opened.reset(seed=1)
        for member in opened.members:
            assert np.shares_memory(member.env.observations, opened.observations)
        for _ in range(8):
            opened.step(np.zeros(opened.actions.shape, opened.actions.dtype))
        assert opened.observations.any()


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint64, np.int32])
@pytest.mark.parametrize("strict", [False, True])
def test_illegal_choices_are_refused_before_anything_is_stepped(dtype, strict):
    with vector.make(Count, num_envs=3, strict=strict) as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match="Count: agent 1, head 0: action 2 is not from 0 to 1"):
            opened.step(np.array([0, 2, 1], dtype))
        with pytest.raises(EnvError, match=r"Count: actions are float64 \(3,\), needed are int32 \(3,\)"):
            opened.step(np.zeros(3))
        opened.step(np.array([0, 1, 1], dtype))
        assert opened.observations[:, 1].tolist() == [1, 1, 1]
        assert opened.actions.tolist() == [0, 1, 1]


def test_environments_whose_actions_differ_are_stepped_each_its_own_way():
    envs = [Probe(Discrete(3)), Probe(Discrete(3, start=2)), Count(), Walk()]
    with vector.make(envs[:2], num_envs=2) as opened:
        opened.reset(seed=1)
        opened.step(np.array([1, 1]))
    assert [env.actions for env in envs[:2]] == [[1], [3]]
    with vector.make([Count(), Pairwise()], num_envs=2) as opened:
        opened.reset(seed=1)
        opened.step(np.array([1, 1]))
        assert opened.observations.tolist() == [[0, 1], [7, 7]]


class Pairwise(Probe):
    def __init__(self):
        first = np.full(2, 7, np.float32)
        super().__init__(Discrete(2), Box(-1e6, 1e6, (2,), np.float32), first)


def test_a_wrong_value_names_its_environment():
    wrong = Probe(answer=(np.zeros(2, np.float32), "1", False, False, {}))
    with vector.make([Probe(), wrong, Probe()], num_envs=3) as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match="environment 1: Probe gave reward='1', which is not one real number"):
            opened.step(np.zeros(3, int))


def test_an_exception_of_an_environment_is_its_own():
    with vector.make(Count, num_envs=2, params=[{}, {"boom_at": 2}]) as opened:
        opened.reset(seed=1)
        opened.step(np.zeros(2, int))
        with pytest.raises(RuntimeError, match="boom in env"):
            opened.step(np.zeros(2, int))


def test_a_step_that_is_replaced_counts_from_the_next_reset():
    with vector.make(Count, num_envs=2) as opened:
        opened.reset(seed=1)
        for member in opened.members:
            member.env.env.step = lambda action: (np.full(2, 5, np.float32), 2.0, False, False, {})
        opened.reset(seed=1)
        opened.step(np.zeros(2, int))
        assert opened.observations.tolist() == [[5, 5], [5, 5]]
        assert opened.rewards.tolist() == [2, 2]


@pytest.mark.slow
def test_memory_stays_flat_over_episodes():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with vector.make(Informing, num_envs=64, params={"limit": 20}) as opened:
        opened.reset(seed=1)
        actions = np.zeros(64, int)

        def run(episodes):
            for _ in range(episodes * 20 // 64):
                opened.step(actions)
            gc.collect()
            return resident()

        before = run(5_000)
        grown = run(20_000) - before
        assert grown < 2**20
        assert opened.drain_log()["n"] > 24_000


class Informing(Count):
    def step(self, action):
        *values, _ = super().step(action)
        return *values, {"t": self.t, "name": "x", "array": np.zeros(100)}


# -- seeds, parameters, logs, state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [-1, None, 1.5, "3", True, 2**63])
@pytest.mark.parametrize("backend", ["serial", "multiprocessing", vector.Serial], ids=str)
def test_seeds_that_are_none_are_refused(seed, backend):
    with pytest.raises(OptionError, match=r"seed=.* is not an integer from 0 to 2\*\*63 - 1"):
        vector.make(Count, 2, backend, seed=seed)


def test_a_reset_refuses_a_seed_below_0_and_goes_on():
    with vector.make(Count, 2, "serial", seed=np.int64(4)) as opened:
        with pytest.raises(OptionError, match="seed=-1 is not an integer"):
            opened.reset(-1)
        assert opened.reset()[0].shape == (2, 2)


def test_an_unknown_keyword_names_the_closest():
    with pytest.raises(
        OptionError, match="Count takes no parameter `num_worker`: it has limit, how, boom_at"
    ) as caught:
        vector.make(Count, 2, num_worker=2)
    assert caught.value.hint == "did you mean `num_workers`?"
    with pytest.raises(OptionError, match="`limits`") as caught:
        vector.make([Count, Count], 2, limits=2)
    assert caught.value.hint == "did you mean `limit`?"
    with pytest.raises(OptionError, match="`limits`"):
        vector.Serial(Count, 2, params={"limits": 2})


def test_signatures_that_say_nothing_are_taken_at_their_word():
    with vector.make(lambda **kwargs: Count(**kwargs), 2, "serial", limit=2) as opened:
        assert opened.members[0].env.env.limit == 2


class Leaving(PufferEnv):
    """Two agents; agent 1 leaves at tick 2 and returns at tick 5; both end at tick 8. Its state can be saved."""

    def __init__(self, buf=None):
        self.single_observation_space, self.single_action_space = Box(0, 9, (1,), np.float32), Discrete(2)
        self.num_agents = 2
        super().__init__(buf)

    def show(self):
        self.observations[:], self.masks[1] = self.tick, not 2 <= self.tick < 5

    def reset(self, seed=None, index=0):
        self.tick = 0
        self.show()
        return self.observations, []

    def step(self, actions):
        self.tick += 1
        if self.tick == 8:
            self.final_observations[:], self.terminals[:] = self.tick, True
            self.tick = 0
        self.show()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def save(self):
        return bytes([self.tick])

    def load(self, blob):
        self.tick = blob[0]
        self.show()


class Unbuffered(Leaving):
    """In arrays of its own."""

    def __init__(self):
        super().__init__()


@pytest.mark.parametrize("make", [Leaving, Unbuffered])
@pytest.mark.parametrize("steps", range(8))
def test_lengths_of_episodes_go_on_where_an_agent_is_absent(make, steps):
    first, second = vector.Serial(make, 2), vector.Serial(make, 2)
    first.reset(0), second.reset(0)
    actions = np.zeros(4, int)
    for _ in range(steps):
        first.step(actions)
    second.load(first.save())
    assert np.array_equal(first.observations, second.observations)
    assert np.array_equal(first.masks, second.masks)
    for _ in range(8 - steps):
        first.step(actions), second.step(actions)
    assert first.logged.all()
    assert first.log[:, 3].tolist() == second.log[:, 3].tolist() == [8, 5, 8, 5]


def test_columns_without_a_number_in_some_rows_have_the_mean_of_the_others():
    logs, others = LogSums(EPISODE_FIELDS), LogSums(EPISODE_FIELDS)
    rows = np.array([[1, np.nan, 1, 2], [3, 0.5, 3, 4]], np.float32)
    logs.add(rows, np.array([True, True]), [])
    others.add_rows(rows, [0], [], [])
    logs.absorb(others.take())
    wanted = {"score": 5 / 3, "perf": 0.5, "episode_return": 5 / 3, "episode_length": 8 / 3, "n": 3.0}
    assert logs.drain() == pytest.approx(wanted)
    logs.add(rows[:1], np.array([True]), [])
    assert logs.drain() == {"score": 1, "episode_return": 1, "episode_length": 2, "n": 1}


def test_every_environment_is_closed_though_one_fails_to():
    closed = []

    class Stuck(Count):
        def close(self):
            closed.append(self)
            if len(closed) == 2:
                raise RuntimeError("stuck")

    opened = vector.Serial(Stuck, 4)
    with pytest.raises(RuntimeError, match="stuck"):
        opened.close()
    assert closed == [member.env.env for member in opened.members]
    opened.close()


def test_strict_refuses_fractions_of_choices():
    with vector.make(Nested, 2, "serial", strict=True) as opened:
        opened.reset(0)
        actions = np.zeros(opened.actions.shape, np.float32)
        column = [head.is_continuous for head in opened.single_action_space.action_layout].index(False)
        actions[1, column] = 1.5
        with pytest.raises(EnvError, match=rf"agent 1, head {column}: action 1.5 is not a whole number from 0 to 3"):
            opened.send(actions)
        actions[1, column], actions[1, 0] = 2, 0.5
        opened.send(actions)


class ClosesBadly(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {"huge": 10**400, "small": 2}

    def close(self):
        raise RuntimeError("close boom")


def test_environment_that_cannot_be_closed_can_be_looked_at_and_huge_integers_are_no_numbers():
    with pytest.warns(UserWarning, match="ClosesBadly: close raised RuntimeError: close boom"):
        vector.describe(ClosesBadly)
    opened = vector.make(ClosesBadly, np.int64(2), "serial", seed=np.int64(1), first_index=np.int64(3))
    opened.reset()
    opened.step(np.zeros(2, np.int32))
    assert opened.drain_log()["small"] == 2
    with pytest.raises(RuntimeError, match="close boom"):
        opened.close()
