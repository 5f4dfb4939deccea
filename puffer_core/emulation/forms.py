"""What kind of environment an object is, told by what it has: no framework is imported to ask."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from puffer_core.env import DECLARED, PufferEnv


def import_from_here(name: str) -> ModuleType:
    """Import a module, which is looked up from the current folder too, as ``python -m`` does."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return import_module(name)


def is_puffer(env: object) -> bool:
    """Return whether an object is a `PufferEnv` that declares the spaces of its rows."""
    return isinstance(env, PufferEnv) and all(hasattr(env, name) for name in DECLARED)


def is_single(env: object) -> bool:
    """Return whether an object declares an observation and an action space of one agent."""
    spaces = [getattr(env, name, None) for name in ("observation_space", "action_space")]
    return not any(space is None or inspect.isroutine(space) for space in spaces)


def is_pettingzoo(env: object) -> bool:
    """Return whether an object is an environment of PettingZoo: spaces are functions of the agent."""
    return hasattr(env, "possible_agents") and callable(getattr(env, "observation_space", None))


def is_vector_env(env: object) -> bool:
    """Return whether an object is a vector environment of Gymnasium; where that is not imported, nothing is."""
    module = sys.modules.get("gymnasium.vector")
    return module is not None and isinstance(env, module.VectorEnv)


def is_environment(env: object) -> bool:
    """Return whether an object is an environment of any kind, not a class or a factory of one."""
    kinds = (is_puffer, is_vector_env, is_pettingzoo, is_single)
    return not isinstance(env, type) and any(is_of_kind(env) for is_of_kind in kinds)


def accepts(function: Callable[..., Any], name: str, in_kwargs: bool = True) -> bool:
    """Return whether a callable takes an argument of that name, by name or (if ``in_kwargs``) in ``**kwargs``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        (in_kwargs and p.kind is p.VAR_KEYWORD)
        or (p.name == name and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        for p in parameters
    )


def call_with(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call a function with those of the arguments that it takes by name."""
    return function(**{name: value for name, value in arguments.items() if accepts(function, name)})


def not_taken(function: Callable[..., Any], names: Iterable[str]) -> list[str]:
    """Return the names that a callable takes no argument of; none where its signature can't be read."""
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return []
    return [name for name in names if not accepts(function, name)]


def argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of what a callable takes by name, in order."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
