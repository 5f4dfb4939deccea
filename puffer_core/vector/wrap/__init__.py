"""Wrappers: the section ``[wrap]``, applied in listed order, each around those before it.

Most change whole batches of a vector, in one operation each; the classes here take a vector and give one. Three depend
on the ends of single environments: `ActionRepeat`, `TimeLimit` and `EpisodeStats` go around each environment object in
Python, below all of the others. Where that would make a difference, another order than this is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from puffer_core.config.schema import WrapConfig
from puffer_core.config.values import check, kinds
from puffer_core.emulation.gymnasium import GymnasiumPufferEnv
from puffer_core.env import PufferEnv, Space
from puffer_core.errors import OptionError, did_you_mean, shortened
from puffer_core.vector.base import Vector
from puffer_core.vector.source import Source, source_of
from puffer_core.vector.wrap.actions import ClipAction
from puffer_core.vector.wrap.base import Wrapper
from puffer_core.vector.wrap.instances import ActionRepeat, EnvWrapper, EpisodeStats, TimeLimit
from puffer_core.vector.wrap.observations import FrameStack, Grayscale, Resize
from puffer_core.vector.wrap.rewards import RewardClip, RewardNormalize, RewardScale
from puffer_core.vector.wrap.singles import SINGLE, around_adapter

__all__ = [
    "ActionRepeat",
    "ClipAction",
    "EpisodeStats",
    "FrameStack",
    "Grayscale",
    "Resize",
    "RewardClip",
    "RewardNormalize",
    "RewardScale",
    "TimeLimit",
    "Wrapper",
    "checked",
    "wrap_sources",
    "wrap_vector",
    "wrapped_spaces",
]

BATCH: dict[str, type[Wrapper]] = {
    cls.key: cls for cls in (FrameStack, ClipAction, Resize, Grayscale, RewardClip, RewardScale, RewardNormalize)
}
INSTANCE: dict[str, type[EnvWrapper]] = {cls.key: cls for cls in (ActionRepeat, TimeLimit, EpisodeStats)}
_INSIDE = "acts inside each environment"
_NOT_BEHIND: dict[str, tuple[str, tuple[str, ...]]] = {
    "action_repeat": (_INSIDE, ("frame_stack", "reward_clip", "reward_normalize")),
    "episode_stats": (_INSIDE, ("reward_clip", "reward_scale", "reward_normalize")),
    "time_limit": ("would cut episodes that are never told", ("episode_stats",)),
    "grayscale": ("takes the colours of one picture", ("frame_stack",)),
}
"""Why a wrapper can't be listed behind others, and which: the result would be something else than the order says."""
_LIKE = {"action_repeat": ("skip", "repeat"), "time_limit": ("max_", "limit", "length"), "episode_stats": ()}
"""Parts of the names of parameters with which environments in C do the same themselves."""


def checked(wrap: Mapping[str, object] | None) -> dict[str, Any]:
    """Return the wrappers that are switched on, values checked, in listed order.

    ``reward_gamma`` is among them where ``reward_normalize`` is.

    Raises:
        OptionError: For an unknown key, an illegal value, or an order that can't be kept.
    """
    legal, defaults = kinds(WrapConfig), WrapConfig()
    switched: dict[str, Any] = {}
    for key, given in (wrap or {}).items():
        if key not in legal:
            raise OptionError(f"unknown wrapper `{key}` = `{shortened(given)}`", hint=did_you_mean(key, legal))
        try:
            value = check(given, legal[key])
        except ValueError as error:
            raise OptionError(f"`wrap.{key}` = `{shortened(given)}` {error}") from None
        if value != getattr(defaults, key):
            switched[key] = value
    if "reward_normalize" not in switched:
        switched.pop("reward_gamma", None)
    _check_order(list(switched))
    return switched


def _check_order(keys: list[str]) -> None:
    for key, (reason, others) in _NOT_BEHIND.items():
        before = [other for other in keys[: keys.index(key)] if other in others] if key in keys else []
        if before:
            msg = f"wrap.{key} is listed behind wrap.{before[0]}, and {reason}"
            raise OptionError(msg, hint=f"list {key} before {before[0]}")


def wrapped_spaces(wrap: Mapping[str, Any], observation: Space, action: Space) -> tuple[Space, Space]:
    """Return the spaces of one agent behind the wrappers that `checked` returned.

    Raises:
        OptionError: If one can't be applied to what it gets; the text names key, space and what is allowed.
    """
    for key, value in wrap.items():
        if key in BATCH:
            observation, action = BATCH[key].declare(observation, action, value)
    return observation, action


def wrap_sources(env: Any, params: Any, wrap: Mapping[str, Any]) -> Any:
    """Return what `make` is given as environments, as sources that put the wrappers of instances around each.

    Raises:
        OptionError: If an environment is one in C, or a wrapper of batches does not fit the spaces.
    """
    sources = [_wrapped(source_of(one), wrap) for one in (env if isinstance(env, list | tuple) else [env])]
    first = params[:1] if isinstance(params, list | tuple) else [params]
    for source, given in zip(sources, first, strict=False):
        wrapped_spaces(wrap, *source_of(source, given).spaces[:2])
    return sources if isinstance(env, list | tuple) else sources[0]


def wrap_vector(vector: Vector, wrap: Mapping[str, Any]) -> Vector:
    """Return a vector in the wrappers of batches, in their order.

    Raises:
        OptionError: If one can't be applied; the vector is closed then.
    """
    try:
        for key, value in wrap.items():
            if key == "reward_normalize":
                vector = RewardNormalize(vector, wrap.get("reward_gamma", WrapConfig.reward_gamma))
            elif key in BATCH:
                vector = BATCH[key](vector, value)
    except BaseException:
        vector.close()
        raise
    shown = ", ".join(key if value is True else f"{key}={value}" for key, value in wrap.items())
    vector.backend_note += f"; wrapped: {shown}" if shown else ""
    return vector


def _wrapped(source: Source, wrap: Mapping[str, Any]) -> Source:
    keys = [key for key in wrap if key in INSTANCE]
    if keys and source.table is not None:
        _refuse_native(source, keys[0], wrap[keys[0]])
    wraps: tuple[Callable[[PufferEnv], PufferEnv], ...] = tuple(partial(_around, key, wrap[key]) for key in keys)
    return replace(source, wraps=(*source.wraps, *wraps))


def _around(key: str, value: Any, env: PufferEnv) -> PufferEnv:
    if key in SINGLE and type(env) is GymnasiumPufferEnv:
        return around_adapter(key, value, env)
    return INSTANCE[key](env, value)  # type: ignore[call-arg]


def _refuse_native(source: Source, key: str, value: object) -> None:
    """Refuse a wrapper of instances around an environment in C, with the parameters that may do the same."""
    from puffer_core.native import table_params

    names = [param.name for param in table_params(source.table) if any(part in param.name for part in _LIKE[key])]
    own = " or ".join(f"--env.{name.replace('_', '-')}" for name in names)
    hint = f"its own parameter {own} may do it" if own else "it would need a parameter of its own for that"
    if key == "episode_stats":
        hint = "it logs its episodes itself"
    raise OptionError(f"wrap.{key}={value} is for environments in Python, {source.name} is one in C", hint=hint)
