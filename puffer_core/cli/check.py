"""`puffer check ENV`: the conformance kit."""

from __future__ import annotations

import sys

import click

from puffer_core.cli.common import emit, raw_command
from puffer_core.config import options
from puffer_core.console.summary import check_summary


@raw_command("check")
@click.option("--deterministic", is_flag=True, help="Nothing in it is random: two seeds may give one trajectory.")
def command(context: click.Context, env: str, as_json: bool, deterministic: bool) -> int:
    """Check that an environment keeps its contract; exit with 1 where it does not.

    ENV is a name, or a class of your own: module:Class or path/to/file.py:Class. --env.KEY sets a parameter.
    """
    from puffer_core.check import check, params_of

    report = check(
        env,
        params_of(env, options.parse(context.args)),
        is_random=False if deterministic else None,
        say=(lambda line: click.echo(line, err=True)) if sys.stderr.isatty() and not as_json else None,
    )
    emit(report.as_dict(), as_json, check_summary)
    return 0 if report.is_ok else 1
