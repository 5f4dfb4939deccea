"""Logs in Python: statistics of episodes for environments that keep none, and the means that training reads."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from puffer_core.env import Array

EPISODE_FIELDS = ("score", "perf", "episode_return", "episode_length")
"""What is logged for an environment without log fields of its own: ``score`` is the return where no info gives one,
``perf`` is not a number where none does."""
_SCORE, _PERF, _RETURN, _LENGTH = range(4)


class EpisodeStats:
    """Return and length of each row's episode, written into the log row in which it ends."""

    def __init__(self, rows: int) -> None:
        self.returns = np.zeros(rows)
        self.lengths = np.zeros(rows, np.int64)

    def reset(self) -> None:
        """Begin anew in every row."""
        self.returns.fill(0)
        self.lengths.fill(0)

    def add(self, vector: Any, ended: Array) -> None:
        """Account for the step that the arrays of a vector show, in which some rows ended."""
        self.returns += vector.rewards
        self.lengths += vector.masks | ended
        vector.logged[:] = ended
        rows = np.flatnonzero(ended)
        if not len(rows):
            return
        vector.log[rows, _SCORE] = vector.log[rows, _RETURN] = self.returns[rows]
        vector.log[rows, _PERF] = np.nan
        vector.log[rows, _LENGTH] = self.lengths[rows]
        self.returns[rows], self.lengths[rows] = 0, 0

    @staticmethod
    def add_info(vector: Any, row: int, info: dict[str, Any]) -> None:
        """Take `score` and `perf` of the episode that ended in a row from the info that came with it."""
        for column, name in ((_SCORE, "score"), (_PERF, "perf")):
            if name in info and _is_number(info[name]):
                vector.log[row, column] = info[name]


class LogSums:
    """Sums over logged rows and numeric infos since the last drain."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._sums = np.zeros(len(self._fields))
        self._info_sums: defaultdict[str, float] = defaultdict(float)
        self._info_weights: defaultdict[str, float] = defaultdict(float)

    def add(self, log: Array, logged: Array, infos: Sequence[dict[str, Any]]) -> None:
        """Add one step."""
        if logged.any():
            self._rows += int(np.count_nonzero(logged))
            self._sums += log[logged].sum(axis=0, dtype=np.float64)
        for info in infos:
            weight = float(info["n"]) if _is_number(info.get("n")) else 1.0
            for key, value in info.items():
                if key != "n" and _is_number(value):
                    self._info_sums[key] += float(value) * weight
                    self._info_weights[key] += weight

    def drain(self) -> dict[str, float] | None:
        """Return the means, those of infos in place of a row's of the same name; None where nothing was logged."""
        if self._rows == 0 and not self._info_sums:
            return None
        means = dict(zip(self._fields, self._sums / max(1, self._rows), strict=True)) if self._rows else {}
        means |= {key: total / self._info_weights[key] for key, total in self._info_sums.items()}
        weight = self._rows or max(self._info_weights.values())
        self._clear()
        return {**{key: float(mean) for key, mean in means.items() if math.isfinite(mean)}, "n": float(weight)}


def _is_number(value: Any) -> bool:
    """Return whether an info's value is a scalar that can be averaged."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)
