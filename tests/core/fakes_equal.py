"""For tests that backends agree: what a vector shows, step by step, and environments whose every array tells of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fakes_pettingzoo import Duel, Schedule
from fakes_workers import Walk

from puffer_core.emulation.spaces import FlatActions, action_codec

PLAIN = ("observations", "rewards", "terminals", "truncations", "masks", "logged", "agent_ids")


class Party(Schedule):
    """Agents enter, leave, end and are cut; observations and rewards tell what was done."""

    def __init__(self) -> None:
        events = {2: {"agent_1": "terminate"}, 4: {"agent_3": "enter"}, 5: {"agent_0": "vanish"}}
        events |= {7: {"agent_1": "enter"}, 9: dict.fromkeys(("agent_1", "agent_2"), "truncate")}
        events[9]["agent_3"] = "both"
        super().__init__(events, agents=4, absent=("agent_3",))
        self.sum = 0

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.sum = 0
        return super().reset(seed, options)

    def step(self, actions: Any) -> Any:
        self.sum += sum(int(action) for action in actions.values())
        observations, rewards, *rest, infos = super().step({agent: int(actions[agent]) for agent in actions})
        rewards = {agent: reward + self.sum for agent, reward in rewards.items()}
        infos = {agent: {"sum": float(self.sum)} for agent in infos if self.sum % 3 == 0}
        self.taken.clear()
        return observations, rewards, *rest, {agent: infos.get(agent, {}) for agent in observations}


class Turns(Duel):
    """Agents in turn, of whom one is killed; observations tell what was done, and there are action masks."""

    def __init__(self) -> None:
        super().__init__(rounds=4, masks=True)
        self.first = 0

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.first = self.first + 1 if seed is None else seed % 20
        self.taken.clear()
        super().reset(seed, options)

    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        seen["observation"][1] += self.first + sum(int(action) for _, action in self.taken)
        return seen


def walks_of_gymnasium(count: int = 2) -> Any:
    """Return Gymnasium's own vector of random walks."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return SyncVectorEnv([Walk] * count, autoreset_mode=AutoresetMode.SAME_STEP)


def actions_of(space: Any, shape: tuple[int, int], seed: int) -> Any:
    """Return actions for (steps, agents), legal in the space of one agent."""
    rng = np.random.default_rng(seed)
    if isinstance(space, FlatActions):
        codec = action_codec(space.original)
        space.original.seed(seed)
        rows = [codec.write(space.original.sample()) for _ in range(shape[0] * shape[1])]
        return np.stack(rows).reshape(*shape, *space.shape).astype(space.dtype)
    if hasattr(space, "nvec"):
        return rng.integers(0, space.nvec, (*shape, len(space.nvec))).astype(np.int32)
    if hasattr(space, "n"):
        return rng.integers(0, space.n, shape).astype(np.int32)
    return rng.uniform(-1, 1, (*shape, *space.shape)).astype(space.dtype)


@dataclass
class History:
    """What every agent was shown, whichever batches it came in.

    Args:
        arrays: By name, (steps + 1, agents, ...); rows without a meaning are zero.
        batches: What came along with each batch: the step that each of its rows was in, their ids, and the infos.
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    batches: list[tuple[Any, Any, list[dict[str, Any]]]] = field(default_factory=list)

    def take(self, opened: Any, times: Any, steps: int) -> None:
        """Add a batch; rows that are past the last step are left out."""
        ids, ended = opened.agent_ids, opened.terminals | opened.truncations
        rows = {name: getattr(opened, name) for name in PLAIN}
        rows["final_observations"] = opened.final_observations * _column(ended, opened.final_observations)
        rows["log"] = np.where(opened.logged[:, None], opened.log, np.float32(0))
        if opened.action_mask is not None:
            rows["action_mask"] = opened.action_mask
        keep = times <= steps
        for name, array in rows.items():
            if name not in self.arrays:
                self.arrays[name] = np.zeros((steps + 1, opened.num_agents, *array.shape[1:]), array.dtype)
            self.arrays[name][times[keep], ids[keep]] = array[keep]
        self.batches.append((times, ids.copy(), list(opened.infos)))


def play(opened: Any, actions: Any, seed: int) -> History:
    """Give each agent its own actions, in whichever batches it comes."""
    history, steps = History(), len(actions)
    taken = np.zeros(opened.num_agents, int)
    opened.async_reset(seed)
    while True:
        opened.recv()
        ids = opened.agent_ids.copy()
        history.take(opened, taken[ids], steps)
        taken[ids] += 1
        if taken.min() > steps:
            return history
        opened.send(actions[np.minimum(taken[ids] - 1, steps - 1), ids])


def _column(flags: Any, like: Any) -> Any:
    return flags.reshape(-1, *[1] * (like.ndim - 1)).astype(like.dtype)
