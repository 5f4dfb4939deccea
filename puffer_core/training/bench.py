"""How fast a trainer trains, and where the time goes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from puffer_core import plugins
from puffer_core.training.job import prepare

if TYPE_CHECKING:
    from puffer_core.specs import EnvSpec
    from puffer_core.training.trainer import Trainer


def bench_train(
    env: str | EnvSpec, *, options: Mapping[str, str] | Sequence[str] = (), seconds: float = 5.0, rollouts: int = 3
) -> dict[str, Any]:
    """Return the JSON object of ``puffer bench train``.

    Args:
        env: Name or spec of the environment.
        options: Of the command line.
        seconds: Of wall time, at least; the first rollout goes before as a warm-up.
        rollouts: At least as many as this, and never more than a run has.
    """
    prepared = prepare(env, options=options)
    trainer: Trainer = plugins.resolve(prepared.trainer.make)(prepared.job, prepared.plan)
    try:
        _train_once(trainer)
        step, profile, started = trainer.global_step, dict(trainer.profile), time.perf_counter()
        for count in range(1, max(trainer.total_epochs, 2)):
            _train_once(trainer)
            elapsed = time.perf_counter() - started
            if elapsed >= seconds and count >= rollouts:
                break
        return {
            "env": prepared.job.env_name,
            "trainer": prepared.trainer.name,
            "steps_per_second": (trainer.global_step - step) / elapsed,
            "phases": {name: total - profile.get(name, 0.0) for name, total in trainer.profile.items()},
        }
    finally:
        trainer.close()


def _train_once(trainer: Trainer) -> None:
    trainer.evaluate()
    trainer.train()
    trainer.mean_and_log()
