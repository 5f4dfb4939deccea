"""A vector as a `gymnasium.vector.VectorEnv`, for code written against Gymnasium."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from puffer_core.env import Array, Space
from puffer_core.errors import OptionError
from puffer_core.vector.base import Vector

RenderMode = Literal["rgb_array", "ansi"]


class GymnasiumVector(VectorEnv[Any, Any, Any]):
    """The rows of a vector as the environments of Gymnasium's vector interface, reset in the same step.

    Every agent is one of them, so an instance with several agents is as many. What `reset` and `step` return are
    copies. Observations that emulation made flat are given in their original, nested form; actions of a nested space
    stay rows of `single_action_space`.

    Infos hold, for rows that ended, ``final_obs`` and, from their log, ``final_info``; ``action_mask`` where there is
    one; and ``agent_mask``, False where an agent is absent, while one is. Every key has its ``_key`` as Gymnasium
    defines it. Infos of single environments are not among them: they are in the ``infos`` of `vector`.

    Args:
        vector: A vector of whole batches, which from then on is used through this only.
        render_mode: What `render` returns a tuple of, one for each instance; None renders nothing.

    Attributes:
        vector: The vector.
    """

    def __init__(self, vector: Vector, render_mode: RenderMode | None = None) -> None:
        require_whole_batches(vector, "Gymnasium's vector interface")
        if render_mode not in (None, "rgb_array", "ansi"):
            raise OptionError(f"render_mode={render_mode!r} is not rgb_array, ansi or None")
        self.vector = vector
        self.num_envs = vector.num_agents
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array", "ansi"]}
        self.render_mode = render_mode
        self.single_observation_space = original_space(vector.single_observation_space)
        self.single_action_space = vector.single_action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_actions(self.single_action_space, self.num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start new episodes everywhere.

        Args:
            seed: As in `Vector.reset`: row i gets seed + i where each environment has one agent.
            options: Must be empty.

        Raises:
            OptionError: If there are options, or one seed for each environment.
        """
        if options:
            msg = f"options={options!r} can't be passed on to the environments of a vector"
            raise OptionError(msg, hint="give parameters when the vector is made, or change them with set_params")
        if seed is not None and not isinstance(seed, int | np.integer):
            raise OptionError(f"seed={seed!r} is not an integer", hint="one seed gives every environment its own")
        super().reset(seed=seed)
        self.vector.reset(None if seed is None else int(seed))
        return self._observations(), self._infos()

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Step every row; an environment that ends is reset, and shows the first observation of its next episode."""
        vector = self.vector
        vector.step(np.asarray(actions))
        flags = vector.terminals.copy(), vector.truncations.copy()
        return self._observations(), vector.rewards.copy(), *flags, self._infos()

    def _observations(self) -> Any:
        return original(self.vector.single_observation_space, self.vector.observations)

    def _infos(self) -> dict[str, Any]:
        vector = self.vector
        infos: dict[str, Any] = {}
        everyone = np.ones(self.num_envs, np.bool_)
        if vector.action_mask is not None:
            infos |= {"action_mask": vector.action_mask.copy(), "_action_mask": everyone}
        if not vector.masks.all():
            infos |= {"agent_mask": vector.masks.copy(), "_agent_mask": everyone.copy()}
        ended = vector.terminals | vector.truncations
        if ended.any():
            infos |= {"final_obs": self._final_observations(ended), "_final_obs": ended}
            infos |= {"final_info": self._final_info(ended), "_final_info": ended.copy()}
        return infos

    def _final_observations(self, ended: Array) -> Array:
        """Return (N,) objects: the last observation of each row that ended, None in the others."""
        final = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(ended):
            final[row] = original(self.vector.single_observation_space, self.vector.final_observations[row])
        return final

    def _final_info(self, ended: Array) -> dict[str, Any]:
        """Return the log of the rows that ended, field by field; what is not a number there is left out."""
        told = ended & self.vector.logged
        info: dict[str, Any] = {}
        for column, field in enumerate(self.vector.log_fields if told.any() else ()):
            values = self.vector.log[:, column]
            has_value = told & ~np.isnan(values)
            if has_value.any():
                info |= {field: np.where(has_value, values, np.float32(0)), f"_{field}": has_value}
        return info

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture or a text of every instance, None without a `render_mode`."""
        if self.render_mode is None:
            return None
        return tuple(self.vector.render(index, self.render_mode) for index in range(self.vector.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the vector."""
        self.vector.close()


def require_whole_batches(vector: Vector, what: str) -> None:
    """Refuse a vector whose batches are partial.

    Raises:
        OptionError: With the way out.
    """
    if vector.agents_per_batch != vector.num_agents:
        msg = f"{what} steps all {vector.num_agents} agents at once, a batch of this vector has "
        raise OptionError(f"{msg}{vector.agents_per_batch}", hint="make it without batch_size")


class _MixedActions(Box):
    """Rows of actions that are discrete and continuous at once; samples have whole numbers where there are choices."""

    def __init__(self, single: Box, count: int) -> None:
        self._single, self._count = single, count
        super().__init__(np.tile(single.low, (count, 1)), np.tile(single.high, (count, 1)), dtype=np.float32)

    def sample(self, mask: None = None, probability: None = None) -> Array:
        """Return a random row for each environment."""
        return np.stack([self._single.sample() for _ in range(self._count)])

    def contains(self, x: Any) -> bool:
        """Return whether every row is an action."""
        return super().contains(x) and all(self._single.contains(row) for row in x)

    def seed(self, seed: Any = None) -> Any:
        """Seed `sample`."""
        return self._single.seed(seed)


def batch_actions(space: Space, count: int) -> Space:
    """Return the space of a batch of actions."""
    if hasattr(space, "action_layout"):
        return _MixedActions(space, count)  # type: ignore[arg-type]
    return batch_space(space, count)


def from_zero(space: Space) -> Space:
    """Return a space with its discrete values counted from 0, those of a MultiDiscrete in one axis."""
    if isinstance(space, Discrete):
        return Discrete(int(space.n))
    if isinstance(space, MultiDiscrete):
        return MultiDiscrete(space.nvec.reshape(-1))
    if isinstance(space, Dict):
        return Dict({key: from_zero(part) for key, part in space.spaces.items()})
    return Tuple([from_zero(part) for part in space.spaces]) if isinstance(space, Tuple) else space


def values_from_zero(space: Space, values: Any) -> Any:
    """Return values of a space as values of `from_zero`.

    Args:
        space: The space before.
        values: One of it, or the nested arrays (n, ...) of several.
    """
    if isinstance(space, Discrete):
        return values - space.start
    if isinstance(space, MultiDiscrete):
        shifted = values - space.start
        return shifted.reshape(*shifted.shape[: shifted.ndim - len(space.shape)], -1)
    if isinstance(space, Dict):
        return {key: values_from_zero(part, values[key]) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(values_from_zero(part, value) for part, value in zip(space.spaces, values, strict=True))
    return values


def original_space(space: Space) -> Space:
    """Return the space that emulation made flat, or the space itself."""
    nested: Space = getattr(space, "original", space)
    return nested


def original(space: Space, rows: Array) -> Any:
    """Return a copy of observations, in the nested form from which emulation made them flat.

    Args:
        space: The space of one row.
        rows: One row of it or several, (n, ...); every array of a nested copy then has the leading axis.
    """
    flat: Any = space
    return flat.unflatten(rows) if hasattr(space, "original") else rows.copy()
