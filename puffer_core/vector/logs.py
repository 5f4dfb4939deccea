"""Logs in Python: statistics of episodes for environments that keep none, and the means that training reads.

The columns of a log are fixed when a vector is opened, and which numbers the infos of a Python environment will hold is
not known then. So the rows have the four of `EPISODE_FIELDS`, and other numbers in infos appear in the means only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_core.env import Array
from puffer_core.vector.infos import is_number

EPISODE_FIELDS = ("score", "perf", "episode_return", "episode_length")
"""What is logged for an environment without log fields of its own: ``score`` is the return where no info gives one,
``perf`` is not a number where none does."""
_SCORE, _PERF, _RETURN, _LENGTH = range(4)
_HELD = 64
"""Steps or rows whose log is kept to be added up together, which costs less."""


class EpisodeStats:
    """Return and length of each row's episode, written into the log row in which it ends."""

    def __init__(self, rows: int) -> None:
        self.returns = np.zeros(rows)
        self._lengths = np.zeros(rows, np.int64)
        self._steps = 0  # of every row, not counted in the lengths yet
        self._present = np.ones(rows, np.bool_)

    def reset(self, present: Array | None = None) -> None:
        """Begin anew in every row; ``present`` says whose agent is there, without it every one is."""
        self.returns.fill(0)
        self.lengths.fill(0)
        self._present[:] = True if present is None else present

    def resume(self, returns: Array, lengths: Array, present: Array) -> None:
        """Go on with episodes that were saved; ``present`` says whose agent is there."""
        self.returns[:], self.lengths[:], self._present[:] = returns, lengths, present

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Steps of each row's episode."""
        if self._steps:
            self._lengths += self._steps
            self._steps = 0
        return self._lengths

    def add(self, vector: Any, ended: Array) -> None:
        """Account for the step that the arrays of a vector show, in which some rows ended."""
        self.returns += vector.rewards
        lengths = self.lengths
        lengths += self._present  # a step is one of whoever was there before it: who comes in it has taken none
        self._present[:] = vector.masks
        vector.logged[:] = ended
        rows = np.flatnonzero(ended)
        if not len(rows):
            return
        vector.log[rows, _SCORE] = vector.log[rows, _RETURN] = self.returns[rows]
        vector.log[rows, _PERF] = np.nan
        vector.log[rows, _LENGTH] = lengths[rows]
        self.returns[rows], lengths[rows] = 0, 0

    def add_rows(self, vector: Any, rows: Sequence[int]) -> None:
        """Account for a step of agents that are always there; the episodes of ``rows`` ended in it."""
        self.returns += vector.rewards
        self._steps += 1
        log, logged, returns, lengths, steps = vector.log, vector.logged, self.returns, self._lengths, self._steps
        for row in rows:
            total = returns.item(row)
            log[row] = total, math.nan, total, lengths.item(row) + steps
            logged[row], returns[row], lengths[row] = True, 0, -steps

    @staticmethod
    def add_info(vector: Any, row: int, info: dict[str, Any]) -> None:
        """Take `score` and `perf` of the episode that ended in a row from the info that came with it."""
        for column, name in ((_SCORE, "score"), (_PERF, "perf")):
            if name in info and is_number(info[name]):
                vector.log[row, column] = info[name]


