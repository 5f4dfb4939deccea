"""For tests of self-play: a small game of two, and a trainer that plays it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium import spaces

from puffer_core.config.plan import Plan
from puffer_core.config.schema import BaseConfig, Config, PolicyConfig, SelfPlayConfig, TrainConfig
from puffer_core.env import PufferEnv
from puffer_core.policies import make_policy
from puffer_core.rl.ranks import Ranks
from puffer_core.rl.replay import ALONE
from puffer_core.rl.streams import generator
from puffer_core.rl.trainer import PuffeRL
from puffer_core.vector.base import Vector


class Duel(PufferEnv):
    """Both are shown a number and say which of two it is; after a few rounds whoever was right more often has won.

    Games last from 3 to 6 rounds. Everything can be saved.
    """

    numbers = False

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.single_action_space = spaces.Box(-1, 1, (1,)) if self.numbers else spaces.Discrete(2)
        self.num_agents = 2
        self.log_fields = ("perf", "score", "episode_length")
        super().__init__(buf)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng((seed, index))
        self._begin()
        return self.observations, []

    def _begin(self) -> None:
        self.time, self.length, self.right = 0, int(self.rng.integers(3, 7)), np.zeros(2, np.int64)
        self._show()

    def _show(self) -> None:
        self.shown = self.rng.integers(0, 2, 2)
        self.observations[:, 0] = 2 * self.shown - 1
        self.observations[:, 1] = self.rng.uniform(-1, 1)
        self.observations[:, 2] = self.time / 6

    def step(self, actions: Any) -> Any:
        assert self.log is not None
        assert self.logged is not None
        said = np.asarray(actions).reshape(2) > (0.0 if self.numbers else 0.5)
        self.right += said == self.shown
        self.rewards[:] = 0
        self.time += 1
        ended = self.time == self.length
        self.terminals[:] = self.logged[:] = ended
        if ended:
            self.rewards[:] = np.sign(self.right - self.right[::-1])
            self.log[:, 0], self.log[:, 1], self.log[:, 2] = 0.5 + 0.5 * self.rewards, self.rewards, self.time
        self._show()
        if ended:
            self.final_observations[:] = self.observations
            self._begin()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def save(self) -> bytes:
        counters = [self.time, self.length, self.right.tolist(), self.shown.tolist()]
        return json.dumps([self.rng.bit_generator.state, *counters, self.observations.tolist()]).encode()

    def load(self, blob: bytes) -> None:
        self.rng = np.random.default_rng()
        self.rng.bit_generator.state, self.time, self.length, right, shown, seen = json.loads(blob)
        self.right, self.shown = np.array(right), np.array(shown)
        self.observations[:] = np.array(seen, np.float32)


class NumberDuel(Duel):
    """The same with a number, whose sign counts."""

    numbers = True


def make_selfplay(
    vector: Vector, selfplay: SelfPlayConfig | None = None, *, seed: int = 42, ranks: Ranks = ALONE, **options: Any
) -> PuffeRL:
    """A trainer with small defaults; options are those of `TrainConfig` and, prefixed, of ``policy_``."""
    network = {name.removeprefix("policy_"): options.pop(name) for name in list(options) if name.startswith("policy_")}
    train = TrainConfig(**{"horizon": 8, "minibatch_size": 32, "learning_rate": 0.02, **options})
    config = Config(
        base=BaseConfig(seed=seed),
        policy=PolicyConfig(**{"hidden_size": 16, "num_layers": 1, **network}),
        train=train,
        selfplay=selfplay or SelfPlayConfig(),
    )
    rows, epochs = vector.num_agents, 100
    per_epoch = rows * train.horizon // train.minibatch_size
    steps = epochs * rows * train.horizon
    counts = Plan(
        vector.num_envs, rows, train.horizon, train.minibatch_size, per_epoch, epochs, steps, steps, epochs * per_epoch
    )
    spaces_: Any = vector.single_observation_space, vector.single_action_space
    policy = make_policy(config.policy, *spaces_, generator(seed, "policy"))
    return PuffeRL(config, vector, policy, counts, ranks=ranks)
