"""Infos of environments in Python: as a list of dicts, and which of their values are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from puffer_core.errors import EnvError, shortened

_LARGEST = 1 << 1023
_NUMBERS = (float, int, np.bool_, np.integer, np.floating)


def as_infos(infos: Any, env: object, call: str) -> list[dict[str, Any]]:
    """Return infos, one or a list of them or None, as a list.

    Args:
        infos: What the environment returned.
        env: The environment, for errors.
        call: ``reset`` or ``step``, for errors.

    Raises:
        EnvError: If it is something else.
    """
    if type(infos) is list and not infos:
        return infos
    if infos is None or isinstance(infos, dict):
        return [infos] if infos else []
    if not isinstance(infos, list | tuple) or not all(isinstance(info, dict) for info in infos):
        msg = f"{type(env).__name__}: {call} returned infos={shortened(repr(infos))}, not a list of dicts"
        raise EnvError(msg)
    return list(infos)


def is_number(value: Any) -> bool:
    """Return whether an info's value is a scalar that can be averaged; an integer that no float can hold is not."""
    if type(value) is int:
        return -_LARGEST < value < _LARGEST
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, _NUMBERS)
