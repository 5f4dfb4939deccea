"""The single-agent form: a plain class with `observation_space` and `action_space`, made a `PufferEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from puffer_core.emulation.forms import accepts
from puffer_core.env import Array, PufferEnv, Step, check_spaces
from puffer_core.errors import EnvError, shortened

_LARGEST = float(np.finfo(np.float32).max)


class GymnasiumPufferEnv(PufferEnv):
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
        observation, reward, terminal, info = result[0], result[1], result[2], result[-1]
        if not isinstance(info, dict) and info is not None:
            raise self._refusal("info", info, "a dict")
        if type(reward) is not float or not -_LARGEST <= reward <= _LARGEST:
            reward = self._number("reward", reward)
        if type(terminal) is not bool:
            terminal = bool(self._number("terminated" if len(result) == 5 else "done", terminal))
        if len(result) == 5:
            truncated = result[3] if type(result[3]) is bool else bool(self._number("truncated", result[3]))
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
        array = observation if isinstance(observation, np.ndarray) else self._array("observation", observation)
        if array.dtype != rows.dtype and array.dtype.kind not in "biuf":
            raise self._refusal("observation", observation, f"an array of {rows.dtype}")
        if array.shape != self._shape:
            raise EnvError(f"{self._name} gave an observation of shape {array.shape}, declared is {self._shape}")
        rows[0] = array if array.dtype == rows.dtype else self._cast(array, rows.dtype)

    def _cast(self, array: Array, dtype: np.dtype[Any]) -> Array:
        """Return an observation in the declared dtype; it may be rounded to a float, but nothing else may be lost."""
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(dtype)
        if dtype.kind == "f":
            fits = np.isfinite(cast).all() or np.array_equal(np.isfinite(cast), np.isfinite(array))
        else:
            fits = np.array_equal(cast, array)
        if not fits:
            raise self._refusal("observation", array, f"what {dtype}, the dtype of the observation space, can hold")
        return cast

    def _number(self, key: str, value: Any) -> float:
        """Return a real number, or an array of one, as a float that a float32 can hold."""
        number = value
        if not isinstance(value, Real | np.bool_):
            array = self._array(key, value)
            if array.dtype.kind not in "biuf" or array.size != 1:
                raise self._refusal(key, value, "one real number" if key == "reward" else "one boolean")
            number = array.item()
        try:
            number = float(number)
        except OverflowError:
            raise self._refusal(key, value, "a number that float32 can hold") from None
        if _LARGEST < abs(number) < float("inf"):
            raise self._refusal(key, value, "a number that float32 can hold")
        return float(number)

    def _array(self, key: str, value: Any) -> Array:
        try:
            return np.asarray(value)
        except (TypeError, ValueError, RuntimeError):
            raise self._refusal(key, value, "an array of numbers") from None

    def _refusal(self, key: str, value: Any, wanted: str) -> EnvError:
        return EnvError(f"{self._name} gave {key}={shortened(repr(value))}, which is not {wanted}")

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
