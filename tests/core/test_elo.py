from __future__ import annotations

import pytest

from puffer_core.elo import Results, difference, expected, updated


def test_expected_points() -> None:
    assert expected(0.0) == 0.5
    assert expected(400.0) == pytest.approx(10 / 11)
    assert expected(-400.0) == pytest.approx(1 / 11)
    assert expected(100.0, scale=100.0) == pytest.approx(10 / 11)


def test_any_difference_has_expected_points() -> None:
    for behind in (-1e5, -1e300):
        assert 0.0 <= expected(behind, scale=1e-9) < 1e-300
        assert expected(-behind, scale=1e-9) == 1.0
    assert updated(0.0, [Results(4e5, 2, 1.0)], k=16.0, scale=1.0) == pytest.approx(16.0)


def test_one_game_moves_a_rating_by_k_times_what_was_not_expected() -> None:
    assert updated(0.0, [Results(0.0, 1, 1.0)], k=16.0) == pytest.approx(8.0)
    assert updated(400.0, [Results(0.0, 1, 0.0)], k=11.0) == pytest.approx(390.0)
    assert updated(5.0, [], k=16.0) == 5.0


def test_many_games_settle_where_the_result_is_the_expected_one() -> None:
    rating = updated(0.0, [Results(100.0, 5000, 3750.0)], k=16.0)
    assert rating == pytest.approx(100.0 + 190.85, abs=0.01)
    both = [Results(0.0, 3000, 2250.0), Results(200.0, 3000, 750.0)]
    assert updated(0.0, both, k=16.0) == updated(0.0, both[::-1], k=16.0) == pytest.approx(100.0, abs=0.01)


def test_difference_with_its_standard_error() -> None:
    found = difference(0.75, 0.1875, 400)
    assert found.points == pytest.approx(190.85, abs=0.01)
    # To first order: 400 / ln 10 / (0.75 x 0.25) x sqrt(0.1875 / 400).
    assert found.stderr == pytest.approx(20.06, abs=0.01)


def test_one_side_that_took_every_point_has_no_difference() -> None:
    for mean in (0.0, 1.0):
        assert difference(mean, 0.0, 100).points is None
    assert difference(0.5, 0.0, 1).stderr is None
