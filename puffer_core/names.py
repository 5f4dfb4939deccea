"""Spellings of names in a family: case and ``-``/``_`` don't count, a missing version means the newest."""

from __future__ import annotations

import re
from collections.abc import Iterable

from puffer_core.errors import fold

_VERSION = re.compile(r"(?P<base>.+)[-_]v(?P<version>\d+)", re.IGNORECASE)


def split_version(name: str) -> tuple[str, int | None]:
    """Return a name without the version at its end, as in ``CartPole-v1`` or ``pistonball_v6``, and that version."""
    match = _VERSION.fullmatch(name)
    return (match["base"], int(match["version"])) if match else (name, None)


def resolve_spelling(name: str, names: Iterable[str]) -> str | None:
    """Return the one of ``names`` that is meant by a name as typed, or None."""
    names = list(names)
    if name in names:
        return name
    typed = fold(name)
    spelled = [known for known in names if fold(known) == typed]
    if not spelled:
        bases = [(*split_version(known), known) for known in names]
        versions = [(version, known) for base, version, known in bases if version is not None and fold(base) == typed]
        spelled = [known for _, known in sorted(versions)[-1:]]
    return spelled[0] if spelled else None
