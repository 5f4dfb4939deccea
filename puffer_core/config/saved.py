"""A resolved configuration as an ini file and back, and as a nested dict.

The file of a run holds every value, a section ``[run]`` that names the run, and a section ``[origins]`` with where each
value that is no default came from: a resumed run tells proposals from what a person fixed as the first one did.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

from puffer_core.config import ini
from puffer_core.config.load import assemble, flatten
from puffer_core.config.schema import SECTIONS, Config, Origin, OriginKind, SweepRange
from puffer_core.config.sections import Keys, Params, join, split
from puffer_core.config.sources import SKIPPED, Layer, Value, read
from puffer_core.config.values import OPEN, Kind, kinds, render, unquote
from puffer_core.errors import OptionError

NAME = "config.ini"


def write(config: Config, path: str | os.PathLike[str], run: Mapping[str, str] | None = None) -> None:
    """Write ``config`` as an ini file; ``run`` becomes its section ``[run]``."""
    Path(path).write_text(dumps(config, run), encoding="utf-8")


def dumps(config: Config, run: Mapping[str, str] | None = None) -> str:
    """Return the text of the ini file that `from_run` reads as an equal object."""
    lines: dict[str, list[str]] = {"run": [f"{name} = {render(value)}" for name, value in (run or {}).items()]}
    for key, value in flatten(config):
        section, name = split(key)
        lines.setdefault(section, []).append(f"{name} = {render(value, _kind(config, section, name))}".rstrip())
    origins = {key: origin for key, origin in config.origins.items() if origin != Origin()}
    lines["origins"] = [f"{key} = {render(str(origin))}" for key, origin in origins.items()]
    blocks = ["\n".join([f"[{section}]", *entries]) for section, entries in lines.items() if entries]
    return "\n\n".join(blocks) + "\n"


def from_run(path: str | os.PathLike[str]) -> Config:
    """Return the configuration saved with a run, given its directory or its ``config.ini``.

    Raises:
        OptionError: If the file is missing, damaged, or holds a key that this version does not know.
    """
    file = Path(path) / NAME if Path(path).is_dir() else Path(path)
    sections = ini.read(file)
    origins = {key: _origin(entry.text) for key, entry in sections.get("origins", {}).items()}
    keys = Keys(None)
    keys.params = Params(is_open=True)
    values: Layer = {}
    for section, entries in sections.items():
        if section in SKIPPED:
            continue
        keys.require(section, str(file))
        for name, entry in entries.items():
            key = join(section, name)
            item = read(keys, key, entry.text, Origin("file", entry.where))
            values[key] = Value(item.value, origins.get(key, Origin()))
    return assemble(keys, values)


def run_section(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the section ``[run]`` of a saved configuration."""
    return {name: unquote(entry.text) for name, entry in ini.read(Path(path)).get("run", {}).items()}


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """Return an editable copy, section -> key -> value; hand it back to `load` as ``edits``.

    The range of ``[sweep.train.gamma]`` is ``["sweep"]["train"]["gamma"]``.
    """
    nested: dict[str, dict[str, Any]] = {section: {} for section in (*SECTIONS, "env")}
    for key, value in flatten(config):
        section, name = split(key)
        *path, last = [*section.split("."), name]
        inner: dict[str, Any] = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def with_origins(config: Config) -> dict[str, dict[str, dict[str, Any]]]:
    """Return section -> key -> ``value``, kind of ``origin`` and ``where``, fit for JSON."""
    nested: dict[str, dict[str, dict[str, Any]]] = {}
    for key, value in flatten(config):
        section, name = split(key)
        origin = config.origins.get(key, Origin())
        plain = render(value) if isinstance(value, float) and not math.isfinite(value) else value
        nested.setdefault(section, {})[name] = {"value": plain, "origin": origin.kind, "where": origin.where}
    return nested


def _kind(config: Config, section: str, name: str) -> Kind:
    if section in config.plugins:
        return kinds(type(config.plugins[section])).get(name, OPEN)
    cls = SweepRange if section.startswith("sweep.") else SECTIONS.get(section)
    return kinds(cls).get(name, OPEN) if cls else OPEN


def _origin(text: str) -> Origin:
    kind, _, where = unquote(text).partition(" ")
    if kind not in get_args(OriginKind):
        raise OptionError(
            f"`{text}` in [origins] is not an origin", hint=f"use one of {', '.join(get_args(OriginKind))}"
        )
    return Origin(cast(OriginKind, kind), where)
