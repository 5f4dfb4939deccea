"""`puffer config show`: every value that would be used, and where it comes from."""

from __future__ import annotations

from pathlib import Path

import click

from puffer_core.cli.common import emit, raw_command
from puffer_core.config import Config, flatten, load, with_origins
from puffer_core.config.options import parse, split_command
from puffer_core.config.schema import Origin
from puffer_core.config.sections import split
from puffer_core.config.values import render
from puffer_core.errors import OptionError, PufferError, UnknownNameError
from puffer_core.plugins import find_env, manager


@click.group("config")
def command() -> None:
    """Show the configuration."""


@raw_command("show")
def show(context: click.Context, env: str, as_json: bool) -> None:
    """Print every value that `puffer run ENV` would use, with its origin.

    Takes the options of `puffer run`: --section.key VALUE, --preset NAME, --config FILE, --trainer NAME.
    """
    asked, options = split_command(parse(context.args))
    config, note = resolve(env, asked.config or None, options)
    base = config.base
    result = {"env": find_env(env)[1], "trainer": base.trainer, "preset": base.preset, "sections": with_origins(config)}
    emit(result, as_json, lambda _: as_text(config))
    if note:
        click.echo(f"note: {note}", err=True)


command.add_command(show)


def resolve(env: str, file: str | None, options: dict[str, str]) -> tuple[Config, str | None]:
    """Return the configuration, decided as `puffer run` decides it; where that fails, undecided, and a note why.

    Raises:
        OptionError: If a value is illegal, as `puffer run` does.
        UnknownNameError: If something has an unknown name.
    """
    from puffer_core.training.job import prepare

    config = load(env, file=file, options=options)
    try:
        decided = prepare(env, file=file, options=options).job.config
        _require_names(decided)
        return decided, None
    except (OptionError, UnknownNameError):
        raise
    except PufferError as error:
        return config, f"`puffer run` would fail: {error}" + (f" ({error.hint})" if error.hint else "")


def _require_names(config: Config) -> None:
    """Look up the names that `puffer run` looks up later than this.

    Raises:
        UnknownNameError: If no plugin supplies one of them.
    """
    found = manager()
    for logger in config.base.logger:
        found.loggers.get(logger)
    if config.policy.name != "auto":
        found.policies.get(config.policy.name)
    if config.vec.backend != "auto":
        found.backends.get(config.vec.backend)


def as_text(config: Config) -> str:
    """Return an ini-like listing, with the origin of what is no default after it."""
    lines: dict[str, list[tuple[str, str]]] = {}
    for key, value in flatten(config):
        section, name = split(key)
        origin = config.origins.get(key, Origin())
        place = Path(origin.where).name if origin.kind in ("family", "env", "preset") else origin.where
        text = f"{name} = {', '.join(value) if isinstance(value, tuple) else render(value)}".rstrip()
        lines.setdefault(section, []).append((text, "" if origin == Origin() else f"; {origin.kind} {place}".rstrip()))
    width = max(len(text) for entries in lines.values() for text, _ in entries)
    blocks = [
        "\n".join([f"[{section}]", *(f"{text.ljust(width)}  {place}".rstrip() for text, place in entries)])
        for section, entries in lines.items()
    ]
    return "\n\n".join(blocks)
