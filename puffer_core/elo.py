"""Ratings after Elo (The Rating of Chessplayers, 1978): strength in points, from the results of games.

A side that is D points ahead expects 1 / (1 + 10 ^ (-D / scale)) points of a game: 1 for a win, 0.5 for a draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SCALE = 400.0
"""Points ahead at which ten of eleven points are expected."""
LARGEST_EXPONENT = 700.0
"""Of e in `expected`: what is expected is 1e-304 then, and a little more would be no float."""
SMALLEST_CHANGE = 1e-9
"""A rating that one more game would change by less has settled."""


def expected(difference: float, scale: float = SCALE) -> float:
    """Return the points per game, 0 to 1, that a side expects whose rating is ``difference`` higher."""
    return 1.0 / (1.0 + math.exp(min(-difference / scale * math.log(10.0), LARGEST_EXPONENT)))


@dataclass(frozen=True)
class Results:
    """Games against one opponent.

    Attributes:
        rating: Of the opponent, which stays as it is.
        games: How many.
        points: Taken from it, 0 to ``games``.
    """

    rating: float
    games: int
    points: float


def updated(rating: float, results: Sequence[Results], *, k: float, scale: float = SCALE) -> float:
    """Return a rating after games against opponents of fixed ratings.

    The games count one after the other, each as the mean of all, so the order in which they were played is no matter.

    Args:
        rating: Before them.
        results: Of each opponent.
        k: Most points that one game moves the rating by.
        scale: As in `expected`.
    """
    games, points = sum(result.games for result in results), sum(result.points for result in results)
    for _ in range(games):
        foreseen = sum(result.games * expected(rating - result.rating, scale) for result in results)
        change = k * (points - foreseen) / games
        if abs(change) < SMALLEST_CHANGE:
            break
        rating += change
    return rating


@dataclass(frozen=True)
class Difference:
    """How far one side is ahead of another, as estimated from games between them.

    Attributes:
        points: In rating; None where one side has taken every point: any large difference explains that.
        stderr: Standard error of it, None where it can't be told.
    """

    points: float | None
    stderr: float | None


def difference(mean: float, variance: float, games: int, scale: float = SCALE) -> Difference:
    """Return the difference that makes the mean result the expected one, with its error to first order.

    Args:
        mean: Points per game of the side in question.
        variance: Of the points of one game, over ``games - 1``.
        games: How many, at least one.
        scale: As in `expected`.
    """
    if not 0.0 < mean < 1.0:
        return Difference(None, None)
    points = scale * math.log10(mean / (1.0 - mean))
    if games < 2:
        return Difference(points, None)
    slope = scale / (math.log(10.0) * mean * (1.0 - mean))
    return Difference(points, slope * math.sqrt(variance / games))
