"""Memory that a parent and its workers share: one region, laid out once, that no name in a file system points to."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from puffer_core.buffers import ALIGNMENT
from puffer_core.env import Array, Layout
from puffer_core.errors import OptionError

_SHM = Path("/dev/shm")


def open_region(layout: Layout, owner: str) -> int:
    """Return the descriptor of zeroed memory for the arrays of a layout; it is freed when nobody has it open or mapped.

    Where the system has no anonymous files, it is a file that has lost its name before anything is written to it.

    Args:
        layout: Shape and dtype of each array.
        owner: Who is named in errors.

    Raises:
        OptionError: If there is not as much memory; the text gives the bytes needed and the bytes available.
    """
    nbytes = _place(layout)[1]
    if hasattr(os, "memfd_create"):
        import psutil

        _require(nbytes, psutil.virtual_memory().available, "of memory", owner)
        fd = os.memfd_create("puffer")
        os.ftruncate(fd, nbytes)
        return fd
    return _open_file(nbytes, owner)


def map_arrays(fd: int, layout: Layout) -> dict[str, Array]:
    """Return the arrays of a layout in the region behind a descriptor; each starts on a cache line."""
    offsets, nbytes = _place(layout)
    region = mmap.mmap(fd, nbytes)
    return {
        name: np.ndarray(shape, np.dtype(dtype), buffer=region, offset=offsets[name])
        for name, (shape, dtype) in layout.items()
    }


def _place(layout: Layout) -> tuple[dict[str, int], int]:
    """Return where each array starts, and the bytes of all of them."""
    offsets, end = {}, 0
    for name, (shape, dtype) in layout.items():
        offsets[name] = end
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, ALIGNMENT)


def _open_file(nbytes: int, owner: str) -> int:
    folder = _SHM if os.access(_SHM, os.W_OK) else Path(tempfile.gettempdir())
    _require(nbytes, shutil.disk_usage(folder).free, f"in {folder}", owner)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            # Taken at once: a file that runs out of space while it is written kills the writer.
            os.posix_fallocate(file.fileno(), 0, nbytes)
        except OSError as error:
            raise _too_small(nbytes, shutil.disk_usage(folder).free, f"in {folder}", owner) from error
        return os.dup(file.fileno())


def _require(needed: int, available: int, where: str, owner: str) -> None:
    if needed > available:
        raise _too_small(needed, available, where, owner)


def _too_small(needed: int, available: int, where: str, owner: str) -> OptionError:
    msg = f"{owner}: the arrays of all workers need {needed:,} bytes, available {where} are {available:,}"
    return OptionError(msg, hint="use fewer environments")
