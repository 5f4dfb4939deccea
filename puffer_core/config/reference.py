"""The pages about options, made from the schema: ``docs/options.md`` and ``default.ini``.

``python -m puffer_core.config.reference`` in the root of a checkout writes both; a test compares them. Neither is read
by the program: the dataclasses are the only source of defaults.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from puffer_core.config import schema
from puffer_core.config.options import COMMAND_KEYS, spell
from puffer_core.config.schema import SECTIONS, CommandConfig, SweepRange
from puffer_core.config.sections import defaults_of, join
from puffer_core.config.values import Kind, kinds, render

PAGE = Path("docs/options.md")
INI = Path("puffer_core/config/default.ini")

_INTRO = """\
# Options

Made from `puffer_core/config/schema.py` by `python -m puffer_core.config.reference`; edit that file, not this page.

`puffer COMMAND ENV [--section.key value ...]`. `puffer config show ENV` prints every value with its origin, in the form
of an ini file that `--config` reads.

**Spelling.** An option, an ini key and a field are one name: `--train.learning-rate`, `learning_rate` in `[train]`,
`TrainConfig.learning_rate`. On the command line `-` and `_` are the same. A misspelt or shortened name is an error.

**Values.** Whole numbers may be written `10_000_000`, `1e7` or `10M` (also `k` and `B`); `1.5` is refused. Booleans are
`true`, `yes`, `on`, `1` and `false`, `no`, `off`, `0`. A bare `--train.anneal-lr` means true, `--no-train.anneal-lr`
false. Lists are separated by commas.

**Precedence,** low to high: defaults, the family's ini, the environment's ini, the overlay `[preset.TRAINER.SECTION]`
of the trainer that is used, the overlay `[preset.NAME.SECTION]` of `--preset NAME`, the file of `--config`, options.
"""

_ENV = """\
## env

Parameters of the environment, `--env.NAME value`: `puffer envs ENV` lists them. An environment in C also has

| option | default | legal | meaning |
|---|---|---|---|
| `--env.num-envs` | `auto` | a whole number >= 1 or `auto` | Instances in one vector, times `vec.num_envs`; \
`auto` is 4096 agents' worth, fewer where the run is short. |
"""

_COMMAND = "Options of one call of `puffer run` or `puffer train`; `--resume` does not restore them."
_RANGE = "One searched dimension, a section `[sweep.SECTION.KEY]` such as `[sweep.train.learning_rate]`."


def page() -> str:
    """Return the text of ``docs/options.md``."""
    parts = [_INTRO]
    for section, cls in SECTIONS.items():
        rows = [(spell(join(section, name)), *row) for name, *row in _rows(cls)]
        parts.append(_block(section, _doc(cls), rows))
        if section == "train":
            parts.append(_ENV)
    parts.append(_block("sweep ranges", _RANGE, list(_rows(SweepRange))))
    spelled = {name: spell(key) for key, name in COMMAND_KEYS.items()}
    parts.append(_block("run and train", _COMMAND, [(spelled[name], *row) for name, *row in _rows(CommandConfig)]))
    return "\n".join(parts)


def default_ini() -> str:
    """Return the text of ``default.ini``: every key with its default and its meaning."""
    lines = [
        "; Every key with its default, for reading and copying. Made by `python -m puffer_core.config.reference`.",
        "; The program does not read this file.",
    ]
    for section, cls in SECTIONS.items():
        known = kinds(cls)
        if known:
            lines += ["", f"[{section}]"]
        for name, default, _, meaning in _rows(cls):
            comment = textwrap.wrap(meaning.replace("``", ""), 118, initial_indent="; ", subsequent_indent="; ")
            lines += [*comment, f"{name} = {default}".rstrip()]
    return "\n".join(lines) + "\n"


def write(root: Path) -> None:
    """Write both files into a checkout."""
    (root / PAGE).write_text(page(), encoding="utf-8")
    (root / INI).write_text(default_ini(), encoding="utf-8")


def field_docs(cls: type[Any]) -> dict[str, str]:
    """Return the sentence under each field of a dataclass, from its source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for item, following in zip(body.body, body.body[1:], strict=False):
        is_doc = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and is_doc:
            docs[item.target.id] = " ".join(str(following.value.value).split())  # type: ignore[attr-defined]
    return docs


def _rows(cls: type[Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, default, what is legal and meaning of each key."""
    docs, defaults = field_docs(cls), defaults_of(cls)
    for name, kind in kinds(cls).items():
        default = defaults[name]
        yield name, "" if default in (MISSING, None) else render(default, kind), _legal(kind), docs[name]


def _legal(kind: Kind) -> str:
    return str(kind) if kind.choices or kind.base != "str" else "a name or a path"


def _block(title: str, text: str, rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"## {title}", "", text]
    if rows:
        lines += ["", "| option | default | legal | meaning |", "|---|---|---|---|"]
    for option, default, legal, meaning in rows:
        shown = f"`{default}`" if default and default != '""' else ""
        cells = (f"`{option}`", shown, legal, meaning.replace("``", "`"))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _doc(cls: type[Any]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split()).replace("``", "`")


if __name__ == "__main__":
    write(Path(schema.__file__).parents[2])
