"""The wrapper of actions: anything is accepted and clipped to what the environment takes."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box

from puffer_core.env import Array, Space
from puffer_core.vector.base import Vector
from puffer_core.vector.wrap.base import Wrapper, refuse


class ClipAction(Wrapper):
    """Actions of a Box clipped to its bounds; the action space that is declared has none.

    What is not a number stays so, and is for the environment to refuse.

    Args:
        vector: The vector inside.
    """

    key: ClassVar[str] = "clip_action"

    def __init__(self, vector: Vector, value: bool = True) -> None:
        super().__init__(vector, value)
        space = vector.single_action_space
        assert isinstance(space, Box)
        self._low, self._high = space.low.astype(np.float32), space.high.astype(np.float32)

    @classmethod
    def declare(cls, observation: Space, action: Space, value: Any) -> tuple[Space, Space]:
        """Return the spaces; an action may be any number."""
        if not isinstance(action, Box) or hasattr(action, "original"):
            raise refuse(cls.key, True, action, "a Box of the environment's own as action space")
        return observation, Box(-np.inf, np.inf, action.shape, action.dtype.type)

    def _sent(self, actions: Array) -> Array:
        given = np.asarray(actions)
        if given.dtype.kind not in "fiu" or given.shape[1:] != self._low.shape:
            return actions  # for the vector inside to refuse
        clipped: Array = np.clip(given, self._low, self._high)
        return clipped
