"""What commands share: raw ``--section.key value`` arguments, and one way to print a result.

A command about one environment looks like this:

    @raw_command("train")
    def command(context, env, as_json):
        options = config.options.parse(context.args)
        emit(train(env, options=options), as_json, summary)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, TypeVar

import click

Result = TypeVar("Result", bound=Mapping[str, Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


def raw_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a command with an ENV argument, ``--json``, and everything else left raw.

    The function gets ``context, env, as_json`` and its own options; what is left is in ``context.args``, in the order
    typed.
    """
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]}

    def decorate(function: Callable[..., Any]) -> click.Command:
        wrapped = click.argument("env", metavar="ENV", callback=_refuse_option)(
            json_option(click.pass_context(function))
        )
        return click.command(name, context_settings=settings, options_metavar="[--section.key VALUE ...]")(wrapped)

    return decorate


def emit(result: Result, as_json: bool, human: Callable[[Result], str]) -> None:
    """Print a result: as one JSON object on stdout, or as the text that ``human`` makes of it."""
    click.echo(to_json(result) if as_json else human(result))


@contextmanager
def telling_stops(*, is_loading: bool = False) -> Iterator[None]:
    """Say in one line that a signal stopped a command that has nothing to show for it, and exit with its code.

    Args:
        is_loading: Only our own modules are loaded, so that any `KeyboardInterrupt` is Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if not is_loading and not hasattr(stop, "exit_code"):
            raise
        click.echo(str(stop) or "stopped by SIGINT", err=True)
        raise click.exceptions.Exit(getattr(stop, "exit_code", 130)) from stop


def to_json(result: object) -> str:
    """Return one line of JSON. What JSON has no word for becomes null (NaN, infinities) or text (paths)."""
    return json.dumps(_plain(result), allow_nan=False)


def table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """Return rows of text in columns that are as wide as they need to be, under a header."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch, neither of which is imported for it
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_option(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value.startswith("-"):
        raise click.UsageError(f"the environment comes before `{value}`", context)
    return value
