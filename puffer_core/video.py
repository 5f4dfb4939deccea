"""Frames to an mp4, through imageio and the ffmpeg that imageio-ffmpeg brings along."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_core.errors import RenderError

Frame = npt.NDArray[np.uint8]


def missing_encoder() -> str | None:
    """Return why no video can be written here, or None when one can."""
    for module in ("imageio", "imageio_ffmpeg"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"{module.replace('_', '-')} is not installed ({error})"
    try:
        importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except RuntimeError as error:
        return f"imageio-ffmpeg found no ffmpeg ({error})"
    return None


def require_frame(drawn: Any) -> Frame:
    """Return what an environment drew, if it is a picture.

    Raises:
        RenderError: If it is not (height, width, 3) uint8.
    """
    frame: Frame = np.asarray(drawn)
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise RenderError(f"a frame has shape {frame.shape} and dtype {frame.dtype}, expected (height, width, 3) uint8")
    return frame


class VideoWriter:
    """Writes RGB frames of one size to ``path`` as H.264; the file appears under its name only when it is complete.

    Args:
        path: Of the mp4; folders are made.
        fps: Frames per second.

    Raises:
        RenderError: If the encoder is missing, the frames are no pictures, or ffmpeg fails.
    """

    def __init__(self, path: Path, fps: float) -> None:
        reason = missing_encoder()
        if reason is not None:
            raise RenderError(f"no video can be written: {reason}", hint="pip install 'puffer-core[video]'")
        self.path = path
        self.frames = 0
        self._fps = fps
        self._shape: tuple[int, ...] = ()
        self._partial = path.with_name(f".{path.stem}.{os.getpid()}.part.mp4")
        self._writer: Any = None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep=error is None)

    def add(self, frame: Frame) -> None:
        """Append one (height, width, 3) uint8 frame."""
        frame = require_frame(frame)
        if self._writer is None:
            self._open(frame.shape)
        if frame.shape != self._shape:
            raise RenderError(f"frame {self.frames} has shape {frame.shape}, the first had {self._shape}")
        # yuv420p halves both sides, so they have to be even: the last row or column is repeated.
        padding = ((0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0))
        try:
            self._writer.append_data(np.pad(frame, padding, mode="edge"))
        except OSError as error:
            raise self._failure(error) from error
        self.frames += 1

    def close(self, *, keep: bool = True) -> None:
        """Finish the file and give it its name, or drop it with ``keep=False``; calling it twice is harmless."""
        if self._writer is None:
            return
        writer, self._writer = self._writer, None
        try:
            writer.close()
            if keep:
                self._partial.replace(self.path)
        except OSError as error:
            if keep:
                raise self._failure(error) from error
        finally:
            self._partial.unlink(missing_ok=True)

    def _open(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = importlib.import_module("imageio.v2").get_writer(
                self._partial, format="FFMPEG", fps=self._fps, codec="libx264", quality=8, macro_block_size=2
            )
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> RenderError:
        reason = (error.strerror or str(error)).partition("\n")[0]
        return RenderError(f"the video `{self.path}` can't be written: {reason}", hint="is the disk full?")
