"""The pool of self-play: frozen copies of the learner, how they are drawn, and how strong it is against them.

An opponent keeps its weights, and the rating that the learner had when it was copied; only the learner's rating moves.
The untrained network has rating 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from puffer_core import elo
from puffer_core.config.schema import SelfPlayConfig
from puffer_core.rl import checkpoint

MEMORY = 0.9
"""What is left, after an epoch, of the weight of the games before it in a win rate."""
LEAST_WEIGHT = 0.05
"""Weight in prioritised drawing of an opponent that never takes a point."""

Results = Mapping[int, tuple[int, float]]
"""Games and the learner's points in them, by opponent."""


@dataclass
class Opponent:
    """A frozen copy.

    Attributes:
        step: Of the learner, when it was copied; its name.
        rating: Of the learner, then.
        games, points: Of the learner against it; those of older epochs weigh less.
    """

    step: int
    policy: Any
    rating: float
    games: float = 0.0
    points: float = 0.0

    @property
    def win_rate(self) -> float | None:
        """Points per game of the learner against it; None before the first."""
        return self.points / self.games if self.games else None


class Pool:
    """The opponents, oldest first.

    Attributes:
        rating: The learner's.
        opponents: Those that are drawn.
        leaving: Those that have left, but still play a game to its end.
    """

    def __init__(self, config: SelfPlayConfig) -> None:
        self._config = config
        self.rating = 0.0
        self.opponents: list[Opponent] = []
        self.leaving: list[Opponent] = []

    def add(self, policy: nn.Module, step: int) -> None:
        """Copy the learner as it is; where the pool is full, an opponent leaves whose neighbours are closest in time.

        The first and the newest stay, so that those between them come to span the whole run: what the learner has
        once learnt to beat is not forgotten.
        """
        self.opponents.append(Opponent(step, _frozen(policy), self.rating))
        if len(self.opponents) > self._config.opponents:
            steps = [opponent.step for opponent in self.opponents]
            between = range(1, len(steps) - 1)
            self.leaving.append(self.opponents.pop(min(between, key=lambda i: steps[i + 1] - steps[i - 1], default=0)))

    def policy(self, step: int) -> Any:
        """Return the network of an opponent."""
        return next(known.policy for known in (*self.opponents, *self.leaving) if known.step == step)

    def draw(self, generator: torch.Generator) -> list[int]:
        """Return the steps of the opponents of an epoch, drawn with replacement."""
        weights = torch.tensor([self._weight(place) for place in range(len(self.opponents))], dtype=torch.float64)
        drawn = torch.multinomial(weights, self._config.concurrent, replacement=True, generator=generator)
        return [self.opponents[place].step for place in drawn.tolist()]

    def _weight(self, place: int) -> float:
        if self._config.sampling == "recent":
            return 2.0 ** (place + 1 - len(self.opponents))
        if self._config.sampling == "prioritised":
            rate = self.opponents[place].win_rate
            return LEAST_WEIGHT + (0.5 if rate is None else 1.0 - rate)
        return 1.0

    def count(self, results: Results) -> None:
        """Take in the games of an epoch."""
        known = {opponent.step: opponent for opponent in (*self.leaving, *self.opponents)}
        against = [elo.Results(known[step].rating, *results[step]) for step in sorted(results)]
        config = self._config
        self.rating = elo.updated(self.rating, against, k=config.elo_k, scale=config.elo_scale)
        for step, opponent in known.items():
            games, points = results.get(step, (0, 0.0))
            opponent.games = MEMORY * opponent.games + games
            opponent.points = MEMORY * opponent.points + points

    def forget_but(self, playing: Iterable[int]) -> None:
        """Drop those that have left and no longer play."""
        kept = set(playing)
        self.leaving = [opponent for opponent in self.leaving if opponent.step in kept]

    def metrics(self) -> dict[str, float]:
        """Return ``selfplay/*``: rating, size, and the win rates against all and against each, oldest first."""
        games, points = (sum(getattr(one, name) for one in self.opponents) for name in ("games", "points"))
        rates = {"win_rate": points / games} if games else {}
        rates |= {
            f"win_rate_{place}": opponent.win_rate
            for place, opponent in enumerate(self.opponents)
            if opponent.win_rate is not None
        }
        named = {"elo": self.rating, "opponents": float(len(self.opponents)), **rates}
        return {f"selfplay/{name}": value for name, value in named.items()}

    def state(self) -> dict[str, Any]:
        """Return all but the weights, as JSON can hold it."""
        return {
            "rating": self.rating,
            "opponents": [_row(opponent) for opponent in self.opponents],
            "leaving": [_row(opponent) for opponent in self.leaving],
        }

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of all opponents, called ``STEP.NAME``."""
        return {
            f"{opponent.step}.{name}": tensor
            for opponent in (*self.opponents, *self.leaving)
            for name, tensor in opponent.policy.state_dict().items()
        }

    def restored(self, state: Mapping[str, Any], weights: Mapping[str, Tensor], like: nn.Module, path: Path) -> Pool:
        """Return the pool of a checkpoint; this one stays as it is.

        Args:
            state: From `state`.
            weights: From `weights`.
            like: A network of the same kind.
            path: Of the checkpoint, for the texts of errors.

        Raises:
            RunError: If weights do not fit the network.
            KeyError, TypeError, ValueError: If it is damaged.
        """
        pool = Pool(self._config)
        pool.rating = float(state["rating"])
        for name in ("opponents", "leaving"):
            setattr(pool, name, [_restored(row, weights, like, path) for row in state[name]])
        if not pool.opponents:
            raise ValueError("the pool of self-play is empty")
        return pool


def _row(opponent: Opponent) -> dict[str, float]:
    return {name: getattr(opponent, name) for name in ("step", "rating", "games", "points")}


def _restored(row: Mapping[str, Any], weights: Mapping[str, Tensor], like: nn.Module, path: Path) -> Opponent:
    start = f"{row['step']}."
    own = {name[len(start) :]: tensor for name, tensor in weights.items() if name.startswith(start)}
    policy = _frozen(like)
    checkpoint.load_model(policy, own, path)
    return Opponent(int(row["step"]), policy, *(float(row[name]) for name in ("rating", "games", "points")))


def _frozen(policy: nn.Module) -> nn.Module:
    copied: nn.Module = deepcopy(checkpoint.plain(policy)).eval()
    return copied.requires_grad_(False)


def total(parts: Sequence[Results]) -> dict[int, tuple[int, float]]:
    """Return the games of all ranks together."""
    sums: dict[int, tuple[int, float]] = {}
    for part in parts:
        for step, (games, points) in part.items():
            before = sums.get(step, (0, 0.0))
            sums[step] = (before[0] + games, before[1] + points)
    return sums
