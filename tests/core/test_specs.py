from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from puffer_core import specs
from puffer_core.specs import OPEN, TABLE, BackendSpec, EnvSpec, LoggerSpec, PolicySpec, SweeperSpec, TrainerSpec


def test_env_spec_with_a_table_takes_its_parameters_from_it() -> None:
    assert EnvSpec("toy/maze", table="puffer_toy._native:maze").params == TABLE


def test_env_spec_with_a_factory_takes_any_parameter() -> None:
    assert EnvSpec("toy/maze", make="puffer_toy.envs:Maze").params == OPEN


def test_env_spec_is_frozen() -> None:
    spec = EnvSpec("toy/maze", make="puffer_toy.envs:Maze")
    with pytest.raises(FrozenInstanceError, match="name"):
        spec.name = "other"  # type: ignore[misc]


def test_env_spec_ends_its_family_at_the_slash() -> None:
    assert EnvSpec("toy/maze", make="a:b").family == "toy"
    assert EnvSpec("maze", make="a:b").family == ""
    assert EnvSpec("toy/*", make="a:b", list="a:c").is_family
    assert not EnvSpec("toy/maze", make="a:b").is_family


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "toy/maze"}, "exactly one of `make` and `table`"),
        ({"name": "toy/maze", "make": "a:b", "table": "a:c"}, "exactly one of `make` and `table`"),
        ({"name": "toy maze", "make": "a:b"}, "name='toy maze' is not a legal name"),
        ({"name": "my-toy/maze", "make": "a:b"}, "name='my-toy/maze' is not a legal name"),
        ({"name": "", "make": "a:b"}, "not a legal name"),
        ({"name": 3, "make": "a:b"}, "not a legal name"),
        ({"name": "toy/maze", "make": print}, "not of the form 'module:attribute'"),
        ({"name": "toy/maze", "make": "a.b"}, "not of the form 'module:attribute'"),
        ({"name": "toy/maze", "make": "a:b", "aliases": "maze"}, "not a tuple of strings"),
        ({"name": "toy/maze", "make": "a:b", "aliases": ("a b",)}, "alias='a b' is not a legal name"),
        ({"name": "toy/*", "make": "a:b"}, "a family needs `make` and `list`"),
        ({"name": "toy/maze", "make": "a:b", "params": TABLE}, "needs a `table`"),
        ({"name": "toy/maze", "make": "a:b", "params": "Options"}, "not of the form 'module:attribute'"),
        ({"name": "toy/maze", "make": "a:b", "config": "maze.ini"}, "not of the form 'package:path/to.ini'"),
    ],
)
def test_env_spec_refuses_what_it_cannot_mean(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        EnvSpec(**fields)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: BackendSpec("x", make=None), "make=None"),  # type: ignore[arg-type]
        (lambda: BackendSpec("x", make="a:b", supports="no"), "supports='no'"),
        (lambda: PolicySpec("a/b", encoder="a:b"), "name='a/b'"),
        (lambda: PolicySpec("x", encoder="a"), "encoder='a'"),
        (lambda: TrainerSpec("x", priority="high", supports="a:b", make="a:b"), "priority"),  # type: ignore[arg-type]
        (lambda: TrainerSpec("x", priority=1, supports="a:b", make="a b:c"), "make='a b:c'"),
        (lambda: LoggerSpec("x", make="a:b", options="c"), "options='c'"),
        (lambda: SweeperSpec("x", make=""), "make=''"),
    ],
)
def test_specs_refuse_targets_that_name_nothing(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_specs_do_not_differ_by_who_supplies_them() -> None:
    supplied = PolicySpec("x", encoder="a:b", plugin=specs.PluginInfo("toy", "1.0"))
    assert supplied == PolicySpec("x", encoder="a:b")
    assert str(supplied.plugin) == "toy 1.0"
