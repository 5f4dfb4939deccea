"""How environments are sent to another process."""

from __future__ import annotations

from puffer_core.errors import OptionError


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
