"""`puffer runs`: the runs there are, one of them, and mirroring one into a tracker."""

from __future__ import annotations

from typing import Any

import click

from puffer_core.cli.common import emit, json_option, table
from puffer_core.config import options as option_grammar
from puffer_core.config.values import render
from puffer_core.errors import OptionError

HEADER = ("run", "env", "status", "steps", "score", "started")
runs_dir_option = click.option("--runs-dir", metavar="DIR", help="Folder of the runs (PUFFER_RUNS, else runs).")


class RunsGroup(click.Group):
    """A group whose command ``list`` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``puffer runs breakout`` as ``puffer runs list breakout``."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("runs", cls=RunsGroup)
def command() -> None:
    """List runs, or do something with one.

    `puffer runs [ENV]` lists them, oldest first.
    """


@command.command("list")
@click.argument("env", required=False)
@runs_dir_option
@json_option
def list_(env: str | None, runs_dir: str | None, as_json: bool) -> None:
    """List the runs of an environment, or of all."""
    from puffer_core.plugins import find_env
    from puffer_core.run_list import list_rows

    rows = list_rows(_root(runs_dir), None if env is None else find_env(env)[1])
    emit({"runs": rows}, as_json, lambda _: _as_table(rows))


@command.command("show")
@click.argument("run")
@runs_dir_option
@json_option
def show(run: str, runs_dir: str | None, as_json: bool) -> None:
    """Show one run: its end, its last metrics and its checkpoints."""
    from puffer_core.run_list import describe_whole
    from puffer_core.runs import find

    emit(describe_whole(find(run, None, runs_dir)), as_json, _as_page)


@command.command("sync", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("run")
@click.option("--logger", "name", required=True, metavar="NAME", help="Where to: tensorboard, wandb, neptune, ...")
@click.option("--again", is_flag=True, help="Send every row, also those that were sent before.")
@runs_dir_option
@json_option
@click.pass_context
def sync(context: click.Context, run: str, name: str, again: bool, runs_dir: str | None, as_json: bool) -> None:
    """Send a run to a tracker: what it has not got yet, and the result.

    Takes the options of the logger, as --wandb.project NAME, in place of those that the run was started with.
    """
    from puffer_core.runs import find
    from puffer_core.sync import sync_run

    options = option_grammar.parse(context.args)
    directory = find(run, None, runs_dir)
    sent = sync_run(directory, name, options, lambda text: click.echo(f"warning: {text}", err=True), again=again)
    result = {"run": directory.id, "logger": name, "rows": sent}
    emit(result, as_json, lambda _: f"{sent} rows of {directory.id} sent to {name}" if sent else "nothing was missing")


def _root(runs_dir: str | None) -> str:
    from puffer_core.runs import root_of

    if runs_dir == "":
        raise OptionError("`--runs-dir` is empty", hint="give the folder of the runs")
    return str(root_of(runs_dir))


def _as_table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "there are no runs"
    return table([tuple(_cell(row[key]) for key in HEADER) for row in rows], HEADER)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _as_page(run: dict[str, Any]) -> str:
    lines = [(key, _cell(run[key])) for key in (*HEADER, "run_dir")]
    lines += [("checkpoint", path) for path in run["checkpoints"][-1:]]
    lines += [(key, render(value)) for key, value in run["metrics"].items() if key not in HEADER]
    width = max(len(key) for key, _ in lines)
    return "\n".join(f"{key.ljust(width)}  {text}" for key, text in lines)
