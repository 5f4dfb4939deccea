"""The families ``gym/*`` and ``pettingzoo/*``: what is installed, by name.

Nothing of a framework is imported before one of its environments, or the list of them, is asked for.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from puffer_core.errors import EnvError, OptionError, PufferError, UnknownNameError, closest_names, shortened
from puffer_core.names import resolve_spelling, split_version

EXTRAS = ("box2d", "mujoco", "pettingzoo")
"""Extras of ours that bring what environments need."""

_PETTINGZOO_PACKAGES = ("mpe2", "pettingzoo.butterfly", "pettingzoo.classic", "pettingzoo.sisl", "pettingzoo.atari")
_PETTINGZOO_EXTRAS = {"mpe2": "puffer-core[pettingzoo]", "pettingzoo.butterfly": "puffer-core[pettingzoo]"}
_MODULE = re.compile(r"(?P<name>\w+)_v(?P<version>\d+)")


# -- gym/* ------------------------------------------------------------------------------------------------------------


def list_gym() -> list[str]:
    """Return the ids that Gymnasium knows, sorted; packages that register more count once they are imported."""
    import gymnasium

    return sorted(gymnasium.registry)


def make_gym(name: str, /, **kwargs: Any) -> Any:
    """Return an environment of Gymnasium.

    It comes with its time limit and its own wrappers, without `PassiveEnvChecker` and `OrderEnforcing`, whose checks
    the adapter makes itself.

    Args:
        name: An id, in any case and with ``-`` or ``_``; without a version the newest is meant. ``module:id`` imports a
            module that registers it.
        **kwargs: Of `gymnasium.make`.

    Raises:
        UnknownNameError: If there is none; the text gives Gymnasium's reason, the hint the closest names.
        EnvError: If a package that it needs is missing; the hint gives what to install.
        OptionError: If it takes no such argument.
    """
    import gymnasium

    _hide_greeting()
    spec = deepcopy(_gym_spec(name))
    spec.order_enforce = False
    try:
        return gymnasium.make(spec, disable_env_checker=True, **kwargs)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise _lacking(f"gym/{spec.id}", error, _gym_package(spec, error)) from error
    except TypeError as error:
        _refuse_argument(f"gym/{spec.id}", error, kwargs, _constructor(spec.entry_point))


def _gym_spec(name: str) -> Any:
    """Return Gymnasium's spec of an id."""
    import gymnasium

    module, colon, rest = name.rpartition(":")
    if colon:
        try:
            import_module(module)
        except ImportError as error:
            raise EnvError(f"gym/{name}: module `{module}` can't be imported: {error}") from error
    found = resolve_spelling(rest, list_gym())
    if found is not None:
        return gymnasium.registry[found]
    try:
        gymnasium.spec(_as_registered(rest))
    except gymnasium.error.Error as error:
        reason = str(error).rstrip(".")
    raise UnknownNameError(f"unknown environment `gym/{name}`: {reason}", hint=_closest("gym", rest, list_gym()))


def _as_registered(name: str) -> str:
    """Return an id with an unknown version in the spelling of its other versions, so that Gymnasium knows it."""
    base, version = split_version(name)
    other = resolve_spelling(base, list_gym())
    return name if other is None or version is None else f"{split_version(other)[0]}-v{version}"


def _gym_package(spec: Any, error: Exception) -> str | None:
    """Return what to install for an environment of Gymnasium, as far as that is known."""
    named = re.search(r"gymnasium\[([\w-]+)\]", str(error))
    folder = re.match(r"gymnasium\.envs\.(\w+)", spec.entry_point if isinstance(spec.entry_point, str) else "")
    extra = named[1] if named else folder[1] if folder else None
    if extra is None:
        return None
    extra = {"phys2d": "jax", "tabular": "jax", "toy_text": "toy-text", "classic_control": "classic-control"}.get(
        extra, extra
    )
    return f"puffer-core[{extra}]" if extra in EXTRAS else f"gymnasium[{extra}]"


def _constructor(entry_point: Any) -> Callable[..., Any] | None:
    """Return the class behind an entry point, or None where it can't be had."""
    if not isinstance(entry_point, str):
        return entry_point  # type: ignore[no-any-return]
    module, _, attribute = entry_point.partition(":")
    try:
        return getattr(import_module(module), attribute, None)
    except ImportError:
        return None


