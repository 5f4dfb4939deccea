"""What a value may be, and how text becomes one: booleans, numbers, choices, lists of names.

A `Kind` is derived from a dataclass field or from a parameter of a C table, so that ini files, options, edited dicts
and sweeps are all read by the same rules and refused with the same words.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from operator import index
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from puffer_core.config.schema import INT64_MAX, Range
from puffer_core.errors import closest

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")

ANY_NUMBER = Range()
Base = Literal["bool", "int", "float", "str", "names", "any"]

_NUMBER = re.compile(r"[+-]?(\d+(_\d+)*(\.(\d+(_\d+)*)?)?|\.\d+(_\d+)*)(e[+-]?(?P<exponent>\d+))?", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
_NAME = re.compile(r"[\w./-]+")
_kinds: WeakKeyDictionary[type[Any], dict[str, Kind]] = WeakKeyDictionary()
_SUFFIX = {"k": 10**3, "m": 10**6, "b": 10**9}
_LONGEST = 400


@dataclass(frozen=True)
class Kind:
    """The type and the legal values of one key.

    Attributes:
        base: ``names`` is a tuple of strings, ``any`` an open key, read as a literal.
        range: Legal numbers.
        choices: Legal words; for a number or a boolean, words that are accepted besides (``auto``).
        step: Distance between legal whole numbers, counted from the lower end; 0 and 1 are any.
        optional: Whether None is a value.
    """

    base: Base
    range: Range = ANY_NUMBER
    choices: tuple[str, ...] = ()
    step: int = 0
    optional: bool = False

    def __str__(self) -> str:
        """Say what is allowed, as in "a whole number >= 1 or `auto`"."""
        if self.base in ("str", "any"):
            return _either(self.choices) if self.choices else "text"
        if self.base == "names":
            return "names separated by commas"
        if self.base == "bool":
            return ", ".join(["true", *self.choices]) + " or false"
        noun = "a whole number" if self.base == "int" else "a number"
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        words = f" or {_either(self.choices)}" if self.choices else ""
        return f"{noun}{_interval(self.range)}{steps}{words}"


OPEN = Kind("any")
"""The kind of a key about which nothing is known."""


def parse(text: str, kind: Kind) -> Any:
    """Return the value that ``text`` stands for.

    Raises:
        ValueError: With the end of the sentence that begins with key and text, as "is not a whole number".
    """
    text = text.strip()
    lowered = text.lower()
    if kind.base == "any":
        return literal(text)
    if kind.optional and lowered in ("none", ""):
        return None
    if kind.base == "bool":
        return _check_bool(text, kind)
    if kind.base == "names":
        return check(tuple(part.strip() for part in text.split(",")) if text else (), kind)
    if kind.base == "str":
        return check(unquote(text), kind)
    if lowered in kind.choices:
        return lowered
    return check(_parse_int(text, kind) if kind.base == "int" else _parse_float(text, kind), kind)


def check(value: Any, kind: Kind) -> Any:
    """Return a Python value as the type of ``kind`` (3.0 becomes 3 where a whole number is wanted).

    Raises:
        ValueError: With the end of a sentence, as `parse`.
    """
    if kind.base == "any" or (value is None and kind.optional):
        return value
    if kind.base == "bool":
        return _check_bool(value, kind)
    if kind.base == "names":
        return _check_names(value)
    if kind.base == "str":
        return _check_text(value, kind)
    if isinstance(value, str):
        return parse(value, kind)
    return _check_number(value, kind)


def render(value: object, kind: Kind = OPEN) -> str:
    """Return the text that `parse` reads as ``value`` again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind.base == "names" and isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, str):
        is_safe = value.isprintable() and value == value.strip() and not re.search(r"[\"'\\#;]", value)
        return value if value and is_safe and literal(value) == value else _quote(value)
    return repr(value)


