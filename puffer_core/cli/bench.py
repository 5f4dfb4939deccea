"""`puffer bench env|train ENV`: throughput."""

from __future__ import annotations

from typing import cast

import click

from puffer_core.cli.common import emit, raw_command
from puffer_core.config import Config, load, options
from puffer_core.console.summary import bench_env_summary, bench_train_summary
from puffer_core.errors import OptionError

seconds_option = click.option("--seconds", type=float, metavar="S", help="Measure at least this long.")
_VEC_KEYS = ("vec.num_envs", "vec.num_threads")
"""What ``bench env`` takes besides the parameters of the environment."""


@click.group("bench")
def command() -> None:
    """Measure the throughput of environments or of training."""


@raw_command("env")
@seconds_option
def bench_env(context: click.Context, env: str, as_json: bool, seconds: float | None) -> None:
    """Step an environment with random actions, prepared beforehand.

    4096 agents on 1 thread; --env.num-envs, --vec.num-envs and --vec.num-threads ask for others, --env.KEY sets a
    parameter.
    """
    from puffer_core import bench
    from puffer_core.plugins import find_env

    given = options.parse(context.args, env)
    config, is_native = load(env, options=given), find_env(env)[0].table is not None
    refused = [key for key in given if not key.startswith("env.") and key not in _VEC_KEYS]
    if refused:
        allowed = ", ".join(["--env.KEY", *map(options.spell, _VEC_KEYS)])
        raise OptionError(f"`{options.spell(refused[0])}` has no meaning here", hint=f"this takes {allowed}")
    is_asked = "vec.num_envs" in given or (is_native and "env.num_envs" in given)
    params = {key: value for key, value in config.env.items() if not (is_native and key == "num_envs")}
    proposal = bench.default_instances(env, params)
    emit(
        bench.bench_env(
            env,
            num_envs=_instances(config, is_native, proposal) if is_asked else proposal,
            threads=config.vec.num_threads if config.vec.num_threads != "auto" else 1,
            seconds=2.0 if seconds is None else seconds,
            params=params,
        ),
        as_json,
        bench_env_summary,
    )


def _instances(config: Config, is_native: bool, proposal: int) -> int:
    """Return the instances that a run would have, as `config.plan` multiplies them."""
    inner = cast("int | str", config.env.get("num_envs", "auto")) if is_native else 1
    outer = config.vec.num_envs
    if inner == "auto":
        inner = proposal
    if outer == "auto":
        outer = 1 if is_native else proposal
    return int(inner) * int(outer)


@raw_command("train")
@seconds_option
def bench_train(context: click.Context, env: str, as_json: bool, seconds: float | None) -> None:
    """Train a few rollouts with the settings a run would use; nothing is written."""
    from puffer_core.training.bench import bench_train

    found = bench_train(env, options=options.parse(context.args), seconds=5.0 if seconds is None else seconds)
    emit(found, as_json, bench_train_summary)


command.add_command(bench_env)
command.add_command(bench_train)
