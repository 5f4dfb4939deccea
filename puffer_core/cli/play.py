"""`puffer play ENV`: a person plays."""

from __future__ import annotations

import click

from puffer_core.cli.common import emit, raw_command, telling_stops
from puffer_core.config import options
from puffer_core.console import PlainReporter, Reporter
from puffer_core.console.summary import play_summary


@raw_command("play")
@click.option(
    "--load", "source", metavar="RUN|PATH|latest", help="Who plays the other agents; else they act at random."
)
@click.option("--agent", default=0, metavar="K", help="Which agent you are, from 0.")
@click.option("--episodes", type=int, metavar="N", help="End after so many; else when you close the window.")
@click.option("--keys", metavar="MAP", help='What keys do, as "left=0,right=1,none=2" or "w=0.5:0,up+left=3".')
@click.option("--render", default="auto", metavar="human|ansi", help="A window, or text in this terminal.")
@click.option("--fps", type=float, metavar="F", help="Steps per second.")
@click.option("--seed", type=int, metavar="N", help="For the same game again.")
def command(
    context: click.Context,
    env: str,
    as_json: bool,
    source: str | None,
    agent: int,
    episodes: int | None,
    keys: str | None,
    render: str,
    fps: float | None,
    seed: int | None,
) -> None:
    """Play an environment with the keyboard. Esc closes.

    Besides: --env.KEY VALUE. An environment that does not say what keys do needs --keys; where no key stands for doing
    nothing, the game waits for one.
    """
    with telling_stops(is_loading=True):
        from puffer_core.play import play
    with telling_stops(), Reporter() if as_json else PlainReporter() as reporter:
        result = play(
            env,
            agent=agent,
            load=source,
            episodes=episodes,
            keys=keys,
            render=render,  # type: ignore[arg-type]  # play refuses others
            fps=fps,
            seed=seed,
            options=options.parse(context.args),
            console=reporter,
        )
    emit(result, as_json, play_summary)
