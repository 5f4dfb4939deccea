"""`puffer export RUN`: the network of a run for other programs."""

from __future__ import annotations

import click

from puffer_core.cli.common import emit, json_option


@click.command("export")
@click.argument("run")
@click.option("--format", "kind", default="onnx", metavar="onnx|flat", help="Kind of file (onnx).")
@click.option("--output", metavar="FILE", help="Path of the file, in place of the run directory.")
@click.option("--env", metavar="ENV", help="Environment whose run is meant by `latest` or an id.")
@click.option("--runs-dir", metavar="DIR", help="Folder of the runs (PUFFER_RUNS, else runs).")
@json_option
def command(run: str, kind: str, output: str | None, env: str | None, runs_dir: str | None, as_json: bool) -> None:
    """Write the network of a run for other programs.

    RUN is a run directory, a checkpoint in one, an id, or `latest`. ONNX holds one step of acting with normaliser and
    action mask inside; flat holds the weights as float32, with a JSON file beside it that says where each one is.
    """
    from puffer_core.export import export
    from puffer_core.plugins import find_env

    name = None if env is None else find_env(env)[1]
    result = export(run, kind, output, env=name, runs_dir=runs_dir)
    emit(result, as_json, lambda _: "\n".join(result["files"]))
