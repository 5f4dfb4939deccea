"""Environments of other frameworks as `PufferEnv`s: `adapt` recognises what an object is, and wraps it.

The adapters are imported when they are first used, and the framework behind one only by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from puffer_core.emulation.forms import is_pettingzoo, is_puffer, is_single, is_vector_env
from puffer_core.env import Array, PufferEnv, check_spaces
from puffer_core.errors import EnvError

if TYPE_CHECKING:
    from puffer_core.emulation.gymnasium import GymnasiumPufferEnv as GymnasiumPufferEnv

__all__ = ["GymnasiumPufferEnv", "PettingZooPufferEnv", "VectorPufferEnv", "adapt"]

_LAZY = {
    "GymnasiumPufferEnv": "puffer_core.emulation.gymnasium",
    "PettingZooPufferEnv": "puffer_core.emulation.pettingzoo",
    "VectorPufferEnv": "puffer_core.emulation.vector_env",
}
_ADAPTERS = (
    (is_vector_env, "VectorPufferEnv"),
    (is_pettingzoo, "PettingZooPufferEnv"),
    (is_single, "GymnasiumPufferEnv"),
)


def adapt(made: Any, buf: Mapping[str, Array] | None = None) -> PufferEnv:
    """Return what a factory made as a `PufferEnv`, its spaces checked.

    Args:
        made: A `PufferEnv`, which is returned as it is; an environment of Gymnasium, Gym or PettingZoo; a vector
            environment of Gymnasium; or a plain object with `observation_space`, `action_space`, `reset` and `step`.
        buf: Arrays for an adapter to use, as in `PufferEnv`. A `PufferEnv` has taken its own.

    Raises:
        EnvError: If it is none of these, or its spaces are not allowed.
    """
    if is_puffer(made):
        check_spaces(made)
        return made  # type: ignore[no-any-return]
    for is_of_kind, name in _ADAPTERS:
        if is_of_kind(made):
            adapter: type[PufferEnv] = __getattr__(name)
            return adapter(env=made, buf=buf)  # type: ignore[call-arg]
    kind = type(made).__name__
    raise EnvError(f"{kind} is no PufferEnv and has no observation_space and action_space")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
