from __future__ import annotations

import pickle

import pytest

from puffer_core import errors
from puffer_core.errors import OptionError, PufferError, closest, closest_names, did_you_mean

SUBCLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, PufferError) and value is not PufferError
]


def test_puffer_error_keeps_message_and_hint_apart() -> None:
    error = PufferError("gamma=2 is too large", hint="use at most 1")
    assert str(error) == "gamma=2 is too large"
    assert error.hint == "use at most 1"
    assert PufferError("x").hint is None


@pytest.mark.parametrize("kind", [PufferError, *SUBCLASSES])
def test_a23_errors_cross_a_process_boundary_with_their_hint(kind: type[PufferError]) -> None:
    error = pickle.loads(pickle.dumps(kind("message", hint="hint")))
    assert (type(error), str(error), error.hint) == (kind, "message", "hint")


@pytest.mark.parametrize("kind", [PufferError, *SUBCLASSES])
def test_errors_say_when_they_are_raised(kind: type[PufferError]) -> None:
    assert (kind.__doc__ or "").startswith("Raised when ")


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.OptionError, ValueError),
        (errors.UnknownNameError, LookupError),
        (errors.EnvError, ValueError),
        (errors.ShapeError, errors.EnvError),
        (errors.UsageError, RuntimeError),
        (errors.NonFiniteError, ArithmeticError),
    ],
)
def test_errors_are_caught_as_the_builtin_they_are(kind: type[PufferError], base: type[Exception]) -> None:
    assert issubclass(kind, base)


def test_option_error_is_raised_as_value_error() -> None:
    with pytest.raises(ValueError, match="bad"):
        raise OptionError("bad")


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("breakot", ["breakout", "snake"], "breakout"),
        ("LEARNING-RATE", ["learning_rate", "gamma"], "learning_rate"),
        ("zzz", ["breakout", "snake"], None),
        ("x", [], None),
    ],
)
def test_closest_finds_what_was_meant(name: str, names: list[str], expected: str | None) -> None:
    assert closest(name, names) == expected


def test_did_you_mean_is_a_hint_or_nothing() -> None:
    names = ["ocean/breakout", "ocean/breaker", "ocean/snake"]
    assert did_you_mean("ocean/breakot", names) == "did you mean `ocean/breakout`?"
    assert did_you_mean("zzz", names) is None


def test_closest_names_are_given_best_first() -> None:
    assert closest_names("breakot", ["breaker", "snake", "breakout"], 2) == ["breakout", "breaker"]
