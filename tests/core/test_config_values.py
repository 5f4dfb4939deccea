"""Text becomes a value only if it says exactly that: booleans, numbers, choices, names, open literals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffer_core.config import load
from puffer_core.config.schema import SECTIONS, Range
from puffer_core.config.values import (
    OPEN,
    Kind,
    check,
    kind_of,
    kinds,
    literal,
    nearest_key,
    parse,
    render,
    unquote,
)
from puffer_core.errors import OptionError, shortened

INT, FLOAT, BOOL, STR, NAMES = Kind("int"), Kind("float"), Kind("bool"), Kind("str"), Kind("names")


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "yes", "Yes", "on", "ON", "1", " true "])
def test_parse_reads_every_spelling_of_true(text: str) -> None:
    assert parse(text, BOOL) is True


@pytest.mark.parametrize("text", ["false", "False", "FALSE", "no", "No", "off", "Off", "0"])
def test_parse_reads_every_spelling_of_false(text: str) -> None:
    assert parse(text, BOOL) is False


@pytest.mark.parametrize("text", ["", "2", "-1", "none", "truee", "f", "1.0", "enabled"])
def test_parse_refuses_what_is_no_boolean(text: str) -> None:
    with pytest.raises(ValueError, match="is not a boolean: use true or false"):
        parse(text, BOOL)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10_000_000", 10_000_000),
        ("1e7", 10_000_000),
        ("3E7", 30_000_000),
        ("3.5e3", 3500),
        ("10M", 10_000_000),
        ("10m", 10_000_000),
        ("1.5k", 1500),
        ("2B", 2_000_000_000),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("5.0", 5),
        ("5.", 5),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_parse_reads_whole_numbers_exactly(text: str, value: int) -> None:
    result = parse(text, INT)
    assert result == value
    assert type(result) is int


@pytest.mark.parametrize("text", ["1.5", "1e-3", "0.0001k", "1.0001e3"])
def test_parse_refuses_a_fraction_for_a_whole_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        parse(text, INT)


@pytest.mark.parametrize(
    "text", ["", "ten", "1_", "_1", "1__0", "0x10", "1e", "--1", "1 000", "1,000", "M", "1MM", "true"]
)
def test_parse_refuses_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        parse(text, INT)
    with pytest.raises(ValueError, match="is not a number"):
        parse(text, FLOAT)


@pytest.mark.parametrize(
    ("text", "value"), [("3e-4", 3e-4), (".0003", 3e-4), ("3.0E-4", 3e-4), ("1", 1.0), ("1_0.5", 10.5)]
)
def test_parse_reads_floats_in_every_notation(text: str, value: float) -> None:
    result = parse(text, FLOAT)
    assert result == value
    assert type(result) is float


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "Infinity", "1e999"])
def test_parse_refuses_what_is_not_finite(text: str) -> None:
    with pytest.raises(ValueError, match="is not finite"):
        parse(text, FLOAT)


@pytest.mark.parametrize("text", ["nan", "inf"])
def test_parse_refuses_a_whole_number_that_is_not_finite(text: str) -> None:
    with pytest.raises(ValueError, match="is not finite"):
        parse(text, INT)


def test_parse_reads_infinity_where_it_is_allowed_but_never_nan() -> None:
    kind = Kind("float", Range(0.0, low_open=True, finite=False))
    assert parse("inf", kind) == math.inf
    with pytest.raises(ValueError, match="is not finite"):
        parse("nan", kind)


def test_parse_refuses_absurdly_long_numbers_without_computing_them() -> None:
    with pytest.raises(ValueError, match="has too many digits"):
        parse("1e999999999", INT)
    with pytest.raises(ValueError, match="has too many digits"):
        parse("9" * 5000, INT)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Kind("int", Range(1)), "0", "is out of range: it must be a whole number >= 1"),
        (Kind("float", Range(0, 1)), "1.01", "is too large: it must be a number >= 0 and <= 1"),
        (Kind("float", Range(0, 1, high_open=True)), "1", "is too large: it must be a number >= 0 and < 1"),
        (Kind("float", Range(0, low_open=True)), "0", "is out of range: it must be a number > 0"),
        (Kind("int", Range(3, 255), step=2), "4", "is between two legal values: it must be .* in steps of 2"),
        (Kind("int", choices=("auto",)), "automatic", "is not a whole number or `auto`"),
    ],
)
def test_parse_says_what_is_allowed(kind: Kind, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text, kind)


def test_parse_takes_a_word_besides_numbers() -> None:
    kind = Kind("int", Range(1), ("auto",))
    assert parse("AUTO", kind) == "auto"
    assert parse("4", kind) == 4


def test_parse_suggests_the_closest_choice() -> None:
    with pytest.raises(ValueError, match=r"is not `muon` or `adam`; did you mean `muon`\?"):
        parse("muonn", Kind("str", choices=("muon", "adam")))


def test_parse_splits_names_at_commas() -> None:
    assert parse("wandb, tensorboard", NAMES) == ("wandb", "tensorboard")
    assert parse("", NAMES) == ()
    with pytest.raises(ValueError, match="is not a list of names"):
        parse("wandb,,neptune", NAMES)


def test_parse_reads_none_only_where_it_is_a_value() -> None:
    assert parse("none", Kind("int", optional=True)) is None
    with pytest.raises(ValueError, match="is not a whole number"):
        parse("none", INT)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e3", 1000.0),
        ("off", False),
        ("Yes", True),
        ("none", None),
        ("[1, 2]", [1, 2]),
        ("'on'", "on"),
        ("MiniGrid-Empty-8x8-v0", "MiniGrid-Empty-8x8-v0"),
        ("1.2.3", "1.2.3"),
        ("-0.5", -0.5),
    ],
)
def test_literal_types_an_open_value(text: str, value: object) -> None:
    result = literal(text)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("text", ["[", "(" * 500, "\\", "a b c", "{1: [}", "__import__('os')", "9" * 5000])
def test_literal_leaves_what_is_no_literal_as_text(text: str) -> None:
    assert literal(text) == text


def test_check_converts_numbers_of_numpy() -> None:
    assert check(np.int64(3), INT) == 3
    assert type(check(np.float32(0.5), FLOAT)) is float
    assert check(np.bool_(False), BOOL) is False
    assert check(3.0, INT) == 3


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (1.5, INT, "is not a whole number"),
        (math.nan, INT, "is not finite"),
        (math.inf, FLOAT, "is not finite"),
        (True, INT, "is not a whole number"),
        (True, FLOAT, "is not a number"),
        ("x", INT, "is not a whole number"),
        (None, FLOAT, "is not a number"),
        ([1], INT, "is not a whole number"),
        (2, BOOL, "is not a boolean"),
        (None, BOOL, "is not a boolean"),
        (3, STR, "is not text"),
        (5, NAMES, "is not a list of names"),
        (10**400, FLOAT, "is not a number"),
    ],
)
def test_check_refuses_other_types(value: Any, kind: Kind, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(value, kind)


def test_kind_of_reads_annotations() -> None:
    assert kind_of(Annotated[int | Literal["auto"], Range(1)]) == Kind("int", Range(1), ("auto",))
    assert kind_of(Literal["a", "b"]) == Kind("str", choices=("a", "b"))
    assert kind_of(tuple[str, ...]) == NAMES
    assert kind_of(float | None) == Kind("float", optional=True)
    assert kind_of(dict[str, int]) == OPEN


def test_kinds_leave_out_what_the_constructor_does_not_take() -> None:
    from dataclasses import field

    @dataclass
    class Options:
        size: int = 3
        derived: int = field(default=0, init=False)

    assert list(kinds(Options)) == ["size"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gama", "gamma"),
        ("learn", "learning_rate"),
        ("gae", "gae_lambda"),
        ("Gamma", "gamma"),
        ("xyz", None),
        ("", None),
    ],
)
def test_nearest_key_finds_typos_and_beginnings(typed: str, meant: str | None) -> None:
    assert nearest_key(typed, kinds(SECTIONS["train"])) == meant


@given(st.integers(-(10**30), 10**30))
def test_every_whole_number_is_read_back(number: int) -> None:
    assert parse(render(number), INT) == number
    assert parse(f"{number:_}", INT) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_read_back(number: float) -> None:
    assert parse(render(number), FLOAT) == number
    assert literal(render(number)) == number


@given(st.integers(-(10**6), 10**6), st.integers(0, 12))
def test_exponents_of_whole_numbers_are_exact(digits: int, exponent: int) -> None:
    assert parse(f"{digits}e{exponent}", INT) == digits * 10**exponent


@given(st.text())
def test_every_text_is_read_back(text: str) -> None:
    assert literal(render(text)) == text
    assert type(literal(render(text))) is str
    assert unquote(render(text)) == text


@given(st.text(alphabet="0123456789.eE+-_kMB naif"))
def test_parse_gives_a_number_or_says_why_not(text: str) -> None:
    for kind, wanted in ((INT, int), (FLOAT, float)):
        try:
            value = parse(text, kind)
        except ValueError:
            continue
        assert type(value) is wanted
        assert math.isfinite(value)


@given(st.text())
def test_parse_gives_a_boolean_or_says_why_not(text: str) -> None:
    words = {"true", "yes", "on", "1", "false", "no", "off", "0"}
    if text.strip().lower() in words:
        assert parse(text, BOOL) in (True, False)
    else:
        with pytest.raises(ValueError, match="is not a boolean"):
            parse(text, BOOL)


def test_a_whole_number_beyond_every_float_is_out_of_range() -> None:
    with pytest.raises(ValueError, match="is too large"):
        parse("1e400", Kind("int", Range(1, 100)))


def test_errors_shorten_long_values() -> None:
    assert shortened("x" * 80) == "x" * 80
    assert len(shortened("x" * 1000)) <= 80
    assert shortened(10**5000) == "an integer of thousands of digits"
    with pytest.raises(OptionError, match=r"`train.horizon` = `9{30,}\.\.\.9{30,}` is too large") as caught:
        load(None, options=["--train.horizon", "9" * 300])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("key", ["seed", "train.total-timesteps", "train.horizon", "vec.num-envs", "env.num-envs"])
def test_no_whole_number_overflows(key: str) -> None:
    with pytest.raises(OptionError, match="1e400"):
        load(None, options=[f"--{key}", "1e400"])


def test_a_boolean_may_be_left_to_auto() -> None:
    kind = kind_of(bool | Literal["auto"])
    assert [parse(text, kind) for text in ("auto", "AUTO", "on", "0")] == ["auto", "auto", True, False]
    assert str(kind) == "true, auto or false"
    with pytest.raises(ValueError, match="is not a boolean: use true, auto or false"):
        parse("maybe", kind)
