"""The base class: spaces, arrays, and the rules for arrays that are given."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from puffer_core.env import PufferEnv, joint_space, put_actions
from puffer_core.errors import EnvError, OptionError, RenderError

OBSERVATION = Box(0, 9, (3,), np.uint8)


class Made(PufferEnv):
    """Declares what it is told, before or after the base is set up."""

    def __init__(self, observation=OBSERVATION, action=None, agents=2, buf=None, late=False, **declared):
        self.__dict__.update(declared)
        if late:
            super().__init__(buf)
        self.single_observation_space = observation
        self.single_action_space = Discrete(4) if action is None else action
        self.num_agents = agents
        if not late:
            super().__init__(buf)


@pytest.mark.parametrize("late", [False, True])
def test_arrays_have_the_declared_shapes_and_types(late):
    env = Made(late=late)
    assert env.observations.shape == env.final_observations.shape == (2, 3)
    assert env.observations.dtype == np.uint8
    assert (env.actions.shape, env.actions.dtype) == ((2,), np.int32)
    assert (env.rewards.shape, env.rewards.dtype) == ((2,), np.float32)
    for flags in (env.terminals, env.truncations, env.masks):
        assert (flags.shape, flags.dtype) == ((2,), np.bool_)
    assert env.masks.all()
    assert env.action_mask is env.log is env.logged is None
    assert env.observations is env.observations


@pytest.mark.parametrize(
    ("action", "shape", "dtype"),
    [
        (MultiDiscrete([3, 2]), (2, 2), np.int32),
        (Box(-1, 1, (5,)), (2, 5), np.float32),
        (Discrete(3), (2,), np.int32),
    ],
)
def test_actions_follow_the_action_space(action, shape, dtype):
    env = Made(action=action)
    assert (env.actions.shape, env.actions.dtype) == (shape, dtype)


def test_action_mask_and_log_exist_where_declared():
    env = Made(action=MultiDiscrete([3, 2]), has_action_mask=True, log_fields=("score", "n_keys"))
    assert env.action_mask.shape == (2, 5)
    assert env.action_mask.all()
    assert env.log.shape == (2, 2)
    assert not env.logged.any()


def test_joint_spaces_repeat_the_single_ones():
    env = Made(action=MultiDiscrete([3, 2]))
    assert env.observation_space == Box(0, 9, (2, 3), np.uint8)
    assert env.action_space == Box(0, np.array([[2, 1], [2, 1]]), dtype=np.int32)
    assert joint_space(Discrete(4), 3) == MultiDiscrete([4, 4, 4])
    with pytest.raises(EnvError, match="no joint space of MultiBinary"):
        joint_space(MultiBinary(3), 2)


def test_own_attribute_of_the_same_name_takes_the_place_of_a_joint_space():
    env = Made(observation_space="mine")
    assert env.observation_space == "mine"


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"observation": Discrete(3)}, "single_observation_space is Discrete"),
        ({"observation": Dict(a=OBSERVATION)}, "single_observation_space is Dict"),
        ({"action": MultiBinary(3)}, "single_action_space is MultiBinary"),
        ({"action": Discrete(3, start=1)}, "single_action_space is Discrete"),
        ({"action": MultiDiscrete([[2, 2], [2, 2]])}, "single_action_space is MultiDiscrete"),
        ({"action": Box(-1, 1, ())}, r"single_action_space is Box.*, or a Box of shape \(D,\)"),
        ({"action": Box(-1, 1, (2, 3))}, "single_action_space is Box"),
        ({"agents": 0}, "num_agents=0"),
        ({"agents": "two"}, "num_agents='two'"),
    ],
)
def test_spaces_that_are_not_allowed_are_refused(declared, words):
    with pytest.raises(EnvError, match=words):
        Made(**declared)


def test_arrays_before_spaces_are_an_error_that_says_so():
    class Empty(PufferEnv):
        pass

    with pytest.raises(AttributeError, match="set single_observation_space"):
        Empty().observations  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute `colour`"):
        Empty().colour  # noqa: B018


def _buffers(**changes):
    env = Made()
    names = ("observations", "actions", "rewards", "terminals", "truncations", "masks", "final_observations")
    buf = {name: np.zeros_like(getattr(env, name)) for name in names}
    return {name: array for name, array in (buf | changes).items() if array is not None}


@pytest.mark.parametrize("late", [False, True])
def test_given_arrays_are_used(late):
    buf = _buffers()
    env = Made(buf=buf, late=late)
    assert all(getattr(env, name) is array for name, array in buf.items())
    assert env.masks.all(), "every agent is there at the start"


def test_optional_arrays_are_made_where_they_are_not_given():
    env = Made(buf=_buffers(masks=None, final_observations=None))
    assert env.masks.all()
    assert env.final_observations.shape == (2, 3)


def _locked():
    array = np.zeros(2, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("rewards", None, "buf lacks rewards"),
        ("rewards", [0, 0], "is no array but list"),
        ("rewards", np.zeros(2), "dtype float64, not float32"),
        ("rewards", np.zeros(3, np.float32), r"shape \(3,\), not \(2,\)"),
        ("rewards", np.zeros(4, np.float32)[::2], "not contiguous"),
        ("rewards", _locked(), "not writable"),
        ("rewards", np.zeros(9, np.uint8)[1:].view(np.float32), "not aligned to 4 bytes"),
        ("log", np.zeros((2, 1), np.float32), "no buffer `log`"),
    ],
)
def test_wrong_arrays_are_refused(name, array, words):
    with pytest.raises(EnvError, match=words):
        Made(buf=_buffers(**{name: array}))


def test_put_actions_copies_into_the_own_array_and_keeps_illegal_numbers_illegal():
    own = np.zeros(3, np.int32)
    put_actions([1, 2, 3], own, "env")
    assert own.tolist() == [1, 2, 3]
    put_actions(np.array([2**32, -(2**40), 7]), own, "env")
    assert own.tolist() == [2**31 - 1, -(2**31), 7]
    put_actions(np.array([2**31, 0, 1], np.uint32), own, "env")
    assert own.tolist() == [2**31 - 1, 0, 1]
    floats = np.zeros((1, 2), np.float32)
    put_actions(np.array([[1e300, -0.5]]), floats, "env")
    assert floats.tolist() == [[np.inf, -0.5]]


@pytest.mark.parametrize("actions", [np.zeros(4, np.int32), np.zeros(3), np.array(["a", "b", "c"]), 1])
def test_put_actions_refuses_other_shapes_and_kinds(actions):
    with pytest.raises(EnvError, match=r"env: actions are .*, needed are int32 \(3,\)"):
        put_actions(actions, np.zeros(3, np.int32), "env")


@pytest.mark.parametrize(
    ("space", "actions", "words"),
    [
        (Discrete(3), np.array([0, 3]), "agent 1, head 0: action 3 is not from 0 to 2"),
        (MultiDiscrete([3, 2]), np.array([[0, 0], [2, -1]]), "agent 1, head 1: action -1 is not from 0 to 1"),
        (Box(-2, 2, (2,)), np.array([[0, 2.5], [0, 0]]), "agent 0, head 1: action 2.5 is not from -2 to 2"),
        (Box(-2, 2, (2,)), np.array([[0, 0], [np.nan, 0]]), "agent 1, head 0: action nan is not from -2 to 2"),
    ],
)
def test_strict_names_agent_head_and_value_and_copies_nothing(space, actions, words):
    own = np.zeros(actions.shape, np.float32 if isinstance(space, Box) else np.int32)
    with pytest.raises(EnvError, match=words):
        put_actions(actions, own, "env", space)
    assert not own.any()


def test_what_an_environment_does_not_offer_is_refused_with_its_name():
    env = Made()
    assert env.save() is None
    assert env.num_instances == 1
    with pytest.raises(EnvError, match="Made can't restore"):
        env.load(b"")
    with pytest.raises(OptionError, match="Made has no parameters that change while running: speed"):
        env.set_params(speed=1)
    with pytest.raises(RenderError, match="Made does not render"):
        env.render()
    with env:
        env.close()


# -- helpers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, Box(-np.inf, np.inf, (3,), np.float32)),
        ({"low": -0.1, "high": 0.3}, Box(-0.1, 0.3, (3,), np.float32)),
        ({"low": [0, 1, 2], "high": 4}, Box(np.array([0, 1, 2], np.float32), np.full(3, 4, np.float32))),
        ({"dtype": np.uint8}, Box(0, 255, (3,), np.uint8)),
        ({"high": 9, "dtype": np.int64}, Box(np.iinfo(np.int64).min, 9, (3,), np.int64)),
        ({"dtype": bool}, Box(0, 1, (3,), np.bool_)),
    ],
)
def test_make_space_is_a_box_with_the_bounds_of_its_dtype(arguments, expected):
    assert PufferEnv.make_space((3,), **arguments) == expected


def test_make_discrete_counts_from_zero():
    assert PufferEnv.make_discrete(4) == Discrete(4)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint32, np.int8])
def test_integers_that_fit_are_narrowed_and_others_stay_illegal(dtype):
    own = np.zeros(2, np.int32)
    put_actions(np.array([1, 100], dtype), own, "x")
    assert own.tolist() == [1, 100]
    if np.iinfo(dtype).max > 2**31:
        put_actions(np.array([2**32 - 1, 3]).astype(dtype), own, "x")
        assert own.tolist() == [2**31 - 1, 3]
