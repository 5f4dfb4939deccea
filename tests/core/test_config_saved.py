"""A configuration written and read again is equal, and knows what a person fixed."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core.config import Config, Origin, from_run, load, to_dict, with_origins, write
from puffer_core.config.saved import dumps, run_section
from puffer_core.config.schema import SECTIONS, SweepRange
from puffer_core.config.values import Kind, kinds
from puffer_core.errors import OptionError
from puffer_core.specs import EnvSpec

SPEC = EnvSpec("toy/open", make="toy:Open")


def values_of(kind: Kind) -> st.SearchStrategy[Any]:
    bounds = kind.range
    if kind.base == "bool":
        return st.booleans()
    if kind.base == "names":
        return st.lists(st.sampled_from(["wandb", "tensorboard", "a.b"]), max_size=2, unique=True).map(tuple)
    if kind.base == "str":
        return st.sampled_from(kind.choices) if kind.choices else st.text(max_size=8)
    numbers: st.SearchStrategy[Any]
    if kind.base == "int":
        numbers = st.integers(int(bounds.low), min(int(bounds.high), 2**63 - 1))
    else:
        low, high = (None if math.isinf(bound) else bound for bound in (bounds.low, bounds.high))
        numbers = st.floats(low, high, allow_nan=False, allow_infinity=False).filter(
            lambda x: not (bounds.low_open and x == bounds.low) and not (bounds.high_open and x == bounds.high)
        )
    return numbers | st.sampled_from(kind.choices) if kind.choices else numbers


def sections(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{name: values_of(kind) for name, kind in kinds(cls).items()})


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
CONFIGS = st.builds(
    Config,
    **{name: sections(cls) for name, cls in SECTIONS.items() if name != "wrap"},
    env=st.dictionaries(NAMES, PLAIN, max_size=5),
    ranges=st.dictionaries(st.sampled_from(["train.gamma", "env.x", "seed"]), sections(SweepRange), max_size=2),
    origins=st.just({"seed": Origin("option", "--seed"), "train.gamma": Origin("file", "a b;c#.ini:3")}),
)


@settings(max_examples=20, deadline=None)
@given(CONFIGS)
def test_config_written_and_read_again_is_equal(config: Config) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.ini"
        write(config, path, {"env": "ocean/x", "id": "1; 2"})
        again = from_run(folder)
        assert again == config
        assert from_run(path) == config
        assert again.origins["seed"] == Origin("option", "--seed")
        assert again.origins["train.gamma"] == Origin("file", "a b;c#.ini:3")
        assert run_section(path) == {"env": "ocean/x", "id": "1; 2"}


def test_from_run_gives_the_types_of_the_fields(tmp_path: Path) -> None:
    config = load(SPEC, options=["--env.rate=1", "--env.name='1'", "--train.gamma=1", "--logger=a,b"])
    write(config, tmp_path / "config.ini")
    again = from_run(tmp_path)
    for section in ("base", "vec", "policy", "train", "sweep"):
        mine, theirs = getattr(config, section), getattr(again, section)
        assert [type(getattr(mine, f.name)) for f in fields(mine)] == [
            type(getattr(theirs, f.name)) for f in fields(theirs)
        ]
    assert again.env == {"rate": 1, "name": "1"}


def test_a_run_keeps_what_a_person_fixed(tmp_path: Path) -> None:
    config = load(SPEC, options=["--train.gamma", "0.5"])
    write(config, tmp_path / "config.ini")
    assert from_run(tmp_path).origins == config.origins


def test_the_file_of_a_run_serves_as_config_file(tmp_path: Path) -> None:
    write(load(SPEC, options=["--train.gamma", "0.5", "--env.x", "3"]), tmp_path / "config.ini", {"env": "toy/open"})
    config = load(SPEC, file=tmp_path / "config.ini")
    assert (config.train.gamma, config.env["x"]) == (0.5, 3)
    assert config.origins["train.gamma"].kind == "file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nlerning_rate = 1\n", r"unknown key `train.lerning_rate` = `1` \(file .*config.ini:2\)"),
        ("[train]\ngamma = 7\n", r"`train.gamma` = `7` is too large"),
        ("[nope]\nx = 1\n", r"config.ini: unknown section \[nope\]"),
        ("[origins]\nseed = nobody\n", r"`nobody` in \[origins\] is not an origin"),
    ],
)
def test_from_run_refuses_what_it_does_not_know(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.ini").write_text(text)
    with pytest.raises(OptionError, match=message):
        from_run(tmp_path)


def test_from_run_names_the_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"there is no configuration file `.*config\.ini`"):
        from_run(tmp_path)


def test_dumps_leaves_defaults_out_of_the_origins() -> None:
    assert "[origins]" not in dumps(load(None))
    assert "seed = option --seed" in dumps(load(None, options=["--seed", "1"]))


def test_to_dict_is_an_editable_copy() -> None:
    config = load(SPEC, options=["--env.x", "3", "--sweep.train.gamma.min", "0.5"])
    nested = to_dict(config)
    assert nested["train"]["gamma"] == 0.995
    assert nested["base"]["seed"] == 42
    assert nested["sweep"]["train"]["gamma"]["min"] == 0.5
    nested["env"]["x"] = 4
    nested["train"]["gamma"] = 0.5
    assert config.env["x"] == 3
    assert load(SPEC, edits=nested).train.gamma == 0.5


def test_with_origins_is_fit_for_json() -> None:
    config = load(None, options=["--train.max-grad-norm", "inf"])
    row = with_origins(config)["train"]["max_grad_norm"]
    assert row == {"value": "inf", "origin": "option", "where": "--train.max-grad-norm"}


def test_equality_does_not_look_at_origins() -> None:
    assert load(None, options=["--seed", "42"]) == load(None)
    assert replace(load(None), origins={}) == load(None)
