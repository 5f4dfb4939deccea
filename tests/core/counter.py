"""The environment of `counter.c`, compiled as a third party would: against a copy of the headers, knowing no core."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import lru_cache
from pathlib import Path

import puffer_core

SOURCE = Path(__file__).with_name("counter.c")
AGENTS = 2


def compiler() -> str:
    return os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="puffer-counter-"))
    shutil.copytree(puffer_core.get_include(), folder / "include")
    target = folder / "counter.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-shared", "-fPIC"]
    subprocess.run([compiler(), *flags, "-I", folder / "include", SOURCE, "-o", target, "-pthread", "-lm"], check=True)
    loaded = ctypes.CDLL(str(target))
    shutil.rmtree(folder)
    return loaded


def counter_table() -> object:
    """The capsule, made in Python: all that the core needs is a pointer and a name."""
    return capsule_of(ctypes.addressof(ctypes.c_char.in_dll(library(), "puffer_env_counter")))


def __getattr__(name: str) -> object:
    """A spec names the capsule as `counter:TABLE`."""
    if name == "TABLE":
        return counter_table()
    raise AttributeError(name)


def capsule_of(address: int, name: bytes = b"puffer.env.v1") -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
    _names.append(name)
    return new(address, name, None)


_names: list[bytes] = []  # a capsule keeps the pointer to its name
