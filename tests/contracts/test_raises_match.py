"""A contract of the tests: who expects an error says which, by its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_FOLDERS = (_ROOT / "tests", *(_ROOT / "plugins").glob("*/tests"))
_FILES = sorted(path for folder in _FOLDERS for path in folder.rglob("*.py"))


def unmatched(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of calls of `pytest.raises` without ``match``."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises"
        if is_call and not any(keyword.arg in ("match", None) for keyword in node.keywords):
            yield node.lineno


def test_unmatched_is_found() -> None:
    tree = ast.parse("pytest.raises(A)\npytest.raises(\n  A,\n  match='x')\nwith pytest.raises((A, B)) as c: pass\n")
    assert list(unmatched(tree)) == [1, 5]


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_every_expected_error_is_told_by_its_text(path: Path) -> None:
    assert list(unmatched(ast.parse(path.read_text(encoding="utf-8")))) == []