class LogSums:
    """Sums over logged rows and numeric infos since the last drain.

    The mean of a column of the log is that over the rows which have a number there, as not all have in ``perf``. One of
    infos that comes with the ends of episodes is averaged over those; one that never did, over every info.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)
        self._at_ends: set[str] = set()
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._held: list[bytes] = []
        self._sums = np.zeros(len(self._fields))
        self._counts = np.zeros(len(self._fields), np.int64)  # of rows that have a number in the column
        self._every, self._last = InfoSums(self._fields), InfoSums(self._fields)

    def add(
        self, log: Array, logged: Array, infos: Sequence[dict[str, Any]], last: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Add one step; ``last`` are the infos that came with the end of an episode."""
        if count := int(np.count_nonzero(logged)):
            self._rows += count
            self._held.append(log[logged].astype(np.float32, copy=False).tobytes())
        self._add_infos(infos, last)

    def add_rows(
        self, log: Array, rows: Sequence[int], infos: Sequence[dict[str, Any]], last: Sequence[dict[str, Any]]
    ) -> None:
        """Do what `add` does for the few rows that were logged: cheaper than looking for them."""
        self._rows += len(rows)
        for row in rows:
            self._held.append(log[row].tobytes())
        self._add_infos(infos, last)

    def _add_infos(self, infos: Sequence[dict[str, Any]], last: Sequence[dict[str, Any]]) -> None:
        if len(self._held) >= _HELD:
            self._fold()
        for info in infos:
            self._every.add(info, self._at_ends)
        for info in last:
            self._at_ends |= self._last.add(info)

    def _fold(self) -> None:
        """Add up the rows that are held."""
        if self._held:
            rows = np.frombuffer(b"".join(self._held), np.float32).reshape(-1, len(self._fields))
            self._sums += np.nansum(rows, axis=0, dtype=np.float64)
            self._counts += len(rows) - np.count_nonzero(np.isnan(rows), axis=0)
            self._held = []

    def take(self) -> LogSums:
        """Return everything since the last drain, for `absorb` elsewhere, and begin anew."""
        self._fold()
        taken = LogSums(self._fields)
        taken._at_ends = set(self._at_ends)
        taken._rows, taken._sums, taken._counts = self._rows, self._sums, self._counts
        taken._every, taken._last = self._every, self._last
        self._clear()
        return taken

    def absorb(self, other: LogSums) -> None:
        """Add everything that other sums hold, as those of a worker."""
        other._fold()
        self._at_ends |= other._at_ends
        self._rows += other._rows
        self._sums += other._sums
        self._counts += other._counts
        self._every.absorb(other._every)
        self._last.absorb(other._last)

    def drain(self) -> dict[str, float] | None:
        """Return the means over rows and infos, and the number ``n`` of rows (else of infos); None without any."""
        self._fold()
        every = {key: mean for key, mean in self._every.means().items() if key not in self._at_ends}
        means = {**every, **self._last.means()}
        weight = self._rows or max((self._every.weights[key] for key in means), default=0.0)
        if self._rows:
            columns = zip(self._fields, self._sums, self._counts, strict=True)
            means |= {name: total / count if count else math.nan for name, total, count in columns}
        self._clear()
        finite = {key: float(mean) for key, mean in means.items() if math.isfinite(mean)}
        return {**finite, "n": float(weight)} if means else None


class InfoSums:
    """Sums of the numbers in infos, weighted by their key ``n`` where they have one; without those a log row has."""

    def __init__(self, logged: Sequence[str]) -> None:
        self._left_out = {"n", *logged}
        self.weights: defaultdict[str, float] = defaultdict(float)
        self._sums: defaultdict[str, float] = defaultdict(float)

    def add(self, info: dict[str, Any], known: Set[str] = frozenset()) -> set[str]:
        """Add one info but for what is ``known``, unless it stands for nothing; return the names of its numbers."""
        weight = float(info["n"]) if is_number(info.get("n")) else 1.0
        if not 0 < weight < math.inf:
            return set()
        left_out = self._left_out
        names = {key for key, value in info.items() if key not in known and key not in left_out and is_number(value)}
        for key in names:
            self._sums[key] += float(info[key]) * weight
            self.weights[key] += weight
        return names

    def absorb(self, other: InfoSums) -> None:
        """Add the sums and weights of other infos."""
        for key, total in other._sums.items():
            self._sums[key] += total
            self.weights[key] += other.weights[key]

    def means(self) -> dict[str, float]:
        """Return the mean of every number."""
        return {key: total / self.weights[key] for key, total in self._sums.items()}
