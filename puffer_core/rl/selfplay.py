"""Self-play: in some environments, opponents from a pool act in the learner's place, and nothing is learnt from them.

Which rows are frozen is the same for the whole run (`puffer_core.seats`). Who plays them changes only between games:
each epoch draws a few opponents from the pool, and an environment takes one of them when the learner's episode there
ends. So every game is played against one opponent, with a recurrent state of its own that begins at zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from puffer_core.config.schema import Config
from puffer_core.errors import EnvError, OptionError
from puffer_core.rl.means import Means
from puffer_core.rl.pool import Pool, total
from puffer_core.rl.ranks import Ranks
from puffer_core.rl.streams import generator
from puffer_core.scores import points_of
from puffer_core.seats import frozen_rows

if TYPE_CHECKING:
    from puffer_core.policies import Policy
    from puffer_core.vector.base import Vector

Rows = npt.NDArray[np.int64]
LEARNER, NOBODY = -1, -2


class SelfPlay:
    """Who acts for which row, and how the games end.

    Args:
        config: Decides everything but the counts.
        vector: The environments.
        policy: What the learner learns; its copies are the opponents, which act in float32.
        network: What the learner acts with.
        device: Where they are.
        ranks: Processes that share the pool; each draws opponents of its own.

    Attributes:
        learners: (C,) int64 on the device, the rows that the learner plays and learns from.
        player: (N,) int64 for each row, the step of the opponent that plays it, or `LEARNER`.
        generator: Draws the opponents.
    """

    def __init__(
        self, config: Config, vector: Vector, policy: Policy, network: Any, device: torch.device, ranks: Ranks
    ) -> None:
        if vector.agents_per_env < 2:
            raise OptionError(f"selfplay.enabled: {vector.name} has one agent, so nobody could be met")
        self._vector, self._policy, self._network, self._ranks = vector, policy, network, ranks
        self._interval = config.selfplay.interval
        self.is_frozen = frozen_rows(config.selfplay, vector.num_agents, vector.agents_per_env)
        self.learners = torch.from_numpy(np.flatnonzero(~self.is_frozen)).to(device)
        self.player: Rows = np.where(self.is_frozen, NOBODY, LEARNER).astype(np.int64)
        self.generator = generator(config.base.seed, "opponents", ranks.rank)
        self.pool = Pool(config.selfplay)
        self.pool.add(policy, 0)
        met = self.is_frozen.reshape(-1, vector.agents_per_env).any(1)
        # Seats go round from environment to environment; so each drawn opponent meets the learner on all of them.
        turns = np.cumsum(met) - 1
        self._slots = np.maximum(turns, 0) // vector.agents_per_env % config.selfplay.concurrent
        self._drawn: Rows = np.empty(0, np.int64)
        self._results: dict[int, tuple[int, float]] = {}
        self._log = Means()
        self._logged = 0

    def start(self) -> None:
        """Begin new games everywhere."""
        self.player[self.is_frozen] = NOBODY

    def draw(self) -> None:
        """Draw the opponents of an epoch."""
        self._drawn = np.array(self.pool.draw(self.generator), np.int64)
        self._assign(self.player == NOBODY)

    def _assign(self, rows: npt.NDArray[np.bool_]) -> Rows:
        """Give frozen ones of the rows, (N,) bool, the opponents drawn; return those that have another one now."""
        players = np.repeat(self._drawn[self._slots], self._vector.agents_per_env)
        changed = np.flatnonzero(rows & self.is_frozen & (self.player != players))
        self.player[changed] = players[changed]
        return changed

    def arrived(self, rows: Rows) -> Rows:
        """Count the games that have ended with an arrival; return the rows that have another opponent now.

        Args:
            rows: (n,) of the vector's batch.
        """
        vector, is_mine = self._vector, ~self.is_frozen[rows]
        self._count(rows[is_mine & vector.logged], vector.log[is_mine & vector.logged])
        ended = rows[is_mine & (vector.terminals | vector.truncations)]
        if not len(ended):
            return ended
        environments = np.zeros(len(self._slots), np.bool_)
        environments[ended // vector.agents_per_env] = True
        return self._assign(np.repeat(environments, vector.agents_per_env))

    def _count(self, rows: Rows, log: npt.NDArray[np.float32]) -> None:
        """Take in what was logged of the learner's rows."""
        if not len(rows):
            return
        fields = self._vector.log_fields
        self._log.add(dict(zip(fields, log.astype(np.float64).mean(0).tolist(), strict=True)), len(rows))
        self._logged += len(rows)
        points = points_of(log, fields)
        if points is None:
            raise EnvError(
                f"selfplay.enabled: {self._vector.name} logs no `perf` or `score`, so nobody knows who has won",
                hint=f"it logs {', '.join(fields) or 'nothing'}",
            )
        against = self._against(rows)
        for step in np.unique(against[against >= 0]).tolist():
            games, won = self._results.get(step, (0, 0.0))
            chosen = against == step
            self._results[step] = (games + int(chosen.sum()), won + float(points[chosen].sum()))

    def _against(self, rows: Rows) -> Rows:
        """Return (n,) the opponent in the environment of each row, `LEARNER` where it has none."""
        agents = self._vector.agents_per_env
        opponents: Rows = self.player.reshape(-1, agents).max(1)[rows // agents]
        return opponents

    def take_log(self, logged: dict[str, float] | None) -> dict[str, float] | None:
        """Return what environments have logged since the last call, but of the learner's rows alone.

        Args:
            logged: Of all rows, which may hold numbers of infos besides.
        """
        count, self._logged = self._logged, 0
        means = self._log.take("")
        return {**(logged or {}), **means, "n": float(count)} if count else None

    def forward_eval(self, observations: Tensor, state: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, values and new state as a policy does, each row's from who plays it.

        Opponents value nothing: their values are 0.

        Args:
            observations: (n, *shape).
            state: (L, n, W).
            rows: (n,) which rows these are.
        """
        groups = self._groups(rows, state.device)
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        for policy, chosen in groups:
            agents = {"agents": self._agents(rows, chosen)} if getattr(policy, "needs_agents", False) else {}
            own = observations.index_select(0, chosen), state.index_select(1, chosen)
            logits, values, after = policy.forward_eval(*own, **agents)
            parts.append((logits, values if policy is self._network else torch.zeros_like(values), after))
        places = torch.argsort(torch.cat([chosen for _, chosen in groups]))
        logits, values, after = (torch.cat(part, int(part[0].ndim == 3)) for part in zip(*parts, strict=True))
        return logits.index_select(0, places), values.index_select(0, places), after.index_select(1, places)

    def _agents(self, rows: Rows, chosen: Tensor) -> Tensor:
        """Return which agent of its environment each chosen row is."""
        return torch.from_numpy(rows % self._vector.agents_per_env).to(chosen.device)[chosen]

    def sample(self, logits: Tensor, noise: Tensor, mask: Tensor | None, rows: Rows) -> Tensor:
        """Return the actions of each row, drawn as who plays it does."""
        layout = self._policy.layout
        if self._policy.logstd is None:
            return layout.sample(logits, noise, mask, None)
        actions = torch.zeros(len(rows), *layout.shape, dtype=layout.dtype, device=logits.device)
        for policy, chosen in self._groups(rows, logits.device):
            own = None if mask is None else mask.index_select(0, chosen)
            actions[chosen] = layout.sample(logits[chosen], noise[chosen], own, policy.logstd)
        return actions

    def _groups(self, rows: Rows, device: torch.device) -> list[tuple[Any, Tensor]]:
        """Return each network that plays some of the rows, and where they are among them."""
        players = self.player[rows]
        return [
            (
                self._network if step == LEARNER else self.pool.policy(step),
                torch.from_numpy(np.flatnonzero(players == step)).to(device),
            )
            for step in np.unique(players).tolist()
        ]

    def end_epoch(self, epoch: int, step: int) -> None:
        """Take in the games of all ranks, and copy the learner where it is time.

        Args:
            epoch: Epochs learnt from.
            step: The learner's steps.
        """
        parts = self._ranks.gather((self._results, np.unique(self.player[self.is_frozen]).tolist()))
        self.pool.count(total([results for results, _ in parts]))
        self.pool.forget_but(step for _, playing in parts for step in playing)
        self._results = {}
        if epoch % self._interval == 0:
            self.pool.add(self._policy, step)
