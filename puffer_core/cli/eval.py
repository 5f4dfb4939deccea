"""`puffer eval ENV`: unbiased evaluation, and pictures of it."""

from __future__ import annotations

import click

from puffer_core.cli.common import emit, raw_command, telling_stops
from puffer_core.config import load, options
from puffer_core.console import make_reporter
from puffer_core.console.summary import eval_summary


@raw_command("eval")
@click.option("--load", "source", default="latest", metavar="RUN|PATH|latest", help="The run or checkpoint to play.")
@click.option("--versus", metavar="RUN|PATH|random", help="Who has the other seats; says which of the two is stronger.")
@click.option("--greedy", is_flag=True, help="Take the likeliest action instead of drawing one as in training.")
@click.option("--render", default="none", metavar="human|video|ansi", help="Show, film or print the episodes.")
@click.option("--max-steps", type=int, metavar="N", help="Steps that one episode may take (30000).")
@click.option("--output", metavar="FILE", help="Path of the video, in place of the run directory.")
def command(
    context: click.Context,
    env: str,
    as_json: bool,
    source: str,
    versus: str | None,
    greedy: bool,
    render: str,
    max_steps: int | None,
    output: str | None,
) -> None:
    """Evaluate a trained agent without bias, alone or against another; show or film it.

    Besides: --episodes N (1000, or 3 that are rendered), --seed N, --runs-dir DIR, and --env.KEY VALUE or --vec.KEY
    VALUE in place of what the run was trained with. In the window: space pauses, n makes one step, - and + change the
    speed, q closes.
    """
    given = options.parse(context.args)
    base = load(None, options={key: given[key] for key in ("eval_episodes", "seed") if key in given}).base
    rest = {key: text for key, text in given.items() if key not in ("eval_episodes", "seed")}
    with telling_stops(is_loading=True):
        from puffer_core.evaluate import MAX_STEPS, evaluate
    with telling_stops(), make_reporter(json=as_json) as reporter:
        result = evaluate(
            env,
            load=source,
            versus=versus,
            episodes=base.eval_episodes if "eval_episodes" in given else None,
            greedy=greedy,
            render=render,  # type: ignore[arg-type]  # evaluate refuses others
            seed=base.seed if "seed" in given else None,
            options=rest,
            output=output,
            max_steps=MAX_STEPS if max_steps is None else max_steps,
            console=reporter,
        )
    emit(result, as_json, eval_summary)
