from __future__ import annotations

import ctypes as ct
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from fakes_play import Keyed, Steps, Waiting

from puffer_core.errors import OptionError
from puffer_core.keys import KeyMap, Keys, KeysBlock, code_of, example, find_map, packed, parse


def held(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_a_typed_mapping() -> None:
    mapping = parse("w=2, s=3,up+left=5,NONE=0,space=4,-=1,a=-0.5:1")
    assert [mapping.action(held(*names)) for names in (["w"], ["s", "x"], ["up", "left"], [], ["space"], ["-"])] == [
        *(2, 3, 5, 0, 4, 1)
    ]
    assert mapping.action(held("a")) == [-0.5, 1]
    assert mapping.keys == ["-", "a", "left", "s", "space", "up", "w"]


def test_keys_together_go_before_one_of_them() -> None:
    mapping = parse("up=1,left=2,up+left=3")
    assert mapping.action(held("up", "left")) == 3
    assert mapping.action(held("up", "x")) == 1
    assert mapping.action(held("x")) is None


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "keys='' names no key"),
        ("none=0", "names no key"),
        ("w", "`w` is no key and its action"),
        ("=3", "`=3` is no key and its action"),
        ("w=x", "`w=x` ends in no number"),
        ("w=", "`w=` ends in no number"),
        ("enter=1", "there is no key `enter`"),
        ("w+hyper=1", "there is no key `hyper`"),
    ],
)
def test_a_mapping_that_is_none_is_refused(text: str, match: str) -> None:
    with pytest.raises(OptionError, match=match) as caught:
        parse(text)
    assert caught.value.hint


def test_mappings_of_environments() -> None:
    keyed = find_map(Keyed())
    assert keyed is not None
    assert [keyed.action(held(*names)) for names in (["a"], ["left"], ["d"], [])] == [-1, -1, 1, 0]
    waiting = find_map(gymnasium.wrappers.TimeLimit(Waiting(), 3))
    assert waiting is not None
    assert [waiting.action(held(*names)) for names in (["left"], ["right"], [])] == [-1, 1, None]
    assert find_map(Steps()) is None


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("w", ["w"]),
        ("wa", ["w", "a"]),
        ("up", ["up"]),
        ("none", []),
        (" ", ["space"]),
        (119, ["w"]),
        (32, ["space"]),
        (1073741904, ["left"]),
        ((273, "D"), ["up", "d"]),
        ((), []),
        (None, []),
    ],
)
def test_spellings_of_keys_in_environments(keys: Any, names: list[str]) -> None:
    class Env:
        metadata: ClassVar[dict[str, Any]] = {"play_keys": {keys: 1}}

    mapping = find_map(Env())
    assert mapping is not None
    assert mapping.action(held(*names)) == 1
    assert mapping.keys == sorted(names)


def test_a_key_that_is_none_is_refused() -> None:
    class Env:
        play_keys: ClassVar[dict[Any, int]] = {(5000,): 1}

    with pytest.raises(OptionError, match="Env maps the key 5000, which is none that is known here"):
        find_map(Env())


def test_the_environment_of_mountain_car_says_what_keys_do() -> None:
    with gymnasium.make("MountainCar-v0") as env:
        mapping = find_map(env)
    if mapping is None:
        pytest.skip("this Gymnasium's MountainCar maps no keys")
    assert mapping.action(held("left")) == 0


def test_codes_of_the_c_interface() -> None:
    assert [code_of(name) for name in ("up", "down", "left", "right", "space", "a", "1", "f1", "é")] == [
        *(1, 2, 3, 4, 32, 97, 49, None, None)
    ]
    assert ct.sizeof(KeysBlock) == 268
    block = packed(Keys(held("a", "left", "f1"), held("a"), (0.25, 0.5), True), 3)
    assert np.flatnonzero(block.down).tolist() == [3, 97]
    assert np.flatnonzero(block.pressed).tolist() == [97]
    assert (block.mouse_x, block.mouse_y, block.mouse, block.agent) == (0.25, 0.5, 1, 3)


def test_translated_actions() -> None:
    doubled = KeyMap({held("a"): 2, held(): 1}).translated(lambda action: action * 2)
    assert (doubled.action(held("a")), doubled.action(held())) == (4, 2)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (gymnasium.spaces.Discrete(2), "left=0,right=1"),
        (gymnasium.spaces.Discrete(3, start=5), "left=5,right=6,up=7"),
        (gymnasium.spaces.Box(-1, 1, (2,)), "none=0:0,right=1:0"),
    ],
)
def test_the_example_of_a_mapping_is_one(space, text):
    assert example(space) == text
    parse(text)
