"""Which keys exist for one environment: the core's, those of its parameters, and those of plugins' options.

Plugins are asked only about names that are not the core's, so that reading a configuration imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from puffer_core.config.schema import INT64_MAX, SECTIONS, Range, SweepRange, section_of
from puffer_core.config.values import OPEN, Base, Kind, kinds, nearest_key
from puffer_core.errors import OptionError, PluginError, did_you_mean
from puffer_core.specs import OPEN as OPEN_PARAMS
from puffer_core.specs import TABLE, EnvSpec

NUM_ENVS = Kind("int", Range(1, INT64_MAX), ("auto",))
"""The kind of ``env.num_envs`` of an environment in C: how many instances one vector holds."""

_FEW = 16
"""Sections with so many keys are listed whole where none of them is close to the one that was typed."""

ABSENT = {
    "constellation": "puffer-constellation",
    "native": "puffer-cuda",
    "protein": "puffer-protein",
    "rnn": "puffer-compat",
}
"""Sections that a plugin of ours owns, for the hint when it is not installed."""


@dataclass(frozen=True)
class Params:
    """The keys of section ``env``: kinds and defaults by name; any further name is accepted if ``is_open``."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    is_open: bool = False
    table: object | None = None

    def check(self, values: Mapping[str, object]) -> None:
        """Refuse values that are legal one by one but not together.

        Raises:
            OptionError: With the rule of the C table that is broken.
        """
        if self.table is not None:
            from puffer_core.native import validate_params

            validate_params(self.table, {key: value for key, value in values.items() if key != "num_envs"})


class UnknownKeyError(LookupError):
    """Raised when there is no such key; ``nearest`` is the key that may have been meant, ``note`` what else to say."""

    def __init__(self, nearest: str | None = None, note: str | None = None) -> None:
        super().__init__(nearest or note)
        self.nearest = nearest
        self.note = note


class Keys:
    """The keys a configuration may hold, for one environment; ``spec`` None has no section ``env``."""

    def __init__(self, spec: EnvSpec | None) -> None:
        self._name = spec.name if spec else ""
        self.params = params_of(spec) if spec else Params()
        self.options: dict[str, type[Any]] = {}

    def kind(self, key: str) -> Kind:
        """Return the kind of a dotted key.

        Raises:
            UnknownKeyError: If there is no such key.
        """
        section, name = split(key)
        known = self._section(section)
        if name in known:
            return known[name]
        if section == "env" and self.params.is_open and name.isidentifier():
            return OPEN
        raise self._unknown(section, name, known)

    def require(self, section: str, where: str) -> None:
        """Refuse a section that nobody has, even one without keys.

        Raises:
            OptionError: With the closest section there is.
        """
        if section in SECTIONS or section == "env" or self._is_range(section):
            return
        self.use(section)
        if section not in self.options:
            note = self._unknown(section, "", {}).note
            hint = note or did_you_mean(section, [*SECTIONS, "env"])
            raise OptionError(f"{where}: unknown section [{section}]", hint=hint)

    def use(self, section: str) -> None:
        """Include the options that the plugin object called ``section`` has, if it has any."""
        section = section_of(section)
        if section not in SECTIONS and section != "env":
            options = _plugin_options(section)
            if options is not None:
                self.options[section] = options

    def all(self) -> dict[str, tuple[Kind, object]]:
        """Return kind and default of every key, in the order in which they are shown.

        Without those of ``[wrap]``: which wrappers are listed, and in which order, is what that section says.
        """
        table: dict[str, tuple[Kind, object]] = {}
        for section, cls in {**SECTIONS, **self.options}.items():
            if section == "wrap":
                continue
            defaults = defaults_of(cls)
            table.update({join(section, name): (kind, defaults[name]) for name, kind in kinds(cls).items()})
        for name, kind in self.params.kinds.items():
            if name in self.params.defaults:
                table[join("env", name)] = (kind, self.params.defaults[name])
        return table

    def _is_range(self, section: str) -> bool:
        try:
            return section.startswith("sweep.") and self.kind(section.removeprefix("sweep.")) is not None
        except UnknownKeyError:
            return False

    def _section(self, section: str) -> Mapping[str, Kind]:
        if section == "env":
            return self.params.kinds
        if section in SECTIONS:
            return kinds(SECTIONS[section])
        if section.startswith("sweep."):
            self.kind(section.removeprefix("sweep."))
            return kinds(SweepRange)
        self.use(section)
        return kinds(self.options[section]) if section in self.options else {}

    def _unknown(self, section: str, name: str, known: Mapping[str, Kind]) -> UnknownKeyError:
        if section in ABSENT and not known:
            return UnknownKeyError(note=f"section [{section}] belongs to {ABSENT[section]}, which is not installed")
        if section not in SECTIONS and section != "env" and not known:
            near = nearest_key(section, [*SECTIONS, "env"])
            return UnknownKeyError(join(near, nearest_key(name, self._section(near)) or name) if near else None)
        if section == "env" and not self._name:
            return UnknownKeyError(note="no environment is named, so there are no parameters")
        elsewhere = [other for other in ("base", "vec", "policy", "train", "env") if name in self._section(other)]
        if elsewhere:
            return UnknownKeyError(join(elsewhere[0], name))
        near = nearest_key(name, known)
        note = f"section [{section}] has {', '.join(known)}" if section != "base" and 0 < len(known) <= _FEW else None
        return UnknownKeyError(join(section, near) if near else None, note)


