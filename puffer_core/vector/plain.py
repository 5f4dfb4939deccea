"""The single-agent form: a plain class with `observation_space` and `action_space`, made a `PufferEnv`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from puffer_core.env import DECLARED, Array, PufferEnv, Step, check_spaces
from puffer_core.errors import EnvError


def is_plain(env: object) -> bool:
    """Return whether an object declares spaces of one agent itself, in place of a `PufferEnv`'s."""
    if isinstance(env, PufferEnv) and all(hasattr(env, name) for name in DECLARED):
        return False
    return hasattr(env, "observation_space") and hasattr(env, "action_space")


def accepts(function: Callable[..., Any], name: str, in_kwargs: bool = True) -> bool:
    """Return whether a callable takes an argument of that name, by name or (if ``in_kwargs``) in ``**kwargs``."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        (in_kwargs and p.kind is p.VAR_KEYWORD)
        or (p.name == name and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        for p in parameters
    )


class PlainEnv(PufferEnv):
    """One agent around a plain environment.

    Its ``reset`` returns an observation or (observation, info), its ``step`` four values (observation, reward, done,
    info) or five (observation, reward, terminated, truncated, info). It never resets itself: that is done here, in the
    same step. Where both flags come, the end of the task counts.

    Args:
        env: The plain environment.
        buf: Arrays to use.
    """

    def __init__(self, env: Any, buf: Mapping[str, Array] | None = None) -> None:
        self.env = env
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.num_agents = 1
        self._name = type(env).__name__
        self._shape = env.observation_space.shape
        try:
            check_spaces(self)
        except EnvError as error:
            raise EnvError(str(error).replace(type(self).__name__, self._name, 1)) from None
        super().__init__(buf)
        self._is_discrete = isinstance(self.single_action_space, Discrete)
        self.takes_seed = accepts(env.reset, "seed")

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode; seed and index are added where the environment takes a seed."""
        info = self._restart({} if seed is None or not self.takes_seed else {"seed": seed + index})
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        return self.observations, [info] if info else []

    def step(self, actions: Array) -> Step:
        """Advance the agent, and start the next episode where this one ended."""
        result = self.env.step(int(actions[0]) if self._is_discrete else actions[0].copy())
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            raise EnvError(f"{self._name}: step returned {type(result).__name__}, not 4 or 5 values")
        observation, reward, terminal, info = result[0], result[1], bool(result[2]), result[-1]
        if len(result) == 5:
            truncated = bool(result[3])
        else:
            truncated = terminal and bool((info or {}).get("TimeLimit.truncated", False))
            terminal = terminal and not truncated
        self.rewards[0] = reward
        self.terminals[0] = terminal
        self.truncations[0] = truncated and not terminal
        if terminal or truncated:
            self._write(self.final_observations, observation)
            self._restart({})
        else:
            self._write(self.observations, observation)
        return self.observations, self.rewards, self.terminals, self.truncations, [info] if info else []

    def _restart(self, seeding: dict[str, int]) -> dict[str, Any]:
        result = self.env.reset(**seeding)
        has_info = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        observation, info = result if has_info else (result, {})
        self._write(self.observations, observation)
        return dict(info)

    def _write(self, rows: Array, observation: Any) -> None:
        shape = observation.shape if isinstance(observation, np.ndarray) else np.shape(observation)
        if shape != self._shape:
            raise EnvError(f"{self._name} gave an observation of shape {shape}, declared is {self._shape}")
        rows[0] = observation

    def render(self) -> Any:
        """Return what the environment renders."""
        return self.env.render() if hasattr(self.env, "render") else super().render()

    def set_params(self, **values: Any) -> None:
        """Pass parameters on, where the environment takes them."""
        if not hasattr(self.env, "set_params"):
            super().set_params(**values)
        self.env.set_params(**values)

    def close(self) -> None:
        """Close the environment, where it can be closed."""
        if hasattr(self.env, "close"):
            self.env.close()
