"""One session of training: rollouts until the plan is done or something says stop, and what is written meanwhile."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from puffer_core import plugins, run_upkeep
from puffer_core.console import Reporter, Snapshot
from puffer_core.errors import EnvError, RunError
from puffer_core.isolation import Observer, describe
from puffer_core.loggers import Logger, Loggers, make_loggers
from puffer_core.runs import RunDirectory
from puffer_core.training.job import Prepared
from puffer_core.training.meter import Meter, ScoreWindow
from puffer_core.training.observers import Run
from puffer_core.training.resume import write_params
from puffer_core.training.signals import StopSignals
from puffer_core.training.trainer import Trainer

ROW_SECONDS = 0.6
"""Rows of ``metrics.jsonl`` are at least this far apart, but for the first and those before a checkpoint."""
HISTORY = 256
"""Scores that the console's trend is drawn from."""


@dataclass(frozen=True)
class Limits:
    """Where this session ends before the plan does, in agent steps of the whole run and in training score."""

    steps: int | None = None
    score: float | None = None


class Session:
    """Trains one run in this process.

    Args:
        prepared: What was decided.
        directory: Of the run; its checkpoints and rows are written here.
        trainer: Built, and loaded where the run goes on.
        reporter: What a person sees.
        limits: Ends before the plan's.
        loggers: Besides ``metrics.jsonl`` and those that the configuration names.
        observers: Besides those of plugins.
        loaded: The checkpoint that the trainer goes on from.
        params: Of environments, that observers had set by then.
        clock: Seconds; replaced in tests.
    """

    def __init__(
        self,
        prepared: Prepared,
        directory: RunDirectory,
        trainer: Trainer,
        reporter: Reporter,
        *,
        limits: Limits = Limits(),
        loggers: Mapping[str, Logger] | None = None,
        observers: Sequence[Observer] = (),
        loaded: Path | None = None,
        params: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.prepared, self.directory, self.trainer, self.reporter = prepared, directory, trainer, reporter
        self.limits = limits
        self.status = self.outcome = "starting"
        self.score_reached: tuple[int, float] | None = None
        self.saved = None if loaded is None else (trainer.global_step, loaded)
        self.run = Run(
            trainer, prepared.job.config, directory.path, lambda: self.save("asked for by an observer"), params or {}
        )
        sync = f"puffer runs sync {directory.path} --logger NAME"
        self._loggers = Loggers({**make_loggers(self.run, self.warn), **(loggers or {})}, self.warn, sync=sync)
        self._observers: Sequence[Observer] = [*plugins.manager().observers(), *observers]
        self._clock = clock
        self._first_step = trainer.global_step
        self._seconds_before = _seconds_at(directory, trainer.global_step)
        self._started = self._row_at = self._saved_at = clock()
        self._ended: float | None = None
        self._meter = Meter(trainer.global_step, self._seconds_before)
        self._window = ScoreWindow()
        self._scores: list[float] = []
        self._row: Mapping[str, float] = {}
        self._can_write = True

    @property
    def seconds(self) -> float:
        """Wall time of training, including that of sessions before this one."""
        return self._seconds_before + (self._clock() if self._ended is None else self._ended) - self._started

    def train(self, signals: StopSignals) -> None:
        """Run the loop and write the last checkpoint; `status` then says how it ended."""
        self._started = self._row_at = self._saved_at = self._clock()
        self.status = "training"
        self.event("started", step=self._first_step, trainer=self.prepared.trainer.name)
        self._notify(lambda observer: observer.run_started(self.run))
        reason = self._reason_to_stop(signals)
        while reason is None:
            self._collect()
            self.trainer.train()
            self._finish_epoch(self.trainer.mean_and_log())
            reason = self._reason_to_stop(signals)
            if reason is None and self._checkpoint_is_due():
                self.save("on schedule")
        self._ended = self._clock()
        self._save_last(reason)
        done = self.trainer.epoch >= self.trainer.total_epochs
        self.status = self.outcome = "interrupted" if signals.number is not None else "finished" if done else "stopped"
        self.event(self.status, reason=reason, step=self.trainer.global_step)
        self.reporter.show(self.snapshot, force=True)

    def _collect(self) -> None:
        """Collect a rollout; an environment that calls `sys.exit` must not end the run as if it were done."""
        try:
            self.trainer.evaluate()
        except SystemExit as stop:
            msg = f"{self.prepared.job.env_name} called sys.exit({stop.code!r}) in a reset or step"
            raise EnvError(msg, hint="an environment ends an episode with its flags") from stop

    def fail(self, error: BaseException) -> None:
        """Write down what ended the session; the last good checkpoint stays what it is."""
        self.status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        self._write_row(force=True)
        self.event(self.status, reason=describe(error), step=self.trainer.global_step)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Tell observers and loggers the result."""
        self._loggers.finish(result)
        self._notify(lambda observer: observer.run_finished(self.run, result))

    def close(self) -> None:
        """Close loggers and environments."""
        try:
            self._loggers.close()
        finally:
            self.trainer.close()

    def save(self, reason: str) -> Path | None:
        """Write a checkpoint of this moment, once; a full disk is a warning and gives None."""
        try:
            return self._save(reason)
        except RunError as error:
            self.warn(f"{error}; training goes on")
            return None

    def _save_last(self, reason: str) -> None:
        """Write the checkpoint that training ends with; without it, training has failed."""
        try:
            self._save(reason)
        except RunError as error:
            kept = f"the last checkpoint is {self.saved[1]}" if self.saved else "there is no checkpoint"
            hint = f"{kept}; free some space, then go on with --resume" if self.saved else f"{kept}; free some space"
            raise RunError(f"training ended, but what was learnt is not saved: {error}", hint=hint) from error

    def _save(self, reason: str) -> Path:
        """Write a checkpoint of this moment, once.

        Raises:
            RunError: If it can't be written.
        """
        step = self.trainer.global_step
        if self.saved is not None and self.saved[0] == step:
            return self.saved[1]
        self._write_row(force=True)  # what the meter holds is in no checkpoint
        try:
            with self.directory.saving(step) as folder:
                self.trainer.save(folder)
                write_params(folder, self.run.env.values)
        finally:
            self._saved_at = self._clock()
        self.saved = (step, self.directory.checkpoint_dir(step))
        self.event("checkpoint", step=step, reason=reason)
        try:
            run_upkeep.prune(self.directory, self.prepared.job.config.base.keep_checkpoints)
        except OSError as error:
            self.warn(f"a checkpoint that is not to be kept can't be deleted: {error}")
        return self.saved[1]

    def warn(self, text: str) -> None:
        """Tell a person, and the run directory."""
        self.reporter.warn(text)
        self.event("warning", text=text)

    def event(self, kind: str, **details: Any) -> None:
        """Note in ``events.jsonl`` what happened, if the disk lets us."""
        self._write(lambda: self.directory.event(kind, **details))

    def snapshot(self) -> Snapshot:
        """Return this moment for the console."""
        job, row = self.prepared.job, self._row
        parts = {prefix: _part(row, prefix) for prefix in ("perf/", "loss/", "env/", "selfplay/")}
        # Those against single opponents end with their place in the pool.
        strength = {name: value for name, value in parts["selfplay/"].items() if not name[-1].isdigit()}
        return Snapshot(
            title=job.env_name,
            subtitle=f"{self.prepared.trainer.name} · {job.device} · {self.directory.id}",
            status=self.status,
            steps=self.trainer.global_step,
            total_steps=self.prepared.plan.steps,
            seconds=self.seconds,
            steps_per_second=row.get("steps_per_second", 0.0),
            score=self._scores[-1] if self._scores else None,
            scores=tuple(self._scores),
            phases=parts["perf/"],
            losses=parts["loss/"],
            environment=parts["env/"] | strength,
        )

    def _finish_epoch(self, metrics: Mapping[str, float]) -> None:
        self._meter.add(metrics)
        self._window.add(metrics)
        self.run.advance(metrics)
        self._write_row()
        self._notify(lambda observer: observer.epoch_finished(self.run, metrics))
        self.reporter.show(self.snapshot)
        target, score = self.limits.score, self._window.mean
        if target is not None and score is not None and score >= target:
            self.score_reached = (self.trainer.global_step, self.seconds)

    def _write_row(self, *, force: bool = False) -> None:
        now = self._clock()
        if self._meter.is_empty or not (force or not self._row or now - self._row_at >= ROW_SECONDS):
            return
        self._row_at = now
        row = self._meter.take(self.trainer.global_step, self.seconds)
        self._row = {**self._row, **row}
        if "score" in row:
            self._scores.append(row["score"])
            if len(self._scores) > HISTORY:
                self._scores = self._scores[1::2]
        self._loggers.log(self.trainer.global_step, row)

    def _write(self, write: Callable[[], None]) -> None:
        """Write into the run directory; a full disk is told once, and training goes on."""
        try:
            write()
            self._can_write = True
        except RunError as error:
            if self._can_write:
                self._can_write = False
                self.reporter.warn(f"{error}; training goes on")

    def _reason_to_stop(self, signals: StopSignals) -> str | None:
        limits, step = self.limits, self.trainer.global_step
        if self.trainer.epoch >= self.trainer.total_epochs:
            return "all steps done"
        if signals.number is not None:
            return f"signal {signals.number}"
        if self.score_reached is not None:
            return f"score {limits.score:g} reached"
        if limits.steps is not None and step >= limits.steps:
            return f"stop-at {limits.steps} reached"
        return self.run.stop_reason

    def _checkpoint_is_due(self) -> bool:
        config = self.prepared.job.config
        seconds = config.train.checkpoint_seconds
        if seconds and self._clock() - self._saved_at >= seconds:
            return True
        return self.trainer.epoch % config.base.checkpoint_interval == 0

    def _notify(self, call: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(observer)
            for warning in caught:
                self.warn(str(warning.message))

    def result(self) -> dict[str, Any]:
        """Return the JSON object of `puffer train`."""
        job, step, seconds = self.prepared.job, self.trainer.global_step, self.seconds
        elapsed = seconds - self._seconds_before
        reached = self.score_reached or (None, None)
        return {
            "env": job.env_name,
            "trainer": self.prepared.trainer.name,
            "device": job.device,
            "backend": self.trainer.vector.backend,
            "seed": job.config.base.seed,
            "steps_asked": self.prepared.plan.steps_asked,
            "steps": step,
            "gradient_steps": self.trainer.gradient_steps,
            "seconds": seconds,
            "steps_per_second": (step - self._first_step) / elapsed if elapsed > 0 else 0.0,
            "score_reached_steps": reached[0],
            "score_reached_seconds": reached[1],
            "run_dir": str(self.directory.path.absolute()),
            "checkpoint": str(self.saved[1].absolute()) if self.saved else None,
        }


def _seconds_at(directory: RunDirectory, step: int) -> float:
    """Return the training seconds that earlier sessions of a run took, from the last row up to ``step``."""
    rows = [row for row in directory.metrics() if row.get("step", 0) <= step] if step else []
    return float(rows[-1].get("seconds") or 0.0) if rows else 0.0


def _part(row: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
