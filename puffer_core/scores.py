"""The one number a run is judged by, and the points of a game: which of the values an environment logs they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SCORE_FIELDS = ("score", "episode_return")
"""The first of these that an environment logs is its score."""


def score_of(metrics: Mapping[str, float]) -> float | None:
    """Return the score among the ``env/`` metrics of a rollout or a row, None if the environment logs none."""
    found = next((metrics[f"env/{field}"] for field in SCORE_FIELDS if f"env/{field}" in metrics), None)
    return None if found is None else float(found)


def points_of(log: npt.NDArray[Any], fields: Sequence[str]) -> npt.NDArray[np.float64] | None:
    """Return the points of games, 1 for a win, 0.5 for a draw, 0 for a loss; None if the environment logs no result.

    They are ``perf``, which is between 0 and 1; without it, the sign of the score says who has won.

    Args:
        log: (n, F) logged values, of one side of each game.
        fields: Names of the F values.
    """
    if "perf" in fields:
        return np.clip(log[:, list(fields).index("perf")].astype(np.float64), 0.0, 1.0)
    for name in SCORE_FIELDS:
        if name in fields:
            return 0.5 + 0.5 * np.sign(log[:, list(fields).index(name)].astype(np.float64))
    return None
