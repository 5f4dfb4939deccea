"""`puffer train ENV`: training only."""

from __future__ import annotations

from collections.abc import Sequence

import click

from puffer_core import launch
from puffer_core.cli.common import emit, raw_command
from puffer_core.config import options as option_grammar
from puffer_core.console import Reporter, Snapshot, make_reporter
from puffer_core.console.summary import train_summary
from puffer_core.place import place


@raw_command("train")
def command(context: click.Context, env: str, as_json: bool) -> int:
    """Train an agent, or go on with a run.

    Every key of `puffer config show ENV` is an option. Besides: --resume RUN|latest, --resume-schedule stretch|keep,
    --config FILE, --train.stop-at STEPS, --train.stop-at-score X. Ctrl-C saves a checkpoint and ends; a second one ends
    at once.
    """
    return train_with("train", env, context.args, as_json)


def train_with(verb: str, env: str, args: Sequence[str], as_json: bool) -> int:
    """Call `training.train` or `training.run` with the words of a command line, print the result, return the code."""
    asked, options = option_grammar.split_command(option_grammar.parse(args))
    here = place()
    if here.world_size == 1 and (count := launch.processes(env, options, asked)) > 1:
        return launch.launch(launch.same_command(), count)
    with Reporter() if here.rank else make_reporter(json=as_json) as reporter:
        reporter.show(lambda: Snapshot(env), force=True)
        from puffer_core import training  # takes a moment; by now something is on the screen

        code = 0
        try:
            result = getattr(training, verb)(
                env,
                options=options,
                file=asked.config or None,
                resume=asked.resume or None,
                resume_schedule=asked.resume_schedule,
                stop_at=asked.stop_at,
                stop_at_score=asked.stop_at_score,
                console=reporter,
            )
        except training.Interrupted as interrupted:
            if not interrupted.result:
                raise
            result, code = interrupted.result, interrupted.exit_code
    if here.rank == 0:
        emit(result, as_json, train_summary)
    return code
