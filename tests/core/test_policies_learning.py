"""Each encoder learns a small game from pictures or lists of entities, to nearly the best score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import make_trainer, run
from gymnasium import spaces

from puffer_core.env import PufferEnv
from puffer_core.vector import make


class Shown(PufferEnv):
    """Say which of four things was shown, one guess an episode; a subclass shows it."""

    space: spaces.Box

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space, self.single_action_space = self.space, spaces.Discrete(4)
        self.num_agents, self.log_fields = 1, ("score", "episode_length")
        super().__init__(buf)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng((seed, index))
        self.begin()
        return self.observations, []

    def begin(self) -> None:
        self.shown = int(self.rng.integers(4))
        self.show(self.observations[0])

    def show(self, out: Any) -> None:
        raise NotImplementedError

    def step(self, actions: Any) -> Any:
        assert self.log is not None
        assert self.logged is not None
        self.rewards[:] = actions[0] == self.shown
        self.terminals[:], self.logged[:], self.log[:] = True, True, (self.rewards[0], 1)
        self.final_observations[:] = self.observations
        self.begin()
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Corner(Shown):
    """A bright square in one of the four quarters of a noisy picture."""

    space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def show(self, out: Any) -> None:
        side = out.shape[0] // 2
        out[:] = self.rng.integers(0, 64, out.shape)
        row, column = divmod(self.shown, 2)
        top, left = (int(self.rng.integers(side - 3)) for _ in range(2))
        out[row * side + top :, column * side + left :][:4, :4] = 255


class SmallCorner(Corner):
    space = spaces.Box(0, 255, (8, 8, 1), np.uint8)


class Nearest(Shown):
    """Entities (is there, group of four as ones among zeros, distance): say the group of the nearest one there."""

    space = spaces.Box(0, 1, (5, 6), np.float32)

    def show(self, out: Any) -> None:
        groups, distances = self.rng.integers(0, 4, 5), self.rng.random(5)
        out[:] = np.column_stack([self.rng.random(5) < 0.6, np.eye(4)[groups], distances])
        out[self.rng.integers(5), 0] = 1.0
        self.shown = int(groups[np.where(out[:, 0] > 0, distances, 2.0).argmin()])


@pytest.mark.parametrize(
    ("env", "name", "core", "epochs"),
    [(Corner, "cnn", "none", 40), (SmallCorner, "impala", "mingru", 40), (Nearest, "attention", "lstm", 60)],
)
def test_encoder_learns(env: type[Shown], name: str, core: str, epochs: int) -> None:
    vector = make(lambda buf=None: env(buf), 32, "serial")
    network = {"policy_name": name, "policy_core": core, "policy_hidden_size": 32}
    trainer = make_trainer(vector, epochs=epochs, minibatch_size=128, **network)
    rows = run(trainer, epochs)
    assert rows[0]["score"] < 0.5
    assert rows[-1]["score"] > 0.9
