"""`puffer plugins`: what is installed, in which state, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from puffer_core import plugins
from puffer_core.cli.common import emit, json_option, table
from puffer_core.cli.main import COMMANDS


@click.command("plugins")
@json_option
def command(as_json: bool) -> None:
    """List plugins with version, state and reason.

    States: loaded, broken, conflict (a name of its is taken), blocked, missing.
    """
    emit({"plugins": [asdict(state) for state in plugins.manager().states(COMMANDS)]}, as_json, _human)


def _human(result: dict[str, Any]) -> str:
    rows = [(row["name"], row["version"], row["state"], row["reason"]) for row in result["plugins"]]
    return table(rows, header=("plugin", "version", "state", "reason"))
