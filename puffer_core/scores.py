"""The one number that a run is judged by: which of the values that an environment logs it is."""

from __future__ import annotations

from collections.abc import Mapping

SCORE_FIELDS = ("score", "episode_return")
"""The first of these that an environment logs is its score."""


def score_of(metrics: Mapping[str, float]) -> float | None:
    """Return the score among the ``env/`` metrics of a rollout or a row, None if the environment logs none."""
    found = next((metrics[f"env/{field}"] for field in SCORE_FIELDS if f"env/{field}" in metrics), None)
    return None if found is None else float(found)
