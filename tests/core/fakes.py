"""Vectors and policies whose every number is scripted, for tests of the trainer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.policies import ActionLayout
from puffer_core.vector.base import Vector


class ScriptedVector(Vector):
    """Plays scripts row by row: arrival t shows entry t of each, the last one again when the script is over.

    Args:
        observations: (T, N, *shape); every other script is (T, N, ...) and zero where it is not given, but for `masks`.
    """

    def __init__(
        self, observations: Any, action_space: spaces.Space[Any] | None = None, agents: int = 1, **scripts: Any
    ):
        super().__init__("scripted", 0)
        script = np.asarray(observations)
        self.scripts = {name: np.asarray(values) for name, values in scripts.items()} | {"observations": script}
        rows = script.shape[1]
        self.num_agents, self.agents_per_env, self.num_envs = rows, agents, rows // agents
        self.single_observation_space = spaces.Box(-np.inf, np.inf, script.shape[2:], script.dtype.type)
        self.single_action_space = action_space or spaces.Discrete(2)
        layout = ActionLayout.from_space(self.single_action_space)
        self.observations, self.final_observations = np.zeros_like(script[0]), np.zeros_like(script[0])
        self.rewards = np.zeros(rows, np.float32)
        self.terminals, self.truncations = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        self.masks = np.ones(rows, np.bool_)
        self.action_mask = np.ones((rows, layout.width), np.uint8) if "action_mask" in scripts else None
        self.actions = np.zeros((rows, *layout.shape), np.float32 if layout.is_continuous else np.int32)
        self.agent_ids = np.arange(rows)
        self.received: list[Any] = []
        self.arrival = 0

    def _async_reset(self, seed: int | None) -> None:
        self.arrival = 0
        self._show()

    def _recv(self) -> None:
        pass

    def _send(self, actions: Any) -> None:
        self.received.append(np.array(actions))
        self.arrival += 1
        self._show()

    def _show(self) -> None:
        for name, script in self.scripts.items():
            getattr(self, name)[:] = script[min(self.arrival, len(script) - 1)]

    def _close(self) -> None:
        pass

    def drain_log(self) -> dict[str, float] | None:
        return None

    def set_params(self, **values: Any) -> None:
        raise NotImplementedError

    def save(self) -> dict[str, bytes] | None:
        return {"arrival": self.arrival.to_bytes(8, "little")}

    def load(self, state: Any) -> None:
        self.arrival = int.from_bytes(state["arrival"], "little")
        self._show()

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        raise NotImplementedError


class LeakyPolicy(nn.Module):
    """h = decay h + o, V = value_scale h + value_bias, and the same logits everywhere; the policy of Test H by default."""

    def __init__(self, decay: float = 0.5, value_scale: float = 0.2, value_bias: float = 0.1, num_actions: int = 2):
        super().__init__()
        self.layout = ActionLayout.from_space(spaces.Discrete(num_actions))
        self.decay, self.num_actions = decay, num_actions
        self.scale = nn.Parameter(torch.tensor(value_scale))
        self.bias = nn.Parameter(torch.tensor(value_bias))
        self.logstd = None
        self.seen: list[Tensor] = []

    def initial_state(self, rows: int) -> Tensor:
        return torch.zeros(1, rows, 1)

    def forward_eval(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.seen.append(state[0, :, 0].clone())
        after = self.decay * state + observations.float()[None]
        values = self.scale * after[0, :, 0] + self.bias
        return torch.zeros(len(observations), self.num_actions), values, after

    def forward(self, observations: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        values = []
        for t, observation in enumerate(observations):
            if t > 0:
                state = torch.where(resets[t, :, None], 0.0, state)
            _, value, state = self.forward_eval(observation, state)
            values.append(value)
        return torch.zeros(observations.shape[0] * observations.shape[1], self.num_actions) * self.scale, torch.cat(
            values
        )
