"""Reading ini files: sections, ``key = value`` lines, ``;`` and ``#`` comments; every value remembers its line.

Names keep their case, and nothing is interpolated. A comment may follow a value after a space. A section or a key given
twice is an error, because one of the two would be ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from puffer_core.errors import OptionError

_SECTION = re.compile(r"\[\s*([^\[\]]+?)\s*\]")
_COMMENT = re.compile(r"""((?:(?<!\w)"(?:\\.|[^"\\])*"|(?<!\w)'(?:\\.|[^'\\])*'|[^\s]|\s(?![;#]))*)(?:\s[;#].*)?""")


class Readable(Protocol):
    """A path, or a file inside a package."""

    def read_bytes(self) -> bytes:
        """Return the whole file."""


@dataclass(frozen=True)
class Entry:
    """One value as written, and where."""

    text: str
    where: str


Ini = dict[str, dict[str, Entry]]
"""Section -> key -> entry, in the order of the file; names are spelt with ``_``."""


def read(path: Readable) -> Ini:
    """Return the sections of an ini file.

    Raises:
        OptionError: If the file is missing, is not UTF-8, or is not an ini file; the text names file and line.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise OptionError(f"there is no configuration file `{path}`") from None
    except OSError as error:
        raise OptionError(f"can't read the configuration file `{path}`: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OptionError(f"{path}:{line}: the configuration file is not UTF-8 text", hint="save it as UTF-8") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Ini:
    """Return the sections of the ini file ``text``; ``name`` stands for it in messages and origins."""
    sections: Ini = {}
    entries: dict[str, Entry] | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        line, where = _strip_comment(raw), f"{name}:{number}"
        if not line:
            continue
        if line.startswith("["):
            entries = _open_section(sections, line, where)
        elif entries is None:
            raise OptionError(f"{where}: `{line}` stands before the first [section]")
        else:
            key, value = _split(line, where)
            if key in entries:
                first = entries[key].where.rpartition(":")[2]
                raise OptionError(f"{where}: `{key}` is set twice in this section (first on line {first})")
            entries[key] = Entry(value, where)
    return sections


def _open_section(sections: Ini, line: str, where: str) -> dict[str, Entry]:
    match = _SECTION.fullmatch(line)
    if not match:
        raise OptionError(f"{where}: `{line}` is not a section: write [name]")
    section = match[1].replace("-", "_")
    if section in sections:
        raise OptionError(f"{where}: section [{section}] occurs twice", hint="move its keys into one section")
    return sections.setdefault(section, {})


def _split(line: str, where: str) -> tuple[str, str]:
    key, equals, value = line.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key:
        raise OptionError(f"{where}: `{line}` is not of the form `key = value`")
    return key, value.strip()


def _strip_comment(raw: str) -> str:
    line = raw.strip()
    if line.startswith((";", "#")):
        return ""
    match = _COMMENT.match(line)
    return match[1].strip() if match else line
