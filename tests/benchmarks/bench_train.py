"""Steps per second of training: ours on Breakout, and ours beside Stable-Baselines3's PPO on CartPole-v1.

Contenders take turns, so that load of the machine strikes all alike; the first turn of each is a warm-up. A figure is
the median over the others; "CPU" is steps per second of CPU time of all threads, which load hardly changes. Phases
are shares of the wall time of all turns. Stable-Baselines3 has the settings that rl-zoo3 publishes, and one thread,
with which it is faster here than with two.

    python tests/benchmarks/bench_train.py [--only NAME ...] [--rounds 5] [--seconds 4] [--threads auto] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from sample_contenders import ZOO

from puffer_core import plugins
from puffer_core.training.job import prepare

BREAKOUT = (
    "--env.num-envs=1024",
    "--train.horizon=64",
    "--train.minibatch-size=8192",
    "--train.replay-ratio=1",
    "--policy.hidden-size=128",
    "--train.total-timesteps=1000000000",
)
"""1,024 agents, 8 minibatches of 128 segments for each rollout of 65,536 steps: every step is learnt from once."""
LIKE_ZOO = (
    "--vec.num-envs=8",
    "--train.horizon=32",
    "--train.minibatch-size=256",
    "--train.replay-ratio=20",
    "--train.total-timesteps=1000000000",
)
"""Batch, minibatch and passes of rl-zoo3's settings for CartPole-v1; our network, optimiser and the rest as shipped."""

LIKE_SHIPPED = (
    "--env.num-envs=8",
    "--train.horizon=32",
    "--train.minibatch-size=256",
    "--train.replay-ratio=10",
    "--policy.normalize-observations=on",
    "--train.total-timesteps=1000000000",
)
"""The batches and network that we ship for CartPole-v1, for the same dynamics in C."""


class Contender(ABC):
    """Something that trains, a bit at a time."""

    @abstractmethod
    def train(self) -> int:
        """Train for a moment and return the steps it took."""

    def phases(self) -> dict[str, float]:
        """Return the seconds of each phase so far, if they are known."""
        return {}


class Ours(Contender):
    """A run of this package as the command line would make it."""

    def __init__(self, env: str, *options: str, threads: str) -> None:
        prepared = prepare(env, trainer="torch", options=[*options, f"--vec.num-threads={threads}"])
        self._trainer: Any = plugins.resolve(prepared.trainer.make)(prepared.job, prepared.plan)

    def train(self) -> int:
        """Train for one rollout."""
        before: int = self._trainer.global_step
        self._trainer.evaluate()
        self._trainer.train()
        self._trainer.mean_and_log()
        taken: int = self._trainer.global_step - before
        return taken

    def phases(self) -> dict[str, float]:
        """Return the trainer's profile."""
        return dict(self._trainer.profile)


class SB3(Contender):
    """Stable-Baselines3's PPO with the settings of rl-zoo3."""

    def __init__(self, env: str, *, threads: str) -> None:
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env

        settings = {key: value for key, value in ZOO[env].items() if key != "n_timesteps"}
        envs = make_vec_env(env, settings.pop("n_envs"), seed=0)
        for key, value in settings.items():
            if isinstance(value, tuple):
                settings[key] = value[1]
        self._model = PPO("MlpPolicy", envs, seed=0, device="cpu", **settings)
        self._steps = self._model.n_steps * envs.num_envs

    def train(self) -> int:
        """Train for one rollout."""
        torch.set_num_threads(1)
        self._model.learn(self._steps, reset_num_timesteps=False)
        return int(self._steps)


CONTENDERS: dict[str, Callable[..., Contender]] = {
    "breakout, mingru 128": partial(Ours, "breakout", *BREAKOUT),
    "breakout, mingru 128 x 2": partial(Ours, "breakout", *BREAKOUT, "--policy.num-layers=2"),
    "breakout, lstm 128": partial(Ours, "breakout", *BREAKOUT, "--policy.core=lstm"),
    "breakout, no core, 128": partial(Ours, "breakout", *BREAKOUT, "--policy.core=none"),
    "breakout, mingru 128, bfloat16": partial(Ours, "breakout", *BREAKOUT, "--train.precision=bfloat16"),
    "breakout, shipped": partial(Ours, "breakout", "--train.total-timesteps=1000000000"),
    "CartPole-v1, shipped": partial(Ours, "gym/CartPole-v1", "--train.total-timesteps=1000000000"),
    "CartPole-v1, batches of rl-zoo3": partial(Ours, "gym/CartPole-v1", *LIKE_ZOO),
    "CartPole in C, settings of CartPole-v1": partial(Ours, "cartpole", *LIKE_SHIPPED),
    "CartPole-v1, SB3, rl-zoo3": partial(SB3, "CartPole-v1"),
}


@dataclass
class Turns:
    """What the turns of one contender gave."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take(self, contender: Contender, seconds: float) -> None:
        """Let it train for so many seconds of wall time."""
        steps, wall, cpu = 0, time.perf_counter(), time.process_time()
        while (elapsed := time.perf_counter() - wall) < seconds:
            steps += contender.train()
        self.wall.append(steps / elapsed)
        self.cpu.append(steps / (time.process_time() - cpu))


def measure(names: Sequence[str], rounds: int, seconds: float, threads: str) -> dict[str, dict[str, Any]]:
    """Return steps per second of each, by the wall clock and of CPU time, with the slowest and the fastest turn."""
    contenders = {name: CONTENDERS[name](threads=threads) for name in names}
    for contender in contenders.values():
        Turns().take(contender, seconds)
    before = {name: contender.phases() for name, contender in contenders.items()}
    turns = {name: Turns() for name in names}
    for _ in range(rounds):
        for name, contender in contenders.items():
            turns[name].take(contender, seconds)
    return {
        name: {
            "steps_per_second": statistics.median(turns[name].wall),
            "slowest": min(turns[name].wall),
            "fastest": max(turns[name].wall),
            "steps_per_cpu_second": statistics.median(turns[name].cpu),
            "phases": {phase: total - before[name][phase] for phase, total in contenders[name].phases().items()},
        }
        for name in names
    }


def show(found: dict[str, dict[str, Any]]) -> None:
    """Print the tables."""
    print("| run | steps/s | slowest to fastest turn | per second of CPU time |\n|---|---|---|---|")
    for name, row in found.items():
        span = f"{row['slowest']:,.0f} to {row['fastest']:,.0f}"
        print(f"| {name} | {row['steps_per_second']:,.0f} | {span} | {row['steps_per_cpu_second']:,.0f} |")
    sb3 = found.get("CartPole-v1, SB3, rl-zoo3")
    for name, row in found.items():
        if sb3 and sb3 is not row and name.startswith("CartPole"):
            ratios = [row[key] / sb3[key] for key in ("steps_per_second", "steps_per_cpu_second")]
            print(
                f"\n{name}: {ratios[0]:.1f} times SB3's steps per second, {ratios[1]:.1f} times per second of CPU time"
            )
    for name, row in found.items():
        total = sum(row["phases"].values())
        if total:
            parts = sorted(row["phases"].items(), key=lambda item: -item[1])
            print(f"\n{name}: " + ", ".join(f"{phase} {seconds / total:.1%}" for phase, seconds in parts))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="Contenders whose name contains one of these.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", default="auto")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [name for name in CONTENDERS if not options.only or any(part in name for part in options.only)]
    found = measure(names, options.rounds, options.seconds, options.threads)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
