"""The registries: what loaded plugins supply, looked up by name, and the errors when that fails.

A name claimed twice is an error when it is used, whatever the order of discovery. The core keeps its own names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, cast

from puffer_core.errors import PluginError, PufferError, UnknownNameError, closest_names, did_you_mean
from puffer_core.specs import EnvSpec, PluginInfo, Spec

CORE = "core"
"""Name of the core as a plugin; no entry point may take it."""

PACKAGES = {
    "ocean": "puffer-ocean",
    "atari": "puffer-atari",
    "procgen": "puffer-procgen",
    "nethack": "puffer-nethack",
    "minihack": "puffer-nethack",
    "minigrid": "puffer-minigrid",
    "babyai": "puffer-minigrid",
    "crafter": "puffer-crafter",
    "nmmo": "puffer-nmmo",
    "microrts": "puffer-microrts",
    "griddly": "puffer-griddly",
    "gpudrive": "puffer-gpudrive",
    "envpool": "puffer-envpool",
}
"""Families of ours and the package that supplies each, for the hint when it is not installed."""

# fmt: off
OCEAN_NAMES = frozenset((
    "bandit", "memory", "squared", "password", "stochastic", "multiagent", "spaces", "continuous", "benchmark",
    "breakout", "pong", "snake", "tetris", "asteroids", "connect4", "go", "g2048", "boxoban", "maze",
    "four-rooms", "cartpole", "double-pendulum", "target", "trash-pickup", "drone", "skirmish",
))
# fmt: on
"""Bare names of ours, so that `breakout` without puffer-ocean says what to install."""

Hook: TypeAlias = Callable[[Mapping[str, Any]], object]
"""One hook implementation; it takes all arguments of the hook by name and passes on those the plugin asked for."""

S = TypeVar("S", bound=Spec)


@dataclass
class Plugin:
    """A plugin as discovered: what it supplies, or why nothing of it is used."""

    info: PluginInfo
    distribution: str
    state: str = "loaded"
    reason: str = ""
    supplied: dict[type[Spec], tuple[Spec, ...]] = field(default_factory=dict)
    """By kind. A kind is missing where the plugin could not be asked, so that anything might have come from it."""
    observers: dict[str, list[Hook]] = field(default_factory=dict)

    @property
    def is_loaded(self) -> bool:
        """Whether its specs are registered."""
        return self.state == "loaded"

    def specs(self, kind: type[S]) -> tuple[S, ...]:
        """Return what it supplies of one kind."""
        return cast("tuple[S, ...]", self.supplied.get(kind, ()))

    def fail(self, state: str, reason: str) -> None:
        """Take the plugin out of use; the first reason stays."""
        if self.is_loaded:
            self.state, self.reason = state, reason

    def __str__(self) -> str:
        return f"plugin {self.info} is {'in ' * (self.state == 'conflict')}{self.state}: {self.reason}"


class Registry(Generic[S]):
    """Specs of one kind by name.

    Args:
        kind: The class of the specs.
        noun: What messages call one of them.
        plugins: Returns every plugin, loading them first.
    """

    def __init__(self, kind: type[S], noun: str, plugins: Callable[[], Sequence[Plugin]]) -> None:
        self.kind = kind
        self.noun = noun
        self._plugins = plugins

    def get(self, name: str) -> S:
        """Return the spec of that name.

        Raises:
            UnknownNameError: If nobody supplies it; the text gives the reasons of plugins that may have.
            PluginError: If several claim it; the text names them.
        """
        specs = self._claims().get(self._key(name), [])
        if not specs:
            raise self._unknown(name)
        self._refuse_conflict(name, specs)
        return specs[0]

    def specs(self) -> list[S]:
        """Return every usable spec in the order of the names; a name claimed twice is left out."""
        claims = self._claims().items()
        found = [specs[0] for key, specs in claims if len(specs) == 1 and key == self._key(specs[0].name)]
        return sorted(found, key=lambda spec: spec.name)

    def names(self) -> list[str]:
        """Return every usable name, sorted, without aliases."""
        return [spec.name for spec in self.specs()]

    def conflicts(self) -> dict[str, list[S]]:
        """Return the specs that claim the same name, by that name."""
        return {key: specs for key, specs in self._claims(core_keeps=False).items() if len(specs) > 1}

    def _key(self, name: str) -> str:
        return name

    def _keys(self, spec: S) -> Iterable[str]:
        return (spec.name,)

    def _claims(self, core_keeps: bool = True) -> dict[str, list[S]]:
        claims: dict[str, list[S]] = {}
        for plugin in self._plugins():
            for spec in plugin.specs(self.kind) if plugin.is_loaded else ():
                for key in dict.fromkeys(self._keys(spec)):
                    claims.setdefault(key, []).append(spec)
        if core_keeps:
            for key, specs in claims.items():
                claims[key] = [spec for spec in specs if _is_core(spec)] or specs
        return claims

    def _refuse_conflict(self, name: str, specs: Sequence[S]) -> None:
        if len(specs) > 1:
            claims = " and ".join(f"`{spec.name}` of plugin {spec.plugin}" for spec in specs)
            names = sorted({spec.plugin.name for spec in specs if spec.plugin})
            hint = f"leave one out: {' or '.join(f'`--block-plugin {plugin}`' for plugin in names)}"
            raise PluginError(f"{self.noun} `{name}` is claimed twice: by {claims}", hint=hint)

    def _unknown(self, name: str) -> PufferError:
        reasons = self._reasons(name)
        hint = did_you_mean(name, self.names())
        if hint is None:
            hint = "`puffer plugins` gives the reasons" if reasons else f"choose from: {', '.join(self.names())}"
        return UnknownNameError("; ".join([f"unknown {self.noun} `{name}`", *reasons]), hint=hint)

    def _reasons(self, name: str) -> list[str]:
        """Say why the plugins that may have supplied a name did not."""
        key = self._key(name)
        lost = [plugin for plugin in self._plugins() if not plugin.is_loaded and self._could_supply(plugin, key)]
        broken = [str(plugin) for plugin in lost if plugin.state in ("broken", "conflict")]
        left_out = sorted({plugin.info.name for plugin in lost if plugin.state in ("blocked", "missing")})
        return [*broken, *([f"not loaded: {', '.join(left_out)}"] if left_out else [])]

    def _could_supply(self, plugin: Plugin, key: str) -> bool:
        if self.kind not in plugin.supplied:
            return True
        return any(key in self._keys(spec) for spec in plugin.specs(self.kind))


class EnvRegistry(Registry[EnvSpec]):
    """Environments by any of their names: case and ``-``/``_`` don't count, aliases and families resolve."""

    def __init__(self, plugins: Callable[[], Sequence[Plugin]]) -> None:
        super().__init__(EnvSpec, "environment", plugins)

    def get(self, name: str) -> EnvSpec:
        """Return the spec of that name; for an environment of a family, the family's."""
        return self.find(name)[0]

    def find(self, name: str) -> tuple[EnvSpec, str]:
        """Return the spec of an environment and its canonical name.

        The family ends at the first ``/``, ``-`` or ``_``; the rest goes to the family's `make` as typed.

        Raises:
            UnknownNameError: If nobody supplies it; the text gives what to install, or the closest names.
            PluginError: If several claim it; the text names them.
        """
        _, rest = split(name)
        claims = self._claims()
        specs = [] if name.endswith("/*") else self._claimants(self._key(name), claims)
        if not specs:
            raise self._unknown(name)
        self._refuse_conflict(name, specs)
        if not specs[0].is_family:
            self._refuse_conflict(specs[0].name, self._claimants(self._key(specs[0].name), claims))
        return specs[0], f"{specs[0].family}/{rest}" if specs[0].is_family else specs[0].name

    def family(self, name: str) -> list[EnvSpec]:
        """Return the specs in a family, given as ``gym/`` or ``gym/*``: one ``gym/*``, or each environment."""
        family, _ = split(name)
        specs = [spec for spec in self.specs() if split(spec.name)[0] == family]
        if not specs:
            raise self._unknown(name)
        return specs

    def conflicts(self) -> dict[str, list[EnvSpec]]:
        """Return the specs that claim the same name, or one in another plugin's family, by that name."""
        claims = self._claims()
        claimants = {key: self._claimants(key, claims) for key in claims}
        return {key: specs for key, specs in claimants.items() if len(specs) > 1}

    def _claimants(self, key: str, claims: dict[str, list[EnvSpec]]) -> list[EnvSpec]:
        """Return every spec that a name could mean.

        A family's own plugin may list one of its environments apart; another plugin may not take one away.
        """
        family = key.partition("/")[0]
        exact = claims.get(key, [])
        families = claims.get(f"{family}/*", []) if key not in (family, f"{family}/*") else []
        own = len(families) == 1 and exact and all(spec.plugin == families[0].plugin for spec in exact)
        return exact if own else [*exact, *families]

    def _key(self, name: str) -> str:
        family, rest = split(name)
        rest = rest.lower().replace("_", "-")
        return f"{family}/{rest}" if rest else family

    def _keys(self, spec: EnvSpec) -> Iterable[str]:
        return (self._key(name) for name in (spec.name, *spec.aliases))

    def _unknown(self, name: str) -> PufferError:
        family, rest = split(name)
        suppliers = sorted({str(spec.plugin) for spec in self.specs() if spec.family.lower() == family})
        package = self._missing_package(family, rest)
        parts = [f"unknown environment `{name}`"]
        if suppliers:
            parts[0] += f": the family `{family}` comes from plugin {', '.join(suppliers)}"
            hint = self._closest(name, family) or f"`puffer envs {family}/` lists it"
        elif package:
            parts = [f"{parts[0]}: it comes with {package}, which is not installed", *self._reasons(name)]
            hint = f"pip install {package}"
        else:
            parts += self._reasons(name)
            hint = self._closest(name, "") or "`puffer envs` lists the names, `puffer plugins` what supplies them"
        return UnknownNameError("; ".join(parts), hint=hint)

    def _closest(self, name: str, family: str) -> str | None:
        """Hint at the closest names: within a family by what comes after it, else each environment by its shortest."""
        head, rest = split(name)
        specs = [spec for spec in self.specs() if not spec.is_family]
        if family:
            known = {spec.name.partition("/")[2]: spec.name for spec in specs if spec.family.lower() == family}
        else:
            shortest = [min(spec.name, *spec.aliases, key=len) if spec.aliases else spec.name for spec in specs]
            ours = OCEAN_NAMES if self._missing_package("ocean", "") else ()
            known = {name: name for name in (*ours, *shortest)}
        typed = rest if family or head == "puffer" else name
        matches = [f"`{known[match]}`" for match in closest_names(typed, known, 3)]
        return f"did you mean {' or '.join(matches)}?" if matches else None

    def _could_supply(self, plugin: Plugin, key: str) -> bool:
        family = key.partition("/")[0]
        installed = {plugin.info.name for plugin in self._plugins()}
        if family in installed and EnvSpec not in plugin.supplied:
            return plugin.info.name == family
        return super()._could_supply(plugin, key)

    def _missing_package(self, family: str, rest: str) -> str | None:
        """Return the package of ours to install for a name, None when it is there or not ours."""
        rest = rest.lower().replace("_", "-")
        bare = rest if family == "puffer" else f"{family}-{rest}".rstrip("-")
        package = PACKAGES.get(family) or ("puffer-ocean" if bare in OCEAN_NAMES else None)
        installed = {plugin.distribution for plugin in self._plugins()}
        return None if package in installed else package


def split(name: str) -> tuple[str, str]:
    """Return the family of an environment's name in lower case, and the rest as typed (empty for a bare name)."""
    ends = [index for index in map(name.find, "/-_") if index >= 0]
    end = min(ends, default=len(name))
    return name[:end].lower(), name[end + 1 :]


def _is_core(spec: Spec) -> bool:
    return spec.plugin is not None and spec.plugin.name == CORE
