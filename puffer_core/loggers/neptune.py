"""Neptune: one run there for each run here, with its id as the custom id."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from puffer_core.loggers.options import NeptuneOptions
from puffer_core.loggers.tracked import TrackedRun, flat_config, flat_result, require_package, values_of

MODES: dict[str, Any] = {"online": "async", "offline": "offline", "disabled": "debug"}
"""Our modes in the words of Neptune."""


class NeptuneLogger:
    """Mirrors rows to Neptune; a run that is resumed goes on there, too."""

    def __init__(self, run: TrackedRun) -> None:
        require_package("neptune", "neptune")
        self._options: NeptuneOptions = run.config.options_of("neptune") or NeptuneOptions()
        self._id, self._config = run.directory.name, flat_config(run.config)
        self._run: Any = None

    def start(self) -> None:
        """Connect. Nothing is printed, and neither console nor hardware is recorded."""
        import neptune

        for name in ("neptune", "neptune_no_prefix"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # they write to stdout
        options = self._options
        self._run = neptune.init_run(
            project=options.project or None,
            custom_run_id=self._id,
            name=options.name or self._id,
            tags=list(options.tags) or None,
            mode=MODES[options.mode],
            source_files=[],
            capture_stdout=False,
            capture_stderr=False,
            capture_traceback=False,
            capture_hardware_metrics=False,
            git_ref=False,
        )
        self._run["config"] = {key.replace(".", "/"): value for key, value in self._config.items()}

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send a row; Neptune takes finite numbers only."""
        for key, value in values_of(metrics).items():
            if math.isfinite(value):
                self._run[f"metrics/{key}"].append(value, step=step)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Send the result."""
        for key, value in flat_result(result).items():
            self._run[key] = value

    def close(self) -> None:
        """Send what is left and end the connection."""
        if self._run is not None:
            self._run.stop()
