"""Files that survive kills and full disks."""

from __future__ import annotations

import errno
import io
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffer_core.errors import RunError
from puffer_core.files import append_json, read_jsonl, replace_text, to_json


def test_append_json_adds_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for step in range(3):
        append_json(path, {"step": step})
    assert read_jsonl(path) == [{"step": 0}, {"step": 1}, {"step": 2}]


@pytest.mark.parametrize("tail", ['{"step": 9', "x" * 10_000, "{"])
def test_append_json_removes_a_line_that_was_cut_off(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 0}\n' + tail)
    assert read_jsonl(path) == [{"step": 0}]
    append_json(path, {"step": 1})
    assert read_jsonl(path) == [{"step": 0}, {"step": 1}]


def test_append_json_removes_a_first_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"st')
    append_json(path, {"step": 1})
    assert read_jsonl(path) == [{"step": 1}]


def test_read_jsonl_names_a_damaged_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 0}\nnonsense\n{"step": 2}\n')
    with pytest.raises(RunError, match=r"a\.jsonl:2: the line is damaged"):
        read_jsonl(path)


def test_read_jsonl_takes_a_missing_file_as_empty(tmp_path: Path) -> None:
    assert read_jsonl(tmp_path / "none.jsonl") == []


def test_append_json_leaves_no_part_of_a_line_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    append_json(path, {"step": 0})

    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(bytes(data)[:5])

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda self, mode, buffering: Full(self, mode))
        with pytest.raises(RunError, match="No space left on device"):
            append_json(path, {"step": 1})
    assert path.read_text() == '{"step": 0}\n'


def test_append_json_says_which_file_it_can_not_write(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"can't write `.*a\.jsonl`: No such file or directory"):
        append_json(tmp_path / "missing" / "a.jsonl", {})


def test_replace_text_leaves_the_old_text_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    replace_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_to_json_has_words_for_what_json_has_not() -> None:
    value = {1: math.nan, "b": [math.inf, np.float32(0.5), np.arange(2)], "c": Path("x"), "d": (True, None, "é")}
    assert json.loads(to_json(value)) == {"1": None, "b": [None, 0.5, [0, 1]], "c": "x", "d": [True, None, "é"]}
    assert "\n" not in to_json({"a": "line\nline"})


@given(
    st.lists(st.dictionaries(st.text(), st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)))
)
def test_rows_cut_at_any_byte_are_read_up_to_the_last_whole_one(rows: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        for row in rows:
            append_json(path, row)
        data = path.read_bytes() if rows else b""
        cut = len(data) * 2 // 3
        path.write_bytes(data[:cut])
        assert read_jsonl(path) == rows[: data[:cut].count(b"\n")]
