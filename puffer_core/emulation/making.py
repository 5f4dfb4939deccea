"""The arguments that every adapter takes: an environment, or what makes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from puffer_core.errors import OptionError, shortened


def made(
    env: Any, env_creator: Callable[..., Any] | None, env_args: Sequence[Any], env_kwargs: Mapping[str, Any] | None
) -> Any:
    """Return the environment given, or the one that a class or factory makes.

    Raises:
        OptionError: If both or neither are given, or ``env`` is what makes one.
    """
    if (env is None) == (env_creator is None):
        both = "both" if env is not None else "neither"
        raise OptionError(f"of env and env_creator {both} were given", hint="give one of them")
    if env_creator is not None:
        if not callable(env_creator):
            raise OptionError(f"env_creator={shortened(repr(env_creator))} can't be called")
        return env_creator(*env_args, **(env_kwargs or {}))
    if inspect.isclass(env) or inspect.isroutine(env):
        raise OptionError(f"env={shortened(repr(env))} makes environments and is none", hint="give it as env_creator")
    if env_args or env_kwargs:
        raise OptionError("env_args and env_kwargs are arguments of env_creator", hint="an environment is made already")
    return env
