"""The vector interface: what a trainer, an evaluation or a benchmark sees of many environments stepped together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from puffer_core.env import Array, Space, Step, joint_space
from puffer_core.errors import OptionError, UsageError
from puffer_core.vector.counts import check_seed

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv
    from stable_baselines3.common.vec_env import VecEnv

Infos: TypeAlias = list[dict[str, Any]]
Received: TypeAlias = tuple[Array, Array, Array, Array, Infos, Array, Array]

NEW, RECV, SEND, CLOSED = "new", "recv", "send", "closed"


class Vector(ABC):
    """Many environments behind one set of arrays.

    The arrays are views of what the environments write: they are valid until the next `send`, so whoever keeps a row
    copies it. Same-step reset, everywhere: `rewards`, `terminals` and `truncations` belong to the step that ended,
    `observations` already to the next episode, and `final_observations` holds the last observation of every row that
    ended. A subclass implements the methods with an underscore; the order of calls is checked here.

    Attributes:
        single_observation_space, single_action_space: Of one agent.
        num_envs: Instances.
        agents_per_env: Rows of one instance; they are consecutive.
        agent_types: Type of each agent of an instance; empty where they are all of one.
        num_agents: Rows of all environments.
        agents_per_batch: Rows of one batch, which the arrays below have: fewer than `num_agents` where batches are
            partial. Then every `recv` puts other arrays here, and `agent_ids` says whose rows they are.
        observations, rewards, terminals, truncations, masks, final_observations: As in `PufferEnv`, one row per agent.
        action_mask: (N, sum of head sizes) uint8, or None.
        actions: Where `send` puts a batch; a batch written here may be sent without a copy.
        log, logged, log_fields: Rows of what ended in the last step, which rows, and the names of the columns.
        agent_ids: (N,) the index of each row's agent over the whole vector.
        infos: Of the last step.
        limits: What the framework behind the environments can't give, as ``no-seed``.
        backend: Name of the backend that this is.
        backend_note: Which backend this is and why, in words.
    """

    single_observation_space: Space
    single_action_space: Space
    num_envs: int
    agents_per_env: int
    agent_types: tuple[int, ...] = ()
    num_agents: int
    agents_per_batch: int
    observations: Array
    actions: Array
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    masks: npt.NDArray[np.bool_]
    final_observations: Array
    action_mask: npt.NDArray[np.uint8] | None
    log: npt.NDArray[np.float32]
    logged: npt.NDArray[np.bool_]
    log_fields: tuple[str, ...]
    agent_ids: npt.NDArray[np.int64]
    infos: Infos
    limits: tuple[str, ...] = ()
    backend: str = ""
    backend_note: str = ""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.infos = []
        self._seed: int | None = check_seed(seed)
        self._phase = NEW
        self._held = 0

    # -- calls, in their legal order ----------------------------------------------------------------------------------

    def async_reset(self, seed: int | None = None) -> None:
        """Start a new episode everywhere; legal at any time, then `recv`.

        Args:
            seed: One seed gives one trajectory for one action sequence. None: the vector's own seed the first time,
                after that the generators go on.
        """
        if self._phase == CLOSED:
            self._refuse("reset")
        seed = self._seed if seed is None else check_seed(seed)
        self._seed = None
        self._async_reset(seed)
        self._phase, self._held = RECV, 0

    def recv(self) -> Received:
        """Wait for a batch: observations, rewards, terminals, truncations, infos, agent_ids, masks."""
        if self._phase != RECV or self._held == self.num_agents:
            self._refuse("recv")
        self._recv()
        self._phase = SEND
        return (
            self.observations,
            self.rewards,
            self.terminals,
            self.truncations,
            self.infos,
            self.agent_ids,
            self.masks,
        )

    def send(self, actions: Array, hold: npt.ArrayLike | None = None) -> None:
        """Step the agents last received.

        Args:
            actions: One row for each agent of the batch.
            hold: Rows of the batch, bool, to leave unanswered until `send_held`: all of a worker's or none. Only where
                batches are partial. While agents are held, a batch may have fewer than `agents_per_batch` rows.
        """
        if self._phase != SEND:
            self._refuse("send")
        if hold is None or not (held := self._checked_hold(hold)).any():
            self._send(actions)
        else:
            self._send_but(actions, held)
            self._held += int(np.count_nonzero(held))
        self._phase = RECV

    def _checked_hold(self, hold: object) -> npt.NDArray[np.bool_]:
        """Return which rows of the batch are to be held, refusing what is not one bool for each of them."""
        held = np.asarray(hold)
        if held.dtype != np.bool_ or held.shape != self.agent_ids.shape:
            msg = f"{self.name}: hold is {held.dtype} of shape {held.shape}, not bool of shape {self.agent_ids.shape}"
            raise UsageError(msg, hint="give one bool for each row of the batch")
        return held

    def send_held(self, actions: Array) -> None:
        """Step all agents that are held: ``actions`` has one row for each, in the order of their ids."""
        if self._phase == CLOSED or not self._held:
            self._refuse("send_held")
        self._send_held(actions)
        self._held = 0

    def reset(self, seed: int | None = None) -> tuple[Array, Infos]:
        """`async_reset`, then `recv`: return observations and infos."""
        self.async_reset(seed)
        self.recv()
        return self.observations, self.infos

    def step(self, actions: Array) -> Step:
        """`send`, then `recv`: return observations, rewards, terminals, truncations and infos."""
        self.send(actions)
        self.recv()
        return self.observations, self.rewards, self.terminals, self.truncations, self.infos

    def close(self) -> None:
        """Free everything; calling it twice is allowed."""
        if self._phase != CLOSED:
            self._phase = CLOSED
            self._close()

    def _refuse(self, call: str) -> None:
        reason = {
            (CLOSED, call): "used after close",
            (NEW, "recv"): "reset before stepping",
            (NEW, "send"): "reset and recv before sending",
            (SEND, "recv"): "this batch was received already: send actions first",
            (RECV, "send"): "actions were sent already: recv first",
            (RECV, "recv"): "every agent is held: send_held first",
        }.get((self._phase, call), "no agent is held")
        raise UsageError(f"{self.name}: {reason}")

    def _check_open(self) -> None:
        if self._phase == CLOSED:
            self._refuse("use")

    # -- what a backend implements ------------------------------------------------------------------------------------

    @abstractmethod
    def _async_reset(self, seed: int | None) -> None: ...

    @abstractmethod
    def _recv(self) -> None: ...

    @abstractmethod
    def _send(self, actions: Array) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    def _send_but(self, actions: Array, hold: npt.NDArray[np.bool_]) -> None:
        """Step the agents last received but for some; a backend with partial batches implements it and the next."""
        raise UsageError(f"{self.name}: backend {self.backend} can't hold agents", hint="use whole batches")

    def _send_held(self, actions: Array) -> None:
        """Step the agents that are held, in the order of their ids."""
        raise NotImplementedError

    @abstractmethod
    def drain_log(self) -> dict[str, float] | None:
        """Return the means over everything logged since the last call, with their number ``n``; None without any.

        Numbers in infos are averaged in, weighted by their key ``n`` where they have one.
        """

    @abstractmethod
    def set_params(self, **values: Any) -> None:
        """Change parameters that may change while running; each instance adopts them at its next reset."""

    @abstractmethod
    def save(self) -> dict[str, bytes] | None:
        """Return the state of every environment, or None where one can't be saved."""

    @abstractmethod
    def load(self, state: Mapping[str, bytes]) -> None:
        """Restore what `save` returned; the arrays show the restored observations."""

    @abstractmethod
    def render(self, index: int = 0, mode: str | None = None) -> Any:
        """Return a picture or a text of one instance."""

    # -- conveniences -------------------------------------------------------------------------------------------------

    @property
    def observation_space(self) -> Space:
        """The space of all rows together."""
        return joint_space(self.single_observation_space, self.num_agents)

    @property
    def action_space(self) -> Space:
        """The space of a whole batch of actions."""
        return joint_space(self.single_action_space, self.num_agents)

    def to_gymnasium(self, render_mode: Literal["rgb_array", "ansi"] | None = None) -> VectorEnv[Any, Any, Any]:
        """Return a `gymnasium.vector.VectorEnv` that steps this vector; every agent is one of its environments.

        Raises:
            OptionError: If batches are partial, or Gymnasium is too old.
        """
        try:
            from puffer_core.vector.export import GymnasiumVector
        except ImportError as error:
            msg = f"this Gymnasium can't declare when a vector environment resets: {error}"
            raise OptionError(msg, hint='pip install "gymnasium>=1.1"') from error
        return GymnasiumVector(self, render_mode)

    def to_sb3(self, render_mode: Literal["rgb_array"] | None = None) -> VecEnv:
        """Return a Stable-Baselines3 `VecEnv` that steps this vector; every agent is one of its environments.

        Raises:
            OptionError: If batches are partial, or Stable-Baselines3 is not installed.
            EnvError: If actions are discrete and continuous at once.
        """
        try:
            from puffer_core.vector.export_sb3 import SB3Vector
        except ImportError as error:
            msg = f"Stable-Baselines3 can't be imported: {error}"
            raise OptionError(msg, hint="pip install stable-baselines3") from error
        return SB3Vector(self, render_mode)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
