"""Several processes, one run: rank 0 decides, and the others do the same with their trainers.

Rank 0 runs the session of a single process, with a trainer that tells the other ranks each call before it makes it.
So there is one writer and one who decides, and when to stop or save needs no agreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puffer_core.errors import OptionError, PufferError, RunError

if TYPE_CHECKING:
    from puffer_core.console import Reporter
    from puffer_core.rl.ranks import Ranks
    from puffer_core.training.signals import StopSignals
    from puffer_core.training.trainer import Trainer

CLOSE = "close"
_MAY_FAIL = {"save": RunError, "set_params": OptionError}
"""Calls after which a run may go on although they failed, and how: they change nothing then."""


class Leading:
    """The trainer of rank 0 as its session sees it; what is not a call to all ranks is that of ``trainer`` itself.

    Args:
        trainer: Of this process.
        ranks: All of them.
        signals: Are given a signal that reached another rank.
    """

    def __init__(self, trainer: Trainer, ranks: Ranks, signals: StopSignals) -> None:
        self._trainer, self._ranks, self._signals = trainer, ranks, signals
        self._is_together = True
        self.vector = _LeadingVector(trainer.vector, self.call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def call(self, name: str, *args: Any, **named: Any) -> Any:
        """Make a call on every rank; return what it gives here."""
        self._is_together = False
        self._ranks.broadcast_object((name, args, named))
        try:
            result = _make(self._trainer, name, args, named)
        except PufferError as error:
            self._is_together = isinstance(error, _MAY_FAIL.get(name, ()))
            raise
        self._is_together = True
        return result

    def evaluate(self) -> None:
        """Collect one rollout on every rank."""
        self.call("evaluate")

    def train(self) -> Mapping[str, float]:
        """Learn from it."""
        losses: Mapping[str, float] = self.call("train")
        return losses

    def mean_and_log(self) -> Mapping[str, float]:
        """Return the metrics of all ranks, and learn of signals that reached one."""
        metrics: Mapping[str, float] = self.call("mean_and_log")
        self._is_together = False
        signals = self._ranks.gather(self._signals.number)
        self._is_together = True
        self._signals.number = next((number for number in signals if number is not None), None)
        return metrics

    def save(self, path: Path) -> None:
        """Write a checkpoint of all ranks."""
        self.call("save", path)

    def load(self, path: Path) -> Sequence[str]:
        """Make every rank go on from a checkpoint."""
        lost: Sequence[str] = self.call("load", path)
        return lost

    def close(self) -> None:
        """Let the other ranks go, unless they have failed or wait for something else, and close the environments."""
        try:
            if self._is_together:
                self._is_together = False
                self._ranks.broadcast_object((CLOSE, (), {}))
        finally:
            self._trainer.close()


class _LeadingVector:
    """The environments of rank 0, whose parameters are set on every rank."""

    def __init__(self, vector: Any, call: Any) -> None:
        self._vector, self._call = vector, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vector, name)

    def set_params(self, **values: Any) -> None:
        """Set parameters of every environment of every rank."""
        self._call("set_params", **values)


def follow(trainer: Trainer, ranks: Ranks, signals: StopSignals, reporter: Reporter) -> None:
    """Do what rank 0 does, until it lets this rank go."""
    try:
        while True:
            name, args, named = ranks.broadcast_object(None)
            if name == CLOSE:
                ranks.expect_end()  # closing environments may take longer than rank 0 stays
                return
            try:
                result = _make(trainer, name, args, named)
            except PufferError as error:
                if not isinstance(error, _MAY_FAIL.get(name, ())):
                    raise
            if name == "mean_and_log":
                ranks.gather(signals.number)
            elif name == "load":
                for lost in result:
                    reporter.warn(f"rank {ranks.rank}: not restored: {lost}")
    finally:
        trainer.close()


def _make(trainer: Trainer, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    return getattr(trainer.vector if name == "set_params" else trainer, name)(*args, **named)