def literal(text: str) -> Any:
    """Return an open value: a boolean word, ``none``, a number, a Python literal, or else the text itself."""
    lowered = text.lower()
    if lowered in TRUE[:3] + FALSE[:3]:
        return lowered in TRUE
    if lowered == "none":
        return None
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    if _NUMBER.fullmatch(text) and len(text) <= _LONGEST:
        return float(text) if re.search(r"[.e]", lowered) else int(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def unquote(text: str) -> str:
    """Return ``text`` without the quotes around it, escapes resolved."""
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "\"'":
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text[1:-1]
    return value if isinstance(value, str) else text


def kinds(cls: type[Any]) -> Mapping[str, Kind]:
    """Return the kind of every field of an options dataclass, in order."""
    if cls not in _kinds:
        hints = get_type_hints(cls, include_extras=True)
        _kinds[cls] = {item.name: kind_of(hints[item.name]) for item in fields(cls) if item.init}
    return _kinds[cls]


def kind_of(annotation: Any) -> Kind:
    """Return the kind that a field's annotation describes; an unfamiliar annotation is open."""
    bounds = ANY_NUMBER
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        bounds = next((extra for extra in extras if isinstance(extra, Range)), bounds)
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    words = tuple(word for member in members if get_origin(member) is Literal for word in get_args(member))
    plain = [member for member in members if get_origin(member) is not Literal and member is not NoneType]
    optional = NoneType in members
    if not plain and words and all(isinstance(word, str) for word in words):
        return Kind("str", choices=words, optional=optional)
    if len(plain) == 1 and plain[0] in (bool, int, float, str):
        return Kind(cast(Base, plain[0].__name__), bounds, words, optional=optional)
    if len(plain) == 1 and get_args(plain[0]) == (str, ...):
        return Kind("names", optional=optional)
    return Kind("any", optional=optional)


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that ``key`` was probably meant to be: the one it begins, else the closest in spelling."""
    names = sorted(known)
    started = [name for name in names if key and name.startswith(key)]
    return started[0] if len(started) == 1 else closest(key, names)


def _parse_bool(text: str, kind: Kind) -> bool | str:
    lowered = text.lower()
    if lowered in kind.choices:
        return lowered
    if lowered not in TRUE + FALSE:
        raise ValueError(f"is not a boolean: use {kind} (or yes, no, on, off, 1, 0)")
    return lowered in TRUE


def _parse_int(text: str, kind: Kind) -> int:
    scale = _SUFFIX.get(text[-1:].lower(), 1)
    digits = text[:-1] if scale > 1 else text
    match = _NUMBER.fullmatch(digits)
    if match is None:
        raise ValueError(f"is not {'finite' if _NOT_FINITE.fullmatch(text) else kind}")
    if len(digits) > _LONGEST or int(match["exponent"] or 0) > _LONGEST:
        raise ValueError(f"has too many digits: it must be {kind}")
    number = Fraction(digits.replace("_", "")) * scale
    if number.denominator != 1:
        raise ValueError("is not a whole number")
    return number.numerator


def _parse_float(text: str, kind: Kind) -> float:
    if not _NUMBER.fullmatch(text) and not _NOT_FINITE.fullmatch(text):
        raise ValueError(f"is not {kind}")
    return float(text)


def _check_number(value: Any, kind: Kind) -> int | float:
    number: int | float
    try:
        if isinstance(value, bool):
            raise TypeError
        number = _whole(value) if kind.base == "int" else float(value)
    except (TypeError, OverflowError):
        raise ValueError(f"is not {kind}") from None
    bounds = kind.range
    if isinstance(number, float) and (math.isnan(number) or (math.isinf(number) and bounds.finite)):
        raise ValueError("is not finite")
    too_low = number < bounds.low or (bounds.low_open and number == bounds.low)
    too_high = number > bounds.high or (bounds.high_open and number == bounds.high)
    if too_low or too_high:
        raise ValueError(f"is {'too large' if too_high else 'out of range'}: it must be {kind}")
    if kind.step > 1 and (number - bounds.low) % kind.step:
        raise ValueError(f"is between two legal values: it must be {kind}")
    return number


def _whole(value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        number = float(value)
    if not math.isfinite(number):
        raise ValueError("is not finite")
    if not number.is_integer():
        raise ValueError("is not a whole number")
    return int(number)


def _check_bool(value: Any, kind: Kind) -> bool | str:
    if isinstance(value, str):
        return _parse_bool(value, kind)
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") or value in (0, 1):
        return bool(value)
    raise ValueError(f"is not a boolean: use {kind}")


def _check_text(value: Any, kind: Kind) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is not {kind}")
    if kind.choices and value not in kind.choices:
        match = closest(value, kind.choices)
        raise ValueError(f"is not {kind}" + (f"; did you mean `{match}`?" if match else ""))
    return value


def _check_names(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise ValueError("is not a list of names separated by commas")
    return names


def _either(words: tuple[str, ...]) -> str:
    quoted = [f"`{word}`" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _interval(bounds: Range) -> str:
    low = "" if bounds.low == -math.inf else f"{'>' if bounds.low_open else '>='} {_short(bounds.low)}"
    high = "" if bounds.high >= INT64_MAX else f"{'<' if bounds.high_open else '<='} {_short(bounds.high)}"
    text = " and ".join(part for part in (low, high) if part)
    return f" {text}" if text else ""


def _short(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else f"{number:g}"


def _quote(text: str) -> str:
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'
