"""Metrics between rollouts and rows: rows of single rollouts are merged until it is time to write one."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from puffer_core.scores import score_of

Metrics = Mapping[str, float]

_OF_THE_ROW = ("step", "seconds", "steps_per_second", "score")
SCORE_WINDOW = 100
"""Logged episodes that a training score is the mean of, at least."""


class Meter:
    """Merges the metrics of rollouts into one row.

    ``env/*`` are means weighted by ``env/n``, ``loss/*`` plain means, ``perf/*`` sums of seconds; of all else the
    last value counts. A NaN means "not defined for this rollout" and is left out. Time, speed and score of a rollout,
    which a trainer used by itself reports, give way to those of the run and of the whole row.
    """

    def __init__(self, step: int, seconds: float) -> None:
        self._begin(step, seconds)

    def _begin(self, step: int, seconds: float) -> None:
        self._start = (step, seconds)
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._last: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added since the last row."""
        return not (self._sums or self._last)

    def add(self, metrics: Metrics) -> None:
        """Take in the metrics of one rollout."""
        episodes = float(metrics.get("env/n", 1.0))
        for name, value in metrics.items():
            if name in _OF_THE_ROW or math.isnan(value):
                continue
            if name == "env/n" or name.startswith("perf/"):
                self._sums[name] = self._sums.get(name, 0.0) + value
            elif name.startswith(("env/", "loss/")):
                weight = episodes if name.startswith("env/") else 1.0
                self._sums[name] = self._sums.get(name, 0.0) + weight * value
                self._weights[name] = self._weights.get(name, 0.0) + weight
            else:
                self._last[name] = value

    def take(self, step: int, seconds: float) -> dict[str, float]:
        """Return the merged row at ``step`` and ``seconds``, and begin the next one there."""
        first_step, first_seconds = self._start
        elapsed = seconds - first_seconds
        means = {name: total / self._weights.get(name, 1.0) for name, total in self._sums.items()}
        row = {
            "step": step,
            "epoch": self._last.pop("epoch", 0),
            "seconds": seconds,
            "steps_per_second": (step - first_step) / elapsed if elapsed > 0 else 0.0,
        }
        score = score_of(means)
        if score is not None:
            row["score"] = score
        row |= means | self._last
        self._begin(step, seconds)
        return row


class ScoreWindow:
    """The mean score of the last `SCORE_WINDOW` or more logged episodes, in whole rollouts."""

    def __init__(self) -> None:
        self._rollouts: deque[tuple[float, float]] = deque()
        self._episodes = 0.0

    def add(self, metrics: Metrics) -> None:
        """Take in the metrics of one rollout and forget rollouts that are no longer needed."""
        score, episodes = score_of(metrics), float(metrics.get("env/n", 0.0))
        if score is None or episodes <= 0:
            return
        self._rollouts.append((score, episodes))
        self._episodes += episodes
        while self._episodes - self._rollouts[0][1] >= SCORE_WINDOW:
            self._episodes -= self._rollouts.popleft()[1]

    @property
    def mean(self) -> float | None:
        """The mean, None until `SCORE_WINDOW` episodes have been logged."""
        if self._episodes < SCORE_WINDOW:
            return None
        return sum(score * episodes for score, episodes in self._rollouts) / self._episodes
