"""Two policies against each other: who sits where, and what the games say of their strength.

The first one has one seat of every environment, the second one all others, as `puffer_core.seats` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from puffer_core import elo, runs
from puffer_core.actors import Actor, AgentActor, Flags, RandomActor
from puffer_core.config import Config
from puffer_core.errors import OptionError, RunError
from puffer_core.scores import points_of
from puffer_core.seats import first_seats
from puffer_core.trained import load_agent, require_spaces, run_of

if TYPE_CHECKING:
    from puffer_core.rl.agent import Agent
    from puffer_core.vector import Vector

RANDOM = "random"
"""Name of the opponent that draws every legal action with equal odds."""


@dataclass(frozen=True)
class Opponent:
    """The second side.

    Attributes:
        name: As it is reported: the path of its checkpoint, or ``random``.
        agent: None where it plays at random.
        seed: Of what it draws.
    """

    name: str
    agent: Agent | None
    seed: int

    def actor(self, envs: Vector, rows: npt.NDArray[np.int64], greedy: bool) -> Actor:
        """Return who acts for it."""
        if self.agent is None:
            return RandomActor(envs, rows, self.seed)
        return AgentActor(self.agent, envs, greedy, rows)


def find(ref: str, env_name: str, config: Config, seed: int, runs_dir: str | None) -> Opponent:
    """Return the opponent that ``ref`` means: a run, a checkpoint, ``latest`` or ``random``.

    Raises:
        RunError: If there is no such checkpoint, or it is one of another environment.
    """
    from puffer_core.rl.streams import derive

    if ref == RANDOM:
        return Opponent(RANDOM, None, derive(seed, "evaluation", 2))
    checkpoint = runs.find_checkpoint(ref, env_name, runs_dir)
    run = run_of(checkpoint)
    if run is not None and run.env_name != env_name:
        msg = f"the run in `{run.path}` is one of {run.env_name}, not of {env_name}"
        raise RunError(msg, hint=f"take a run of {env_name}, or `{RANDOM}`")
    return Opponent(str(checkpoint.absolute()), load_agent(checkpoint, config, seed, 2), 0)


def require_seats(agents_per_env: int, name: str) -> None:
    """Refuse an environment in which nobody can be met.

    Raises:
        OptionError: If it has one agent.
    """
    if agents_per_env < 2:
        msg = f"{name} has one agent here: two policies need an environment with at least two"
        raise OptionError(msg, hint="a parameter may give it more, as `--env.self-play on` does with connect4")


def cast(
    agent: Agent, opponent: Opponent | None, envs: Vector, greedy: bool, name: str
) -> tuple[list[Actor], Flags | None]:
    """Return who acts, and the rows that are counted: those of ``agent``, None for all."""
    if opponent is None:
        return [AgentActor(agent, envs, greedy)], None
    if opponent.agent is not None:
        require_spaces(opponent.agent, envs, name)
    mine = first_seats(envs.num_agents, envs.agents_per_env)
    rows = (np.flatnonzero(mine), np.flatnonzero(~mine))
    return [AgentActor(agent, envs, greedy, rows[0]), opponent.actor(envs, rows[1], greedy)], mine


def summary(opponent: Opponent, log: npt.NDArray[np.float32], fields: tuple[str, ...]) -> dict[str, Any]:
    """Return what games say of two sides, as the JSON object of `puffer eval` has it.

    Args:
        opponent: The second side.
        log: (n, F) logged values of the first side, one row per game.
        fields: Names of the F values.
    """
    points = points_of(log, fields)
    if points is None or not len(points):
        none = dict.fromkeys(("win_rate", "wins", "draws", "losses", "elo_difference", "elo_difference_stderr"))
        return {"versus": opponent.name, **none}
    games, mean = len(points), float(points.mean())
    variance = float(points.var(ddof=1)) if games > 1 else 0.0
    found = elo.difference(mean, variance, games)
    wins, losses = int((points > 0.5).sum()), int((points < 0.5).sum())
    return {
        "versus": opponent.name,
        "win_rate": mean,
        "wins": wins,
        "draws": games - wins - losses,
        "losses": losses,
        "elo_difference": found.points,
        "elo_difference_stderr": found.stderr,
    }
