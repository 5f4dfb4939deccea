"""`puffer bench env|train ENV`: throughput."""

from __future__ import annotations

import click

from puffer_core.cli.common import emit, raw_command
from puffer_core.config import load, options
from puffer_core.console.summary import bench_env_summary, bench_train_summary

seconds_option = click.option("--seconds", type=float, metavar="S", help="Measure at least this long.")


@click.group("bench")
def command() -> None:
    """Measure the throughput of environments or of training."""


@raw_command("env")
@seconds_option
def bench_env(context: click.Context, env: str, as_json: bool, seconds: float | None) -> None:
    """Step an environment with random actions, prepared beforehand.

    4096 agents on 1 thread; --env.num-envs and --vec.num-threads ask for others, --env.KEY sets a parameter.
    """
    from puffer_core import bench

    config = load(env, options=options.parse(context.args))
    params = dict(config.env)
    asked = {key: origin for key, origin in config.origins.items() if origin.kind == "option"}
    num_envs = params.pop("num_envs", config.vec.num_envs)
    emit(
        bench.bench_env(
            env,
            num_envs=num_envs if {"env.num_envs", "vec.num_envs"} & asked.keys() else None,  # type: ignore[arg-type]
            threads=config.vec.num_threads if config.vec.num_threads != "auto" else 1,
            seconds=2.0 if seconds is None else seconds,
            params=params,
        ),
        as_json,
        bench_env_summary,
    )


@raw_command("train")
@seconds_option
def bench_train(context: click.Context, env: str, as_json: bool, seconds: float | None) -> None:
    """Train a few rollouts with the settings a run would use; nothing is written."""
    from puffer_core.training.bench import bench_train

    found = bench_train(env, options=options.parse(context.args), seconds=5.0 if seconds is None else seconds)
    emit(found, as_json, bench_train_summary)


command.add_command(bench_env)
command.add_command(bench_train)
