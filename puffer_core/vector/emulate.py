"""`puffer_core.emulate`: environments of any framework as one vector, in one call."""

from __future__ import annotations

from typing import Any

from puffer_core.errors import OptionError
from puffer_core.vector import make
from puffer_core.vector.base import Vector


def emulate(env: Any, num_envs: int = 1, **kwargs: Any) -> Vector:
    """Open a vector of environments of Gymnasium, Gym, PettingZoo, or a plain class of one's own.

    Args:
        env: A class or a factory; for one environment also the environment itself.
        num_envs: How many.
        **kwargs: Of `puffer_core.make`, such as ``seed`` or ``backend``; others are arguments of the class or factory.

    Raises:
        OptionError: If it is a name, or an environment that is open already is to become several.
        EnvError: If it is no environment, or its spaces are not allowed.
    """
    if isinstance(env, str):
        raise OptionError(f"emulate got a name, {env!r}", hint=f"`puffer_core.make({env!r})` opens one by its name")
    return make(env, num_envs, **kwargs)
