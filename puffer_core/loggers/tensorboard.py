"""TensorBoard: event files in the run directory, one scalar for each metric."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from puffer_core.loggers.options import TensorBoardOptions
from puffer_core.loggers.tracked import TrackedRun, flat_config, flat_result, require_package, values_of


class TensorBoardLogger:
    """Writes event files; `tensorboard --logdir runs` shows all runs below a folder."""

    def __init__(self, run: TrackedRun) -> None:
        require_package("tensorboard", "tensorboard")
        options = run.config.options_of("tensorboard") or TensorBoardOptions()
        folder = Path(options.directory)
        self._folder = folder / run.directory.name if options.directory else run.directory / "tensorboard"
        self._config = flat_config(run.config)
        self._step = 0
        self._writer: Any = None

    def start(self) -> None:
        """Open an event file and write the configuration into it."""
        from torch.utils.tensorboard import SummaryWriter

        is_new = not self._folder.exists()
        self._writer = SummaryWriter(str(self._folder), flush_secs=10)
        if is_new:
            self._writer.add_text("config", _as_markdown(self._config))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a row; values become float32."""
        self._step = step
        for key, value in values_of(metrics).items():
            self._writer.add_scalar(key, value, step)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result as text, at the last step."""
        self._writer.add_text("result", _as_markdown(flat_result(result)), self._step)

    def close(self) -> None:
        """Flush and close the event file."""
        if self._writer is not None:
            self._writer.close()


def _as_markdown(values: Mapping[str, Any]) -> str:
    """Return lines that TensorBoard shows as code."""
    return "\n".join(f"    {key} = {json.dumps(value)}" for key, value in values.items())
