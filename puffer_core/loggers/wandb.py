"""Weights & Biases: one run there for each run here, with the same id."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from puffer_core.loggers.options import WandbOptions
from puffer_core.loggers.tracked import FOLDER, TrackedRun, flat_config, flat_result, require_package, values_of


class WandbLogger:
    """Mirrors rows to Weights & Biases; a run that is resumed goes on there, too."""

    def __init__(self, run: TrackedRun) -> None:
        require_package("wandb", "wandb")
        self._options: WandbOptions = run.config.options_of("wandb") or WandbOptions()
        self._id, self._folder = run.directory.name, run.directory / FOLDER
        self._config = flat_config(run.config)
        self._run: Any = None
        self._others: set[int] = set()

    def start(self) -> None:
        """Connect. Nothing is printed, and the console is not recorded."""
        os.environ.setdefault("WANDB_SILENT", "true")  # read when the package is imported
        import wandb

        options = self._options
        self._folder.mkdir(exist_ok=True)
        self._others = {process.pid for process in _services()}
        self._run = wandb.init(
            project=options.project,
            entity=options.entity or None,
            group=options.group or None,
            name=options.name or self._id,
            tags=list(options.tags) or None,
            id=self._id,
            resume=None if options.mode == "disabled" else "allow",
            mode=options.mode,
            dir=str(self._folder),
            config=self._config,
            settings=wandb.Settings(console="off", silent=True, quiet=True, show_errors=False, show_warnings=False),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send a row."""
        self._run.log(values_of(metrics), step=step)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Send the result as the summary of the run."""
        self._run.summary.update(flat_result(result))

    def close(self) -> None:
        """Send what is left and end the connection."""
        if self._run is not None:
            self._run.finish()

    def abandon(self) -> None:
        """End the process that sends: at its exit, Python would wait for it, and that for the network."""
        mine = [process for process in _services() if process.pid not in self._others]
        for process in mine:
            process.kill()
        package = sys.modules.get("wandb")
        if mine and package is not None:
            with suppress(Exception):  # it finds its process gone; at exit it would say so with a traceback
                package.teardown()


def _services() -> list[psutil.Process]:
    """Return the processes that send for runs of this one."""
    found = []
    for process in psutil.Process().children():
        with suppress(psutil.Error):
            if process.name().startswith("wandb-core"):
                found.append(process)
    return found
