"""Packages to start from: `create` writes one that installs, keeps the contract and trains as it is.

The files of a kind lie in a folder of that name, with the ending ``.in``; ``@name@`` and the like stand for what is
known when a package is written, in texts and in paths. What environments in Python share is in ``python``.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from puffer_core import get_include, plugins
from puffer_core.errors import OptionError, UnknownNameError, did_you_mean

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True)
class Kind:
    """One kind of package.

    Attributes:
        folders: Where its files are.
        class_name: Of its environment; empty in C.
        about: What it is, in one sentence.
    """

    folders: tuple[str, ...]
    class_name: str
    about: str


PYTHON_KINDS = {
    "grid": Kind(("python", "grid"), "GridWorld", "One agent walks on a grid to a goal."),
    "multi": Kind(("python", "multi"), "Navigation", "Several agents share a plane and cover all its landmarks."),
    "dict": Kind(("python", "dict"), "Courier", "A courier fetches a parcel; what it observes is given by name."),
}
C_KIND = "catch"
KINDS = {**PYTHON_KINDS, C_KIND: Kind(("c",), "", "A ball falls down a board and has to be caught; written in C.")}


def create(name: str, kind: str = "grid", folder: str | Path = ".") -> dict[str, object]:
    """Write the package ``puffer-NAME`` into a folder.

    Args:
        name: Of the package, and the short name of its environment: a lower-case word.
        kind: One of `KINDS`.
        folder: Where ``puffer-NAME`` is made; it must not be there yet.

    Returns:
        ``env``, ``kind``, ``folder`` and ``files``, which are relative to the folder.

    Raises:
        OptionError: If the name or the kind is illegal, the name is taken, or the folder exists.
    """
    if kind not in KINDS:
        raise OptionError(f"kind={kind!r} is not one of {', '.join(KINDS)}", hint=did_you_mean(kind, KINDS))
    _check_name(name)
    target = Path(folder) / f"puffer-{name}"
    if target.exists():
        raise OptionError(f"`{target}` exists already", hint="choose another name, or remove it")
    values = _values(name, kind)
    try:
        files = _write(target, kind, values)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise OptionError(f"`{target}` can't be written: {error.strerror or error}") from error
    return {"env": values["env"], "kind": kind, "folder": str(target), "files": files}


def _write(target: Path, kind: str, values: Mapping[str, str]) -> list[str]:
    """Write the files, and in C the headers; return their paths, relative to the package."""
    for relative, source in _sources(kind):
        path = target / _fill(str(relative.with_suffix("")), values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fill(source.read_text(encoding="utf-8"), values), encoding="utf-8")
    if kind == C_KIND:
        shutil.copytree(Path(get_include()) / "puffer", target / "csrc" / "puffer")
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def _values(name: str, kind: str) -> dict[str, str]:
    found = KINDS[kind]
    return {
        "name": name,
        "upper": name.upper(),
        "package": f"puffer_{name}",
        "env": f"{name}/{kind}",
        "kind": kind,
        "class": found.class_name,
        "about": found.about,
    }


def _sources(kind: str) -> Iterator[tuple[Path, Path]]:
    """Yield the files of a kind: relative to the package, and where they are."""
    for folder in KINDS[kind].folders:
        for source in sorted((_FOLDER / folder).rglob("*.in")):
            yield source.relative_to(_FOLDER / folder), source


def _fill(text: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _check_name(name: str) -> None:
    """Refuse a name that is no plain word, or that an installed package or environment has."""
    if not _NAME.fullmatch(name):
        plain = re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("puffer")).lstrip("0123456789")
        hint = f"`{plain}` would do" if plain else "for example `maze`"
        raise OptionError(f"name {name!r} is not a lower-case word of letters and digits", hint=hint)
    if importlib.util.find_spec(f"puffer_{name}") is not None:
        raise OptionError(f"there is a package puffer_{name} already", hint="choose another name")
    if _is_taken(name):
        raise OptionError(f"`{name}` is the name of environments already", hint="`puffer envs` lists the names taken")


def _is_taken(name: str) -> bool:
    """Return whether an environment or a family is called so."""
    envs = plugins.manager().envs
    for find, text in ((envs.find, name), (envs.family, f"{name}/")):
        try:
            find(text)
        except UnknownNameError:
            continue
        return True
    return False
