"""How environments are sent to another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from puffer_core.errors import EnvError, OptionError, text_of


def pickled(value: object, name: str, hint: str) -> bytes:
    """Return something as bytes; lambdas, local functions and classes of a script are taken by value.

    Args:
        value: What to send.
        name: Of the environment, for messages.
        hint: What to do where it can't be sent.

    Raises:
        OptionError: If something in it can't be sent to another process.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except OptionError:
        raise
    except Exception as error:
        msg = f"{name} can't be sent to another process: {type(error).__name__}: {error}"
        raise OptionError(msg, hint=hint) from error


def by_value(value: object) -> bytes:
    """Return something as bytes, lambdas and classes of a script by value.

    Raises:
        EnvError: If there are infos that can't be sent to another process; the text names key and type.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        infos = value if isinstance(value, list) else []
        culprits = [found for info in infos if (found := _culprit(info, "info")) is not None]
        if not culprits:
            raise
        msg = f"{culprits[0]}, which can't be sent to another process: {text_of(error)}"
        raise EnvError(msg, hint="leave it out of the infos, or make numbers, text or arrays of it") from error


def _culprit(value: Any, path: str) -> str | None:
    """Return path and type of the first part of an info that can't be pickled, None where all can."""
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:
        parts = value.items() if isinstance(value, Mapping) else ()
        inner = (_culprit(part, f"{path}[{key!r}]") for key, part in parts)
        return next((found for found in inner if found is not None), f"{path} is a {type(value).__name__}")
    return None
