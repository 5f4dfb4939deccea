"""Ratings after Elo (The Rating of Chessplayers, 1978): strength in points, from the results of games.

A side that is D points ahead expects 1 / (1 + 10 ^ (-D / scale)) points of a game: 1 for a win, 0.5 for a draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SCALE = 400.0
"""Points ahead at which ten of eleven points are expected."""


def expected(difference: float, scale: float = SCALE) -> float:
    """Return the points per game, 0 to 1, that a side expects whose rating is ``difference`` higher."""
    return 1.0 / (1.0 + math.exp(-difference / scale * math.log(10.0)))


def updated(rating: float, opponent: float, mean: float, games: int, *, k: float, scale: float = SCALE) -> float:
    """Return a rating after games against an opponent of fixed rating.

    The games count one after the other, each with their mean result, so their order does not matter.

    Args:
        rating: Before them.
        opponent: The rating of the other side, which stays as it is.
        mean: Points per game, 0 to 1.
        games: How many.
        k: Most points that one game moves the rating by.
        scale: As in `expected`.
    """
    for _ in range(games):
        change = k * (mean - expected(rating - opponent, scale))
        if abs(change) < 1e-9:
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
