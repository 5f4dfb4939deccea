"""A trained agent in one's own code: ``puffer_core.load(RUN).act(observations, state)``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import RunError, ShapeError
from puffer_core.policies import make_policy
from puffer_core.policies.module import PolicyEnv, adapt_to, module_name
from puffer_core.rl import checkpoint
from puffer_core.rl.streams import generator
from puffer_core.runs import find_checkpoint


class Agent:
    """A policy with its weights, ready to act on rows of observations.

    Args:
        policy: The network.
        observation_space: Of one agent.
        action_space: Of one agent.
        path: The checkpoint.
        seed: Of the sampling.

    Attributes:
        step: Agent-steps of training behind it.
    """

    def __init__(
        self,
        policy: Any,
        observation_space: spaces.Box,
        action_space: spaces.Space[Any],
        path: Path,
        *,
        step: int = 0,
        seed: int = 0,
    ) -> None:
        self.policy, self.path, self.step = policy.eval(), path, step
        self.observation_space, self.action_space = observation_space, action_space
        self._generator = generator(seed, "actions")
        self._device = next((p.device for p in policy.parameters()), torch.device("cpu"))

    def initial_state(self, rows: int) -> Tensor:
        """Return the state before the first observation of ``rows`` episodes."""
        state: Tensor = self.policy.initial_state(rows)
        return state

    @torch.no_grad()
    def act(
        self,
        observations: Any,
        state: Tensor | None = None,
        *,
        greedy: bool = False,
        resets: NDArray[np.bool_] | None = None,
        action_mask: NDArray[np.uint8] | None = None,
        agents: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[Any], Tensor]:
        """Return an action for each row, as an environment takes them, and the state for the next call.

        Args:
            observations: (n, *shape) of the observation space; nested ones as flat rows, or as dicts and tuples of
                arrays (n, *shape) of the leaves.
            state: What the call before returned; None at the start of n episodes.
            greedy: Take the most likely action instead of drawing one.
            resets: (n,) bool, rows whose episode has ended since the last call: they begin from state 0.
            action_mask: (n, sum of the sizes of discrete heads), nonzero where an action is legal.
            agents: (n,) the index of each row's agent in its environment, for a policy with one network per kind of
                agent.

        Raises:
            ShapeError: If the observations are not rows of the observation space, or ``agents`` are missing or unknown.
            EnvError: If nested ones lack a key, or hold other values than their space.
        """
        observations = self._rows(observations)
        rows, layout, device = len(observations), self.policy.layout, self._device
        before = self.initial_state(rows) if state is None else state
        if resets is not None and resets.any():
            before = before.clone()
            before[:, torch.from_numpy(np.flatnonzero(resets)).to(device)] = 0.0
        which = self._which(agents, rows)
        logits, _, after = self.policy.forward_eval(torch.from_numpy(observations).to(device), before, **which)
        mask = None if action_mask is None else torch.from_numpy(action_mask).to(device)
        if greedy:
            actions = layout.greedy(logits, mask)
        else:
            noise = layout.draw_noise((rows,), self._generator).to(device)
            actions = layout.sample(logits, noise, mask, self.policy.logstd)
        dtype = np.float32 if layout.dtype.is_floating_point else np.int32
        return layout.to_env(actions).cpu().numpy().astype(dtype).reshape(rows, *self.action_space.shape or ()), after

    def _which(self, agents: NDArray[np.int64] | None, rows: int) -> dict[str, Tensor]:
        """Return the argument ``agents`` of the policy, where it takes one."""
        if not getattr(self.policy, "needs_agents", False):
            return {}
        most, found = len(self.policy.agent_types), np.asarray([] if agents is None else agents)
        if found.shape != (rows,) or found.dtype.kind not in "iu" or not ((found >= 0) & (found < most)).all():
            given = "none" if agents is None else np.array2string(found, threshold=8)
            msg = f"agents: each of {rows} rows is one of the agents 0 to {most - 1} of its environment, given: {given}"
            raise ShapeError(msg, hint="this policy has one network per kind of agent: act(..., agents=[...])")
        return {"agents": torch.from_numpy(found.astype(np.int64)).to(self._device)}

    def _rows(self, observations: Any) -> NDArray[Any]:
        """Return observations as rows of the observation space."""
        space = self.observation_space
        if isinstance(observations, np.ndarray) and observations.shape[1:] == space.shape:
            return observations
        if isinstance(space, FlatBox):
            return space.flatten(observations)
        found = np.shape(observations)
        raise ShapeError(f"observations have shape {found}, the agent takes rows of {space.shape}")


def load(
    source: str | os.PathLike[str],
    env: str | None = None,
    *,
    device: str = "cpu",
    seed: int = 0,
    runs_dir: Any = None,
    policy: Any = None,
) -> Agent:
    """Return the agent of a run, at its latest checkpoint, or of one checkpoint.

    Args:
        source: A run directory, a checkpoint in it, a run id, or ``latest``.
        env: Canonical name of the environment that an id or ``latest`` is looked up under.
        device: Where it acts.
        seed: Of the sampling.
        runs_dir: Folder of the runs.
        policy: The network of a run that was trained with one of the caller's own, as `train` was given it.

    Raises:
        RunError: If there is no such checkpoint, it is damaged, or it needs another ``policy``.
    """
    path = find_checkpoint(os.fspath(source), env, runs_dir)
    content = checkpoint.read(path)
    try:
        described = dict(content.state["policy"])
        module, types = described.pop("module", None), tuple(int(kind) for kind in described.pop("agent_types", ()))
        if sorted(set(types)) != list(range(len(set(types)))):
            raise ValueError(f"agent_types={types} are not counted from 0 on")
        config = PolicyConfig(**described)
        options = checkpoint.restore_options(config.name, content.state["policy_options"])
        observed = checkpoint.restore_space(content.state["observation_space"])
        acted = checkpoint.restore_space(content.state["action_space"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"the checkpoint {path} is damaged: {error}") from error
    assert isinstance(observed, spaces.Box)
    if policy is None and module is None:
        network = make_policy(config, observed, acted, torch.Generator(), options, types)
    else:
        network = _own(policy, module, config, PolicyEnv(observed, acted), path)
    checkpoint.load_model(network, content.model, path)
    return Agent(network.to(device), observed, acted, path, step=content.state["global_step"], seed=seed)


def _own(given: Any, module: str | None, config: PolicyConfig, env: PolicyEnv, path: Path) -> Any:
    """Return the caller's own network that a checkpoint was saved from, with weights of no meaning.

    Raises:
        RunError: If the network is one of the caller's own that is not given, or another one is.
    """
    if given is None:
        msg = f"{path} was trained with a policy of its own, the class `{module}`"
        hint = f"give load, evaluate or export policy={module}, what made it; an opponent is of the built-in networks"
        raise RunError(msg, hint=hint)
    found: Any = adapt_to(env, given, config, torch.Generator())
    if module_name(found) != module:
        there = f"the class `{module}`" if module else f"the built-in network `{config.name}`"
        raise RunError(f"{path} was trained with {there}, the policy given is `{module_name(found)}`")
    return found
