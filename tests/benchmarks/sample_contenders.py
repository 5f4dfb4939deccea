"""The contenders of `bench_samples.py`: each trains one agent and says after how many steps it reached a score.

The score is the mean return of the last 100 episodes of training, as the environment gives it, for all of them. Steps
are those of all environments together.
"""

from __future__ import annotations

import collections
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from puffer_core.specs import EnvSpec
from puffer_core.training import train

WINDOW = 100


@dataclass(frozen=True)
class Task:
    """What is to be reached.

    Attributes:
        score: Mean return of the last `WINDOW` episodes.
        steps: After so many it has failed; schedules end there, where the published settings do not say otherwise.
    """

    env: str
    score: float
    steps: int


TASKS = {
    task.env: task
    for task in (
        Task("CartPole-v1", 475, 500_000),
        Task("Acrobot-v1", -100, 500_000),
        Task("Pendulum-v1", -200, 500_000),
        Task("LunarLander-v3", 200, 1_500_000),
    )
}


def puffer_inis(task: Task, seed: int) -> int | None:
    """Train with the settings that are shipped for this environment."""
    return _puffer(f"gym/{task.env}", task, seed)


def puffer_shared(task: Task, seed: int) -> int | None:
    """Train with the settings of ``gym/*``, the same for every environment."""
    spec = EnvSpec(
        f"shared/{task.env}",
        make="sample_contenders:make_env",
        config="puffer_core.config:envs/gym/gym.ini",
    )
    return _puffer(spec, task, seed, env={"name": task.env}, train={"total_timesteps": task.steps})


def make_env(name: str) -> gymnasium.Env[Any, Any]:
    """Return an environment of Gymnasium."""
    return gymnasium.make(name, disable_env_checker=True)


def _puffer(name: str | EnvSpec, task: Task, seed: int, **config: dict[str, Any]) -> int | None:
    with tempfile.TemporaryDirectory() as folder:
        config["base"] = {"seed": seed, "runs_dir": folder, "trainer": "torch"}
        steps: int | None = train(name, config=config, stop_at_score=task.score)["score_reached_steps"]
    return steps


ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "n_envs": 8, "n_timesteps": 1e5, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98,
        "n_epochs": 20, "ent_coef": 0.0, "learning_rate": ("linear", 1e-3), "clip_range": ("linear", 0.2),
    },
    "LunarLander-v3": {
        "n_envs": 16, "n_timesteps": 1e6, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999,
        "n_epochs": 4, "ent_coef": 0.01,
    },
    "Pendulum-v1": {
        "n_envs": 4, "n_timesteps": 1e5, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10,
        "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
    },
    "Acrobot-v1": {
        "n_envs": 16, "n_timesteps": 1e6, "normalize": True, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99,
        "n_epochs": 4, "ent_coef": 0.0,
    },
}  # fmt: skip
"""Settings that rl-zoo3 2.9 publishes for Stable-Baselines3's PPO (``hyperparams/ppo.yml``)."""


def sb3_defaults(task: Task, seed: int) -> int | None:
    """Train Stable-Baselines3's PPO as it comes, on one environment."""
    return _sb3(task, seed, {})


def sb3_zoo(task: Task, seed: int) -> int | None:
    """Train Stable-Baselines3's PPO with the settings of rl-zoo3."""
    return _sb3(task, seed, dict(ZOO[task.env]))


def _sb3(task: Task, seed: int, settings: dict[str, Any]) -> int | None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    class StopAtScore(BaseCallback):
        def _on_step(self) -> bool:
            returns = [episode["r"] for episode in self.model.ep_info_buffer]
            return len(returns) < WINDOW or float(np.mean(returns)) < task.score

    steps = int(settings.pop("n_timesteps", task.steps))
    envs: Any = make_vec_env(task.env, settings.pop("n_envs", 1), seed=seed)
    if settings.pop("normalize", False):
        envs = VecNormalize(envs, gamma=settings["gamma"])
    for key, value in settings.items():
        if isinstance(value, tuple):
            settings[key] = lambda left, start=value[1]: left * start
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **settings)
    callback = StopAtScore()
    model.learn(steps, callback=callback)
    returns = [episode["r"] for episode in model.ep_info_buffer]
    reached = len(returns) >= WINDOW and float(np.mean(returns)) >= task.score
    return int(model.num_timesteps) if reached else None


@dataclass(frozen=True)
class Published:
    """Settings that CleanRL publishes for ``ppo.py``; those of ``ppo_continuous_action.py`` differ where noted."""

    num_envs: int = 4
    num_steps: int = 128
    minibatches: int = 4
    epochs: int = 4
    learning_rate: float = 2.5e-4
    entropy: float = 0.01
    normalize: bool = False


DISCRETE = Published()
CONTINUOUS = Published(1, 2048, 32, 10, 3e-4, 0.0, normalize=True)
GAMMA, LAMBDA, CLIP, VALUE_WEIGHT, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.5


