"""Reading ini files: every value with its line, and nothing silently ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffer_core.config import ini
from puffer_core.config.values import render, unquote
from puffer_core.errors import OptionError


def texts(text: str) -> dict[str, dict[str, str]]:
    sections = ini.parse(text, "a.ini")
    return {name: {key: entry.text for key, entry in entries.items()} for name, entries in sections.items()}


def test_parse_keeps_case_and_order_and_remembers_lines() -> None:
    sections = ini.parse("; title\n\n[env]\nmaxSteps = 5\nB = x\n[train]\nlearning-rate=1\n", "a.ini")
    assert list(sections) == ["env", "train"]
    assert list(sections["env"]) == ["maxSteps", "B"]
    assert sections["env"]["B"].where == "a.ini:5"
    assert sections["train"]["learning_rate"].text == "1"


def test_parse_drops_comments_but_not_what_looks_like_one() -> None:
    text = '[a]\n# one\n  ; two\nx = 1 ; three\ny = 2\t# four\nz = a;b#c\nq = "a ; b" # five\nw = it\'s ; six\n'
    assert texts(text)["a"] == {"x": "1", "y": "2", "z": "a;b#c", "q": '"a ; b"', "w": "it's"}


def test_parse_does_not_interpolate() -> None:
    assert texts("[a]\nx = %(y)s ${z} 50%\n")["a"]["x"] == "%(y)s ${z} 50%"


def test_parse_splits_at_the_first_equals_sign_only() -> None:
    assert texts("[a]\nx = y=z\nempty =\n")["a"] == {"x": "y=z", "empty": ""}


def test_parse_reads_files_of_other_systems() -> None:
    assert texts("[a]\r\nx = 1\r\n")["a"] == {"x": "1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nx = 1\nx = 2\n", r"a.ini:3: `x` is set twice in this section \(first on line 2\)"),
        ("[a]\nx_y = 1\nx-y = 2\n", "a.ini:3: `x_y` is set twice"),
        ("[a]\n[b]\n[a]\n", r"a.ini:3: section \[a\] occurs twice"),
        ("x = 1\n", r"a.ini:1: `x = 1` stands before the first \[section\]"),
        ("[a\n", r"a.ini:1: `\[a` is not a section"),
        ("[]\n", r"a.ini:1: `\[\]` is not a section"),
        ("[a]\nlonely\n", "a.ini:2: `lonely` is not of the form `key = value`"),
        ("[a]\n= 3\n", "a.ini:2: `= 3` is not of the form `key = value`"),
    ],
)
def test_parse_refuses_what_would_be_ignored(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ini.parse(text, "a.ini")


def test_read_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"there is no configuration file `.*missing\.ini`"):
        ini.read(tmp_path / "missing.ini")


def test_read_says_why_it_can_not(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="can't read the configuration file"):
        ini.read(tmp_path)


def test_read_names_the_line_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.ini"
    path.write_bytes(b"[a]\nx = 1\ny = \xff\n")
    with pytest.raises(OptionError, match=r"a\.ini:3: the configuration file is not UTF-8"):
        ini.read(path)


def test_read_skips_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.ini"
    path.write_bytes(b"\xef\xbb\xbf[a]\nx = \xc3\xa9\n")
    assert ini.read(path)["a"]["x"].text == "é"


@given(st.text())
def test_parse_reads_back_every_text_that_is_rendered(value: str) -> None:
    assert unquote(texts(f"[a]\nx = {render(value)}  ; comment\n")["a"]["x"]) == value


@given(st.text(alphabet="[]ab=;# \"'\\\n\t-"))
def test_parse_reads_or_refuses_any_text_with_a_line(text: str) -> None:
    try:
        ini.parse(text, "a.ini")
    except OptionError as error:
        number = str(error).split(": ")[0].removeprefix("a.ini:")
        if not number.isdigit():
            raise
