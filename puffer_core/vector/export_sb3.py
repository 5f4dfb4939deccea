"""A vector as a Stable-Baselines3 `VecEnv`. Imports Stable-Baselines3, so only `Vector.to_sb3` imports it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from puffer_core.env import Array
from puffer_core.errors import EnvError, OptionError, UsageError
from puffer_core.vector.base import Vector
from puffer_core.vector.export import from_zero, original, original_space, require_whole_batches, values_from_zero

RenderMode = Literal["rgb_array"]


class SB3Vector(VecEnv):
    """The rows of a vector as the environments of Stable-Baselines3.

    Every agent is one of them. Observations and infos are copies. The info of a row that ended has its
    ``terminal_observation``, whether it was ``TimeLimit.truncated``, and the ``episode`` that `Monitor` would tell,
    from the log: the raw return, whatever wrappers do to rewards. Observations that emulation made flat are given in
    their original form, for ``MultiInputPolicy``; there discrete values begin at 0 whatever their ``start``, and a
    MultiDiscrete has one axis, since Stable-Baselines3 encodes no others.

    Stable-Baselines3 learns from every row at every step, so an absent agent is an error. Action masks are there for
    what asks for ``action_masks``, as sb3-contrib does.

    Args:
        vector: A vector of whole batches, which from then on is used through this only.
        render_mode: ``rgb_array``, or None for no pictures.

    Raises:
        OptionError: If batches are partial.
        EnvError: If actions are discrete and continuous at once.
    """

    def __init__(self, vector: Vector, render_mode: RenderMode | None = None) -> None:
        require_whole_batches(vector, "Stable-Baselines3")
        if hasattr(vector.single_action_space, "original"):
            msg = f"{vector.name}: Stable-Baselines3 has no policy for {vector.single_action_space}"
            raise EnvError(msg, hint="the trainer torch has")
        if render_mode not in (None, "rgb_array"):
            raise OptionError(f"render_mode={render_mode!r} is not rgb_array or None")
        self.vector = vector
        self._original_space = original_space(vector.single_observation_space)
        observation, action = from_zero(self._original_space), vector.single_action_space
        self._attributes = {
            "render_mode": render_mode,
            "spec": None,
            "observation_space": observation,
            "action_space": action,
        }
        self._started_at = time.time()
        super().__init__(vector.num_agents, observation, action)

    # -- stepping -----------------------------------------------------------------------------------------------------

    def reset(self) -> Any:
        """Start new episodes everywhere, from the seed that `seed` was given, if any; return observations."""
        if any(self._options):
            msg = "options can't be passed on to the environments of a vector"
            raise OptionError(msg, hint="give parameters when the vector is made, or set them with set_attr")
        first = self._seeds[0]
        self.vector.reset(first)
        self._reset_seeds()
        self._require_everyone()
        return self._observations()

    def step_async(self, actions: Array) -> None:
        """Send a batch of actions."""
        self.vector.send(np.asarray(actions))

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Return observations, rewards, dones and infos of the step that was sent."""
        vector = self.vector
        vector.recv()
        self._require_everyone()
        dones = vector.terminals | vector.truncations
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        for row in np.flatnonzero(dones).tolist():
            infos[row]["TimeLimit.truncated"] = bool(vector.truncations[row])
            infos[row]["terminal_observation"] = self._given(vector.final_observations[row])
        for row in np.flatnonzero(vector.logged).tolist():
            infos[row] |= self._episode(row)
        return self._observations(), vector.rewards.copy(), dones, infos

    def _observations(self) -> Any:
        return self._given(self.vector.observations)

    def _given(self, rows: Array) -> Any:
        nested = original(self.vector.single_observation_space, rows)
        return values_from_zero(self._original_space, nested)

    def _episode(self, row: int) -> dict[str, Any]:
        """Return what `Monitor` tells of an episode, from a row of the log; nothing where it holds no episode."""
        logged = dict(zip(self.vector.log_fields, self.vector.log[row].tolist(), strict=True))
        if "episode_return" not in logged or "episode_length" not in logged:
            return {}
        passed = round(time.time() - self._started_at, 6)
        return {"episode": {"r": logged["episode_return"], "l": int(logged["episode_length"]), "t": passed}}

    def _require_everyone(self) -> None:
        if not self.vector.masks.all():
            row = int(np.argmin(self.vector.masks))
            msg = f"{self.vector.name}: agent {row} is absent, and Stable-Baselines3 would learn from its row"
            raise EnvError(msg, hint="the trainer torch leaves absent agents out")

    def close(self) -> None:
        """Close the vector."""
        self.vector.close()

    # -- attributes and methods of environments -----------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute for each row: its spaces, ``render_mode``, ``spec``, or the method ``action_masks``.

        Raises:
            AttributeError: For any other: environments may be in other processes, or in C.
        """
        rows = self._get_indices(indices)
        if attr_name in self._attributes:
            return [self._attributes[attr_name] for _ in rows]
        if attr_name == "action_masks" and self.vector.action_mask is not None:
            return [lambda row=row: self._action_masks(row) for row in rows]
        raise AttributeError(f"{attr_name} of the environments of a vector can't be reached")

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set a parameter of every environment, as `Vector.set_params`.

        Raises:
            UsageError: If ``indices`` are not all.
        """
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise UsageError(f"{attr_name} can't be set for some environments only", hint="leave indices out")
        self.vector.set_params(**{attr_name: value})

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call ``render``, ``action_masks`` or ``set_params`` for each row.

        Raises:
            AttributeError: For any other method: environments may be in other processes, or in C.
        """
        rows = list(self._get_indices(indices))
        if method_name == "action_masks" and self.vector.action_mask is not None:
            return [self._action_masks(row) for row in rows]
        if method_name == "render":
            return [self._render(row) for row in rows]
        if method_name == "set_params":
            for name, value in kwargs.items():
                self.set_attr(name, value, rows)
            return [None] * len(rows)
        raise AttributeError(f"{method_name} of the environments of a vector can't be called")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Return whether each row does what a wrapper does: only `Monitor`, where the log holds episodes."""
        has_episodes = {"episode_return", "episode_length"} <= set(self.vector.log_fields)
        return [has_episodes and wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[Any]:
        """Return a picture of each instance."""
        return [self.vector.render(index, "rgb_array") for index in range(self.vector.num_envs)]

    def _action_masks(self, row: int) -> Array:
        assert self.vector.action_mask is not None
        mask: Array = self.vector.action_mask[row].astype(np.bool_)
        return mask

    def _render(self, row: int) -> Any:
        return self.vector.render(row // self.vector.agents_per_env, "rgb_array")
