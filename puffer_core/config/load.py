"""From ini files, presets, options and edits to one typed `Config` that knows where every value came from.

Precedence, low to high: defaults, the family's ini, the environment's ini, the overlay named like the trainer, the
overlay of ``--preset``, ``PUFFER_RUNS``, the file of ``--config`` (with its own overlays), options, edits from Python.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from puffer_core.config import options as option_grammar
from puffer_core.config import sources
from puffer_core.config.schema import SECTIONS, Config, Origin, SweepRange, WrapConfig
from puffer_core.config.sections import Keys, join, split
from puffer_core.config.sources import Layer, Source, Value
from puffer_core.config.values import kinds
from puffer_core.errors import OptionError, did_you_mean
from puffer_core.specs import EnvSpec

DEFAULTS = Config()


def load(
    env: str | EnvSpec | None,
    *,
    preset: str | None = None,
    trainer: str | None = None,
    file: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | Sequence[str] = (),
    edits: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Return the configuration of an environment, resolved.

    Args:
        env: Its name or spec; None leaves its parameters out.
        preset: Overlay to apply; None takes the one that the configuration names.
        trainer: Name of the trainer once it is known, so that its overlay is applied; None takes the one that the
            configuration names, and no overlay while that is ``auto``.
        file: The ini file of ``--config``.
        options: Of the command line, as words or as `options.parse` returns them.
        edits: Values set from Python, section -> key -> value; those equal to the resolved ones count as not edited.

    Raises:
        OptionError: For an unknown key, section or preset, or an illegal value; the text names key, value and origin.
    """
    spec, name = _find(env)
    keys = Keys(spec)
    given = option_grammar.parse(options, spec) if not isinstance(options, Mapping) else options
    family, own = sources.shipped(spec, name, keys)
    chosen = sources.from_file(Path(file), "file", keys) if file is not None else Source()
    inis = [sources.from_spec(spec), family.values, own.values]
    runs_dir, typed = sources.from_environment(), sources.from_options(given, keys)

    def layers(*labels: str) -> list[Layer]:
        names = [label.replace("-", "_") for label in labels]
        overlays = [source.presets.get(name, {}) for name in names for source in (family, own)]
        in_file = [chosen.presets.get(name, {}) for name in names]
        return [*inis, *overlays, runs_dir, chosen.values, *in_file, typed]

    edits = edits or {}
    preset = _pick("preset", preset, layers(), edits)
    _require_preset(preset, (family, own, chosen))
    trainer = _pick("trainer", trainer, layers(preset), edits)
    values: Layer = {}
    for layer in layers(trainer, preset):
        values |= layer
    _choose(values, preset=preset, trainer=trainer)
    _use_selected(keys, values)
    values |= sources.from_edits(edits, _defaults(keys) | values, keys)
    _choose(values, preset=preset, trainer=trainer)
    _use_selected(keys, values)
    return assemble(keys, values)


def assemble(keys: Keys, values: Layer) -> Config:
    """Return the dataclasses that hold ``values``, and defaults elsewhere."""
    values = _defaults(keys) | values
    parts: dict[str, dict[str, Any]] = {}
    for key, item in values.items():
        section, name = split(key)
        parts.setdefault(section, {})[name] = item.value
    env = parts.get("env", {})
    keys.params.check(env)
    ranges = {name: SweepRange(**limits) for name, limits in parts.items() if name.startswith("sweep.")}
    return Config(
        **{name: cls(**parts.get(name, {})) for name, cls in SECTIONS.items() if name != "wrap"},
        env=env,
        wrap=_switched_on(parts.get("wrap", {})),
        ranges={name.removeprefix("sweep."): limits for name, limits in ranges.items()},
        plugins={name: cls(**parts.get(name, {})) for name, cls in keys.options.items()},
        origins={key: item.origin for key, item in values.items()},
    )


def _switched_on(wrap: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wrappers that are on, in listed order; one that has its default is as good as not listed."""
    return {name: value for name, value in wrap.items() if value != getattr(WrapConfig, name)}


def flatten(config: Config) -> Iterator[tuple[str, Any]]:
    """Yield dotted key and value of everything in ``config``, section by section."""
    for section in SECTIONS:
        part = getattr(config, section)
        named = part if isinstance(part, Mapping) else {name: getattr(part, name) for name in kinds(type(part))}
        yield from ((join(section, name), value) for name, value in named.items())
        if section == "train":
            yield from ((f"env.{name}", value) for name, value in config.env.items())
    for target, limits in config.ranges.items():
        yield from ((f"sweep.{target}.{name}", getattr(limits, name)) for name in kinds(SweepRange))
    for section, part in config.plugins.items():
        yield from ((f"{section}.{name}", getattr(part, name)) for name in kinds(type(part)))


def fixed(config: Config, key: str) -> bool:
    """Whether a person set ``key`` (``--config``, an option, an edit), so that it may be refused but not replaced."""
    return config.origins.get(key, Origin()).kind in ("file", "option", "edited")


def _find(env: str | EnvSpec | None) -> tuple[EnvSpec | None, str]:
    if env is None or isinstance(env, EnvSpec):
        return env, env.name if env else ""
    from puffer_core.plugins import find_env

    return find_env(env)


def _pick(key: str, given: str | None, layers: Sequence[Layer], edits: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a base key as the caller, an edit, or the strongest of ``layers`` sets it."""
    if given is not None:
        return given
    found = [layer[key].value for layer in layers if key in layer]
    default = found[-1] if found else getattr(DEFAULTS.base, key)
    return str(edits.get("base", {}).get(key, default))


def _choose(values: Layer, **names: str) -> None:
    """Set base keys to what was decided, which the layers need not say."""
    for key, name in names.items():
        if (values[key].value if key in values else getattr(DEFAULTS.base, key)) != name:
            values[key] = Value(name, Origin("default", "chosen"))


def _require_preset(preset: str, files: Sequence[Source]) -> None:
    known = sorted({label for file in files for label in file.presets})
    if preset and preset.replace("-", "_") not in known:
        listed = f"there are {', '.join(f'`{label}`' for label in known)}" if known else "there are none"
        raise OptionError(f"unknown preset `{preset}`: {listed} here", hint=did_you_mean(preset, known))


def _defaults(keys: Keys) -> Layer:
    return {key: Value(default) for key, (_, default) in keys.all().items()}


def _use_selected(keys: Keys, values: Layer) -> None:
    """Include the options of the policy, trainer and loggers that are chosen."""
    chosen = [values[key].value for key in ("policy.name", "trainer") if key in values]
    for name in {*chosen, *(values["logger"].value if "logger" in values else ())} - {"auto", ""}:
        keys.use(name)
