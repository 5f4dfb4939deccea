"""Where values come from: ini files with presets, options, environment variables, edits; each gives checked layers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, cast

from puffer_core.config import ini
from puffer_core.config.options import COMMAND_KEYS, spell
from puffer_core.config.schema import Origin, OriginKind
from puffer_core.config.sections import Keys, UnknownKeyError, join, split
from puffer_core.config.values import Kind, check, parse
from puffer_core.errors import OptionError, PluginError, shortened
from puffer_core.specs import EnvSpec

SKIPPED = ("run", "origins")
"""Sections of a run's ``config.ini`` that hold no values."""


DEFAULT = Origin()


@dataclass(frozen=True)
class Value:
    """A checked value and where it came from."""

    value: Any
    origin: Origin = DEFAULT


Layer = dict[str, Value]
"""Dotted key -> value: what one source sets."""


@dataclass
class Source:
    """One ini file: its own values, and a layer for each preset in it."""

    values: Layer = field(default_factory=dict)
    presets: dict[str, Layer] = field(default_factory=dict)


def shipped(spec: EnvSpec | None, name: str, keys: Keys) -> tuple[Source, Source]:
    """Return the family's ini and the environment's own, as far as they exist.

    ``EnvSpec.config`` names the environment's file, and ``<family>.ini`` beside it is the family's. The spec of a whole
    family names the family's file, and ``<rest of the name>.ini`` beside it is the environment's.
    """
    if spec is None or spec.config is None:
        return Source(), Source()
    package, _, path = spec.config.partition(":")
    rest = name.partition("/")[2].replace("/", "-").lower()
    try:
        named = files(package).joinpath(path)
        beside = files(package).joinpath(path.rpartition("/")[0], f"{rest if spec.is_family else spec.family}.ini")
    except (ImportError, TypeError) as error:
        raise PluginError(f"the ini of `{spec.name}`, {spec.config}, can't be found: {error}") from error
    if not named.is_file():
        raise PluginError(f"the ini of `{spec.name}`, {spec.config}, is missing", hint="reinstall its package")
    has_beside = beside.is_file() and beside.name not in (".ini", named.name)
    if spec.is_family:
        return from_file(named, "family", keys), from_file(beside, "env", keys) if has_beside else Source()
    return from_file(beside, "family", keys) if has_beside else Source(), from_file(named, "env", keys)


def from_file(path: ini.Readable, kind: Literal["family", "env", "file"], keys: Keys) -> Source:
    """Return what an ini file sets, every value checked, also those of presets that are not chosen."""
    source = Source()
    for title, entries in ini.read(path).items():
        section = title
        if section in SKIPPED:
            continue
        layer, origin = source.values, cast(OriginKind, kind)
        if section == "preset" or section.startswith("preset."):
            label, _, section = section.removeprefix("preset").removeprefix(".").partition(".")
            layer = source.presets.setdefault(label, {})
            origin = kind if kind == "file" else "preset"
            if not label or not section:
                raise OptionError(f"{path}: section [{title}] names no section", hint="write [preset.NAME.SECTION]")
        keys.require(section, str(path))
        for name, entry in entries.items():
            key = join(section, name)
            layer[key] = read(keys, key, entry.text, Origin(origin, entry.where))
    return source


def from_options(given: Mapping[str, str], keys: Keys) -> Layer:
    """Return what the command line sets."""
    for key in given:
        if key in COMMAND_KEYS:
            raise OptionError(
                f"`{spell(key)}` is an option of `puffer run` and `puffer train`, not a configuration key"
            )
    return {key: read(keys, key, text, Origin("option", spell(key))) for key, text in given.items()}


def from_spec(spec: EnvSpec | None) -> Layer:
    """Return what an environment proposes in its spec."""
    return {"policy.name": Value(spec.policy, Origin("env", spec.name))} if spec and spec.policy else {}


def from_environment() -> Layer:
    """Return what environment variables set."""
    folder = os.environ.get("PUFFER_RUNS")
    return {"runs_dir": Value(folder, Origin("default", "PUFFER_RUNS"))} if folder else {}


def from_edits(edits: Mapping[str, Mapping[str, Any]], current: Layer, keys: Keys) -> Layer:
    """Return the values of a nested dict that differ from ``current``."""
    layer: Layer = {}
    for key, value in _dotted(edits):
        item = _checked(keys, key, value, Origin("edited"), check)
        before = current.get(key)
        if before is None or before.value != item.value or type(before.value) is not type(item.value):
            layer[key] = item
    return layer


def read(keys: Keys, key: str, text: Any, origin: Origin) -> Value:
    """Return the value that ``text`` stands for; Python callers may also give the value itself.

    Raises:
        OptionError: If there is no such key, or its value is illegal; the text names key, value and origin.
    """
    return _checked(keys, key, text, origin, parse if isinstance(text, str) else check)


def _checked(keys: Keys, key: str, value: Any, origin: Origin, convert: Callable[[Any, Kind], Any]) -> Value:
    try:
        return Value(convert(value, keys.kind(key)), origin)
    except UnknownKeyError as error:
        hint = error.note or "`puffer config show ENV` lists every key"
        if error.nearest:
            hint = f"did you mean {_spelled(error.nearest, origin)}?"
        raise OptionError(f"unknown key `{key}` = `{shortened(value)}` ({shortened(origin, 200)})", hint=hint) from None
    except ValueError as error:
        raise OptionError(f"`{key}` = `{shortened(value)}` {error} ({shortened(origin, 200)})") from None


def _spelled(key: str, origin: Origin) -> str:
    section, name = split(key)
    return f"`{spell(key)}`" if origin.kind == "option" else f"`{name}` in [{section}]"


def _dotted(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted key and value of a nested dict; dicts inside ``sweep`` are sections of their own."""
    for name, value in nested.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping) and (not prefix or prefix.partition(".")[0] == "sweep"):
            yield from _dotted(value, key)
        elif not prefix:
            raise OptionError(f"section `{name}` = `{value}` is not a dict of keys (edited)")
        else:
            yield key.removeprefix("base."), value
