"""Whether environments of Gymnasium and PettingZoo are learnt with the settings that are shipped.

The seeds are none of those by which the settings were picked: 1 to 6, and 11 for LunarLander-v3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from puffer_core.training import train

# Box2D's module, made by SWIG, warns while it is imported, and dies where a warning is an error.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")]

RANDOM_SPREAD = -26.2
"""Mean score of an agent of simple-spread that draws its actions, over 768 episodes; the standard error is 0.3."""


class Contrary(gymnasium.Env[Any, int]):
    """Name the number that is shown, or where the flag is up the one opposite; eight times."""

    observation_space = spaces.Dict(
        {"shown": spaces.Discrete(4, start=-1), "flag": spaces.MultiBinary(1), "noise": spaces.Box(-1, 1, (2, 3))}
    )
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._show(), {}

    def _show(self) -> dict[str, Any]:
        self.shown, self.flag = self.np_random.integers(4), self.np_random.integers(2)
        noise = self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32)
        return {"shown": self.shown - 1, "flag": np.array([self.flag], np.int8), "noise": noise}

    def step(self, action: int) -> Any:
        reward = float(action == (3 - self.shown if self.flag else self.shown))
        self.time += 1
        return self._show(), reward, self.time == 8, False, {}


def reached(env: Any, seed: int, score: float, folder: Path, **options: str) -> int | None:
    """Train until the mean of the last 100 episodes is ``score``; return the steps that took, None if it never was."""
    given = {"seed": str(seed), "runs_dir": str(folder), "trainer": "torch", **options}
    steps: int | None = train(env, options=given, stop_at_score=score)["score_reached_steps"]
    return steps


def test_cartpole_is_solved_within_65000_steps_by_five_of_six_seeds(tmp_path: Path) -> None:
    steps = [reached("gym/CartPole-v1", seed, 475, tmp_path) for seed in range(11, 17)]
    assert sum(count is not None and count <= 65_000 for count in steps) >= 5, steps


@pytest.mark.parametrize("seed", [12, 13])
@pytest.mark.parametrize(("name", "score"), [("LunarLander-v3", 200), ("Pendulum-v1", -200), ("Acrobot-v1", -100)])
def test_others_reach_their_score(name: str, score: float, seed: int, tmp_path: Path) -> None:
    assert reached(f"gym/{name}", seed, score, tmp_path) is not None


@pytest.mark.parametrize("seed", [12, 13])
def test_simple_spread_is_better_than_random_play_by_four(seed: int, tmp_path: Path) -> None:
    assert reached("pettingzoo/simple-spread", seed, RANDOM_SPREAD + 4, tmp_path) is not None


@pytest.mark.parametrize("seed", [12, 13])
def test_a_nested_observation_is_learnt_from(seed: int, tmp_path: Path) -> None:
    options = {"train.total_timesteps": "150000", "train.horizon": "16", "train.minibatch_size": "256"}
    assert reached(Contrary, seed, 7.6, tmp_path, **options) is not None
