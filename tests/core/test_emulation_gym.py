"""Spaces of the old Gym: converted by class name, refused with their path."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from puffer_core.emulation.gym import convert_space
from puffer_core.emulation.spaces import observation_codec
from puffer_core.errors import EnvError


@pytest.fixture(scope="module")
def old():
    """`gym.spaces`, whose import warns and prints."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("gym", reason="the extra `gym` is not installed").spaces


def test_every_kind_is_converted(old):
    nested = old.Dict(
        b=old.Box(np.zeros(2), np.ones(2), dtype=np.float64),
        a=old.Tuple([old.Discrete(3, start=2), old.MultiDiscrete([2, 3]), old.MultiBinary([2, 3]), old.MultiBinary(4)]),
        i=old.Box(0, 255, (2, 2, 3), np.uint8),
    )
    expected = Dict(
        [
            ("b", Box(np.zeros(2), np.ones(2), dtype=np.float64)),
            ("a", Tuple([Discrete(3, start=2), MultiDiscrete([2, 3]), MultiBinary((2, 3)), MultiBinary(4)])),
            ("i", Box(0, 255, (2, 2, 3), np.uint8)),
        ]
    )
    found = convert_space(nested)
    assert found == expected
    assert list(found.spaces) == ["b", "a", "i"]
    assert observation_codec(found).space == observation_codec(expected).space


def test_samples_are_the_same(old):
    nested = old.Dict(x=old.Box(-np.inf, np.inf, (3,)), y=old.MultiDiscrete([[2, 3], [4, 5]]))
    nested.seed(1)
    converted = convert_space(nested)
    assert all(converted.contains(dict(nested.sample())) for _ in range(10))


def test_space_of_gymnasium_is_returned_as_it_is():
    space = Dict({"a": Discrete(2)})
    assert convert_space(space) is space


def test_subclasses_count_as_what_they_extend(old):
    class Positions(old.Box):
        pass

    assert convert_space(Positions(0, 1, (2,))) == Box(0, 1, (2,))


def test_discrete_of_an_older_gym_has_no_start():
    class Discrete:  # as gym 0.10 to 0.22 has it
        n = 4

    assert convert_space(Discrete()) == gymnasium.spaces.Discrete(4)


@pytest.mark.parametrize(
    "make", [lambda old: old.Text(3), lambda old: old.Sequence(old.Discrete(2)), lambda _: "discrete"]
)
def test_others_are_refused_with_their_path(old, make):
    kind = make(old)
    with pytest.raises(EnvError, match=r"the space\['a'\]\[1\] is .* allowed are Box, Discrete") as error:
        convert_space(FakeDict(a=FakeTuple(Discrete(2), kind)))
    assert error.value.hint == "turn it into one of them in a wrapper"


class FakeTuple:
    def __init__(self, *parts):
        self.spaces = parts


class FakeDict:
    def __init__(self, **parts):
        self.spaces = parts


FakeTuple.__name__, FakeDict.__name__ = "Tuple", "Dict"


def test_gym_is_not_imported_for_it():
    code = "import sys, puffer_core.emulation.gym; assert 'gym' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
