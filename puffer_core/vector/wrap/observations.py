"""Wrappers of observations: stacked frames, shades of grey, another size."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box

from puffer_core.env import Array, Space
from puffer_core.errors import OptionError
from puffer_core.vector.base import Vector
from puffer_core.vector.wrap import images
from puffer_core.vector.wrap.base import EpisodeWrapper, Wrapper, refuse


class FrameStack(EpisodeWrapper):
    """The last ``count`` observations of a row as one, the oldest first.

    Pictures are stacked along their channels: (H, W) becomes (H, W, count), (H, W, C) becomes (H, W, count C), and
    (C, H, W), where C is less than W, becomes (count C, H, W). Vectors are joined: (D,) becomes (count D,). Any other
    shape is joined along its last axis. An episode begins with ``count`` times its first observation;
    `final_observations` are stacked with those before them.

    Args:
        vector: The vector inside.
        count: Observations.
    """

    key: ClassVar[str] = "frame_stack"

    def __init__(self, vector: Vector, count: int) -> None:
        super().__init__(vector, count)
        space = self.single_observation_space
        assert space.shape is not None
        shape, axis = _frame(vector.single_observation_space.shape or ())
        # Along the axis every stack is a run of memory, as is each frame in it: (rows, lead, count, size of a frame).
        self._count, self._lead, self._size = count, math.prod(shape[:axis]), math.prod(shape[axis:])
        self._stacks = np.zeros((vector.num_agents, *space.shape), space.dtype)
        self._final = np.zeros((vector.agents_per_batch, *space.shape), space.dtype)
        self.observations, self.final_observations = self._stacks[: vector.agents_per_batch], self._final

    @classmethod
    def declare(cls, observation: Space, action: Space, value: Any) -> tuple[Space, Space]:
        """Return the spaces; the bounds of each frame are those of one observation."""
        if not isinstance(observation, Box) or hasattr(observation, "original"):
            allowed = "a Box of the environment's own: stacked bytes of a nested space can't be told apart again"
            raise refuse(cls.key, value, observation, allowed)
        shape, axis = _frame(observation.shape)
        low, high = (
            np.concatenate([bound.reshape(shape)] * value, axis=axis) for bound in (observation.low, observation.high)
        )
        return Box(low, high, dtype=observation.dtype.type), action

    def _transform(self) -> None:
        vector, rows = self.vector, self._rows()
        stacks = self._stacks[rows]
        ended = vector.terminals | vector.truncations
        if ended.any():
            self._finish(stacks, np.flatnonzero(ended))
        flat = stacks.reshape(-1)
        # All stacks move on by one frame at once; what comes in from the next stack is overwritten by the new frame.
        flat[: -self._size] = flat[self._size :]
        frames = self._split(vector.observations, 1)
        parts = self._split(stacks, self._count)
        parts[:, :, -1:] = frames
        begun = np.flatnonzero(ended | ~self._was_there[rows])
        if len(begun):
            parts[begun] = frames[begun]
        self._was_there[rows] = vector.masks
        if not isinstance(rows, slice):
            self._stacks[rows] = stacks
        self.observations, self.final_observations = stacks, self._final[: len(stacks)]

    def _finish(self, stacks: Array, rows: Array) -> None:
        """Put the last observation of each row that ended behind those before it."""
        final = self._split(self._final, self._count)
        final[rows, :, :-1] = self._split(stacks, self._count)[rows, :, 1:]
        final[rows, :, -1:] = self._split(self.vector.final_observations, 1)[rows]

    def _split(self, rows: Array, count: int) -> Array:
        return rows.reshape(len(rows), self._lead, count, self._size)

    def _state(self) -> list[Array]:
        return [*super()._state(), self._stacks]

    def _show(self) -> None:
        self.observations, self.final_observations = self._stacks, self._final


class ObservationWrapper(Wrapper):
    """A wrapper that computes each observation from one: a subclass has `declare` and `_map`."""

    def __init__(self, vector: Vector, value: Any) -> None:
        super().__init__(vector, value)
        space = self.single_observation_space
        shape = (vector.agents_per_batch, *(space.shape or ()))
        self._mapped, self._final = np.zeros(shape, space.dtype), np.zeros(shape, space.dtype)
        self.observations, self.final_observations = self._mapped, self._final

    def _map(self, observations: Array, out: Array) -> None:
        """Write what is shown for these observations, (n, ...), into ``out``."""
        raise NotImplementedError

    def _transform(self) -> None:
        self._show()
        ended = np.flatnonzero(self.terminals | self.truncations)
        if len(ended):
            last = np.empty((len(ended), *self._final.shape[1:]), self._final.dtype)
            self._map(self.vector.final_observations[ended], last)
            self._final[ended] = last

    def _show(self) -> None:
        count = len(self.vector.observations)
        self.observations, self.final_observations = self._mapped[:count], self._final[:count]
        self._map(self.vector.observations, self.observations)


class Grayscale(ObservationWrapper):
    """Shades of grey of RGB pictures: one channel in place of three; (H, W, 3) becomes (H, W, 1).

    Args:
        vector: The vector inside.
    """

    key: ClassVar[str] = "grayscale"

    def __init__(self, vector: Vector, value: bool = True) -> None:
        super().__init__(vector, value)
        self._axis = images.channel_axis(vector.single_observation_space.shape or ())

    @classmethod
    def declare(cls, observation: Space, action: Space, value: Any) -> tuple[Space, Space]:
        """Return the spaces; pictures keep their dtype."""
        shape = list(observation.shape or ())
        is_rgb = images.is_image(observation) and len(shape) == 3 and shape[images.channel_axis(tuple(shape))] == 3
        if not is_rgb:
            raise refuse(cls.key, True, observation, "pictures of three channels, (H, W, 3), uint8 or floats")
        shape[images.channel_axis(tuple(shape))] = 1
        return _same_bounds(observation, tuple(shape)), action

    def _map(self, observations: Array, out: Array) -> None:
        images.to_grey(observations, self._axis, out)


class Resize(ObservationWrapper):
    """Pictures in another size; each new pixel is the mean of the area it covers.

    Args:
        vector: The vector inside.
        size: ``84x84`` or (84, 84): height and width.
    """

    key: ClassVar[str] = "resize"

    def __init__(self, vector: Vector, size: str | tuple[int, int]) -> None:
        super().__init__(vector, size)

    @classmethod
    def declare(cls, observation: Space, action: Space, value: Any) -> tuple[Space, Space]:
        """Return the spaces; channels and dtype stay."""
        height, width = _size(value)
        if not images.is_image(observation):
            raise refuse(cls.key, value, observation, "pictures, (H, W), (H, W, C) or (C, H, W), uint8 or floats")
        shape = observation.shape or ()
        resized: tuple[int, ...] = (height, width)
        if len(shape) == 3:
            is_first = images.channel_axis(shape) == 0
            resized = (shape[0], *resized) if is_first else (*resized, shape[-1])
        return _same_bounds(observation, resized), action

    def _map(self, observations: Array, out: Array) -> None:
        images.resize(_channels_last(observations), _channels_last(out))


def _frame(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape of one frame in a stack, and the axis along which frames are joined."""
    if len(shape) in (0, 2):
        return (*shape, 1), len(shape)
    return shape, images.channel_axis(shape) if len(shape) == 3 else len(shape) - 1


def _size(value: str | tuple[int, int]) -> tuple[int, int]:
    """Return height and width."""
    found = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", value) if isinstance(value, str) else None
    if found:
        return int(found[1]), int(found[2])
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(n, int) and n > 0 for n in value):
        return value
    raise OptionError(f"wrap.resize={value!r} is not a height and a width", hint="write them as in `84x84`")


def _same_bounds(space: Space, shape: tuple[int, ...]) -> Box:
    """Return a Box of another shape, from the smallest to the largest number that the space has."""
    assert isinstance(space, Box)
    return Box(space.low.min(), space.high.max(), shape, space.dtype.type)


def _channels_last(rows: Array) -> Array:
    """Return a view of pictures as (n, H, W, C); channels that come first count as pictures of their own."""
    shape = rows.shape
    if len(shape) == 4 and images.channel_axis(shape[1:]) == 2:
        return rows
    return rows.reshape(-1, *shape[-2:], 1)
