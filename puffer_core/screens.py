"""Where frames of an environment go: a terminal, a video, or a window (`puffer_core.window`)."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from puffer_core.env import PufferEnv
from puffer_core.errors import OptionError, RenderError
from puffer_core.keys import Keys
from puffer_core.video import VideoWriter, missing_encoder

if TYPE_CHECKING:
    from typing_extensions import Self

    from puffer_core.vector import Vector

RENDERS = ("none", "ansi", "video", "human")
FPS = 30.0
"""Frames per second of an environment that does not say."""
_HOME, _CLEAR, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"


def require_renderer(render: str) -> None:
    """Check that ``render`` can be done on this machine.

    Raises:
        OptionError: If there is no such way to render.
        RenderError: If this machine or this version can't do it; the hint says what can.
    """
    if render not in RENDERS:
        raise OptionError(f"render={render!r} is not one of {', '.join(RENDERS)}")
    if render == "video" and (reason := missing_encoder()) is not None:
        raise RenderError(f"no video can be written: {reason}", hint="pip install 'puffer-core[video]'")
    if render == "human":
        require_window()


def require_window() -> None:
    """Check that a window can be opened here; nothing is opened for it.

    Raises:
        RenderError: If the library is missing or the machine has no display.
    """
    if (reason := missing_display()) is not None:
        raise RenderError(f"render=human: {reason}", hint="use `--render video` or `--render ansi`")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # stdout is for results
    try:
        importlib.import_module("pygame")
    except ImportError as error:
        msg = f"render=human: pygame-ce is not installed ({error})"
        raise RenderError(msg, hint="pip install 'puffer-core[window]'") from error


def missing_display() -> str | None:
    """Return why there is nothing to open a window on, or None where there is something."""
    named = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if not sys.platform.startswith("linux") or any(os.environ.get(name) for name in named):
        return None
    return "there is no display to open a window on"


class Screen:
    """Shows the first instance of a vector, one frame per call of `show`.

    Attributes:
        is_open: False once a person closed it.
    """

    is_open = True

    def show(self, envs: Vector) -> None:
        """Draw the state that ``envs`` is in."""
        raise NotImplementedError

    def close(self, *, keep: bool = True) -> None:
        """Finish; ``keep`` is False after an error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep=error is None)


class PlayScreen(Screen):
    """A screen that a person plays on: it shows states in real time and has keys."""

    def wait(self) -> None:
        """Wait for a moment, and take the keys that come."""
        raise NotImplementedError

    def keys(self, *, is_waiting: bool = False) -> Keys:
        """Return what the person holds, and has pressed since the last call.

        Args:
            is_waiting: The game waits for a key.
        """
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Show a line besides the state from now on."""
        raise NotImplementedError


class TextScreen(Screen):
    """Prints frames: over each other and in real time in a terminal, below each other elsewhere."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._next_at = 0.0
        self._has_drawn = False

    def show(self, envs: Vector) -> None:
        """Print the text that the environment makes of its state."""
        text = self.text_of(envs)
        if not self._is_live:
            self._write(text + "\n\n")
            return
        time.sleep(max(0.0, self._next_at - time.monotonic()))
        self.draw(text)
        self._next_at = max(self._next_at, time.monotonic()) + 1 / frames_per_second(envs)

    def text_of(self, envs: Vector) -> str:
        """Return what the environment writes of its state.

        Raises:
            RenderError: If it writes nothing.
        """
        text = envs.render(0, "ansi")
        if not isinstance(text, str):
            raise RenderError(f"{envs.name} has no ansi view", hint="use `--render video`")
        return text.rstrip("\n")

    def draw(self, text: str) -> None:
        """Write a text over the one before."""
        lines = "".join(f"{line}{_CLEAR_LINE}\n" for line in text.split("\n"))
        self._write(("" if self._has_drawn else _CLEAR) + _HOME + lines + _CLEAR_REST)
        self._has_drawn = True

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class FilmScreen(Screen):
    """Films frames into an mp4, at the environment's own speed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: VideoWriter | None = None

    def show(self, envs: Vector) -> None:
        """Append the picture of the state."""
        frame = envs.render(0, "rgb_array")
        if self._writer is None:  # only now the environment has said how fast it is
            self._writer = VideoWriter(self._path, frames_per_second(envs))
        self._writer.add(frame)

    def close(self, *, keep: bool = True) -> None:
        """Finish the file, or drop it."""
        if self._writer is not None:
            self._writer.close(keep=keep)


@contextmanager
def showing_ends(envs: Vector, screen: Screen) -> Iterator[None]:
    """Show the last state of each episode of the first instance as well, where it can be drawn before the next begins.

    The environment calls from inside its step, so this is for vectors that step it in this process; others, and
    environments that don't call, go on as they are.
    """
    watched: list[PufferEnv] = []
    env = first_environment(envs)
    while isinstance(env, PufferEnv):
        env.before_restart = lambda: screen.show(envs)
        watched.append(env)
        env = getattr(env, "env", None)
    try:
        yield
    finally:
        for env in watched:
            env.before_restart = None


def frames_per_second(envs: Vector) -> float:
    """Return what the environment says, once it has drawn a frame, or `FPS`."""
    env = first_environment(envs)
    while env is not None:
        said = getattr(env, "frames_per_second", None)
        if fps := said or (getattr(env, "metadata", None) or {}).get("render_fps"):
            return float(fps)
        env = getattr(env, "env", None)
    return FPS


def first_environment(envs: Vector) -> Any:
    """Return the first environment of a vector, or None where it is in another process."""
    inner: Any = envs
    while hasattr(inner, "vector"):
        inner = inner.vector
    members = getattr(inner, "members", ())
    return members[0].env if members else getattr(inner, "env", None)
