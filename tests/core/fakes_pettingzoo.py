"""Small PettingZoo environments, for tests of their adapter: who is there, who leaves and how is written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv, ParallelEnv

NAN = float("nan")


class Schedule(ParallelEnv):
    """Agents come and go by the step.

    The observation of agent ``k`` is (k + 1, seed, t), its reward 10 k + t. ``events[t]`` maps an agent to what
    happens to it in step t: ``enter``, ``terminate``, ``truncate``, ``both``, or ``vanish`` (no flag).

    Args:
        events: By step.
        agents: How many are possible.
        absent: Who is not there after a reset.
        poison: Dicts name absent agents too, with NaN.
    """

    metadata = {"name": "schedule_v0"}  # noqa: RUF012

    def __init__(
        self,
        events: Mapping[int, Mapping[str, str]],
        agents: int = 3,
        absent: tuple[str, ...] = (),
        poison: bool = False,
    ) -> None:
        self.events, self.absent, self.poison = events, absent, poison
        self.possible_agents = [f"agent_{k}" for k in range(agents)]
        self.agents: list[str] = []
        self.seed, self.time = 0, 0
        self.taken: list[dict[str, int]] = []

    def observation_space(self, agent: str) -> Any:
        return Box(-100, 1000, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.seed = self.seed + 1 if seed is None else seed
        self.time = 0
        self.agents = [agent for agent in self.possible_agents if agent not in self.absent]
        return self.observe(self.agents), {agent: {} for agent in self.agents}

    def observe(self, agents: list[str]) -> dict[str, Any]:
        seen = {
            agent: np.array([self.possible_agents.index(agent) + 1, self.seed, self.time], np.float32)
            for agent in agents
        }
        if self.poison:
            seen |= {agent: np.full(3, NAN, np.float32) for agent in self.possible_agents if agent not in agents}
        return seen

    def step(self, actions: dict[str, int]) -> Any:
        self.taken.append(actions)
        self.time += 1
        present, events = list(self.agents), self.events.get(self.time, {})
        leaving = {agent for agent, event in events.items() if event != "enter"}
        present += [agent for agent, event in events.items() if event == "enter"]
        self.agents = [agent for agent in self.possible_agents if agent in present and agent not in leaving]
        shown = [agent for agent in present if events.get(agent) != "vanish"]
        rewards = {agent: 10.0 * self.possible_agents.index(agent) + self.time for agent in shown}
        if self.poison:
            rewards |= {agent: NAN for agent in self.possible_agents if agent not in shown}
        terminals = {agent: events.get(agent) in ("terminate", "both") for agent in shown}
        truncations = {agent: events.get(agent) in ("truncate", "both") for agent in shown}
        return self.observe(shown), rewards, terminals, truncations, {agent: {} for agent in shown}


class Poisoned(Schedule):
    """Agents come and go, and whoever is absent is given NaN."""

    def __init__(self) -> None:
        events = {2: {"agent_1": "terminate"}, 4: {"agent_3": "enter"}, 5: {"agent_0": "vanish"}}
        events[9] = {"agent_2": "truncate", "agent_3": "terminate"}
        super().__init__(events, agents=5, absent=("agent_3", "agent_4"), poison=True)


class Spaces(ParallelEnv):
    """Two agents with spaces of one's choice; both get samples and keep what they were given."""

    metadata = {"name": "spaces_v0"}  # noqa: RUF012

    def __init__(self, observations: list[Any], actions: list[Any], masks: list[Any] | None = None) -> None:
        self.possible_agents = [f"agent_{k}" for k in range(len(observations))]
        self.observations, self.actions, self.masks = observations, actions, masks
        self.taken: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> Any:
        return self.observations[self.possible_agents.index(agent)]

    def action_space(self, agent: str) -> Any:
        return self.actions[self.possible_agents.index(agent)]

    def _show(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self.shown = {agent: self.observation_space(agent).sample() for agent in self.agents}
        infos = {agent: {"action_mask": mask} for agent, mask in zip(self.agents, self.masks or [], strict=False)}
        return self.shown, infos

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return self._show()

    def step(self, actions: dict[str, Any]) -> Any:
        self.taken.append(actions)
        observations, infos = self._show()
        no = dict.fromkeys(self.agents, False)
        return observations, dict.fromkeys(self.agents, 0), no, no, infos


class Duel(AECEnv):
    """Three agents move in turn, ``rounds`` times; each move is worth 1 to the mover and 0.5 to the agent before it.

    In round ``kill_at`` the move of agent 0 kills agent 2 before its turn, which costs that 5. An observation is
    (own number, moves so far); actions are kept in ``taken``.
    """

    metadata = {"name": "duel_v0"}  # noqa: RUF012

    def __init__(self, rounds: int = 3, kill_at: int = 1, actions: Any = None, masks: bool = False) -> None:
        super().__init__()
        self.rounds, self.kill_at, self.masks = rounds, kill_at, masks
        self.possible_agents = ["a", "b", "c"]
        self._action = Discrete(3) if actions is None else actions
        self.taken: list[tuple[str, Any]] = []

    def observation_space(self, agent: str) -> Any:
        box = Box(0, 100, (2,), np.float32)
        return Dict({"observation": box, "action_mask": Box(0, 1, (3,), np.int8)}) if self.masks else box

    def action_space(self, agent: str) -> Any:
        return self._action

    def observe(self, agent: str) -> Any:
        seen = np.array([self.possible_agents.index(agent), self.moves], np.float32)
        mask = np.array([0, 1, agent == "a"], np.int8)
        return {"observation": seen, "action_mask": mask} if self.masks else seen

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        self.moves, self.round = 0, 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "a"

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            assert action is None, "an agent at its end is stepped with None"
            following = self._after(mover)
            self._was_dead_step(None)
            if self.agents:
                self.agent_selection = following
            return
        assert action is not None
        self.taken.append((mover, action))
        self._cumulative_rewards[mover] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.rewards[mover] += 1.0
        self.rewards[self.agents[self.agents.index(mover) - 1]] += 0.5
        self.moves += 1
        if mover == "a" and self.round == self.kill_at and "c" in self.agents:
            self.terminations["c"] = True
            self.rewards["c"] -= 5.0
        if mover == [agent for agent in self.agents if not self.terminations[agent]][-1]:
            self.round += 1
            if self.round == self.rounds:
                self.truncations = {agent: not self.terminations[agent] for agent in self.agents}
        self.agent_selection = self._after(mover)
        self._accumulate_rewards()

    def _after(self, agent: str) -> str:
        return self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
