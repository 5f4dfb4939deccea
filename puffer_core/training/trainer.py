"""What the loop needs of a trainer. Any object with these members will do; `puffer_core.rl` has the torch one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from puffer_core.vector import Vector


class Trainer(Protocol):
    """Collects rollouts and learns from them, one after the other.

    Attributes:
        global_step: Agent steps so far, over the whole run.
        epoch: Rollouts learnt from so far.
        total_epochs: Rollouts of the whole run.
        gradient_steps: Gradient steps so far.
        profile: Seconds by phase since the trainer was made.
        vector: The environments.
    """

    global_step: int
    epoch: int
    total_epochs: int
    gradient_steps: int
    vector: Vector

    @property
    def profile(self) -> Mapping[str, float]:
        """Seconds by phase."""

    def evaluate(self) -> None:
        """Collect one rollout."""

    def train(self) -> Mapping[str, float]:
        """Learn from it."""

    def mean_and_log(self) -> Mapping[str, float]:
        """Return the metrics since the last call, with the keys of ``metrics.jsonl``."""

    def save(self, path: Path) -> None:
        """Write a checkpoint into the folder ``path``, all or nothing."""

    def load(self, path: Path) -> Sequence[str]:
        """Go on from a checkpoint; return what could not be restored, each with what happens instead."""

    def close(self) -> None:
        """Close the environments."""
