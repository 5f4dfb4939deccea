"""The families ``gym/*`` and ``pettingzoo/*``: what is installed, by name.

Nothing of a framework is imported before one of its environments, or the list of them, is asked for.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import traceback
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from puffer_core.emulation.forms import import_from_here
from puffer_core.errors import EnvError, OptionError, PufferError, UnknownNameError, closest_names, shortened
from puffer_core.names import resolve_spelling, split_version

EXTRAS = ("box2d", "mujoco", "pettingzoo")
"""Extras of ours that bring what environments need."""

_PACKAGES = ("butterfly", "classic", "sisl", "atari")
"""Parts of PettingZoo, each with an extra of its own there."""
_IN_OUR_EXTRA = ("mpe2", "butterfly")
_PASSED = ("self", "args", "kwargs")


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
            module that registers it, from the current folder too.
        **kwargs: Of `gymnasium.make`.

    Raises:
        UnknownNameError: If there is none; the text gives Gymnasium's reason, the hint the closest names.
        EnvError: If a package that it needs is missing (the hint gives what to install), or what is registered is no
            environment.
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
    except gymnasium.error.Error as error:
        raise EnvError(f"gym/{spec.id} can't be made: {error}") from error
    except (TypeError, AttributeError) as error:
        _refuse_entry(f"gym/{spec.id}", spec.entry_point, error)
        _refuse_argument(f"gym/{spec.id}", error, kwargs, _constructor(spec.entry_point))


def _gym_spec(name: str) -> Any:
    """Return Gymnasium's spec of an id."""
    import gymnasium

    module, colon, rest = name.rpartition(":")
    if colon:
        _import_registering(name, module)
    found = resolve_spelling(rest, list_gym())
    if found is not None:
        return gymnasium.registry[found]
    try:
        gymnasium.spec(_as_registered(rest))
    except gymnasium.error.Error as error:
        reason = str(error).rstrip(".")
    raise UnknownNameError(f"unknown environment `gym/{name}`: {reason}", hint=_closest("gym", rest, list_gym()))


def _import_registering(name: str, module: str) -> None:
    """Import the module of ``module:id``."""
    if not re.fullmatch(r"\w+(\.\w+)*", module):
        msg = f"gym/{name}: `{module}` is not the name of a module"
        raise OptionError(msg, hint="write `gym/ID`, or `gym/module:ID` for what a module registers")
    try:
        import_from_here(module)
    except (Exception, SystemExit) as error:
        reason = traceback.format_exception_only(error)[-1].strip()
        raise EnvError(f"gym/{name}: module `{module}` can't be imported: {reason}") from error


def _refuse_entry(name: str, entry_point: Any, error: Exception) -> None:
    """Raise an error where what is registered is not there, or makes something else than an environment."""
    made = _constructor(entry_point)
    if made is None:
        raise EnvError(f"{name} is registered as `{entry_point}`, which is not there") from error
    if "must inherit from the gymnasium.Env class" in str(error):
        raise EnvError(f"{name} is registered as {entry_point}, which makes no environment: {error}") from error


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


@dataclass(frozen=True)
class Game:
    """An environment of PettingZoo that is installed, not imported yet.

    Attributes:
        version: None where it has none.
        package: Where it comes from, as ``classic`` or ``mpe2``.
        entry_point: ``module:function`` or a function.
        kwargs: What it was registered with.
    """

    version: int | None
    package: str
    entry_point: str | Callable[..., Any]
    kwargs: Mapping[str, Any]

    def make(self, kwargs: Mapping[str, Any]) -> Any:
        """Import and make it."""
        create = self.entry_point
        if isinstance(create, str):
            module, _, names = create.partition(":")
            loaded = import_module(module)
            create = next(getattr(loaded, name) for name in names.split("|") if hasattr(loaded, name))
        return create(**{**self.kwargs, **kwargs})

    def constructor(self) -> Callable[..., Any] | None:
        """Return what takes the arguments that the entry point passes on, or None where that is not known."""
        return _constructor(
            f"{self.entry_point.partition(':')[0]}:raw_env" if isinstance(self.entry_point, str) else None
        )


def list_pettingzoo() -> list[str]:
    """Return the environments of PettingZoo, and of MPE2 where it is installed, sorted, without versions."""
    return sorted(_games())


