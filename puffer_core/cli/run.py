"""`puffer run ENV`: the whole job."""

from __future__ import annotations

import click

from puffer_core.cli.common import raw_command
from puffer_core.cli.train import train_with


@raw_command("run")
def command(context: click.Context, env: str, as_json: bool) -> int:
    """Train an agent, evaluate it and say where it is.

    Every key of `puffer config show ENV` is an option. Besides: --resume RUN|latest, --resume-schedule stretch|keep,
    --config FILE, --train.stop-at STEPS, --train.stop-at-score X. Ctrl-C saves a checkpoint and ends; a second one ends
    at once.
    """
    return train_with("run", env, context.args, as_json)
