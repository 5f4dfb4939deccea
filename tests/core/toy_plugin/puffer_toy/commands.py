"""The command `puffer toy`."""

from __future__ import annotations

import click


@click.command()
@click.option("--loud", is_flag=True)
def toy(loud):
    """Say hello."""
    click.echo("HELLO" if loud else "hello")