def make_pettingzoo(name: str, /, **kwargs: Any) -> Any:
    """Return an environment of PettingZoo or MPE2, in its parallel form where it has one.

    It comes without `OrderEnforcingWrapper` and `AssertOutOfBoundsWrapper`, whose checks the adapter makes itself: they
    cost more than some of the games.

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
    found, game = _game(name)
    try:
        return _without_checks(game.make(kwargs))
    except ImportError as error:
        extra = "puffer-core[pettingzoo]" if game.package in _IN_OUR_EXTRA else f"pettingzoo[{game.package}]"
        known = game.package in (*_IN_OUR_EXTRA, *_PACKAGES)
        raise _lacking(f"pettingzoo/{found}", error, extra if known else None) from error
    except TypeError as error:
        _refuse_argument(f"pettingzoo/{found}", error, kwargs, game.constructor())


def _without_checks(env: Any) -> Any:
    """Return an environment without the outer wrappers that only check its caller."""
    from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

    inner = getattr(env, "aec_env", env)
    while type(inner) in (AssertOutOfBoundsWrapper, OrderEnforcingWrapper):
        inner = inner.env
    if not hasattr(env, "aec_env"):
        return inner
    env.aec_env = inner
    return env


def _game(name: str) -> tuple[str, Game]:
    """Return the canonical name of an environment and where it is."""
    games = _games()
    base, version = split_version(name)
    found = resolve_spelling(base, list(games))
    if found is None:
        hint = _closest("pettingzoo", base, list(games))
        if base.lower().startswith("simple") and find_spec("mpe2") is None:
            hint = 'pip install "puffer-core[pettingzoo]": these environments come with mpe2'
        raise UnknownNameError(f"unknown environment `pettingzoo/{name}`", hint=hint)
    newest = games[found].version
    if version is not None and version != newest:
        msg = f"unknown environment `pettingzoo/{name}`: version {newest} of it is installed"
        raise UnknownNameError(msg, hint=f"`pettingzoo/{found}` is that one")
    return found, games[found]


def _games() -> dict[str, Game]:
    """Return the newest version of every environment, by name; none of them is imported.

    PettingZoo has a registry since 1.27, and warns who imports its modules; before, there are only those.
    """
    import pettingzoo

    games: dict[str, Game] = {}
    registries = [getattr(pettingzoo, f"{form}_registry", {}) for form in ("parallel", "aec")]
    for spec in (spec for registry in registries for spec in registry.values()):
        name = spec.name if spec.namespace in _PACKAGES else spec.id.rpartition("-v")[0] or spec.id
        kwargs = spec.kwargs if spec.max_cycles is None else {"max_cycles": spec.max_cycles, **spec.kwargs}
        _keep_newest(games, name, Game(spec.version, spec.namespace or "", spec.entry_point, kwargs))
    has_registry = any(registries)
    for package in ("mpe2",) if has_registry else ("mpe2", *(f"pettingzoo.{name}" for name in _PACKAGES)):
        for module in _modules(package):
            name, version = split_version(module)
            entry_point = f"{package}.{module}:parallel_env|env"
            _keep_newest(games, name, Game(version, package.rpartition(".")[2], entry_point, {}))
    return games


def _keep_newest(games: dict[str, Game], name: str, game: Game) -> None:
    """Add an environment, unless another version or the parallel form of it is there that comes before it."""
    name = name.replace("_", "-")
    other = games.get(name)
    if other is None or (other.package == game.package and (game.version or 0) > (other.version or 0)):
        games[name] = game


def _modules(package: str) -> list[str]:
    """Return the names of the modules of environments in a package, as ``pistonball_v6``."""
    try:
        spec = find_spec(package)
    except ImportError:
        return []
    names = [module.name for module in pkgutil.iter_modules(spec.submodule_search_locations if spec else ())]
    return [name for name in names if split_version(name)[1] is not None]


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


def _refuse_argument(name: str, error: Exception, kwargs: dict[str, Any], make: Callable[..., Any] | None) -> NoReturn:
    """Raise an error for an argument that an environment does not take, and others as they are."""
    match = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if match is None or match[1] not in kwargs:
        raise error
    legal = [] if make is None else [key for key in inspect.signature(make).parameters if key not in _PASSED]
    hint = f"it takes {shortened(', '.join(legal), 200)}" if legal else None
    raise OptionError(f"{name} takes no parameter `{match[1]}`", hint=hint) from error
