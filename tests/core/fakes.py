"""For tests of the trainer: a vector and a policy whose every number is scripted, and a game that can be learnt."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.config.plan import Plan
from puffer_core.config.schema import BaseConfig, Config, PolicyConfig, TrainConfig
from puffer_core.env import PufferEnv
from puffer_core.policies import ActionLayout, make_policy
from puffer_core.rl.streams import generator
from puffer_core.rl.trainer import PuffeRL
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
        self.num_agents = self.agents_per_batch = rows
        self.agents_per_env, self.num_envs = agents, rows // agents
        low, high = (0, int(np.iinfo(script.dtype).max)) if script.dtype.kind == "u" else (-np.inf, np.inf)
        self.single_observation_space = spaces.Box(low, high, script.shape[2:], script.dtype.type)
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
    """h = decay h + o, V = scale h + bias, equal logits everywhere; by default the policy of Test H."""

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


class Guess(PufferEnv):
    """Say which of two numbers was shown; the episode ends after `LENGTH` guesses, or is cut there.

    Learnable by any policy in a few updates; everything it holds can be saved.
    """

    LENGTH = 5

    def __init__(self, buf: Any = None, agents: int = 1, truncate: bool = False) -> None:
        self.single_observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.num_agents, self.truncate = agents, truncate
        self.log_fields = ("score", "episode_length")
        super().__init__(buf)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng((seed, index))
        self.time = np.zeros(self.num_agents, np.int64)
        self.right = np.zeros(self.num_agents, np.int64)
        self._show(self.rng.integers(0, 2, self.num_agents))
        return self.observations, []

    def _show(self, shown: Any) -> None:
        self.shown = shown
        self.observations[:, 0] = 2 * self.shown - 1
        self.observations[:, 1] = self.time / self.LENGTH

    def step(self, actions: Any) -> Any:
        assert self.log is not None
        assert self.logged is not None
        self.rewards[:] = actions == self.shown
        self.right += actions == self.shown
        self.time += 1
        ended = self.time >= self.LENGTH
        self._show(self.rng.integers(0, 2, self.num_agents))
        self.final_observations[ended] = self.observations[ended]
        (self.truncations if self.truncate else self.terminals)[:] = ended
        self.log[ended, 0], self.log[ended, 1] = self.right[ended] / self.LENGTH, self.LENGTH
        self.logged[:] = ended
        self.time[ended] = self.right[ended] = 0
        self.observations[:, 1] = self.time / self.LENGTH
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def save(self) -> bytes:
        state = [self.rng.bit_generator.state, self.time.tolist(), self.right.tolist(), self.shown.tolist()]
        return json.dumps(state).encode()

    def load(self, blob: bytes) -> None:
        self.rng = np.random.default_rng()
        self.rng.bit_generator.state, *counters = json.loads(blob)
        self.time, self.right, self.shown = (np.array(counter) for counter in counters)
        self._show(self.shown)


class Forgetful(Guess):
    """The same, but it can't be saved."""

    def save(self) -> None:  # type: ignore[override]
        return None


def make_trainer(
    vector: Vector, *, epochs: int = 10, policy: Any = None, seed: int = 42, threads: int = 1, **options: Any
) -> PuffeRL:
    """A trainer with small defaults; options are those of `TrainConfig` and, prefixed, of ``policy_``."""
    network = {name.removeprefix("policy_"): options.pop(name) for name in list(options) if name.startswith("policy_")}
    train = TrainConfig(**{"horizon": 8, "minibatch_size": 32, "learning_rate": 0.02, **options})
    config = Config(
        base=BaseConfig(seed=seed), policy=PolicyConfig(**{"hidden_size": 16, "num_layers": 1, **network}), train=train
    )
    rows, batch = vector.num_agents, vector.num_agents * train.horizon
    per_epoch = int(train.replay_ratio * batch / train.minibatch_size)
    steps = epochs * batch
    counts = Plan(
        vector.num_envs, rows, train.horizon, train.minibatch_size, per_epoch, epochs, steps, steps, epochs * per_epoch
    )
    if policy is None:
        spaces_ = vector.single_observation_space, vector.single_action_space
        policy = make_policy(config.policy, *spaces_, generator(seed, "policy"))  # type: ignore[arg-type]
    return PuffeRL(config, vector, policy, counts, threads=threads)


def run(trainer: PuffeRL, epochs: int) -> list[dict[str, float]]:
    """Train for so many epochs; return the metrics of each."""
    rows = []
    for _ in range(epochs):
        trainer.evaluate()
        trainer.train()
        rows.append(trainer.mean_and_log())
    return rows
