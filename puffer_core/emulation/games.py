"""The two forms of a PettingZoo environment as one: everybody moves at once, or one after the other.

Either gives, after a reset and after every step, an `Arrival`: what came for each agent, and who is there now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from puffer_core.emulation.forms import accepts
from puffer_core.errors import EnvError

PerAgent: TypeAlias = Mapping[Any, Any]


@dataclass
class Arrival:
    """What one step, or a reset, brought to the agents, by name.

    Attributes:
        observations: Of those that are there, and of those that left in this step.
        rewards, terminals, truncations, infos: Of this step.
        agents: Those that the environment lists now.
        mover: Whose move it is; None where it is everybody's.
    """

    observations: PerAgent
    infos: PerAgent
    agents: Collection[Any]
    rewards: PerAgent = field(default_factory=dict)
    terminals: PerAgent = field(default_factory=dict)
    truncations: PerAgent = field(default_factory=dict)
    mover: Any = None

    @cached_property
    def live(self) -> frozenset[Any]:
        """Agents that go on: listed, and not at their end."""
        return frozenset(name for name in self.agents if not (self.terminals.get(name) or self.truncations.get(name)))


class ParallelGame:
    """An environment in which everybody moves at once, a `pettingzoo.ParallelEnv`.

    Attributes:
        movers: Agents that the next step takes actions of.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.takes_seed = accepts(env.reset, "seed")
        self.movers: tuple[Any, ...] = ()

    def reset(self, seed: int | None) -> Arrival:
        """Start an episode."""
        result = self.env.reset(**_seeding(self, seed))
        observations, infos = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
        _require_mappings(self.env, "reset", {"observations": observations, "infos": infos})
        self.movers = tuple(self.env.agents)
        return Arrival(observations, infos, self.movers)

    def go_on(self) -> None:
        """Take note of a state that the environment has restored."""
        self.movers = tuple(self.env.agents)

    def step(self, actions: dict[Any, Any]) -> Arrival:
        """Advance everybody by one step."""
        result = self.env.step(actions)
        if not isinstance(result, tuple) or len(result) != 5:
            found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            names = "observations, rewards, terminations, truncations, infos"
            raise EnvError(f"{_kind(self.env)}: step returned {found}, not 5 dicts: {names}")
        observations, rewards, terminals, truncations, infos = result
        given = {"observations": observations, "rewards": rewards, "infos": infos}
        _require_mappings(self.env, "step", {**given, "terminations": terminals, "truncations": truncations})
        self.movers = tuple(self.env.agents)
        return Arrival(observations, infos, self.movers, rewards, terminals, truncations)


class TurnGame:
    """An environment in which agents move one after the other, a `pettingzoo.AECEnv`.

    One step is one move, of the agent whose turn it is; all the others watch. So each agent gets every reward in the
    step in which it comes about, also one that another agent's move brings, and never acts on an observation that is
    out of date. Agents at their end are stepped with None here; that costs no step.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.takes_seed = accepts(env.reset, "seed")

    def reset(self, seed: int | None) -> Arrival:
        """Start an episode."""
        self.env.reset(**_seeding(self, seed))
        return self._finish({}, {})

    def go_on(self) -> None:
        """Take note of a state that the environment has restored: there is nothing to keep."""

    @property
    def movers(self) -> tuple[Any, ...]:
        """The agent that the next step takes an action of."""
        return (self.env.agent_selection,)

    def step(self, actions: dict[Any, Any]) -> Arrival:
        """Make one move."""
        rewards: dict[Any, float] = {}
        self._move(actions[self.env.agent_selection], rewards)
        return self._finish(rewards, dict(self.env.infos))

    def _move(self, action: Any, rewards: dict[Any, float]) -> None:
        """Step the environment, and add what changed in each agent's accumulated reward.

        An agent's accumulated reward begins anew when it moves; `last` shows it no sooner than at its next turn.
        """
        mover = self.env.agent_selection
        before = {name: total for name, total in self.env._cumulative_rewards.items() if name != mover}
        self.env.step(action)
        for name, total in self.env._cumulative_rewards.items():
            rewards[name] = rewards.get(name, 0.0) + total - before.get(name, 0.0)

    def _finish(self, rewards: dict[Any, float], infos: dict[Any, Any]) -> Arrival:
        """Step agents at their end until one that goes on has the turn or none is left; observe everybody."""
        env = self.env
        observations: dict[Any, Any] = {}
        terminals: dict[Any, bool] = {}
        truncations: dict[Any, bool] = {}
        for _ in range(2 * len(env.possible_agents) + 1):
            for name in [name for name in env.agents if name not in observations]:
                terminals[name] = bool(env.terminations.get(name))
                truncations[name] = bool(env.truncations.get(name))
                if terminals[name] or truncations[name]:
                    observations[name] = env.observe(name)
            live = [name for name in env.agents if name not in observations]
            if not live or env.agent_selection in live:
                observations.update((name, env.observe(name)) for name in live)
                infos = {**infos, **env.infos}
                return Arrival(observations, infos, live, rewards, terminals, truncations, env.agent_selection)
            self._move(None, rewards)
        raise EnvError(f"{_kind(env)}: agent_selection stays `{env.agent_selection}`, which does not go on")


def _seeding(game: ParallelGame | TurnGame, seed: int | None) -> dict[str, int]:
    return {} if seed is None or not game.takes_seed else {"seed": seed}


def _require_mappings(env: Any, call: str, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if not isinstance(value, Mapping):
            raise EnvError(f"{_kind(env)}: {call} returned {name} that are {type(value).__name__}, not a dict by agent")


def _kind(env: Any) -> str:
    return type(getattr(env, "unwrapped", env)).__name__
