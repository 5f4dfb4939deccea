"""A game in a terminal: text out, keys in. The terminal is given back as it was, however the game ends."""

from __future__ import annotations

import importlib
import os
import re
import select
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

from puffer_core.errors import RenderError
from puffer_core.keys import Keys
from puffer_core.screens import PlayScreen, TextScreen, frames_per_second

if TYPE_CHECKING:
    from typing_extensions import Self

    from puffer_core.vector import Vector

HOLD_S = 0.15
"""A terminal tells when a key is typed, not when it is let go: for so long it counts as held."""
POLL_S = 0.02
REST_S = 0.05
"""Seconds within which a terminal sends the rest of an escape sequence."""
_CUT = re.compile(rb"\x1b([\[O][0-9;]*)?\Z")
_ESCAPES = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
_CONTROLS = {10: "return", 13: "return", 9: "tab", 127: "backspace", 8: "backspace", 32: "space"}
_END = 4
"""Ctrl-D."""


class TerminalScreen(TextScreen, PlayScreen):
    """Shows the first instance of a vector as text, and reads keys as they are typed. Esc and Ctrl-D close it.

    Args:
        stdin: The terminal to read from.
        stdout: The terminal to write to.
        check: Called while waiting; what it raises ends the waiting.
        fps: Frames per second; None for what the environment says.

    Raises:
        RenderError: If one of them is no terminal.
    """

    def __init__(self, stdin: IO[str], stdout: IO[str], *, check: Callable[[], None], fps: float | None = None) -> None:
        super().__init__(stdout)
        if not (stdin.isatty() and stdout.isatty()):
            raise RenderError("a game in text needs a terminal to read keys from", hint="use `--render human`")
        self._input = stdin.fileno()
        self._check = check
        self._fps = fps
        self._note = ""
        self._pressed: set[str] = set()
        self._held: dict[str, float] = {}
        self._termios: Any = importlib.import_module("termios")  # no terminal of this kind on Windows
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = self._termios.tcgetattr(self._input)
        importlib.import_module("tty").setcbreak(self._input)
        return self

    def show(self, envs: Vector) -> None:
        """Print the state and what was said last, and wait until the next one is due."""
        if not self.is_open:
            return
        text, now = self.text_of(envs), time.monotonic()
        self._next_at = max(self._next_at, now) + 1 / (self._fps or frames_per_second(envs))
        self.draw(f"{text}\n{self._note}" if self._note else text)
        self.wait(self._next_at - now)

    def wait(self, seconds: float = POLL_S) -> None:
        """Read keys for some time."""
        until = time.monotonic() + seconds
        while self.is_open:
            self._check()
            left = until - time.monotonic()
            if select.select([self._input], [], [], min(POLL_S, max(0.0, left)))[0]:
                self._take(self._read())
            if left <= 0:
                return

    def _read(self) -> bytes:
        """Return what was typed; a sequence that is cut is waited for, else its first byte would be the key Esc."""
        data = os.read(self._input, 1024)
        while _CUT.search(data) and select.select([self._input], [], [], REST_S)[0]:
            rest = os.read(self._input, 1024)
            if not rest:
                break
            data += rest
        return data

    def keys(self, *, is_waiting: bool = False) -> Keys:
        """Return what was typed since the last call; where the game goes on by itself, also what is held.

        Args:
            is_waiting: The game waits for a key: one that is typed counts once.
        """
        pressed, self._pressed = frozenset(self._pressed), set()
        now = time.monotonic()
        held = () if is_waiting else (name for name, end in self._held.items() if end > now)
        return Keys(pressed | frozenset(held), pressed)

    def say(self, text: str) -> None:
        """Show a line below the state from now on."""
        self._note = text

    def close(self, *, keep: bool = True) -> None:
        """Give the terminal back; calling it twice is harmless."""
        self.is_open = False
        if self._before is not None:
            self._termios.tcsetattr(self._input, self._termios.TCSADRAIN, self._before)
            self._before = None

    def _take(self, data: bytes) -> None:
        names = decode(data)
        if not data or "escape" in names or _END in data:
            self.is_open = False
        until = time.monotonic() + HOLD_S
        self._pressed.update(names)
        self._held.update(dict.fromkeys(names, until))


def decode(data: bytes) -> list[str]:
    """Return the names of the keys that a terminal sent, in their order; what is no key is left out."""
    names = []
    while data:
        if data[:2] in (b"\x1b[", b"\x1bO"):
            end = next((i for i in range(2, len(data)) if 64 <= data[i] < 127), len(data) - 1)
            name, data = _ESCAPES.get(data[end : end + 1], ""), data[end + 1 :]
        else:
            code, data = data[0], data[1:]
            name = "escape" if code == 27 else _CONTROLS.get(code, chr(code).lower() if 32 < code < 127 else "")
        names += [name] if name else []
    return names
