"""Discovery of plugins through entry points, and the one manager of a process.

Discovery reads metadata only. Entry modules are imported when the first name is looked up, a command's module when the
command is called.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from types import MappingProxyType
from typing import Any

from puffer_core.errors import OptionError, PluginError, PufferError, UnknownNameError, did_you_mean
from puffer_core.isolation import Observer, collect, describe, implementations, isolated, raises_plugin_errors
from puffer_core.names import resolve_spelling
from puffer_core.registry import CORE, EnvRegistry, Plugin, Registry
from puffer_core.specs import (
    BackendSpec,
    EnvSpec,
    LoggerSpec,
    PluginInfo,
    PolicySpec,
    Spec,
    SweeperSpec,
    TrainerSpec,
)

GROUP = "puffer"
COMMAND_GROUP = "puffer.commands"
SELECT = "PUFFER_PLUGINS"
"""Environment variable: the names of the only plugins to load, with commas between; empty for none."""

KINDS: Mapping[str, type[Spec]] = MappingProxyType(
    {
        "puffer_envs": EnvSpec,
        "puffer_vector_backends": BackendSpec,
        "puffer_policies": PolicySpec,
        "puffer_trainers": TrainerSpec,
        "puffer_loggers": LoggerSpec,
        "puffer_sweepers": SweeperSpec,
    }
)
"""The hooks that return specs, and what each promises."""

CORE_DISTRIBUTION = "puffer-core"


@dataclass(frozen=True)
class PluginState:
    """One row of `puffer plugins`."""

    name: str
    version: str
    state: str
    reason: str


@dataclass(frozen=True)
class Command:
    """A command that a distribution declares in the group ``puffer.commands``; nothing of it is imported yet."""

    name: str
    distribution: PluginInfo
    entry: metadata.EntryPoint


class PluginManager:
    """Every plugin found, loaded on first use, and the registries of what they supply.

    Args:
        no_plugins: Load nothing but the core.
        block: Names of plugins or distributions that are not loaded.
        select: Names of the only plugins to load; None loads all.
    """

    def __init__(
        self, *, no_plugins: bool = False, block: Iterable[str] = (), select: Iterable[str] | None = None
    ) -> None:
        self._no_plugins = no_plugins
        self._block = frozenset(block)
        self._select = None if select is None else frozenset(select)
        self._found: dict[str, metadata.EntryPoints] = {}
        self._plugins: list[Plugin] | None = None
        self._lock = threading.RLock()
        self.envs = EnvRegistry(self.load)
        self.backends = Registry(BackendSpec, "vector backend", self.load)
        self.policies = Registry(PolicySpec, "policy", self.load)
        self.trainers = Registry(TrainerSpec, "trainer", self.load)
        self.loggers = Registry(LoggerSpec, "logger", self.load)
        self.sweepers = Registry(SweeperSpec, "sweeper", self.load)

    def load(self) -> Sequence[Plugin]:
        """Import every chosen plugin and call its hooks, once; return all of them, the core first, then by name."""
        with self._lock:
            if self._plugins is None:
                self._plugins = []
                try:
                    self._load_all(self._plugins)
                except BaseException:
                    self._plugins = None
                    raise
            return self._plugins

    def observers(self) -> list[Observer]:
        """Return the observers for one run, fresh: what was detached from the last run is back."""
        used = [plugin for plugin in self.load() if plugin.is_loaded and plugin.observers]
        return [Observer(f"plugin {plugin.info}", plugin.observers) for plugin in used]

    def states(self, core_commands: Iterable[str] = ()) -> list[PluginState]:
        """Return every plugin with its state: ``loaded``, ``broken``, ``conflict``, ``blocked`` or ``missing``.

        Args:
            core_commands: Names of commands that a plugin can't take.
        """
        conflicts = self._conflicts(core_commands)
        rows = []
        for plugin in self.load():
            state, reason = plugin.state, plugin.reason
            if plugin.is_loaded and plugin.info.name in conflicts:
                state, reason = "conflict", "; ".join(sorted(conflicts[plugin.info.name]))
            rows.append(PluginState(plugin.info.name, plugin.info.version, state, reason))
        return rows

    def commands(self) -> dict[str, list[Command]]:
        """Return the commands of the chosen plugins by name, from metadata alone; more than one is a conflict."""
        plugins: dict[str, list[str]] = {}
        for entry in self._entries(GROUP):
            plugins.setdefault(_distribution(entry).name, []).append(entry.name)
        commands: dict[str, list[Command]] = {}
        for entry in self._entries(COMMAND_GROUP):
            distribution = _distribution(entry)
            names = plugins.get(distribution.name, [entry.name])
            if not all(self._blocked(name, distribution.name) for name in names):
                commands.setdefault(entry.name, []).append(Command(entry.name, distribution, entry))
        return commands

    def load_command(self, name: str, kind: type) -> Any:
        """Import a command and return it.

        Raises:
            UnknownNameError: If no plugin declares it.
            PluginError: If two do, if its import fails, or if it is not of ``kind``.
        """
        claims = self.commands().get(name, [])
        if not claims:
            raise UnknownNameError(f"unknown command `{name}`", hint=did_you_mean(name, self.commands()))
        if len(claims) > 1:
            names = " and ".join(str(command.distribution) for command in claims)
            hint = f"leave one out: `--block-plugin {claims[0].distribution.name}`"
            raise PluginError(f"command `{name}` is claimed twice: by {names}", hint=hint)
        plugin = Plugin(claims[0].distribution, claims[0].distribution.name)
        with isolated(plugin):
            command = claims[0].entry.load()
            if not isinstance(command, kind):
                raise PluginError(f"`{claims[0].entry.value}` is no {kind.__name__}")
        if not plugin.is_loaded:
            raise PluginError(f"command `{name}` of {plugin.info} is broken: {plugin.reason}")
        return command

    def _load_all(self, plugins: list[Plugin]) -> None:
        from puffer_core import __version__, builtin

        core = Plugin(PluginInfo(CORE, __version__), CORE_DISTRIBUTION)
        plugins.append(core)
        self._load_one(core, lambda: builtin)
        if not core.is_loaded:
            raise AssertionError(core.reason)
        for plugin, entry in self._discover():
            plugins.append(plugin)
            if plugin.is_loaded:
                self._load_one(plugin, entry.load)
        known = {name for plugin in plugins for name in (plugin.info.name, plugin.distribution)}
        for name in sorted((self._select or frozenset()) - known):
            plugins.append(Plugin(PluginInfo(name, ""), name, "missing", f"named in {SELECT}, but not installed"))
        for name in sorted(self._block - known | self._block & {CORE}):
            msg = f"--block-plugin names `{name}`, which is no plugin that is installed"
            raise OptionError(msg, hint=did_you_mean(name, known - {CORE}) or "`puffer plugins` lists them")

    def _load_one(self, plugin: Plugin, load: Callable[[], object]) -> None:
        with isolated(plugin):
            hooks = implementations(load())
            plugin.observers = {name: hooks[name] for name in hooks if name not in KINDS}
        if not plugin.is_loaded:
            return
        # Every hook is called even after one failed: the names are then known for which the reason must be given.
        for name, kind in KINDS.items():
            with isolated(plugin):
                plugin.supplied[kind] = collect(plugin.info, name, kind, hooks.get(name, ()))

    def _discover(self) -> list[tuple[Plugin, metadata.EntryPoint]]:
        """Return a record for each entry point, by name, in an order that does not depend on the path."""
        entries = sorted(self._entries(GROUP), key=lambda entry: (entry.name, _distribution(entry).name, entry.value))
        found = []
        for entry in entries:
            distribution = _distribution(entry)
            plugin = Plugin(PluginInfo(entry.name, distribution.version), distribution.name)
            blocked = self._blocked(entry.name, distribution.name)
            others = [
                str(_distribution(other))
                for other in entries
                if other.name == entry.name
                and other is not entry
                and not self._blocked(other.name, _distribution(other).name)
            ]
            if blocked:
                plugin.fail("blocked", blocked)
            elif entry.name == CORE:
                plugin.fail("conflict", f"the name `{CORE}` is taken by the core")
            elif others:
                names = " and ".join(sorted([str(distribution), *others]))
                plugin.fail("conflict", f"the name `{entry.name}` is taken twice: by {names}")
            found.append((plugin, entry))
        return found

    def _entries(self, group: str) -> list[metadata.EntryPoint]:
        """Return the entry points of a group but the core's own; one that is found twice on the path counts once."""
        if group not in self._found:
            self._found[group] = metadata.entry_points(group=group)
        unique = {(entry.name, _distribution(entry), entry.value): entry for entry in self._found[group]}
        return [entry for (_, distribution, _), entry in unique.items() if distribution.name != CORE_DISTRIBUTION]

    def _blocked(self, name: str, distribution: str) -> str:
        """Return why a plugin is not to be loaded, or nothing."""
        if self._no_plugins:
            return "by --no-plugins"
        if {name, distribution} & self._block:
            return "by --block-plugin"
        if self._select is not None and not {name, distribution} & self._select:
            return f"not named in {SELECT}"
        return ""

    def _conflicts(self, core_commands: Iterable[str]) -> dict[str, set[str]]:
        """Return by plugin the names it claims in vain, because another plugin or itself claims them too."""
        reasons: dict[str, set[str]] = {}
        registries: list[Registry[Any]] = [
            self.envs,
            self.backends,
            self.policies,
            self.trainers,
            self.loggers,
            self.sweepers,
        ]
        for registry in registries:
            for name, specs in registry.conflicts().items():
                for spec in specs:
                    others = sorted({str(other.plugin) for other in specs if other is not spec})
                    text = f"{registry.noun} `{name}` is also claimed by {', '.join(others)}"
                    reasons.setdefault(spec.plugin.name, set()).add(text)
        owners = {plugin.distribution: plugin.info.name for plugin in self.load()}
        taken = frozenset(core_commands)
        for name, commands in self.commands().items():
            for command in commands:
                others = ["core"] if name in taken else [str(c.distribution) for c in commands if c is not command]
                if others and command.distribution.name in owners:
                    text = f"command `{name}` is also claimed by {', '.join(others)}"
                    reasons.setdefault(owners[command.distribution.name], set()).add(text)
        reasons.pop(CORE, None)
        return reasons