def cleanrl_settings(task: Task, seed: int) -> int | None:
    """Train plain PPO, written for this file, with CleanRL's published settings.

    Its scripts are in no package that installs here, so what they say is done once more: two tanh layers of 64 with
    orthogonal weights for policy and value each, Adam with eps 1e-5 whose rate falls linearly to 0, generalised
    advantages, a clipped value loss, advantages normalised in each minibatch; truncation ends an episode like a
    terminal. Continuous tasks normalise and clip observations and rewards to 10.
    """
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    is_continuous = task.env == "Pendulum-v1"
    settings = CONTINUOUS if is_continuous else DISCRETE
    envs = [_cleanrl_env(task.env, settings) for _ in range(settings.num_envs)]
    policy = _TwoNetworks(envs[0], is_continuous)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=1e-5)
    returns: collections.deque[float] = collections.deque(maxlen=WINDOW)
    observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(envs)])
    done = np.zeros(len(envs), np.float32)
    batch = settings.num_envs * settings.num_steps
    updates, steps = task.steps // batch, 0
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1.0 - update / updates)
        rollout: list[list[Any]] = [[] for _ in range(6)]
        for _ in range(settings.num_steps):
            seen = torch.as_tensor(observations, dtype=torch.float32)
            with torch.no_grad():
                actions, logprobs, _, values = policy(seen)
            rewards, was_done = np.zeros(len(envs), np.float32), done
            done, observations = np.zeros(len(envs), np.float32), observations.copy()
            for i, env in enumerate(envs):
                steps += 1
                observations[i], rewards[i], terminated, truncated, info = env.step(actions[i].numpy())
                if terminated or truncated:
                    done[i] = 1.0
                    returns.append(float(info["episode"]["r"]))
                    observations[i] = env.reset()[0]
                    if len(returns) == WINDOW and np.mean(returns) >= task.score:
                        return steps
            for kept, item in zip(rollout, (seen, actions, logprobs, values, rewards, was_done), strict=True):
                kept.append(torch.as_tensor(item))
        stacked = [torch.stack(kept) for kept in rollout]
        with torch.no_grad():
            last = policy(torch.as_tensor(observations, dtype=torch.float32))[3]
        _cleanrl_update(policy, optimizer, stacked, last, torch.as_tensor(done), settings, random)
    return None


def _cleanrl_env(name: str, settings: Published) -> gymnasium.Env[Any, Any]:
    env: Any = gymnasium.wrappers.RecordEpisodeStatistics(make_env(name))
    if not settings.normalize:
        return env
    clip = partial(np.clip, a_min=-10.0, a_max=10.0)
    env = gymnasium.wrappers.NormalizeObservation(gymnasium.wrappers.ClipAction(env))
    env = gymnasium.wrappers.TransformObservation(env, clip, env.observation_space)
    return gymnasium.wrappers.TransformReward(gymnasium.wrappers.NormalizeReward(env, gamma=GAMMA), clip)


class _TwoNetworks(nn.Module):
    def __init__(self, env: gymnasium.Env[Any, Any], is_continuous: bool) -> None:
        super().__init__()
        size = int(np.prod(env.observation_space.shape or ()))
        actions = env.action_space
        width = int(np.prod(actions.shape or ())) if is_continuous else int(actions.n)  # type: ignore[attr-defined]
        self.policy, self.value = _network(size, width, 0.01), _network(size, 1, 1.0)
        self.logstd = nn.Parameter(torch.zeros(1, width)) if is_continuous else None

    def forward(self, observations: Tensor, actions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return actions, log-probabilities, entropies and values."""
        out = self.policy(observations)
        spread: Any
        if self.logstd is None:
            spread = torch.distributions.Categorical(logits=out)
        else:
            normal = torch.distributions.Normal(out, self.logstd.exp().expand_as(out))
            spread = torch.distributions.Independent(normal, 1)
        actions = spread.sample() if actions is None else actions
        return actions, spread.log_prob(actions), spread.entropy(), self.value(observations).squeeze(-1)


def _network(size: int, width: int, gain: float) -> nn.Module:
    layers = [nn.Linear(size, 64), nn.Linear(64, 64), nn.Linear(64, width)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def _cleanrl_update(
    policy: _TwoNetworks,
    optimizer: torch.optim.Optimizer,
    rollout: list[Tensor],
    last_value: Tensor,
    last_done: Tensor,
    settings: Published,
    random: np.random.Generator,
) -> None:
    seen, actions, logprobs, values, rewards, dones = rollout
    advantages, following = torch.zeros_like(rewards), torch.zeros_like(last_value)
    next_value, next_done = last_value, last_done
    for t in range(len(rewards) - 1, -1, -1):
        delta = rewards[t] + GAMMA * next_value * (1 - next_done) - values[t]
        following = delta + GAMMA * LAMBDA * (1 - next_done) * following
        advantages[t], next_value, next_done = following, values[t], dones[t]
    flat = [x.flatten(0, 1) for x in (seen, actions, logprobs, values, advantages, advantages + values)]
    for _ in range(settings.epochs):
        order: NDArray[np.int64] = random.permutation(len(flat[0]))
        for rows in np.array_split(order, settings.minibatches):
            obs, act, old, value, advantage, target = (x[rows] for x in flat)
            _, new, entropy, predicted = policy(obs, act)
            ratio = (new - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            gain = torch.minimum(advantage * ratio, advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            near = value + (predicted - value).clamp(-CLIP, CLIP)
            error = 0.5 * torch.maximum((predicted - target) ** 2, (near - target) ** 2).mean()
            loss = -gain + VALUE_WEIGHT * error - settings.entropy * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), MAX_NORM)
            optimizer.step()


CONTENDERS: dict[str, Callable[[Task, int], int | None]] = {
    "puffer, shared": puffer_shared,
    "puffer, inis": puffer_inis,
    "SB3, defaults": sb3_defaults,
    "SB3, rl-zoo3": sb3_zoo,
    "CleanRL's settings": cleanrl_settings,
}
