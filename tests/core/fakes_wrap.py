"""For tests of wrappers: agents that end, leave and come back each at its own time, and a slow but plain reference."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from puffer_core.env import PufferEnv
from puffer_core.vector.base import Vector


class Coming(PufferEnv):
    """Two agents with random observations and rewards; agent 1 leaves, and comes back some steps later."""

    log_fields = ("episode_return", "episode_length")

    def __init__(self, buf: Any = None, shape: tuple[int, ...] = (3,), dtype: str = "float32", leaves: bool = True):
        high = 255 if dtype == "uint8" else 1
        self.single_observation_space = Box(0, high, shape, np.dtype(dtype).type)
        self.single_action_space = Box(-1, 1, (2,), np.float32)
        self.num_agents, self.leaves = 2, leaves
        super().__init__(buf)
        self.rng = np.random.default_rng(0)
        self.received: list[Any] = []

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng([seed, index])
        self.total, self.time = np.zeros(2), np.zeros(2, int)
        self.masks[:] = True
        self.draw(self.observations)
        return self.observations, []

    def draw(self, out: Any) -> None:
        out[...] = (self.rng.random(out.shape) * self.single_observation_space.high.max()).astype(out.dtype)

    def step(self, actions: Any) -> Any:
        self.received.append(actions.copy())
        there = self.masks.copy()
        self.rewards[:] = np.where(there, self.rng.normal(size=2) * 3, 0)
        self.total += self.rewards
        self.time += there
        ended = there & (self.rng.random(2) < 0.2)
        self.truncations[:] = ended & (self.rng.random(2) < 0.5)
        self.terminals[:] = ended & ~self.truncations
        self.draw(self.final_observations)
        self.logged[:] = ended
        self.log[:, 0], self.log[:, 1] = self.total, self.time
        self.total[ended], self.time[ended] = 0, 0
        if self.leaves:
            self.masks[1] = self.rng.random() < (0.8 if there[1] else 0.4)
        self.draw(self.observations)
        self.observations[~self.masks] = 0
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Nested(gymnasium.Env[Any, Any]):
    """A dict of what differs in dtype; truncated after three steps."""

    def __init__(self) -> None:
        self.observation_space = Dict({"place": Box(-9, 9, (2,), np.float32), "kind": Discrete(5, start=1)})
        self.action_space = Discrete(2)

    def observe(self) -> Any:
        return {"place": np.full(2, self.time / 2, np.float32), "kind": 1 + self.time}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.observe(), 1.0, False, self.time == 3, {}


class Mixed(Nested):
    """Actions of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = Dict({"move": Discrete(3), "aim": Box(-1, 1, (2,))})


class StackReference:
    """What `FrameStack` shows, row by row with lists."""

    def __init__(self, rows: int, count: int, axis: int | None) -> None:
        self.frames: list[list[Any]] = [[] for _ in range(rows)]
        self.was_there = np.zeros(rows, np.bool_)
        self.count, self.axis = count, axis

    def join(self, frames: list[Any]) -> Any:
        return np.stack(frames, -1) if self.axis is None else np.concatenate(frames, self.axis)

    def show(self, vector: Vector, i: int) -> tuple[Any, Any]:
        """Return the stack and the final stack, or None, of row ``i`` of the batch that was received."""
        row, frame = int(vector.agent_ids[i]), vector.observations[i].copy()
        final = None
        if vector.terminals[i] or vector.truncations[i]:
            final = self.join([*self.frames[row][1:], vector.final_observations[i].copy()])
        if final is not None or not self.was_there[row]:
            self.frames[row] = [frame] * self.count
        else:
            self.frames[row] = [*self.frames[row][1:], frame]
        self.was_there[row] = vector.masks[i]
        return self.join(self.frames[row]), final


class Tally(PufferEnv):
    """Counts; one agent whose reward is the tick; terminal at ``limit``, with infos at every step."""

    def __init__(self, buf: Any = None, limit: int = 5, agents: int = 1) -> None:
        self.single_observation_space = Box(-1, 1e6, (1,), np.float32)
        self.single_action_space = Discrete(3)
        self.num_agents, self.limit = agents, limit
        super().__init__(buf)
        self.resets, self.offset = 0, 0

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.offset = self.offset if seed is None else 100 * (seed + index)
        self.resets += 1
        self.tick = 0
        self.observations[:] = self.offset
        return self.observations, [{"begun": 1.0}]

    def step(self, actions: Any) -> Any:
        self.tick += 1
        self.rewards[:] = self.tick + 10 * actions
        self.observations[:] = self.offset + self.tick
        info = {"speed": float(self.tick), "score": 7.0 + self.tick, "name": f"t{self.tick}"}
        if self.tick == self.limit:
            self.terminals[:] = True
            self.final_observations[:] = self.observations
            self.tick = 0
            self.observations[:] = self.offset
        return self.observations, self.rewards, self.terminals, self.truncations, [info]

    def save(self) -> bytes:
        return bytes([self.tick])

    def load(self, blob: bytes) -> None:
        self.tick = blob[0]
        self.observations[:] = self.offset + self.tick


class Departing(Tally):
    """Two agents; agent 1 ends at tick 2 and is absent until the episode ends, with agent 0 at ``limit``."""

    def __init__(self, buf: Any = None, limit: int = 5) -> None:
        super().__init__(buf, limit, agents=2)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.masks[:] = True
        return super().reset(seed, index)

    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        if self.terminals.any():
            self.terminals[1] = False
            self.masks[1] = True
        elif self.tick == 2:
            self.terminals[1], self.masks[1] = True, False
            self.final_observations[1] = self.observations[1]
        return result
