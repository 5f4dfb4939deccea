"""`puffer doctor`: what this machine offers and what would be used."""

from __future__ import annotations

import click

from puffer_core.cli.common import emit, json_option
from puffer_core.config import load, options
from puffer_core.console.summary import doctor_summary
from puffer_core.errors import OptionError


@click.command("doctor", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Say what this machine offers and what would be used (--runs-dir DIR: whether it can be written)."""
    from puffer_core.doctor import examine

    given = options.parse(context.args)
    base = load(None, options=given).base
    refused = [key for key in given if key != "runs_dir"]
    if refused:
        raise OptionError(f"`{options.spell(refused[0])}` has no meaning here", hint="this takes --runs-dir only")
    emit(examine(base.runs_dir), as_json, doctor_summary)