# -- pettingzoo/* -----------------------------------------------------------------------------------------------------


def list_pettingzoo() -> list[str]:
    """Return the environments of PettingZoo, and of MPE2 where it is installed, sorted, without versions."""
    return sorted(_pettingzoo_modules())


def make_pettingzoo(name: str, /, **kwargs: Any) -> Any:
    """Return an environment of PettingZoo or MPE2, in its parallel form where it has one.

    Args:
        name: As `knights-archers-zombies`, in any case and with ``-`` or ``_``. The newest version is meant; if one is
            given it must be that.
        **kwargs: Of the environment.

    Raises:
        UnknownNameError: If there is none; the hint gives the closest names.
        EnvError: If a package that it needs is missing; the hint gives what to install.
        OptionError: If it takes no such argument.
    """
    _hide_greeting()
    found, module = _pettingzoo_module(name)
    try:
        loaded = import_module(module)
        make = getattr(loaded, "parallel_env", None) or loaded.env
        return make(**kwargs)
    except ImportError as error:
        package = module.rpartition(".")[0]
        install = _PETTINGZOO_EXTRAS.get(package, f"pettingzoo[{package.rpartition('.')[2]}]")
        raise _lacking(f"pettingzoo/{found}", error, install) from error
    except TypeError as error:
        _refuse_argument(f"pettingzoo/{found}", error, kwargs, getattr(loaded, "raw_env", None))


def _pettingzoo_module(name: str) -> tuple[str, str]:
    """Return the canonical name of an environment and its module."""
    modules = _pettingzoo_modules()
    base, version = split_version(name)
    found = resolve_spelling(base, list(modules))
    if found is None:
        hint = _closest("pettingzoo", base, list(modules))
        if base.lower().startswith("simple") and find_spec("mpe2") is None:
            hint = 'pip install "puffer-core[pettingzoo]": these environments come with mpe2'
        raise UnknownNameError(f"unknown environment `pettingzoo/{name}`", hint=hint)
    newest = split_version(modules[found])[1]
    if version is not None and version != newest:
        msg = f"unknown environment `pettingzoo/{name}`: version {newest} of it is installed"
        raise UnknownNameError(msg, hint=f"`pettingzoo/{found}` is that one")
    return found, modules[found]


def _pettingzoo_modules() -> dict[str, str]:
    """Return the module of the newest version of each environment, by name; none of them is imported."""
    found: dict[str, tuple[int, str]] = {}
    for package in _PETTINGZOO_PACKAGES:
        for module, name, version in _versioned(package):
            if name not in found or (version > found[name][0] and found[name][1].startswith(f"{package}.")):
                found[name] = version, f"{package}.{module}"
    return {name: module for name, (_, module) in found.items()}


def _versioned(package: str) -> Iterator[tuple[str, str, int]]:
    """Yield module, name and version of each environment in a package."""
    try:
        spec = find_spec(package)
    except ImportError:
        return
    for module in pkgutil.iter_modules(spec.submodule_search_locations if spec else None):
        match = _MODULE.fullmatch(module.name)
        if match and spec:
            yield module.name, match["name"].replace("_", "-"), int(match["version"])


# -- both -------------------------------------------------------------------------------------------------------------


def _hide_greeting() -> None:
    """Keep pygame from greeting on stdout, where a command prints its result."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


def _closest(family: str, name: str, names: list[str]) -> str:
    matches = [f"`{family}/{match}`" for match in closest_names(name, names, 3)]
    return f"did you mean {' or '.join(matches)}?" if matches else f"`puffer envs {family}/` lists it"


def _lacking(name: str, error: Exception, package: str | None) -> PufferError:
    hint = f'pip install "{package}"' if package else None
    return EnvError(f"{name} can't be made, something that it needs is missing: {error}", hint=hint)


def _refuse_argument(name: str, error: TypeError, kwargs: dict[str, Any], make: Callable[..., Any] | None) -> NoReturn:
    """Raise an error for an argument that an environment does not take, and others as they are."""
    match = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if match is None or match[1] not in kwargs:
        raise error
    legal = [] if make is None else [key for key in inspect.signature(make).parameters if key not in ("args", "kwargs")]
    hint = f"it takes {shortened(', '.join(legal), 200)}" if legal else None
    raise OptionError(f"{name} takes no parameter `{match[1]}`", hint=hint) from error
