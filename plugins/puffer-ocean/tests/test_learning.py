"""P15: the shipped settings learn each task in two minutes on two cores, evaluation included, three seeds of three."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from puffer_core.evaluate import evaluate
from puffer_core.training import train

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 3)
SECONDS = 120


@dataclass(frozen=True)
class Task:
    """What `puffer run` must reach with the settings of the ini."""

    env: str
    metric: str
    """Key of the evaluation's result."""
    bound: float
    options: dict[str, str] = field(default_factory=dict)
    """What differs from the ini."""
    is_cost: bool = False
    """Whether less is better."""

    def is_solved(self, value: float) -> bool:
        return value <= self.bound if self.is_cost else value >= self.bound


TASKS = (
    Task("squared", "perf", 0.9),
    Task("memory", "perf", 0.95),
    Task("cartpole", "episode_length", 450),
    Task("continuous", "perf", 0.7),
    Task("target", "episode_length", 200, is_cost=True),
    Task("snake", "score", 8),
    Task("connect4", "perf", 0.8, {"env.opponent": "0"}),
    Task("breakout", "score", 30, {"train.total_timesteps": "4_000_000"}),
)


def learn(env, options, seed, folder):
    """Train and evaluate; return the evaluation's result and the seconds both took."""
    start = time.perf_counter()
    result = train(env, options={**options, "seed": str(seed), "runs_dir": str(folder)})
    return evaluate(env, load=result["run_dir"], episodes=500), time.perf_counter() - start


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.env)
def test_task_is_learnt_in_two_minutes(task, seed, tmp_path):
    result, seconds = learn(task.env, task.options, seed, tmp_path)
    assert task.is_solved(result[task.metric]), f"{task.metric} {result[task.metric]:.3f}, wanted {task.bound}"
    assert seconds < SECONDS


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_stays_at_chance_without_a_memory(seed, tmp_path):
    result, _ = learn("memory", {"policy.core": "none"}, seed, tmp_path)
    assert result["perf"] == pytest.approx(0.5, abs=0.06)


def test_memory_is_learnt_by_the_lstm(tmp_path):
    result, _ = learn("memory", {"policy.core": "lstm"}, 1, tmp_path)
    assert result["perf"] >= 0.95
