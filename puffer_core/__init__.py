"""Reinforcement learning in seconds: environments, vectorisation, policies and trainers, all of them plugins.

The names of this package are resolved when they are first used, so that importing it costs nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from puffer_core.env import PufferEnv as PufferEnv
    from puffer_core.evaluate import evaluate as evaluate
    from puffer_core.rl.agent import load as load
    from puffer_core.rl.trainer import PuffeRL as PuffeRL
    from puffer_core.training import train as train
    from puffer_core.vector import make as make
    from puffer_core.vector.emulate import emulate as emulate

__all__ = ["PuffeRL", "PufferEnv", "__version__", "emulate", "evaluate", "get_include", "load", "make", "train"]

_LAZY = {
    "PuffeRL": "puffer_core.rl.trainer:PuffeRL",
    "PufferEnv": "puffer_core.env:PufferEnv",
    "emulate": "puffer_core.vector.emulate:emulate",
    "evaluate": "puffer_core.evaluate:evaluate",
    "load": "puffer_core.rl.agent:load",
    "make": "puffer_core.vector:make",
    "train": "puffer_core.training:train",
}

__version__: str


def get_include() -> str:
    """Return the directory to give to a C compiler, so that ``#include <puffer/env.h>`` finds the ABI."""
    from pathlib import Path

    return str(Path(__file__).parent / "include")


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("puffer-core")
    elif name in _LAZY:
        from importlib import import_module

        module, _, attribute = _LAZY[name].partition(":")
        value = getattr(import_module(module), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """This package: importing a submodule does not hide the function of the same name.

    The import system sets every submodule as an attribute of its package; without this, ``puffer_core.evaluate`` would
    be the function or the module, depending on what was imported before.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
