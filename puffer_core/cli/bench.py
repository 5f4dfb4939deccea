"""`puffer bench env|vec|train ENV`: throughput."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import cast

import click

from puffer_core.cli.common import emit, raw_command
from puffer_core.config import Config, load, options
from puffer_core.console.summary import bench_env_summary, bench_train_summary, bench_vec_summary
from puffer_core.errors import OptionError

seconds_option = click.option("--seconds", type=float, metavar="S", help="Measure at least this long.")
_VEC_KEYS = ("vec.num_envs", "vec.num_threads")
"""What ``bench env`` takes besides the parameters of the environment."""


@click.group("bench")
def command() -> None:
    """Measure the throughput of environments, of vectors of them, or of training."""


@raw_command("env")
@seconds_option
def bench_env(context: click.Context, env: str, as_json: bool, seconds: float | None) -> None:
    """Step an environment with random actions, prepared beforehand.

    4096 agents on 1 thread; --env.num-envs, --vec.num-envs and --vec.num-threads ask for others, --env.KEY sets a
    parameter.
    """
    from puffer_core import bench

    config, given, is_native = _load(context, env, _VEC_KEYS)
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


@raw_command("vec")
@seconds_option
def bench_vec(context: click.Context, env: str, as_json: bool, seconds: float | None) -> None:
    """Try backends, workers and batches, and list the settings that give the most steps per second here.

    Each is measured for one second. As many environments as a run has; --vec.num-envs (in C: --env.num-envs) asks for
    others, --env.KEY sets a parameter, --wrap.KEY wraps. Ray is not tried.
    """
    from puffer_core import bench_vec

    config, given, is_native = _load(context, env, ("vec.num_envs",), "wrap.")
    params = {key: value for key, value in config.env.items() if not (is_native and key == "num_envs")}
    is_asked = "vec.num_envs" in given or (is_native and "env.num_envs" in given)
    is_set = is_asked or (not is_native and config.vec.num_envs != "auto")
    is_shown = not as_json and sys.stderr.isatty()
    found = bench_vec.bench_vec(
        env,
        num_envs=_instances(config, is_native, 1) if is_set else None,
        seconds=bench_vec.SECONDS if seconds is None else seconds,
        params=params,
        wrap=config.wrap,
        say=(lambda line: click.echo(line, err=True)) if is_shown else None,
    )
    emit(found, as_json, bench_vec_summary)


def _load(
    context: click.Context, env: str, keys: Sequence[str], *prefixes: str
) -> tuple[Config, Mapping[str, str], bool]:
    """Return the configuration, what was given on the command line, and whether the environment is one in C.

    Raises:
        OptionError: If an option is neither of ``env`` nor one of ``keys``, nor begins with a prefix.
    """
    from puffer_core.plugins import find_env

    given = options.parse(context.args, env)
    config = load(env, options=given)
    refused = [key for key in given if not key.startswith(("env.", *prefixes)) and key not in keys]
    if refused:
        allowed = ", ".join(["--env.KEY", *(f"--{prefix}KEY" for prefix in prefixes), *map(options.spell, keys)])
        raise OptionError(f"`{options.spell(refused[0])}` has no meaning here", hint=f"this takes {allowed}")
    return config, given, find_env(env)[0].table is not None


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
command.add_command(bench_vec)
command.add_command(bench_train)
