from __future__ import annotations

from puffer_core.scores import score_of


def test_score_is_the_return_where_the_environment_has_no_score() -> None:
    assert score_of({"env/episode_return": 3.0}) == 3.0
    assert score_of({"env/episode_return": 3.0, "env/score": 1.0}) == 1.0
    assert score_of({}) is None
