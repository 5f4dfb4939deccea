"""What observers and loggers see of a run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from puffer_core.errors import OptionError, UsageError
from puffer_core.files import to_json
from puffer_core.isolation import Observer, bind

if TYPE_CHECKING:
    from puffer_core.config import Config
    from puffer_core.training.trainer import Trainer


HOOKS = {
    "puffer_run_started": ("run",),
    "puffer_epoch_finished": ("run", "metrics"),
    "puffer_run_finished": ("run", "result"),
}
"""The hooks of observers, and what each is given."""


class RunEnv:
    """The environments of a run, as observers see them.

    Args:
        set_params: Sets parameters of every environment.
        values: Those that observers have set so far, also before the run was resumed.
    """

    def __init__(self, set_params: Callable[..., None], values: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._set_params = set_params
        self._values = dict(values)

    @property
    def values(self) -> Mapping[str, Any]:
        """What `set` has set in this run, also before it was resumed; what was never set is in ``run.config.env``."""
        return MappingProxyType(self._values)

    def set(self, **values: Any) -> None:
        """Set LIVE parameters of a C table, or those that ``set_params`` of an environment in Python takes.

        They take effect at each instance's next reset, are saved with checkpoints and come back when the run is
        resumed. If one is refused, nothing has changed.

        Raises:
            OptionError: If a parameter is unknown, can't change while running, or its value is illegal; the text or
                the hint names those that can. Also for a value that JSON can't hold.
        """
        plain = {name: _plain(name, value) for name, value in values.items()}
        self._set_params(**plain)
        self._values |= plain


class Run:
    """One run, as observers and loggers see it: everything to read, and the three things they may do."""

    def __init__(
        self,
        trainer: Trainer,
        config: Config,
        directory: Path,
        save: Callable[[], Path | None],
        params: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._trainer = trainer
        self._save = save
        self._config = config
        self._directory = directory
        self._metrics: Mapping[str, float] = MappingProxyType({})
        self.env = RunEnv(trainer.vector.set_params, params)
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


def observer_of(target: object) -> Observer:
    """Return an object with methods that are named like the hooks as what a run calls.

    Raises:
        OptionError: If it has none of them, or one asks for something that its hook does not give.
    """
    label = f"observer {getattr(target, '__name__', type(target).__name__)}"
    hooks = {}
    for name, given in HOOKS.items():
        method = getattr(target, name, None)
        if method is None:
            continue
        wanted = list(inspect.signature(method).parameters)
        if unknown := [argument for argument in wanted if argument not in given]:
            msg = f"{label}: {name} asks for `{unknown[0]}`"
            raise OptionError(msg, hint=f"it gets {', '.join(given)}")
        hooks[name] = [bind(method, wanted)]
    if not hooks:
        raise OptionError(f"{label} observes nothing", hint=f"it needs a method {', '.join(HOOKS)}")
    return Observer(label, hooks)


def _plain(name: str, value: Any) -> Any:
    """Return a value as JSON gives it back."""
    try:
        return json.loads(to_json(value))
    except TypeError as error:
        msg = f"the parameter `{name}` can't be saved with the run: {error}"
        raise OptionError(msg, hint="use numbers, texts, lists and mappings of them") from error
