"""Emulated spaces: the layout of rows, samples there and back, and what is refused."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from fakes_sampling import sampling_env
from fakes_spaces import boxes, discretes, nested, same
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core import vector
from puffer_core.emulation.leaves import Leaf
from puffer_core.emulation.spaces import FlatActions, FlatBox, action_codec, observation_codec
from puffer_core.env import check_spaces, layout_of
from puffer_core.errors import EnvError, ShapeError

POSE = Dict(
    {"pos": Box(-1, 1, (3,)), "img": Box(0, 255, (2, 3), np.uint8), "inv": Tuple([Discrete(5), MultiBinary(3)])}
)
POSE_SAMPLE = {
    "pos": np.array([0.5, -1, 0.25], np.float32),
    "img": np.arange(1, 7, dtype=np.uint8).reshape(2, 3),
    "inv": (4, np.array([1, 0, 1], np.int8)),
}
PROPERTY = settings(max_examples=150, deadline=None, derandomize=True, database=None)
MIXED = Dict({"move": Discrete(4), "aim": Box(-1, 1, (2,))})


def written(space, sample):
    codec = observation_codec(space)
    row = np.zeros(codec.space.shape, codec.space.dtype)
    codec.write(row, sample)
    return row


def located(space):
    return {leaf.path: leaf.offset for leaf in FlatBox(space).tree.leaves()}


# -- layout of observations: algorithms page, test 9 ------------------------------------------------------------------


def test_struct_of_test_9_has_the_exact_bytes():
    space = observation_codec(POSE).space
    assert located(POSE) == {
        "observation['img']": 0,
        "observation['inv'][0]": 8,
        "observation['inv'][1]": 12,
        "observation['pos']": 16,
    }
    assert (space.shape, space.dtype, space.layout.itemsize) == ((28,), np.uint8, 28)
    expected = [1, 2, 3, 4, 5, 6, 0, 0, 4, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 63, 0, 0, 128, 191, 0, 0, 128, 62]
    assert written(POSE, POSE_SAMPLE).tolist() == expected


def test_leaves_of_one_dtype_make_a_box_of_it():
    space = Dict({"a": Box(0, 9, (2,)), "b": Tuple([Box(0, 9, (2, 2)), Box(0, 9, (1,))])})
    codec = observation_codec(space)
    assert (codec.space.shape, codec.space.dtype) == ((7,), np.float32)
    assert list(located(space).values()) == [0, 8, 24]
    assert written(space, {"a": (1, 2), "b": ([[3, 4], [5, 6]], [7])}).tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (Discrete(4), (1,)),
        (Tuple([Discrete(3)] * 3), (3,)),
        (MultiDiscrete([3, 4]), (2,)),
        (Dict({"a": Discrete(2)}), (1,)),
    ],
)
def test_a13_discrete_observations_are_int32(space, shape):
    flat = observation_codec(space).space
    assert (flat.shape, flat.dtype) == (shape, np.int32)


def test_padding_of_a_nested_struct_is_where_numpy_puts_it():
    byte = Box(0, 255, (1,), np.uint8)
    space = Dict({"a": byte, "b": Tuple([Discrete(3), Discrete(3)]), "c": byte})
    assert located(space) == {
        "observation['a']": 0,
        "observation['b'][0]": 4,
        "observation['b'][1]": 8,
        "observation['c']": 12,
    }
    assert FlatBox(space).layout.itemsize == 16


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (Box(0, 1, (2,), np.bool_), "?"),
        (Box(0, 1, (2,), np.float64), "f8"),
        (MultiBinary(2), "i1"),
        (Discrete(2), "i4"),
    ],
)
def test_leaves_keep_their_dtype(leaf, dtype):
    assert observation_codec(Dict({"leaf": leaf})).space.dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.uint64])
def test_wide_unsigned_integers_are_bytes(dtype):
    space = observation_codec(Tuple([Box(0, 9, (2,), dtype)])).space
    assert (space.dtype, space.shape) == (np.uint8, (2 * np.dtype(dtype).itemsize,))


def test_bounds_are_those_of_the_dtype():
    limits = {dtype: FlatBox(Tuple([Box(0, 1, (1,), dtype)])) for dtype in (np.float16, np.float64, np.int16, np.bool_)}
    assert {d.__name__: (b.low.item(), b.high.item()) for d, b in limits.items()} == {
        "float16": (-65504.0, 65504.0),
        "float64": (-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max)),
        "int16": (-32768, 32767),
        "bool": (False, True),
    }


def test_plain_box_is_left_alone():
    box = Box(0, 255, (4, 4, 3), np.uint8)
    codec = observation_codec(box)
    assert codec.is_identity
    assert codec.space is box
    row, image = np.zeros(box.shape, box.dtype), box.sample()
    codec.write(row, image)
    assert np.array_equal(row, image)
    codec.bind(row)(np.zeros_like(image))
    assert not row.any()
    assert codec.read(row) is not row


def test_box_without_axes_gets_one():
    codec = observation_codec(Box(-1, 1, ()))
    assert (codec.is_identity, codec.space.shape) == (False, (1,))
    assert codec.read(written(codec.original, 0.5)).shape == ()


def test_an_emulated_space_is_not_emulated_again():
    flat, actions = FlatBox(POSE), FlatActions(MIXED)
    assert observation_codec(flat).space is flat
    assert observation_codec(flat).is_identity
    assert action_codec(actions).space is actions


# -- samples there and back -------------------------------------------------------------------------------------------


@PROPERTY
@given(nested(st.one_of(boxes(), discretes())), st.integers(0, 2**31))
def test_any_nested_sample_comes_back(space, seed):
    codec = observation_codec(space)
    space.seed(seed)
    sample = space.sample()
    row = np.zeros(codec.space.shape, codec.space.dtype)
    codec.write(row, sample)
    found = codec.read(row)
    assert same(found, sample)
    assert space.contains(found)
    if not codec.is_identity:
        assert codec.space.contains(row)
    bound = np.zeros_like(row)
    codec.bind(bound)(sample)
    assert np.array_equal(bound, row)


def test_many_rows_are_unflattened_at_once():
    flat = FlatBox(POSE)
    flat.seed(3)
    samples = [flat.sample() for _ in range(4)]
    together = flat.unflatten(np.stack(samples).reshape(2, 2, 28))
    assert together["inv"][0].shape == (2, 2)
    assert together["img"].shape == (2, 2, 2, 3)
    for i, row in enumerate(samples):
        assert same(together["pos"][i // 2, i % 2], flat.unflatten(row)["pos"])


def test_what_is_read_is_a_copy():
    row = written(POSE, POSE_SAMPLE)
    found = observation_codec(POSE).read(row)
    row[:] = 0
    assert same(found, POSE_SAMPLE)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_values_go_by_key_whatever_their_order(kind):
    for space in (
        Dict({"b": Box(0, 9, (1,)), "a": Box(0, 9, (1,))}),
        Dict({"b": Box(0, 9, (1,)), "a": Box(0, 9, (1,))}, sort_keys=False),
        Dict(OrderedDict([("b", Box(0, 9, (1,))), ("a", Box(0, 9, (1,)))])),
    ):
        for order in ("ab", "ba"):
            row = written(space, kind((key, np.array([1.0 if key == "a" else 2.0], np.float32)) for key in order))
            assert row.tolist() == [{"a": 1.0, "b": 2.0}[key] for key in space.spaces]


def test_keys_may_be_integers():
    space = Dict({0: Discrete(3), 1: Box(0, 1, (1,))})
    sample = {1: np.array([0.5], np.float32), 0: 2}
    assert same(observation_codec(space).read(written(space, sample)), sample)


def test_lists_scalars_and_safe_conversions_are_taken():
    space = Dict(
        {"a": Box(0, 255, (2,), np.uint8), "b": Discrete(3), "c": Box(0, 1, ()), "d": Box(0, 1, (1,), np.bool_)}
    )
    for sample in (
        {"a": [1, 2], "b": np.int64(2), "c": 0.5, "d": [True]},
        {"a": np.array([1, 2]), "b": np.array(2), "c": np.float64(0.5), "d": np.array([1])},
        {"a": np.array([1.0, 2.0]), "b": 2.0, "c": np.array(0.5), "d": (1.0,)},
    ):
        found = observation_codec(space).read(written(space, sample))
        assert same(found, {"a": [1, 2], "b": 2, "c": 0.5, "d": [True]})


def test_discrete_observations_are_stored_as_they_are():
    assert written(Discrete(3, start=5), 7).tolist() == [7]


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "error", "match"),
    [
        ({}, EnvError, r"observation\['in'\] has the keys none, declared are 'a', 'k', 't'"),
        ({"a": [0, 0], "k": 0, "t": (0,), "x": 1}, EnvError, "has the keys 'a', 'k', 't', 'x', declared are"),
        ([1, 2], EnvError, r"observation\['in'\] is \[1, 2\], declared is a Dict of 'a', 'k', 't'"),
        ({"a": [0, 0, 0], "k": 0, "t": (0,)}, ShapeError, r"\['a'\] has shape \(3,\), declared is \(2,\): Box"),
        ({"a": [[0], [0, 1]], "k": 0, "t": (0,)}, EnvError, r"\['a'\] is \[\[0\], \[0, 1\]\], declared is Box"),
        ({"a": ["x", "y"], "k": 0, "t": (0,)}, EnvError, r"\['a'\] is \['x', 'y'\], declared is Box"),
        ({"a": [0, 300], "k": 0, "t": (0,)}, EnvError, r"\['a'\] is \[0, 300\], declared is Box\(0, 255"),
        ({"a": np.array([0.0, 0.5]), "k": 0, "t": (0,)}, EnvError, r"of float64, declared is Box\(0, 255"),
        ({"a": [0, 0], "k": 4, "t": (0,)}, EnvError, r"\['k'\] is 4, declared is Discrete\(3, start=1\)"),
        ({"a": [0, 0], "k": 0, "t": (0,)}, EnvError, r"\['k'\] is 0, declared is Discrete\(3, start=1\)"),
        ({"a": [0, 0], "k": [1], "t": (0,)}, ShapeError, r"\['k'\] has shape \(1,\), declared is \(\)"),
        ({"a": [0, 0], "k": None, "t": (0,)}, EnvError, r"\['k'\] is None"),
        ({"a": [0, 0], "k": 1.5, "t": (0,)}, EnvError, r"\['k'\] is 1.5"),
        ({"a": [0, 0], "k": 2**70, "t": (0,)}, EnvError, r"\['k'\] is 1180591620717411303424"),
        ({"a": [0, 0], "k": 1, "t": 0}, EnvError, r"\['t'\] is 0, declared is a Tuple of 1"),
        ({"a": [0, 0], "k": 1, "t": (0, 1)}, EnvError, r"\['t'\] has 2 entries, declared are 1"),
        ({"a": [0, 0], "k": 1, "t": (1e39,)}, EnvError, r"\['t'\]\[0\] is 1e\+39, declared is Box"),
    ],
)
def test_wrong_sample_is_refused_with_path_declared_and_received(sample, error, match):
    inner = Dict({"a": Box(0, 255, (2,), np.uint8), "k": Discrete(3, start=1), "t": Tuple([Box(-1, 1, ())])})
    with pytest.raises(error, match=match):
        written(Dict({"in": inner}), {"in": sample})


@pytest.mark.parametrize("value", [np.array([3, 0]), np.array([0, -1]), np.array([0, 2**32])])
def test_multi_discrete_out_of_range_is_refused(value):
    with pytest.raises(EnvError, match=r"observation is array.*of int64, declared is MultiDiscrete"):
        written(MultiDiscrete([3, 2]), value)


class Odd(spaces.Space):
    pass


@pytest.mark.parametrize(
    "leaf",
    [
        spaces.Text(5),
        spaces.Graph(Discrete(2), None),
        spaces.Sequence(Discrete(2)),
        spaces.OneOf([Discrete(2), Discrete(3)]),
        Odd(),
    ],
)
@pytest.mark.parametrize(("make", "name"), [(observation_codec, "observation"), (action_codec, "action")])
def test_spaces_without_a_fixed_layout_are_refused_with_their_path(leaf, make, name):
    with pytest.raises(
        EnvError, match=rf"{name}\['a'\]\[1\] is a {type(leaf).__name__} space, which has no fixed"
    ) as error:
        make(Dict({"a": Tuple([Discrete(2), leaf])}))
    assert "wrapper" in error.value.hint


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (Dict({}), r"holds no number: its space is Dict\(\)"),
        (Tuple([Dict({}), Tuple([])]), "holds no number"),
        (Dict({"a": Box(0, 1, (0,))}), "holds no number"),
        (Discrete(2**33), r"is Discrete\(8589934592\), whose values do not fit 32 bits"),
        (Discrete(3, start=2**31 - 2), "do not fit 32 bits"),
        (Dict({1: Discrete(2), "1": Discrete(2)}), "has keys that are no words or integers, or read alike: 1, '1'"),
        (Dict({"": Discrete(2)}), "has keys that are no words or integers, or read alike: ''"),
        (Dict([((1, 2), Discrete(2))]), r"read alike: \(1, 2\)"),
        (Dict({"x": Box(0, 1, (2,), np.longdouble)}), r"\['x'\] is a Box of float128"),
    ],
)
def test_spaces_without_a_layout_are_refused(space, match):
    with pytest.raises(EnvError, match=match):
        observation_codec(space)


# -- the spaces as values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [FlatBox(POSE), FlatActions(MIXED)])
def test_emulated_spaces_are_pickled_and_copied(space):
    for other in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert other == space
        assert other.original == space.original
        other.seed(1)
        assert space.contains(other.sample())
    if isinstance(space, FlatBox):
        assert pickle.loads(pickle.dumps(space)).layout == space.layout


def test_equality_includes_the_original():
    one, two = (FlatBox(Dict({"a": Discrete(n), "b": Discrete(3)})) for n in (3, 4))
    assert one != two
    assert one == FlatBox(Dict({"a": Discrete(3), "b": Discrete(3)}))
    assert one != Box(one.low, one.high, dtype=np.int32)
    assert Box(one.low, one.high, dtype=np.int32) != one
    assert one != FlatBox(Dict({"b": Discrete(3), "a": Discrete(3)}, sort_keys=False))
    assert FlatActions(MIXED) != FlatActions(Tuple([Box(-1, 1, (2,)), Discrete(4)]))


def test_repr_tells_rows_and_original():
    assert repr(FlatBox(Discrete(3))) == "FlatBox(1, int32, Discrete(3))"
    assert repr(FlatActions(Tuple([Discrete(3), Box(-1, 1, (1,))]))).startswith(
        "FlatActions(2, Tuple(Discrete(3), Box("
    )


def test_samples_are_seeded_and_leave_the_environments_space_alone():
    original = copy.deepcopy(POSE)
    original.seed(7)
    expected = original.sample()
    original.seed(7)
    flat = FlatBox(original)
    flat.seed(1)
    first = flat.sample()
    flat.seed(1)
    assert np.array_equal(first, flat.sample())
    assert same(original.sample(), expected)


def test_row_of_an_impossible_observation_is_not_contained():
    row = written(POSE, POSE_SAMPLE)
    assert FlatBox(POSE).contains(row)
    row[8] = 5
    assert not FlatBox(POSE).contains(row)
    assert not FlatBox(POSE).contains(row[:-1])


def test_emulated_spaces_fit_the_environment_contract():
    class Env:
        single_observation_space = FlatBox(POSE)
        single_action_space = FlatActions(MIXED)
        num_agents = 2
        has_action_mask = False
        log_fields = ()

    check_spaces(Env())
    layout = layout_of(Env())
    assert layout["observations"] == ((2, 28), np.uint8)
    assert layout["actions"] == ((2, 3), np.float32)


def test_mask_of_mixed_actions_covers_the_discrete_heads():
    class Env:
        single_observation_space = FlatBox(POSE)
        single_action_space = FlatActions(Dict({"a": Discrete(4), "b": Box(-1, 1, (2,)), "c": MultiBinary(2)}))
        num_agents = 1
        has_action_mask = True
        log_fields = ()

    assert layout_of(Env())["action_mask"] == ((1, 8), np.uint8)


# -- actions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete([2, 3]), Box(-1, 1, (2,)), Box(-1, 1, (2,), np.float64)])
def test_flat_actions_are_left_alone(space):
    codec = action_codec(space)
    assert codec.is_identity
    assert codec.space is space
    assert space.contains(codec.read(np.asarray(space.sample(), np.float32 if isinstance(space, Box) else np.int32)))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Discrete(3, start=2), Discrete(3)),
        (MultiDiscrete([2, 3], start=[1, 5]), MultiDiscrete([2, 3])),
        (MultiDiscrete(np.array([[2, 3], [4, 5]])), MultiDiscrete([2, 3, 4, 5])),
        (MultiBinary((2, 2)), MultiDiscrete([2, 2, 2, 2])),
        (Box(-1, 1, (2, 2)), Box(-1, 1, (4,))),
        (Box(-1, 1, ()), Box(-1, 1, (1,))),
        (Box(np.array([-1, 0]), np.array([1, 3]), dtype=np.int8), MultiDiscrete([3, 4])),
        (Box(0, 1, (2,), np.bool_), MultiDiscrete([2, 2])),
        (Dict({"move": Discrete(5), "fire": Discrete(2)}), MultiDiscrete([2, 5])),
        (Tuple([MultiDiscrete([2, 3]), Dict({"a": MultiBinary(2)})]), MultiDiscrete([2, 3, 2, 2])),
        (Tuple([Box(-1, 1, (2,)), Box(0, 5, (1,), np.float64)]), Box(np.float32([-1, -1, 0]), np.float32([1, 1, 5]))),
    ],
)
def test_other_actions_become_flat(space, expected):
    codec = action_codec(space)
    assert codec.space == expected
    assert not codec.is_identity


def test_test_9_action_goes_back_by_key():
    codec = action_codec(Dict({"move": Discrete(5), "fire": Discrete(2)}))
    action = codec.read(np.array([1, 3], np.int32))
    assert action == {"fire": 1, "move": 3}
    assert all(type(value) is int for value in action.values())
    assert codec.write(action).tolist() == [1, 3]


def test_starts_are_added_and_taken_away():
    codec = action_codec(Discrete(3, start=2))
    assert [codec.read(np.int32(i)) for i in range(3)] == [2, 3, 4]
    assert codec.write(4) == 2
    codec = action_codec(Dict({"a": MultiDiscrete([2, 2], start=[-3, 4]), "b": Discrete(2, start=9)}))
    assert same(codec.read(np.array([0, 1, 1], np.int32)), {"a": [-3, 5], "b": 10})


def test_both_kinds_make_one_float_row():
    codec = action_codec(MIXED)
    assert isinstance(codec.space, FlatActions)
    assert [(h.size, h.is_continuous, h.low, h.high) for h in codec.space.action_layout] == [
        (1, True, -1.0, 1.0),
        (1, True, -1.0, 1.0),
        (4, False, 0.0, 3.0),
    ]
    row = np.array([0.5, -1, 3], np.float32)
    action = codec.read(row)
    assert same(action, {"aim": [0.5, -1], "move": 3})
    assert type(action["move"]) is int
    row[:] = 0
    assert same(action["aim"], [0.5, -1])
    assert MIXED.contains(action)


def test_fractions_of_a_choice_are_not_contained():
    space = FlatActions(MIXED)
    assert space.contains(np.array([0.5, 0.5, 2], np.float32))
    assert not space.contains(np.array([0.5, 0.5, 1.5], np.float32))
    assert not space.contains(np.array([0.5, 0.5, 4], np.float32))


def test_float64_bounds_are_kept_although_rows_are_float32():
    space = Box(np.array([0.1]), np.array([0.3]), dtype=np.float64)
    codec = action_codec(space)
    for bound in (space.low, space.high):
        assert space.contains(codec.read(bound.astype(np.float32)))


@PROPERTY
@given(nested(st.one_of(boxes(), discretes())), st.integers(0, 2**31))
def test_a15_any_nested_action_comes_back(space, seed):
    codec = action_codec(space)
    space.seed(seed)
    action = space.sample()
    row = codec.write(action)
    if isinstance(codec.space, Box):
        assert ((row >= codec.space.low) & (row <= codec.space.high)).all()
    else:
        assert codec.space.contains(row if codec.space.shape else int(row))
    found = codec.read(row)
    assert space.contains(found)
    if not any(leaf.dtype == np.float64 for leaf in leaves(space)):
        assert same(found, action)
    assert np.array_equal(codec.write(found), row)


def leaves(space):
    return observation_codec(Tuple([space])).space.tree.leaves()


def test_action_outside_the_space_is_not_written():
    for move, aim, match in (
        (4, [0, 0], r"action\['move'\] is 4, declared is Discrete\(4\)"),
        (0, [0, 1.5], r"action\['aim'\] is \[0.*1.5\], declared is Box"),
        (0, [0, np.nan], r"action\['aim'\] is \[ 0. nan\]"),
        (0, [0], r"action\['aim'\] has shape \(1,\)"),
    ):
        with pytest.raises(EnvError, match=match):
            action_codec(MIXED).write({"move": move, "aim": aim})
    with pytest.raises(EnvError, match=r"action is \[2\], declared is Box"):
        action_codec(Box(0, 1, (1,), np.uint8)).write([2])


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (
            Box(-(2**31), 2**31 - 1, (1,), np.int32),
            r"action is Box.*4294967296 values of one element",
        ),
        (Dict({"a": Box(0, 2**16, (1,), np.int64)}), r"action\['a'\] is Box.*65537 values"),
        (Box(2**63, 2**63 + 2, (1,), np.uint64), "whose values do not fit 64 bits"),
        (Tuple([Discrete(2**25), Box(-1, 1, (1,))]), "33554432 choices beside continuous actions are more than"),
    ],
)
def test_actions_that_no_row_can_hold_are_refused(space, match):
    with pytest.raises(EnvError, match=match):
        action_codec(space)


def test_leaf_of_a_tree_names_its_keys():
    leaf = next(leaf for leaf in FlatBox(POSE).tree.leaves() if leaf.path.endswith("[1]"))
    assert isinstance(leaf, Leaf)
    assert (leaf.keys, leaf.dtype, leaf.shape, leaf.size) == (("inv", 1), np.int8, (3,), 3)


@pytest.mark.parametrize(
    ("space", "wrong", "told"),
    [
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), r"observation is array\(\[0, 2\].*MultiBinary\(2\)"),
        (spaces.MultiBinary(2), np.array([-1, 0], np.int8), "MultiBinary"),
        (spaces.MultiDiscrete([2, 3]), np.array([0, 3]), r"declared is MultiDiscrete\(\[2 3\]\)"),
        (spaces.Discrete(2), 2, r"observation is 2, declared is Discrete\(2\)"),
        (spaces.Dict(a=spaces.MultiBinary(1)), {"a": np.array([7], np.int8)}, r"observation\['a'\]"),
    ],
)
def test_observations_out_of_range_are_refused(space: Any, wrong: Any, told: str) -> None:
    codec = observation_codec(space)
    row = np.zeros(codec.space.shape, codec.space.dtype)
    codec.write(row, space.sample())
    with pytest.raises(EnvError, match=told):
        codec.write(row, wrong)


@pytest.mark.parametrize("choice", [3.0, -1.0, 1.5])
@pytest.mark.parametrize("count", [1, 2])
def test_mixed_action_with_an_illegal_choice_is_refused(choice: float, count: int) -> None:
    space = spaces.Dict(a=spaces.Discrete(3, start=-1), b=spaces.Box(0, 1, (1,)))
    with vector.make(sampling_env(spaces.Box(0, 1, (2,)), space), count) as opened:
        opened.reset()
        actions = np.tile(np.array([1.0, 5.0], np.float32), (count, 1))  # 5 is clipped to the bound
        opened.step(actions)
        actions[-1, 0] = choice
        with pytest.raises(EnvError, match=rf"head 0: action {choice} is not a whole number from 0 to 2"):
            opened.step(actions)


def test_action_beyond_32_bits_is_not_told_as_another() -> None:
    for count in (1, 2):
        with vector.make(sampling_env(spaces.Box(0, 1, (2,))), count) as opened:
            opened.reset()
            with pytest.raises(EnvError, match=r"is not from 0 to 1 .what was given may lie beyond 32 bits"):
                opened.step(np.full(count, 2**32 + 1))
