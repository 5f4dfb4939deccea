"""`puffer envs`: names only; a family when it is asked for; everything about one environment."""

from __future__ import annotations

from typing import Any

import click

from puffer_core import listing, plugins
from puffer_core.cli.common import emit, json_option, table


@click.command("envs")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List environments, or describe one.

    Without NAME every name, a family as one row (`gym/*`). With `gym/` what is in that family; with a name everything
    about that environment.
    """
    if name and not name.endswith(("/", "/*")):
        emit(listing.describe(name), as_json, _description)
        return
    emit({"envs": listing.list_family(name) if name else listing.list_envs()}, as_json, _names)
    for state in plugins.manager().states():
        if state.state in ("broken", "conflict", "missing"):
            click.echo(f"note: plugin {state.name} {state.version} is {state.state}: {state.reason}", err=True)


def _names(result: dict[str, Any]) -> str:
    rows = [(row["name"], ", ".join(row["aliases"]), row["plugin"]) for row in result["envs"]]
    return table(rows, header=("environment", "aliases", "plugin"))


def _description(result: dict[str, Any]) -> str:
    lines = [f"{label:12} {_text(result[label])}" for label in result if label != "params"]
    rows = [
        (f"--env.{row['name'].replace('_', '-')}", _text(row["default"]), _legal(row), _help(row))
        for row in result["params"]
    ]
    if rows:
        lines += ["", table(rows, header=("option", "default", "legal", "meaning"))]
    return "\n".join(lines)


def _legal(row: dict[str, Any]) -> str:
    if row["choices"] or row["kind"] == "bool":
        return ", ".join(row["choices"] or ("true", "false"))
    if row["min"] is None:
        return row["kind"] or ""
    return f"{row['min']:g} to {row['max']:g}" + (f" by {row['step']}" if (row["step"] or 0) > 1 else "")


def _help(row: dict[str, Any]) -> str:
    return f"{row['help'] or ''}{' (live)' * bool(row['live'])}".strip()


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
