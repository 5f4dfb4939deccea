from __future__ import annotations

import io
import os
import pty
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from fakes_play import Steps

from puffer_core import terminal
from puffer_core.errors import RenderError
from puffer_core.terminal import TerminalScreen, decode
from puffer_core.vector import make


class Output(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def pair() -> Iterator[tuple[int, Any]]:
    master, slave = pty.openpty()
    with os.fdopen(slave, "r") as stdin:
        yield master, stdin
    os.close(master)


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"", []),
        (b"aB1", ["a", "b", "1"]),
        (b"\x1b[A\x1b[B\x1bOC\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1b", ["escape"]),
        (b"\x1bx", ["escape", "x"]),
        (b"\x1b[", []),
        (b"\x1b[1;5Aw", ["up", "w"]),
        (b"\x1b[3~w", ["w"]),
        (b" \r\n\t\x7f", ["space", "return", "return", "tab", "backspace"]),
        (b"\x00\xc3\xa9", []),
    ],
)
def test_what_a_terminal_sends(data: bytes, names: list[str]) -> None:
    assert decode(data) == names


def test_keys_are_read_one_at_a_time_and_the_terminal_is_given_back(pair: Any) -> None:
    master, stdin = pair
    before = termios.tcgetattr(stdin)
    with suppress(ZeroDivisionError), TerminalScreen(stdin, Output(), check=lambda: None) as screen:
        assert not termios.tcgetattr(stdin)[3] & (termios.ICANON | termios.ECHO)
        os.write(master, b"w\x1b[A")
        screen.wait()
        assert screen.keys(is_waiting=True).down == {"w", "up"}
        assert screen.keys(is_waiting=True).down == frozenset()
        held = screen.keys()
        assert (held.down, held.pressed) == ({"w", "up"}, frozenset())  # no terminal tells that a key was let go
        raise ZeroDivisionError
    assert termios.tcgetattr(stdin) == before
    assert not screen.is_open


@pytest.mark.parametrize("typed", [b"\x1b", b"\x04"])
def test_keys_that_close(pair: Any, typed: bytes) -> None:
    master, stdin = pair
    with TerminalScreen(stdin, Output(), check=lambda: None) as screen:
        os.write(master, typed)
        screen.wait(5)
        assert not screen.is_open


@pytest.mark.parametrize("parts", [(b"\x1b", b"[A"), (b"w\x1b[", b"A"), (b"\x1b[1;", b"5A")])
def test_an_arrow_that_comes_in_two_parts_does_not_close(
    pair: Any, parts: tuple[bytes, bytes], monkeypatch: Any
) -> None:
    _, stdin = pair
    left = list(parts)
    with TerminalScreen(stdin, Output(), check=lambda: None) as screen:
        monkeypatch.setattr(terminal.select, "select", lambda *_: ([0] if left else [], [], []))
        monkeypatch.setattr(terminal.os, "read", lambda *_: left.pop(0))
        screen.wait(0)
        assert screen.is_open
        assert "up" in screen.keys(is_waiting=True).down


def test_states_and_what_is_said_are_written_over_each_other(pair: Any) -> None:
    output = Output()
    with make(lambda: Steps(render_mode="ansi"), num_envs=1) as envs:
        envs.reset(1)
        with TerminalScreen(pair[1], output, check=lambda: None, fps=1000) as screen:
            screen.show(envs)
            screen.say("well done")
            screen.show(envs)
    assert output.getvalue() == ("\x1b[2J\x1b[Hstep 0\x1b[K\n\x1b[J" + "\x1b[Hstep 0\x1b[K\nwell done\x1b[K\n\x1b[J")


def test_no_terminal_no_game(pair: Any) -> None:
    with pytest.raises(RenderError, match="needs a terminal to read keys from"):
        TerminalScreen(io.StringIO(), Output(), check=lambda: None)
    with pytest.raises(RenderError, match="needs a terminal to read keys from"):
        TerminalScreen(pair[1], io.StringIO(), check=lambda: None)
