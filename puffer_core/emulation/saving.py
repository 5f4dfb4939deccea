"""States of environments in Python: one is saved where it has the methods ``save() -> bytes`` and ``load(bytes)``.

Everything else would have to be pickled, and reading a pickle executes code: such environments begin anew. Of the
wrappers that Gymnasium's and Gym's ``make`` put around an environment the state is known: it is the time limit's count.
"""

from __future__ import annotations

import struct
from typing import Any

_COUNT = struct.Struct("<q")
_KNOWN = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")


def save(env: Any) -> bytes | None:
    """Return the state of an environment and of the wrappers around it, None where it can't be saved."""
    limits, inner = _unwrap(env)
    if not can_save(inner):
        return None
    blob = inner.save()
    if not isinstance(blob, bytes):
        return None
    counts = [limit._elapsed_steps for limit in limits]
    return b"".join(_COUNT.pack(-1 if count is None else count) for count in counts) + blob


def load(env: Any, blob: bytes) -> bool:
    """Restore what `save` returned, after a reset; return False where this environment is not one that can."""
    limits, inner = _unwrap(env)
    size = len(limits) * _COUNT.size
    if not can_save(inner) or len(blob) < size:
        return False
    inner.load(blob[size:])
    for limit, (count,) in zip(limits, _COUNT.iter_unpack(blob[:size]), strict=True):
        limit._elapsed_steps = None if count < 0 else count
    return True


def can_save(env: Any) -> bool:
    """Return whether an environment has both methods itself: a wrapper of Gym shows those of what is inside."""
    if any(kind.__name__ == "Wrapper" and kind.__module__.startswith("gym.") for kind in type(env).__mro__):
        return hasattr(type(env), "save") and hasattr(type(env), "load")
    return callable(getattr(env, "save", None)) and callable(getattr(env, "load", None))


def _unwrap(env: Any) -> tuple[list[Any], Any]:
    """Return the time limits around an environment, and what is inside the wrappers of which the state is known."""
    limits = []
    while type(env).__name__ in _KNOWN and type(env).__module__.startswith(("gymnasium.wrappers", "gym.wrappers")):
        if type(env).__name__ == "TimeLimit":
            limits.append(env)
        env = env.env
    return limits, env
