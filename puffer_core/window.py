"""A window for pictures of an environment and the keys of a person, through pygame-ce (the extra `window`).

Only the display of pygame is started: no sound, no fonts, no joystick. A picture is scaled to fit and keeps its shape.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puffer_core.errors import RenderError
from puffer_core.keys import Keys
from puffer_core.screens import PlayScreen, frames_per_second, require_window
from puffer_core.video import Frame, require_frame

if TYPE_CHECKING:
    from puffer_core.vector import Vector

SMALLEST = 480
"""Pixels that the longer side of a new window has at least: small pictures are enlarged by a whole factor."""
SHARE = 0.85
"""Of the display, that a new window covers at most."""
POLL_S = 0.01
FASTEST = 64.0
"""Times the environment's own speed; the slowest is one part in as many."""


class Window:
    """One window.

    Args:
        title: In its title bar.

    Attributes:
        is_open: False once a person closed it.

    Raises:
        RenderError: If no window can be opened; the text says why.
    """

    def __init__(self, title: str) -> None:
        require_window()
        self._pygame: Any = importlib.import_module("pygame")
        self.is_open = True
        self._canvas: Any = None
        self._picture: Any = None
        self._area = (0, 0, 1, 1)
        self._down: set[str] = set()
        self._pressed: set[str] = set()
        self._names = _names(self._pygame)
        try:
            self._pygame.display.init()
            self._pygame.display.set_caption(title)
        except self._pygame.error as error:
            raise _failure(error) from error

    def draw(self, frame: Frame) -> None:
        """Show one (height, width, 3) uint8 picture."""
        self._picture = self._pygame.image.frombuffer(np.ascontiguousarray(frame), frame.shape[1::-1], "RGB")
        if self._canvas is None:
            self._open(frame.shape[1], frame.shape[0])
        self._paint()

    def say(self, title: str) -> None:
        """Write into the title bar."""
        self._pygame.display.set_caption(title)

    def poll(self) -> list[str]:
        """Take what happened since the last call; return the names of the keys that went down, in their order."""
        pygame, went_down = self._pygame, list[str]()
        for event in pygame.event.get() if self._canvas is not None else ():
            if event.type == pygame.QUIT:
                self.is_open = False
            elif event.type == pygame.KEYDOWN and (name := self._names(event.key)):
                went_down.append(name)
                self._down.add(name)
            elif event.type == pygame.KEYUP:
                self._down.discard(self._names(event.key))
            elif event.type == pygame.WINDOWFOCUSLOST:
                self._down.clear()
            elif event.type in (pygame.VIDEORESIZE, pygame.WINDOWEXPOSED):
                self._paint()
        self._pressed.update(went_down)
        return went_down

    def take_keys(self) -> Keys:
        """Return what a person holds, and what went down since the last call: a short tap counts as held once."""
        pressed, self._pressed = frozenset(self._pressed), set()
        left, top, width, height = self._area
        x, y = self._pygame.mouse.get_pos()
        mouse = (min(max((x - left) / width, 0.0), 1.0), min(max((y - top) / height, 0.0), 1.0))
        return Keys(frozenset(self._down) | pressed, pressed, mouse, bool(self._pygame.mouse.get_pressed()[0]))

    def close(self) -> None:
        """Close it; calling it twice is harmless."""
        self.is_open = False
        self._canvas = None
        self._pygame.display.quit()

    def _open(self, width: int, height: int) -> None:
        try:
            size = fitted(width, height, self._pygame.display.get_desktop_sizes()[0])
            self._canvas = self._pygame.display.set_mode(size, self._pygame.RESIZABLE)
        except self._pygame.error as error:
            raise _failure(error) from error

    def _paint(self) -> None:
        """Draw the picture as large as it fits, with black beside it."""
        width, height = self._canvas.get_size()
        scale = min(width / self._picture.get_width(), height / self._picture.get_height())
        size = (max(1, int(self._picture.get_width() * scale)), max(1, int(self._picture.get_height() * scale)))
        self._area = ((width - size[0]) // 2, (height - size[1]) // 2, *size)
        transform = self._pygame.transform
        resized = (transform.scale if scale >= 1 else transform.smoothscale)(self._picture, size)
        self._canvas.fill((0, 0, 0))
        self._canvas.blit(resized, self._area[:2])
        self._pygame.display.flip()


class WindowScreen(PlayScreen):
    """Shows the first instance of a vector in a window, at the environment's own speed.

    Esc closes, F1 pauses, F2 makes one step and pauses, F3 halves and F4 doubles the speed. With ``is_watched`` these
    do the same: q, space, n, - and +; where a person plays, they belong to the game.

    Args:
        title: In its title bar.
        check: Called while waiting; what it raises ends the waiting.
        is_watched: Whether nobody plays.
        fps: Frames per second; None for what the environment says.
    """

    def __init__(
        self, title: str, *, check: Callable[[], None], is_watched: bool = True, fps: float | None = None
    ) -> None:
        self.window = Window(title)
        self._check = check
        self._is_watched = is_watched
        self._fps = fps
        self._is_paused = self._is_stepping = False
        self._speed = 1.0
        self._next_at = 0.0

    def show(self, envs: Vector) -> None:
        """Draw the state, and wait until the next one is due."""
        if not self.is_open:
            return
        frame = require_frame(envs.render(0, "rgb_array"))
        now = time.monotonic()
        self._next_at = max(self._next_at, now) + 1 / (self._speed * (self._fps or frames_per_second(envs)))
        self.window.draw(frame)
        self.wait(self._next_at - now)

    def wait(self, seconds: float = POLL_S) -> None:
        """Answer the keys for some time, or until it goes on where it is paused."""
        until = time.monotonic() + seconds
        while True:
            self._check()
            for name in self.window.poll():
                self._answer(name)
            self.is_open = self.is_open and self.window.is_open
            left = until - time.monotonic()
            if not self.is_open or self._is_stepping or (left <= 0 and not self._is_paused):
                self._is_stepping = False
                return
            time.sleep(POLL_S if self._is_paused else min(POLL_S, left))

    def keys(self, *, is_waiting: bool = False) -> Keys:
        """Return what a person holds, whether the game waits for it or not."""
        return self.window.take_keys()

    def say(self, text: str) -> None:
        """Write into the title bar."""
        self.window.say(text)

    def close(self, *, keep: bool = True) -> None:
        """Close the window."""
        self.is_open = False
        self.window.close()

    def _answer(self, name: str) -> None:
        watched = self._is_watched
        if name == "escape" or (watched and name == "q"):
            self.is_open = False
        elif name == "f1" or (watched and name == "space"):
            self._is_paused = not self._is_paused
        elif name == "f2" or (watched and name == "n"):
            self._is_paused = self._is_stepping = True
        elif name == "f3" or (watched and name == "-"):
            self._speed = max(self._speed / 2, 1 / FASTEST)
        elif name == "f4" or (watched and name in "+="):
            self._speed = min(self._speed * 2, FASTEST)


def fitted(width: int, height: int, display: tuple[int, int]) -> tuple[int, int]:
    """Return the size of a new window for pictures of a size: enlarged where small, reduced where the display is."""
    scale: float = max(1, -(-SMALLEST // max(width, height)))
    most = min(SHARE * display[0] / width, SHARE * display[1] / height)
    if scale > most:
        scale = max(1, int(most)) if most >= 1 else most
    return max(1, int(width * scale)), max(1, int(height * scale))


def _names(pygame: Any) -> Callable[[int], str]:
    """Return what gives the name of a key, empty for those that have none here."""
    special = {
        **{getattr(pygame, f"K_{name.upper()}"): name for name in ("up", "down", "left", "right", "space", "return")},
        **{
            getattr(pygame, f"K_{name.upper()}"): name
            for name in ("escape", "tab", "backspace", "f1", "f2", "f3", "f4")
        },
        pygame.K_LSHIFT: "shift",
        pygame.K_RSHIFT: "shift",
        pygame.K_LCTRL: "ctrl",
        pygame.K_RCTRL: "ctrl",
        pygame.K_KP_PLUS: "+",
        pygame.K_KP_MINUS: "-",
        pygame.K_KP_ENTER: "return",
        **{getattr(pygame, f"K_KP{digit}"): str(digit) for digit in range(10)},
    }

    def name(key: int) -> str:
        return special.get(key, chr(key) if 32 < key < 127 else "")

    return name


def _failure(error: Exception) -> RenderError:
    return RenderError(f"no window can be opened: {error}", hint="use `--render video` or `--render ansi`")
