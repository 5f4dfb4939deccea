"""The global random generators of this process: torch's, numpy's and Python's.

Nothing of ours draws from them, but a policy (dropout) or an environment of somebody else's may: a run seeds them when
it begins, and a checkpoint holds where they are. Those of worker processes are seeded there, and not saved.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def capture(device: torch.device) -> dict[str, Tensor]:
    """Return the state of each generator as a tensor of bytes; that of a GPU where ``device`` is one."""
    states = {
        "torch": torch.get_rng_state(),
        "numpy": _pack(np.random.get_state(legacy=False)),
        "python": _pack(random.getstate()),
    }
    return states if device.type != "cuda" else states | {"cuda": torch.cuda.get_rng_state(device)}


def check(states: Mapping[str, Tensor]) -> None:
    """Check that `restore` can take these states.

    Raises:
        KeyError, TypeError, ValueError, RuntimeError: If one is damaged.
    """
    trials: dict[str, Callable[[Tensor], object]] = {
        "torch": lambda state: torch.Generator().set_state(state),
        "numpy": lambda state: np.random.RandomState().set_state(_unpack(state)),
        "python": lambda state: random.Random().setstate(_python(state)),
    }
    for name, trial in trials.items():
        if name in states:
            trial(states[name])


def restore(states: Mapping[str, Tensor], device: torch.device) -> list[str]:
    """Set the generators to what `capture` returned; return the names of those about which it says nothing."""
    setters: dict[str, Callable[[Tensor], object]] = {
        "torch": torch.set_rng_state,
        "numpy": lambda state: np.random.set_state(_unpack(state)),
        "python": lambda state: random.setstate(_python(state)),
    }
    if device.type == "cuda":
        setters["cuda"] = lambda state: torch.cuda.set_rng_state(state, device)
    for name in setters.keys() & states.keys():
        setters[name](states[name])
    return [name for name in setters if name not in states]


def _python(state: Tensor) -> tuple[int, tuple[int, ...], float | None]:
    version, words, gauss = _unpack(state)
    return version, tuple(words), gauss


def _pack(state: object) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(state, default=np.ndarray.tolist).encode()), dtype=torch.uint8)


def _unpack(state: Tensor) -> Any:
    return json.loads(state.numpy().tobytes())
