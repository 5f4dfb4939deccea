"""What exists: the environments by name, what is in a family, and a description of one."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from puffer_core import plugins
from puffer_core.errors import PluginError, PufferError
from puffer_core.isolation import describe as describe_error
from puffer_core.specs import OPEN, EnvSpec

PARAM_KEYS = ("name", "kind", "default", "min", "max", "step", "choices", "live", "help")
"""Keys of one parameter in a description; those that do not apply are None."""


def list_envs() -> list[dict[str, Any]]:
    """Return every environment that can be used, a family as one row."""
    return [_row(spec, spec.name) for spec in plugins.manager().envs.specs()]


def list_family(name: str) -> list[dict[str, Any]]:
    """Return every environment in a family, given as ``gym/`` or ``gym/*``; this imports its framework.

    Raises:
        UnknownNameError: If nobody supplies the family.
        PluginError: If its plugin can't list it.
    """
    rows = []
    for spec in plugins.manager().envs.family(name):
        if not spec.is_family:
            rows.append(_row(spec, spec.name))
            continue
        try:
            members = list(plugins.resolve(str(spec.list))())
        except PufferError:
            raise
        except Exception as error:
            raise PluginError(f"plugin {spec.plugin} can't list `{spec.name}`: {describe_error(error)}") from error
        rows += [_row(spec, f"{spec.family}/{member}") for member in members]
    return rows


def describe(name: str) -> dict[str, Any]:
    """Return what is to be known about one environment, made with its default parameters.

    The keys are ``name aliases observation action params log_fields limits plugin``, as in `puffer envs NAME --json`.
    """
    spec, canonical = plugins.find_env(name)
    if spec.table is not None:
        found = _describe_table(plugins.resolve(spec.table))
    else:
        found = _describe_object(spec, canonical)
    row = _row(spec, canonical)
    return {"name": canonical, "aliases": row["aliases"], **found, "limits": list(spec.limits), "plugin": row["plugin"]}


def _row(spec: EnvSpec, name: str) -> dict[str, Any]:
    return {"name": name, "plugin": spec.plugin.name if spec.plugin else "", "aliases": list(spec.aliases)}


def _describe_table(table: object) -> dict[str, Any]:
    from puffer_core import abi, native

    observation, action, _, _ = native.spaces_of(table)
    params = [{key: getattr(param, key) for key in PARAM_KEYS} for param in native.table_params(table)]
    return {
        "observation": str(observation),
        "action": str(action),
        "params": params,
        "log_fields": list(abi.log_fields(abi.open_table(table))),
    }


def _describe_object(spec: EnvSpec, name: str) -> dict[str, Any]:
    from puffer_core import vector

    with vector.make(name, num_envs=1) as opened:
        return {
            "observation": str(opened.single_observation_space),
            "action": str(opened.single_action_space),
            "params": _family_params(opened) if spec.is_family and spec.params == OPEN else _object_params(spec),
            "log_fields": list(opened.log_fields),
        }


def _object_params(spec: EnvSpec) -> list[dict[str, Any]]:
    """Return the fields of the parameter dataclass, or what the constructor takes where parameters are open."""
    blank = dict.fromkeys(PARAM_KEYS)
    if spec.params != OPEN:
        fields = dataclasses.fields(plugins.resolve(str(spec.params)))
        defaults = [None if field.default is dataclasses.MISSING else field.default for field in fields]
        return [
            blank | {"name": field.name, "kind": str(field.type), "default": default}
            for field, default in zip(fields, defaults, strict=True)
        ]
    return _arguments(plugins.resolve(str(spec.make)))


def _family_params(opened: Any) -> list[dict[str, Any]]:
    """Return what the constructor of the environment inside takes; the family only passes it on."""
    env = getattr(opened, "members", [None])[0]
    while env is not None and hasattr(env, "env"):
        env = env.env
    return [] if env is None else _arguments(type(getattr(env, "unwrapped", env)))


def _arguments(make: Any) -> list[dict[str, Any]]:
    """Return the arguments of a class or factory that have a default."""
    blank = dict.fromkeys(PARAM_KEYS)
    try:
        arguments = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # a constructor in C may not tell
        return []
    named = [argument for argument in arguments if argument.default is not argument.empty and argument.name != "buf"]
    return [blank | {"name": argument.name, "default": argument.default} for argument in named]
