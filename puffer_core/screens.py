"""Where frames of an environment go: a terminal or a video."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from puffer_core.errors import OptionError, RenderError
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
        has_display = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        reason = "windows are not part of this version" if has_display else "there is no display to open a window on"
        raise RenderError(f"render=human: {reason}", hint="use `--render video` or `--render ansi`")


class Screen:
    """Shows the first instance of a vector, one frame per call of `show`."""

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


class TextScreen(Screen):
    """Prints frames: over each other and in real time in a terminal, below each other elsewhere."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_live = stream.isatty()
        self._next_at = 0.0

    def show(self, envs: Vector) -> None:
        """Print the text that the environment makes of its state."""
        frame = envs.render(0, "ansi")
        if not isinstance(frame, str):
            raise RenderError(f"{envs.name} has no ansi view", hint="use `--render video`")
        if not self._is_live:
            self._write(frame.rstrip("\n") + "\n\n")
            return
        time.sleep(max(0.0, self._next_at - time.monotonic()))
        lines = "".join(f"{line}{_CLEAR_LINE}\n" for line in frame.rstrip("\n").split("\n"))
        self._write(("" if self._next_at else _CLEAR) + _HOME + lines + _CLEAR_REST)
        self._next_at = max(self._next_at, time.monotonic()) + 1 / frames_per_second(envs)

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


def frames_per_second(envs: Vector) -> float:
    """Return what the environment says, once it has drawn a frame, or `FPS`."""
    holders: list[Any] = [getattr(envs, "env", None), *(member.env for member in getattr(envs, "members", ()))]
    for env in holders:
        fps = getattr(env, "frames_per_second", None)
        if fps is None:
            inner = getattr(env, "env", env)
            fps = (getattr(inner, "metadata", None) or {}).get("render_fps")
        if fps:
            return float(fps)
    return FPS
