"""Keys of a person: their names, and what they do in an environment.

A key is named by what is printed on it (``a``, ``1``, ``space`` for `` ``) or by one of `NAMES`. An environment in C
gets the keys themselves. One in Python says what they do, as Gymnasium's ``get_keys_to_action`` does, or the person
says it.
"""

from __future__ import annotations

import ctypes as ct
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium.spaces import Discrete, Space

from puffer_core.errors import OptionError

NAMES = ("up", "down", "left", "right", "space", "return", "escape", "tab", "backspace", "shift", "ctrl")
"""Keys that have no character of their own to be typed by."""
NOTHING = "none"
"""Stands for no key in a mapping: what happens while none is pressed."""
ARROWS = {"up": 1, "down": 2, "left": 3, "right": 4}
"""Codes of the arrows in the C interface; other keys have their ASCII code."""
_CONTROLS = {"space": 32, "return": 13, "escape": 27, "tab": 9, "backspace": 8}
_EXAMPLE = '--keys "left=0,right=1,none=2"'

# What other libraries call the keys: the codes of pygame 1, of pygame 2 and of browsers.
_CODES = {
    273: "up",
    274: "down",
    275: "right",
    276: "left",
    1073741903: "right",
    1073741904: "left",
    1073741905: "down",
    1073741906: "up",
    **{code: name for name, code in _CONTROLS.items()},
    10: "return",
}


def example(space: Space[Any]) -> str:
    """Return a mapping that can be typed for an environment with these actions."""
    if isinstance(space, Discrete):
        choices = range(int(space.start), int(space.start) + int(space.n))
        return ",".join(
            f"{key}={choice}" for key, choice in zip(("left", "right", "up", "down"), choices, strict=False)
        )
    width = math.prod(space.shape or (1,))
    return f"none={':'.join(['0'] * width)},right={':'.join(['1', *['0'] * (width - 1)])}"


@dataclass(frozen=True)
class Keys:
    """What a person holds at one moment.

    Attributes:
        down: Names of the keys that are held.
        pressed: Names of those that went down since the last step.
        mouse: Position on the picture, 0 to 1 from the left and from the top.
        button: Whether the left mouse button is held.
    """

    down: frozenset[str] = frozenset()
    pressed: frozenset[str] = frozenset()
    mouse: tuple[float, float] = (0.0, 0.0)
    button: bool = False


class KeysBlock(ct.Structure):
    """PufferKeys of the C interface."""

    _fields_ = (
        ("down", ct.c_uint8 * 128),
        ("pressed", ct.c_uint8 * 128),
        ("mouse_x", ct.c_float),
        ("mouse_y", ct.c_float),
        ("mouse", ct.c_uint8),
        ("reserved", ct.c_uint8),
        ("agent", ct.c_uint16),
    )


def packed(keys: Keys, agent: int) -> KeysBlock:
    """Return what an environment in C reads: what is held, and which agent of its instance it moves."""
    block = KeysBlock(mouse_x=keys.mouse[0], mouse_y=keys.mouse[1], mouse=keys.button, agent=agent)
    for names, flags in ((keys.down, block.down), (keys.pressed, block.pressed)):
        for code in filter(None, map(code_of, names)):
            flags[code] = 1
    return block


def code_of(name: str) -> int | None:
    """Return the code of a key in the C interface, None where it has none."""
    code = ARROWS.get(name, _CONTROLS.get(name))
    if code is None and len(name) == 1 and ord(name) < 128:
        return ord(name)
    return code


class KeyMap:
    """What keys do: sets of keys and their actions.

    Args:
        entries: Keys that are held together, and the action they stand for; no keys for what happens without any.
    """

    def __init__(self, entries: Mapping[frozenset[str], Any]) -> None:
        # The most keys first: up and left together are not what up alone is.
        self._entries = sorted(entries.items(), key=lambda entry: -len(entry[0]))

    @property
    def keys(self) -> list[str]:
        """Every key that does something, in a stable order."""
        return sorted({key for names, _ in self._entries for key in names})

    def translated(self, write: Callable[[Any], Any]) -> KeyMap:
        """Return the same keys, for the actions that ``write`` makes of these."""
        return KeyMap({names: write(action) for names, action in self._entries})

    def action(self, held: frozenset[str]) -> Any | None:
        """Return the action of the keys that are held, or None where they have none."""
        return next((action for names, action in self._entries if names <= held), None)


def parse(text: str) -> KeyMap:
    """Return the mapping that a person typed: ``w=2,s=3,up+left=5,none=0``; ``a=-0.5:1`` for several numbers.

    Raises:
        OptionError: If a part is no key and numbers; the text names it.
    """
    entries: dict[frozenset[str], Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        left, _, right = part.rpartition("=")
        if not left:
            raise OptionError(f"keys: `{part}` is no key and its action", hint=_EXAMPLE)
        names = frozenset(name for name in map(_name, left.split("+")) if name != NOTHING)
        numbers = [_number(part, number) for number in right.split(":")]
        entries[names] = numbers[0] if len(numbers) == 1 else numbers
    if not any(entries):
        raise OptionError(f"keys={text!r} names no key", hint=_EXAMPLE)
    return KeyMap(entries)


def _name(text: str) -> str:
    name = text.strip().lower()
    if len(name) == 1 or name in (*NAMES, NOTHING):
        return name
    raise OptionError(f"keys: there is no key `{text}`", hint=f"a single character, {', '.join(NAMES)}, or {NOTHING}")


def _number(part: str, text: str) -> float | int:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise OptionError(f"keys: `{part}` ends in no number", hint=_EXAMPLE)


def find_map(env: Any) -> KeyMap | None:
    """Return what an environment in Python says that keys do, or None.

    The method ``get_keys_to_action`` counts, then the attribute ``play_keys`` (or a method of that name), then
    ``metadata["play_keys"]``; of the outermost wrapper that has one.

    Raises:
        OptionError: If a key of it is none that this program knows.
    """
    for holder in _holders(env):
        said = next(_mappings(holder), None)
        if said is not None:
            kind = type(holder).__name__
            return KeyMap({frozenset(_said(kind, keys)): action for keys, action in said.items()})
    return None


def _holders(env: Any) -> Iterator[Any]:
    seen: set[int] = set()
    while env is not None and id(env) not in seen:
        seen.add(id(env))
        yield env
        inner = env.__dict__.get("env") if hasattr(env, "__dict__") else None
        env = inner if inner is not None else getattr(env, "unwrapped", None)


def _mappings(holder: Any) -> Iterator[Mapping[Any, Any]]:
    for found in (
        getattr(holder, "get_keys_to_action", None),
        getattr(holder, "play_keys", None),
        (getattr(holder, "metadata", None) or {}).get("play_keys"),
    ):
        said = found() if callable(found) else found
        if isinstance(said, Mapping):
            yield said


def _said(kind: str, keys: Any) -> Iterator[str]:
    """Yield the names of keys that an environment gave: a word, characters, codes, or a tuple of those."""
    if isinstance(keys, str) and (keys in NAMES or keys == NOTHING):
        yield from () if keys == NOTHING else (keys,)
    elif isinstance(keys, str | Sequence | frozenset) and not (isinstance(keys, str) and len(keys) == 1):
        for key in keys:
            yield from _said(kind, key)
    elif isinstance(keys, str):
        yield "space" if keys == " " else keys.lower()
    elif isinstance(keys, int) and (name := _CODES.get(keys, chr(keys) if 32 < keys < 128 else None)):
        yield name.lower()
    elif keys is not None:
        raise OptionError(f"{kind} maps the key {keys!r}, which is none that is known here", hint=_EXAMPLE)
