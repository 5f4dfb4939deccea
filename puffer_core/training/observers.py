"""What observers and loggers see of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from puffer_core.errors import UsageError

if TYPE_CHECKING:
    from puffer_core.config import Config
    from puffer_core.training.trainer import Trainer


class RunEnv:
    """The environments of a run, as observers see them."""

    def __init__(self, set_params: Callable[..., None]) -> None:
        self._set_params = set_params

    def set(self, **values: Any) -> None:
        """Set LIVE parameters; they take effect at each instance's next reset."""
        self._set_params(**values)


class Run:
    """One run, as observers and loggers see it: everything to read, and the three things they may do."""

    def __init__(self, trainer: Trainer, config: Config, directory: Path, save: Callable[[], Path | None]) -> None:
        self._trainer = trainer
        self._save = save
        self._config = config
        self._directory = directory
        self._metrics: Mapping[str, float] = MappingProxyType({})
        self.env = RunEnv(trainer.vector.set_params)
        self.stop_reason: str | None = None

    @property
    def config(self) -> Config:
        """The whole typed configuration."""
        return self._config

    @property
    def step(self) -> int:
        """Agent steps so far."""
        return int(self._trainer.global_step)

    @property
    def epoch(self) -> int:
        """Rollouts so far."""
        return int(self._trainer.epoch)

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the last rollout; empty before the first."""
        return self._metrics

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self._directory

    def stop(self, reason: str) -> None:
        """End the run after this rollout; it is saved and evaluated as usual. The first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def save(self) -> Path:
        """Write a checkpoint now and return its directory."""
        path = self._save()
        if path is None:
            raise UsageError("the checkpoint could not be written", hint="the run's events.jsonl says why")
        return path

    def advance(self, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a rollout that has just been finished."""
        self._metrics = MappingProxyType(dict(metrics))
