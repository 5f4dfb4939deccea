"""Environments of one agent as `PufferEnv`s: every API, every form of value, and what is refused."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from fakes_single import Count, Motley, Nested, Old, Probe, make_count
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from puffer_core import vector
from puffer_core.emulation import GymnasiumPufferEnv, adapt
from puffer_core.env import PufferEnv
from puffer_core.errors import EnvError, OptionError, RenderError, UsageError


def single(env, **kwargs):
    """Return an adapter that was reset."""
    adapter = GymnasiumPufferEnv(env, **kwargs)
    adapter.reset(seed=1)
    return adapter


# -- one agent --------------------------------------------------------------------------------------------------------


def test_an_environment_of_gymnasium_is_usable_alone():
    env = GymnasiumPufferEnv(env=gymnasium.make("Acrobot-v1", max_episode_steps=40))
    observations, infos = env.reset()
    assert observations.shape == (1, 6)
    assert infos == []
    ends = 0
    for _ in range(100):
        observations, rewards, terminals, truncations, infos = env.step(env.action_space.sample())
        assert observations is env.observations
        assert rewards.shape == terminals.shape == truncations.shape == (1,)
        ends += truncations[0]
    assert ends == 2
    assert env.masks.all()
    env.close()


def test_an_episode_ends_and_the_next_begins_in_the_same_step():
    env = single(Count(limit=3))
    for _ in range(2):
        for step in (1, 2):
            assert env.step(np.array([0]))[0].tolist() == [[env.env.ep, step]]
            assert not env.truncations.any()
        env.step(np.array([1]))
        assert env.truncations.tolist() == [True]
        assert env.terminals.tolist() == [False]
        assert env.rewards.tolist() == [1]
        assert env.observations.tolist() == [[env.env.ep, 0]]
        assert env.final_observations.tolist() == [[env.env.ep - 1, 3]]


def test_where_both_flags_come_the_end_of_the_task_counts():
    zeros = np.zeros(2, np.float32)
    env = single(Probe(answer=(zeros, 1, True, True, {})))
    env.step(np.array([0]))
    assert (env.terminals[0], env.truncations[0]) == (True, False)


@pytest.mark.parametrize(
    ("info", "is_cut"),
    [
        ({}, False),
        ({"TimeLimit.truncated": True}, True),
        ({"TimeLimit.truncated": False, "discount": 1.0}, False),
        ({"discount": 1.0}, True),
        ({"discount": 0.0}, False),
        ({"discount": 0.99}, False),
    ],
)
def test_ends_of_four_values_are_of_the_kind_that_the_info_says(info, is_cut):
    env = single(Old(info))
    assert env.step(np.array([0]))[2:4] == (False, False)
    env.step(np.array([0]))
    assert (env.terminals[0], env.truncations[0]) == (not is_cut, is_cut)
    assert env.final_observations.tolist() == [[2]]


def test_time_limit_of_five_values_is_left_to_the_flags():
    zeros = np.zeros(2, np.float32)
    env = single(Probe(answer=(zeros, 1, True, False, {"TimeLimit.truncated": True})))
    env.step(np.array([0]))
    assert env.terminals[0]


def test_arrays_are_those_given_and_move():
    arrays = vector.make(Count).members[0].env
    buf = {name: getattr(arrays, name) for name in ("observations", "actions", "rewards", "terminals", "truncations")}
    env = single(Count(), buf=buf)
    assert env.observations is buf["observations"]
    other = {name: array.copy() for name, array in buf.items()}
    env.move(other)
    env.step(np.array([0]))
    assert other["observations"].tolist() == [[0, 1]]
    assert buf["observations"].tolist() == [[0, 0]]


# -- construction -----------------------------------------------------------------------------------------------------


def test_a_creator_is_called_with_its_arguments():
    env = GymnasiumPufferEnv(env_creator=Count, env_args=(7,), env_kwargs={"how": "terminate"})
    assert (env.env.limit, env.env.how) == (7, "terminate")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "of env and env_creator neither were given"),
        ({"env": Count(), "env_creator": Count}, "of env and env_creator both were given"),
        ({"env": Count}, "env=.*Count.* makes environments and is none"),
        ({"env": make_count}, "env=<function make_count.* makes environments and is none"),
        ({"env": Count(), "env_args": (3,)}, "env_args and env_kwargs are arguments of env_creator"),
        ({"env_creator": Count()}, "env_creator=.* can't be called"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(OptionError, match=words):
        GymnasiumPufferEnv(**arguments)


def test_without_a_seed_environments_differ():
    first, second = (GymnasiumPufferEnv(env=gymnasium.make("CartPole-v1")) for _ in range(2))
    assert not np.array_equal(first.reset()[0], second.reset()[0])


def test_what_lacks_a_method_is_named():
    half = type("Half", (), {"observation_space": Box(0, 1, (1,)), "action_space": Discrete(2), "reset": None})
    with pytest.raises(EnvError, match="Half has no step: it is no environment of one agent"):
        GymnasiumPufferEnv(env_creator=half)


@pytest.mark.parametrize("kind", ["observation", "action"])
def test_spaces_without_a_fixed_layout_are_refused(kind):
    spaces = {f"{kind}_space": Dict({"name": Text(5)})}
    with pytest.raises(EnvError, match=rf"Probe: {kind}_space: .*'name'.*Text"):
        GymnasiumPufferEnv(Probe(**spaces))


def test_a_refused_environment_is_closed():
    probe = Probe(observation_space=Text(5))
    with pytest.raises(EnvError, match="Text"):
        vector.make(lambda: probe)
    assert probe.closed == 1


def test_adapt_takes_a_puffer_env_as_it_is():
    env = make_count()
    assert adapt(env) is env


# -- order of calls ---------------------------------------------------------------------------------------------------


def test_calls_out_of_order_are_refused():
    env = GymnasiumPufferEnv(Probe())
    with pytest.raises(UsageError, match="Probe: reset before stepping"):
        env.step(np.array([0]))
    env.reset()
    env.close()
    env.close()
    assert env.env.closed == 1
    for call in (env.reset, lambda: env.step(np.array([0]))):
        with pytest.raises(UsageError, match="Probe: used after close"):
            call()


# -- seeds ------------------------------------------------------------------------------------------------------------


def test_seed_and_index_are_added_and_the_constructors_is_of_the_first_reset():
    env = GymnasiumPufferEnv(Probe(), seed=5)
    env.reset(index=2)
    env.reset()
    env.reset(seed=7, index=3)
    env.reset(seed=0)
    assert env.env.seeds == [7, None, 10, 0]


def test_next_episodes_are_not_seeded_again():
    zeros = np.zeros(2, np.float32)
    env = single(Probe(answer=(zeros, 0, True, False, {})))
    env.step(np.array([0]))
    assert env.env.seeds == [1, None]


def test_the_method_seed_is_used_where_reset_takes_none():
    env = single(Old())
    assert env.takes_seed
    assert env.env.seeds == [1]
    with vector.make(Old, num_envs=3) as opened:
        opened.reset(seed=4)
        assert [member.env.env.seeds for member in opened.members] == [[4], [5], [6]]
        assert opened.limits == ()


class Bare(Old):
    seed = None


class Passing:
    """A wrapper that hands anything on."""

    def __init__(self, env):
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)

    def step(self, action):
        return self.env.step(action)


def test_wrappers_take_the_seed_that_what_they_wrap_takes():
    assert GymnasiumPufferEnv(Passing(Count())).takes_seed
    assert not GymnasiumPufferEnv(Passing(Bare())).takes_seed
    assert single(Passing(Passing(Bare()))).observations.tolist() == [[0]]


class Hiding(Passing):
    def __init__(self, env):
        super().__init__(env)
        self.inner, self.env = env, None
        del self.env

    def reset(self, **kwargs):
        return self.inner.reset(**kwargs)


def test_a_seed_that_turns_out_not_to_be_taken_warns():
    env = GymnasiumPufferEnv(Hiding(Bare()))
    assert env.takes_seed
    with pytest.warns(UserWarning, match="Hiding takes no seed"):
        env.reset(seed=1)
    assert not env.takes_seed


def test_a_type_error_inside_a_seeded_reset_is_not_hidden():
    class Broken(Count):
        def reset(self, *, seed=None, options=None):
            raise TypeError("broken reset")

    with pytest.raises(TypeError, match="broken reset"):
        GymnasiumPufferEnv(Broken()).reset(seed=1)


# -- actions ----------------------------------------------------------------------------------------------------------


def given(space, actions):
    """Return what an environment of that action space got for rows of actions."""
    env = single(Probe(action_space=space))
    for action in actions:
        env.step(np.array([action], env.actions.dtype))
    return env.env.actions


@pytest.mark.parametrize("n", [3, 2**20])
@pytest.mark.parametrize("start", [0, 2, -5])
def test_discrete_actions_have_their_start_added(n, start):
    got = given(Discrete(n, start=start), [0, 2, 1])
    assert got == [start, start + 2, start + 1]
    assert all(isinstance(action, np.int64) for action in got)


def test_a_plain_class_gets_integers_of_python():
    env = Motley(is_wild=False)
    env.step = lambda action: (env.observe(), 0.0, False, False, {"type": type(action)})
    assert single(env).step(np.array([2]))[4] == [{"type": int}]


@pytest.mark.parametrize("action", [3, -1, 2**31 - 1])
@pytest.mark.parametrize("space", [Discrete(3), Discrete(3, start=2), MultiDiscrete([5, 3]), MultiBinary(3)])
def test_illegal_discrete_actions_reach_no_environment(space, action):
    env = single(Probe(action_space=space))
    row = np.zeros_like(env.actions)
    row.flat[-1] = action
    with pytest.raises(EnvError, match=rf"Probe: agent 0, head \d: action {action} is not from 0 to"):
        env.step(row)
    assert env.env.actions == []


def test_multidiscrete_actions_are_rows_of_the_spaces_dtype():
    (got,) = given(MultiDiscrete([4, 3]), [[3, 1]])
    assert got.tolist() == [3, 1]
    assert got.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.3), (-1, np.inf), ([-1, 0], [0, 1])])
def test_continuous_actions_are_clipped_into_their_box(dtype, low, high):
    low, high = (np.broadcast_to(np.asarray(bound, dtype), 2) for bound in (low, high))
    space = Box(low, high, dtype=dtype)
    got = given(space, [[2.55, -9], [0.05, 0.05], [np.inf, -np.inf]])
    assert all(action.dtype == dtype for action in got)
    assert np.array_equal(got[0], np.clip(np.array([2.55, -9], np.float32).astype(dtype), low, high))
    assert np.array_equal(got[2], [high[0], low[1]])


def test_an_action_may_be_kept_and_changed():
    got = given(Box(-1, 1, (2,)), [[0.5, 0.5], [-0.5, 1]])
    got[0][:] = 9
    assert got[1].tolist() == [-0.5, 1]


@pytest.mark.parametrize(
    "space", [Box(-1, 1, (2,)), Box(-1, 1, (2, 1)), Dict({"a": Box(-1, 1, (1,)), "b": Discrete(2)})]
)
def test_actions_that_are_no_numbers_reach_no_environment(space):
    env = single(Probe(action_space=space))
    with pytest.raises(EnvError, match=r"Probe: agent 0: action \[.*nan.*\] is not a number"):
        env.step(np.array([[0, np.nan]], np.float32))
    assert env.env.actions == []


def test_nested_spaces_go_both_ways():
    env = single(Nested())
    assert env.single_observation_space.shape == (8,)
    assert env.single_action_space.shape == (3,)
    names = list(env.env.action_space)
    for t in range(1, 7):
        row = np.array([[5, -0.25, 3] if names == ["aim", "move"] else [3, 5, -0.25]], np.float32)
        env.step(row)
        action = env.env.actions[-1]
        assert action["move"] == 4
        assert action["aim"].tolist() == [1, -0.25]
        sample = env.single_observation_space.unflatten(env.observations[0])
        assert (sample["a"], sample["b"].tolist()) == (2 + t % 5, [t, 1])
    env.step(row)
    assert env.single_observation_space.unflatten(env.final_observations[0])["b"].tolist() == [7, 1]
    assert env.single_observation_space.unflatten(env.observations[0])["b"].tolist() == [0, 1]


# -- observations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "observation", "received"),
    [
        (Box(0, 1, (2,)), np.array([0.25, 0.5]), r"float64 \(2,\), declared is float32 \(2,\)"),
        (Box(0, 1, (2,)), [0.25, 0.5], r"list, as float64 \(2,\), declared is float32 \(2,\)"),
        (Box(0, 1, (2,)), np.array([[0.25], [0.5]], np.float32), r"float32 \(2, 1\), declared is float32 \(2,\)"),
        (Box(0, 9, (2,), np.uint8), np.array([1, 2]), r"int64 \(2,\), declared is uint8 \(2,\)"),
        (Box(0, 1, (1,)), 0.5, r"float, as float64 \(\), declared is float32 \(1,\)"),
    ],
)
def test_observations_are_converted_where_that_is_safe_with_one_warning(space, observation, received):
    env = GymnasiumPufferEnv(Probe(observation_space=space, first=observation))
    with pytest.warns(UserWarning, match=f"Probe gives observations as {received}"):
        env.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(np.array([0]))
    assert env.observations.tolist() == [np.asarray(observation).reshape(space.shape).tolist()]


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.zeros(3, np.float32), r"Probe gave an observation of shape \(3,\), declared is \(2,\)"),
        (np.zeros((2, 2), np.float32), r"Probe gave an observation of shape \(2, 2\), declared is \(2,\)"),
        (np.array([300, 0]), "Probe gave observation=.*which is not what uint8"),
        (np.array([0.5, 0]), "Probe gave observation=.*which is not what uint8"),
        (np.array([-1, 0]), "Probe gave observation=.*which is not what uint8"),
        (np.array(["1", "2"]), "Probe gave observation=.*not an array of uint8"),
        ({"a": 1}, "Probe gave observation=.*not an array of uint8"),
    ],
)
def test_observations_that_would_lose_something_are_refused(observation, words):
    env = GymnasiumPufferEnv(Probe(observation_space=Box(0, 255, (2,), np.uint8), first=observation))
    with pytest.raises(EnvError, match=words):
        env.reset()


def test_observations_of_nested_spaces_are_refused_by_path():
    space = Dict({"pos": Box(0, 1, (2,)), "inv": Tuple([Discrete(3)])})
    env = GymnasiumPufferEnv(Probe(observation_space=space, first={"pos": np.zeros(3, np.float32), "inv": (0,)}))
    with pytest.raises(EnvError, match=r"^Probe: observation\['pos'\] has shape \(3,\), declared is \(2,\)"):
        env.reset()


def test_an_observation_that_looks_like_one_with_an_info_is_told_apart():
    space = Tuple([Discrete(3), Dict({"x": Discrete(4)})])

    class Pairs(Old):
        def __init__(self, first):
            super().__init__()
            self.observation_space, self.first = space, first

        def reset(self):
            return self.first

    for first in ((1, {"x": 2}), ((1, {"x": 2}), {"level": 3})):
        env = single(Pairs(first))
        assert env.single_observation_space.unflatten(env.observations[0])[1]["x"] == 2
    assert env.reset()[1] == [{"level": 3}]


@pytest.mark.parametrize("space", [Discrete(5, start=1), MultiDiscrete([5, 5]), MultiBinary(4)])
def test_discrete_observations_are_rows_of_numbers(space):
    space.seed(0)
    sample = space.sample()
    env = single(Probe(observation_space=space, first=sample))
    assert np.array_equal(env.observations.reshape(-1), np.reshape(sample, -1))


def test_an_observation_without_axes_is_a_row():
    env = single(Probe(observation_space=Box(0, 1, ()), first=np.float32(0.5)))
    assert env.observations.reshape(-1).tolist() == [0.5]


# -- rewards, flags and infos -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [2, 2.0, True + True, np.float32(2), np.float64(2), np.int64(2), np.array([2.0])])
def test_rewards_of_every_kind_are_taken(reward):
    env = single(Probe(answer=(np.zeros(2, np.float32), reward, False, np.bool_(False), {"a": 1})))
    assert env.step(np.array([0]))[1].tolist() == [2]
    assert env.step(np.array([0]))[4] == [{"a": 1}]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "Probe: step returned NoneType, not 4 or 5 values"),
        ((1, 2, 3), "Probe: step returned 3 values, not 4 or 5 values"),
        ((np.zeros(2, np.float32), [1, 2], False, False, {}), r"Probe gave reward=\[1, 2\], which is not one real"),
        ((np.zeros(2, np.float32), 1, None, False, {}), "Probe gave terminated=None"),
        ((np.zeros(2, np.float32), 1, False, "", {}), "Probe gave truncated=''"),
        ((np.zeros(2, np.float32), 1, False, False, [1]), r"Probe gave info=\[1\], which is not a dict"),
        ((np.zeros(2, np.float32), 10**400, False, False, {}), "Probe gave reward=.*that float32 can hold"),
    ],
)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_values_of_the_wrong_kind_are_refused_by_name(answer, words, num_envs):
    probe = Probe(answer=() if answer is None else answer)
    probe.answer = answer
    with vector.make([probe, Probe(), Probe()][:num_envs], num_envs, "serial") as opened:
        opened.reset(seed=1)
        with pytest.raises(EnvError, match=words):
            opened.step(np.zeros(num_envs, int))


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_state_is_saved_with_the_observation_where_the_environment_can():
    env, other = single(Nested()), single(Nested())
    for _ in range(4):
        env.step(env.actions)
    blob = env.save()
    other.load(blob)
    assert np.array_equal(env.observations, other.observations)
    for _ in range(4):
        assert all(np.array_equal(a, b) for a, b in zip(env.step(env.actions), other.step(env.actions), strict=True))
    with pytest.raises(EnvError, match="can't restore a state"):
        other.load(b"")
    assert single(Count()).save() is None
    with pytest.raises(EnvError, match="can't restore a state"):
        single(Count()).load(blob)


def test_pictures_and_parameters_are_passed_on():
    class Showing(Count):
        def render(self):
            return "picture"

        def set_params(self, **values):
            self.values = values

    env = single(Showing())
    assert env.render() == "picture"
    env.set_params(limit=4)
    assert env.env.values == {"limit": 4}
    with pytest.raises(RenderError, match="does not render"):
        single(Old()).render()
    with pytest.raises(OptionError, match="has no parameters that change while running: limit"):
        single(Old()).set_params(limit=4)


class Line(PufferEnv):
    """The smallest form: spaces from helpers, plain values."""

    def __init__(self, buf=None):
        super().__init__(buf)
        self.observation_space = self.make_space((8,))
        self.action_space = self.make_discrete(2)
        self.reset()

    def reset(self):
        self.cell, self.tick = 3, 0
        return self.observe()

    def step(self, action):
        self.cell = min(7, max(0, self.cell + (1 if action == 1 else -1)))
        self.tick += 1
        done = self.cell == 7 or self.tick >= 30
        return self.observe(), float(self.cell == 7), done, {}

    def observe(self):
        return np.eye(8, dtype=np.float32)[self.cell]


def test_a_puffer_env_that_returns_plain_values_is_a_single_agent():
    with vector.make(Line, num_envs=3) as opened:
        opened.reset(seed=1)
        for _ in range(4):
            opened.step(np.array([1, 0, 1]))
        assert opened.terminals.tolist() == [True, False, True]
        assert opened.rewards.tolist() == [1, 0, 1]
        assert opened.final_observations.argmax(axis=1).tolist()[::2] == [7, 7]


def test_gym_is_taken():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gym = pytest.importorskip("gym", reason="the extra `gym` is not installed")
        made = gym.make("CartPole-v1", disable_env_checker=True, max_episode_steps=6)
    first, second = (gymnasium.make("CartPole-v1", max_episode_steps=6) for _ in range(2))
    env, twin = GymnasiumPufferEnv(made), GymnasiumPufferEnv(first)
    assert env.single_observation_space.shape == (4,)
    assert env.takes_seed
    for seed in (3, 4):
        assert env.reset(seed=seed)[0].tolist() == twin.reset(seed=seed)[0].tolist()
    for step in range(12):
        action = np.array([step % 2])
        assert env.step(action)[1:4] == twin.step(action)[1:4]
        assert np.array_equal(env.final_observations, twin.final_observations)
    second.close()
