"""Who acts where nobody learns: each actor chooses for its own rows of a vector.

An evaluation has one, which plays all rows. Where two policies meet, or a person plays, there are several, and every
row belongs to exactly one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, MultiDiscrete

if TYPE_CHECKING:
    from puffer_core.rl.agent import Agent
    from puffer_core.vector import Vector

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Actor(Protocol):
    """What `evaluate.play` and `evaluate.watch` ask for actions, once a step.

    Attributes:
        rows: (k,) int64, the rows of the vector that it acts for.
    """

    rows: Rows

    def act(self, playing: Flags, actions: npt.NDArray[Any]) -> None:
        """Write the actions of its rows.

        Args:
            playing: (N,) bool; what the other rows do is of no consequence, but has to be legal.
            actions: (N, ...) of all rows, which still holds the actions before.
        """


class AgentActor:
    """A trained agent. Once half of its rows are done, the others are no longer computed.

    Args:
        agent: The agent.
        envs: The vector.
        greedy: Take the likeliest action instead of drawing one as in training.
        rows: (k,) int64 that it plays; None for all.
    """

    def __init__(self, agent: Agent, envs: Vector, greedy: bool = False, rows: Rows | None = None) -> None:
        self.rows = np.arange(envs.num_agents) if rows is None else rows
        self._agent, self._envs, self._greedy = agent, envs, greedy
        self._left = self.rows
        self._alive = np.ones(envs.num_agents, np.bool_)
        self._state: Any = None
        self._needs_agents = bool(getattr(getattr(agent, "policy", None), "needs_agents", False))

    def act(self, playing: Flags, actions: npt.NDArray[Any]) -> None:
        """Write the actions of its rows; rows that were dropped repeat their last one."""
        envs = self._envs
        # A row that is done repeats its last action, which a mask might no longer allow: then all go on.
        if envs.action_mask is None and 2 * np.count_nonzero(playing[self._left]) < len(self._left):
            self._drop(playing[self._left])
        rows = self._left
        # As in training: the state is zeroed behind an end, and where an agent has just come (it was absent before).
        resets = (envs.terminals | envs.truncations | ~self._alive)[rows] if self._state is not None else None
        self._alive = envs.masks.copy()
        arguments: dict[str, Any] = {"agents": rows % envs.agents_per_env} if self._needs_agents else {}
        actions[rows], self._state = self._agent.act(
            envs.observations[rows],
            self._state,
            greedy=self._greedy,
            resets=resets,
            action_mask=None if envs.action_mask is None else envs.action_mask[rows],
            **arguments,
        )

    def _drop(self, kept: Flags) -> None:
        self._left = self._left[kept]
        if self._state is not None:
            self._state = self._state[:, np.flatnonzero(kept)]


class RandomActor:
    """Draws every action that is legal with equal odds.

    Args:
        envs: The vector.
        rows: (k,) int64 that it plays.
        seed: Of the drawing.
    """

    def __init__(self, envs: Vector, rows: Rows, seed: int) -> None:
        self.rows = rows
        self._envs = envs
        self._space = deepcopy(envs.single_action_space)
        self._space.seed(seed)
        self._rng = np.random.default_rng(seed)
        self._heads = head_sizes(self._space)

    def act(self, playing: Flags, actions: npt.NDArray[Any]) -> None:
        """Write the actions of its rows."""
        mask = self._envs.action_mask
        for row in self.rows:
            if mask is None or not self._heads:
                actions[row] = self._space.sample()
            else:
                actions[row] = np.reshape(self._legal(mask[row]), actions.shape[1:])

    def _legal(self, mask: npt.NDArray[np.uint8]) -> list[int]:
        parts = np.split(mask, np.cumsum(self._heads)[:-1])
        return [int(self._rng.choice(np.flatnonzero(part))) for part in parts]


def head_sizes(space: Any) -> Sequence[int]:
    """Return how many choices each head of a discrete action space has; nothing for other spaces."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    return tuple(int(size) for size in space.nvec) if isinstance(space, MultiDiscrete) else ()
