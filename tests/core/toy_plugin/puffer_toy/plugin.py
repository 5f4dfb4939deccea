"""The entry module: specs and observers, nothing heavy."""

from __future__ import annotations

from puffer_core.hookspecs import hookimpl
from puffer_core.specs import EnvSpec, LoggerSpec, PolicySpec

puffer_api = 1


@hookimpl
def puffer_envs():
    return [
        EnvSpec(
            "toy/corridor",
            make="puffer_toy.envs:Corridor",
            aliases=("corridor",),
            config="puffer_toy:corridor.ini",
            params="puffer_toy.envs:CorridorParams",
        ),
        EnvSpec("rooms/*", make="puffer_toy.envs:make_room", list="puffer_toy.envs:list_rooms"),
    ]


@hookimpl
def puffer_policies():
    return [PolicySpec("toy-net", encoder="puffer_toy.policy:Encoder", options="puffer_toy.options:NetOptions")]


@hookimpl
def puffer_loggers():
    return [LoggerSpec("toy-log", make="puffer_toy.logger:TextLogger")]


@hookimpl
def puffer_run_started(run):
    _note(run, "started")


@hookimpl
def puffer_epoch_finished(run, metrics):
    _note(run, f"epoch {metrics['epoch']:.0f}")


@hookimpl
def puffer_run_finished(run, result):
    _note(run, f"finished {result['steps']}")


def _note(run, text):
    with (run.directory / "toy-observer.txt").open("a") as file:
        file.write(f"{text}\n")
