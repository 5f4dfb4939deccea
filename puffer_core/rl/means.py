"""Weighted means of named numbers, collected until someone asks, and kept over a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Means:
    """A running weighted mean per name."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, values: Mapping[str, float], weight: float) -> None:
        """Take in one value per name, each with the same weight."""
        for name, value in values.items():
            total, weights = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (total + weight * value, weights + weight)

    def take(self, prefix: str) -> dict[str, float]:
        """Return the means, named with ``prefix``, and begin again."""
        means = {prefix + name: total / weight for name, (total, weight) in self._sums.items() if weight > 0}
        self._sums = {}
        return means

    def add_sums(self, sums: Mapping[str, Sequence[float]]) -> None:
        """Take in what `state` of other means gives."""
        for name, (total, weight) in sums.items():
            before, weights = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (before + total, weights + weight)

    def state(self) -> dict[str, list[float]]:
        """Return what `restore` takes, as JSON can hold it."""
        return {name: list(pair) for name, pair in self._sums.items()}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from `state`."""
        self._sums = {name: (float(total), float(weight)) for name, (total, weight) in state.items()}
