"""`puffer new env|cenv NAME`: packages to start from."""

from __future__ import annotations

import click

from puffer_core.cli.common import emit, json_option
from puffer_core.console.summary import new_summary

_KINDS = ("grid", "multi", "dict")
folder_option = click.option(
    "--folder", type=click.Path(file_okay=False), default=".", show_default=True, help="Where puffer-NAME is made."
)


@click.group("new")
def command() -> None:
    """Write a package that installs, passes `puffer check` and trains as it is."""


@command.command("env")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    default="grid",
    show_default=True,
    help="grid: one agent; multi: several that cooperate; dict: Gymnasium, observations by name.",
)
@folder_option
@json_option
def new_env(name: str, kind: str, folder: str, as_json: bool) -> None:
    """Write puffer-NAME, a package with an environment in Python."""
    from puffer_core.templates import create

    emit(create(name, kind, folder), as_json, new_summary)


@command.command("cenv")
@click.argument("name")
@folder_option
@json_option
def new_cenv(name: str, folder: str, as_json: bool) -> None:
    """Write puffer-NAME, a package with an environment in C; a compiler is needed to install it."""
    from puffer_core.templates import C_KIND, create

    emit(create(name, C_KIND, folder), as_json, new_summary)
