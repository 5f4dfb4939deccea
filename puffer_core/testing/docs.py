"""The Arguments table of an environment's page, written from the C table between two markers of the page.

``python -m puffer_core.testing.docs FOLDER...`` rewrites every ``<name>.md`` that has the markers; an environment's
page is named as the environment. A test of the plugin holds the pages current (`stale_pages`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from puffer_core.abi import Param
from puffer_core.native import table_params
from puffer_core.plugins import find_env, resolve

START, END = "<!-- params -->", "<!-- /params -->"


def params_table(params: Iterable[Param]) -> str:
    """Return the Markdown table of the parameters: name, type, default, legal values, help."""
    rows = ["| name | type | default | legal | meaning |", "|---|---|---|---|---|"]
    for param in params:
        live = " May change while running." if param.live else ""
        rows.append(
            f"| `{param.name}` | {param.kind} | {_value(param.default)} | {_legal(param)} | {param.help}{live} |"
        )
    return "\n".join(rows)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _legal(param: Param) -> str:
    """Return the legal values in words: a range, a list of choices, or both flags."""
    if param.kind == "enum":
        return ", ".join(f"`{choice}`" for choice in param.choices)
    if param.kind == "bool":
        return "true, false"
    if param.kind == "string":
        return "any"
    every = f", every {param.step}" if param.step and param.step > 1 else ""
    return f"{_value(param.min)} to {_value(param.max)}{every}"


def rendered_page(path: Path) -> str:
    """Return the text of a page with its table as the C source has it now; unchanged where it has no markers."""
    text = path.read_text(encoding="utf-8")
    if START not in text:
        return text
    before, _, rest = text.partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{path}: {START} without {END}")
    spec, _ = find_env(path.stem)
    if spec.table is None:
        raise ValueError(f"{path}: `{spec.name}` has no C table")
    return f"{before}{START}\n{params_table(table_params(resolve(spec.table)))}\n{END}{after}"


def stale_pages(folder: Path) -> list[Path]:
    """Return the pages of a folder whose table is not that of the C source."""
    return [path for path in sorted(folder.glob("*.md")) if rendered_page(path) != path.read_text(encoding="utf-8")]


def main(folders: Iterable[str]) -> None:
    """Rewrite every stale page of the folders."""
    for folder in folders:
        for path in stale_pages(Path(folder)):
            path.write_text(rendered_page(path), encoding="utf-8")
            sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
