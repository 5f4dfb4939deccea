"""What every wrapper shares: a vector that shows another one through an operation on whole batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from puffer_core.env import Array, Space
from puffer_core.errors import EnvError, OptionError
from puffer_core.vector.base import SEND, Vector

_FIXED = (
    "num_envs",
    "agents_per_env",
    "agent_types",
    "num_agents",
    "agents_per_batch",
    "log_fields",
    "limits",
    "backend",
)
_RECEIVED = (
    "observations",
    "actions",
    "rewards",
    "terminals",
    "truncations",
    "masks",
    "final_observations",
    "action_mask",
    "log",
    "logged",
    "agent_ids",
    "infos",
)


class Wrapper(Vector):
    """Another vector, with observations, rewards or actions changed on the way, one operation for the whole batch.

    What it does not change are the arrays of the vector inside. Logs stay those of the environments: what a wrapper
    does to rewards never shows in `log`. Closing it closes the vector inside.

    A subclass says in `declare` what it does to spaces, and overrides `_transform` or `_sent`. One with a state of its
    own lists its arrays in `_state`, so that they are saved with the environments.

    Args:
        vector: The vector inside, which from then on is used through the wrapper only.
        value: What the wrapper's key in ``[wrap]`` is set to.
    """

    key: ClassVar[str]
    """Its key in ``[wrap]``."""

    def __init__(self, vector: Vector, value: Any) -> None:
        spaces = self.declare(vector.single_observation_space, vector.single_action_space, value)
        super().__init__(vector.name, 0)
        self._seed = None  # the vector inside has the seed of the first reset
        self.vector = vector
        for name in _FIXED:
            setattr(self, name, getattr(vector, name))
        self.backend_note = vector.backend_note
        self.single_observation_space, self.single_action_space = spaces
        self._label = f"wrap.{depth(vector)}.{self.key}"
        self._take()

    @classmethod
    def declare(cls, observation: Space, action: Space, value: Any) -> tuple[Space, Space]:
        """Return the spaces of one agent as they are behind the wrapper.

        Raises:
            OptionError: If it can't be applied to these; the text names key, space and what is allowed.
        """
        return observation, action

    def _transform(self) -> None:
        """Bring the arrays, which are those of the vector inside, into the form that is shown."""

    def _sent(self, actions: Array) -> Array:
        """Return the actions for the vector inside."""
        return actions

    def _state(self) -> list[Array]:
        """Return the arrays that make up the wrapper's state; `load` writes into them."""
        return []

    def _show(self) -> None:
        """Show the observations of a state that was restored."""

    # -- what a vector implements -------------------------------------------------------------------------------------

    def _take(self) -> None:
        vector = self.vector
        for name in _RECEIVED:
            setattr(self, name, getattr(vector, name))

    def _async_reset(self, seed: int | None) -> None:
        self.vector.async_reset(seed)

    def _recv(self) -> None:
        self.vector.recv()
        self._take()
        self._transform()

    def _send(self, actions: Array) -> None:
        self.vector.send(self._sent(actions))

    def _send_but(self, actions: Array, hold: npt.NDArray[np.bool_]) -> None:
        self.vector.send(self._sent(actions), hold)

    def _send_held(self, actions: Array) -> None:
        self.vector.send_held(self._sent(actions))

    def _close(self) -> None:
        self.vector.close()

    def drain_log(self) -> dict[str, float] | None:
        """Return the means of the vector inside: what environments logged, which no wrapper changes."""
        return self.vector.drain_log()

    def set_params(self, **values: Any) -> None:
        """Set parameters of every environment."""
        self.vector.set_params(**values)

    def save(self) -> dict[str, bytes] | None:
        """Return the state of the environments and of the wrappers, or None where one can't be saved."""
        saved = self.vector.save()
        if saved is None:
            return None
        own = b"".join(array.tobytes() for array in self._state())
        return {**saved, self._label: own} if own else saved

    def load(self, state: Mapping[str, bytes]) -> None:
        """Restore what `save` returned; the arrays show the restored observations."""
        self._check_open()
        arrays, rest = self._state(), dict(state)
        own = rest.pop(self._label, b"")
        if len(own) != sum(array.nbytes for array in arrays):
            raise EnvError(f"{self.name}: the saved state has {len(own)} bytes of `{self._label}`, not those needed")
        self.vector.load(rest)
        start = 0
        for array in arrays:
            array.reshape(-1)[:] = np.frombuffer(own, array.dtype, array.size, start)
            start += array.nbytes
        self._take()
        self._show()
        if self._held < self.num_agents:  # agents that are held, as they may be in partial batches, still are
            self._phase = SEND

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        """Return a picture or a text of one instance, as the environment draws it."""
        return self.vector.render(index, mode)


class EpisodeWrapper(Wrapper):
    """A wrapper with a state for each row, which has to know where episodes begin.

    An episode begins where one has just ended, and where an agent is there that was not (also at a reset).
    """

    def __init__(self, vector: Vector, value: Any) -> None:
        super().__init__(vector, value)
        self._was_there = np.zeros(vector.num_agents, np.bool_)

    def _async_reset(self, seed: int | None) -> None:
        super()._async_reset(seed)
        self._was_there.fill(False)

    def _rows(self) -> slice | Array:
        """Return which rows of all this batch is: a slice where they are consecutive, so that indexing copies none."""
        ids = self.agent_ids
        first, count = int(ids[0]), len(ids)
        if ids[-1] - first == count - 1 and (count < 2 or bool((ids[1:] - ids[:-1] == 1).all())):
            return slice(first, first + count)
        return ids

    def _state(self) -> list[Array]:
        return [self._was_there]


def depth(vector: Vector) -> int:
    """Return how many wrappers a vector is in."""
    return 1 + depth(vector.vector) if isinstance(vector, Wrapper) else 0


def refuse(key: str, value: object, space: object, allowed: str) -> OptionError:
    """Return the error for a wrapper that does not fit a space."""
    shown = f"wrap.{key}" if value is True else f"wrap.{key}={value}"
    return OptionError(f"{shown} can't be applied to {space}: it takes {allowed}")