def params_of(spec: EnvSpec) -> Params:
    """Return the parameters of an environment: of its C table, of its options dataclass, or open."""
    from puffer_core.plugins import resolve

    if spec.params == OPEN_PARAMS or spec.params is None:
        return Params(is_open=True)
    if spec.params != TABLE:
        cls = resolve(spec.params)
        return Params(kinds(cls), {name: value for name, value in defaults_of(cls).items() if value is not MISSING})
    from puffer_core.native import table_params

    table = resolve(str(spec.table))
    params = table_params(table)
    return Params(
        {"num_envs": NUM_ENVS} | {param.name: param_kind(param) for param in params},
        {"num_envs": "auto"} | {param.name: param.default for param in params},
        table=table,
    )


def param_kind(param: Any) -> Kind:
    """Return the kind of a parameter of a C table."""
    base: Base = {"int": "int", "float": "float", "bool": "bool"}.get(param.kind, "str")  # type: ignore[assignment]
    if base in ("bool", "str"):
        return Kind(base, choices=tuple(param.choices or ()) if base == "str" else ())
    return Kind(base, Range(param.min, param.max), step=int(param.step or 0) if base == "int" else 0)


def defaults_of(cls: type[Any]) -> dict[str, object]:
    """Return the default of every field of an options dataclass; MISSING where it has none."""
    return {
        item.name: item.default_factory() if item.default_factory is not MISSING else item.default
        for item in fields(cls)
        if item.init
    }


def split(key: str) -> tuple[str, str]:
    """Return section and name of a dotted key: ``seed`` is in ``base``, ``sweep.train.gamma.min`` in a range."""
    section, _, name = key.rpartition(".")
    if not section:
        return "base", name
    if section.startswith("sweep."):
        return section, name
    section, _, name = key.partition(".")
    return section, name


def join(section: str, name: str) -> str:
    """Return the dotted key of ``name`` in ``section``."""
    return name if section == "base" else f"{section}.{name}"


def _plugin_options(name: str) -> type[Any] | None:
    """Return the options dataclass of the plugin object called ``name`` (``_`` for ``-``)."""
    from puffer_core.plugins import manager, resolve

    plugins = manager()
    for registry in (plugins.policies, plugins.trainers, plugins.loggers, plugins.sweepers):
        for found in (known for known in registry.names() if section_of(known) == name):
            target = getattr(registry.get(found), "options", None)
            if target is not None:
                options = resolve(target)
                if not isinstance(options, type):
                    raise PluginError(f"the options of `{name}`, {target}, are not a dataclass")
                return options
    return None
