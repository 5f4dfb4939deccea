"""One thread for each worker: what numerical libraries are told before a process starts, since later is too late."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SETTINGS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
_MAPS = Path("/proc/self/maps")
_LIBRARY = re.compile(r".*/lib[^/]*openblas[^/]*\.so[^/]*")
_AFFIXES = (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", ""))


@contextmanager
def one_thread_environment() -> Iterator[None]:
    """Let an interpreter that is started meanwhile load its libraries with one thread each."""
    before = {name: os.environ.get(name) for name in _SETTINGS}
    os.environ.update(_SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def one_thread_libraries() -> Iterator[None]:
    """Let a process that is forked meanwhile keep OpenBLAS at one thread.

    Told after a fork, it would first start all its threads again.
    """
    counts = [(library, prefix, suffix, _get(library, prefix, suffix)) for library, prefix, suffix in _loaded()]
    for library, prefix, suffix, _ in counts:
        _set(library, prefix, suffix, 1)
    try:
        yield
    finally:
        for library, prefix, suffix, count in counts:
            _set(library, prefix, suffix, count)


def use_one_thread() -> None:
    """Let libraries of this process that are loaded later, and torch if it is there, use one thread."""
    os.environ.update(_SETTINGS)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _loaded() -> Iterator[tuple[ctypes.CDLL, str, str]]:
    """Yield the OpenBLAS libraries of this process, with the prefix and suffix of their functions."""
    lines = _MAPS.read_text().splitlines() if _MAPS.exists() else []
    paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in line}
    for path in filter(_LIBRARY.fullmatch, sorted(paths)):
        library = ctypes.CDLL(path)
        for prefix, suffix in _AFFIXES:
            if hasattr(library, f"{prefix}openblas_set_num_threads{suffix}"):
                yield library, prefix, suffix
                break


def _get(library: ctypes.CDLL, prefix: str, suffix: str) -> int:
    return int(getattr(library, f"{prefix}openblas_get_num_threads{suffix}")())


def _set(library: ctypes.CDLL, prefix: str, suffix: str, count: int) -> None:
    getattr(library, f"{prefix}openblas_set_num_threads{suffix}")(count)