def resolve(target: str) -> Any:
    """Import ``"module:attribute"`` and return what it names.

    Raises:
        PluginError: If that fails in a module that is not the core's; the text gives the cause.
    """
    module, _, attribute = target.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except PufferError:
        raise
    except (Exception, SystemExit) as error:
        if module.partition(".")[0] == "puffer_core" or raises_plugin_errors():
            raise
        raise PluginError(f"`{target}` can't be loaded: {describe(error)}") from error
    return found


_settings: dict[str, Any] = {}
_manager: PluginManager | None = None


def configure(*, no_plugins: bool = False, block: Iterable[str] = ()) -> None:
    """Choose which plugins this process loads; what was loaded before is forgotten."""
    global _manager
    _settings.update(no_plugins=no_plugins, block=tuple(block))
    _manager = None


def settings() -> dict[str, Any]:
    """Return what `configure` was given last, so that a child process can choose the same."""
    return dict(_settings)


def manager() -> PluginManager:
    """Return the manager of this process; `configure` and PUFFER_PLUGINS choose what it loads."""
    global _manager
    if _manager is None:
        chosen = os.environ.get(SELECT)
        select = None if chosen is None else [name.strip() for name in chosen.split(",") if name.strip()]
        _manager = PluginManager(**_settings, select=select)
    return _manager


def find_env(name: str) -> tuple[EnvSpec, str]:
    """Return the spec of an environment under any of its names, and its canonical name.

    In a family that is the name as the family lists it, so that one environment has one name wherever runs and
    settings are kept; where it can't be listed, or does not list it, the name as typed.
    """
    spec, canonical = manager().envs.find(name)
    if not spec.is_family:
        return spec, canonical
    rest = canonical.partition("/")[2]
    try:
        listed = resolve_spelling(rest, resolve(str(spec.list))())
    except Exception:  # the family's `make` says what is wrong
        if raises_plugin_errors():
            raise
        listed = None
    return spec, f"{spec.family}/{listed or rest}"


def _distribution(entry: metadata.EntryPoint) -> PluginInfo:
    if entry.dist is None:
        return PluginInfo("unknown", "unknown")
    return PluginInfo(entry.dist.name.lower().replace("_", "-"), entry.dist.version or "unknown")
