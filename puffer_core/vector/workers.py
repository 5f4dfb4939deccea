"""What backends with workers have in common: how environments are divided, and what is asked of all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from puffer_core.env import Array, put_actions
from puffer_core.errors import EnvError, OptionError, UsageError
from puffer_core.vector.base import SEND, Vector
from puffer_core.vector.blocks import Block, Blocks, auto_workers
from puffer_core.vector.counts import check_counts, check_seconds, is_auto
from puffer_core.vector.logs import LogSums
from puffer_core.vector.rows import Rows
from puffer_core.vector.states import join_states, split_state

OPEN_S = 120.0
"""How long a worker may take to start and to open its environments, unless `timeout` is longer."""


class WorkerVector(Vector):
    """Environments divided evenly among workers, of which some make a batch.

    Args:
        name, seed: As in `Vector`.
        strict: Refuse actions outside the action space instead of replacing them.
        timeout: Seconds that a step or a reset may take; None is any time.

    Attributes:
        rows: What one environment object takes in the arrays.
        num_workers: Workers.
    """

    rows: Rows
    num_workers: int

    def __init__(self, name: str, seed: int, *, strict: bool, timeout: float | None) -> None:
        super().__init__(name, seed)
        self._strict = strict
        self._timeout = None if timeout is None else check_seconds("timeout", timeout)

    # -- the division -------------------------------------------------------------------------------------------------

    def _divide(
        self,
        num_envs: int,
        num_workers: int | str,
        batch_size: int | str,
        zero_copy: bool,
        sync_traj: bool | None,
        cpus: int,
    ) -> int:
        """Divide the environments among workers and these among batches; return the environments of a batch."""
        check_counts(num_envs, num_workers, batch_size, zero_copy)
        batch = num_envs if is_auto(batch_size) else int(batch_size)
        self.num_workers = auto_workers(num_envs, batch, cpus) if is_auto(num_workers) else int(num_workers)
        self._envs_per_worker = self._instances_per_worker = num_envs // self.num_workers
        in_order = zero_copy if sync_traj is None else sync_traj
        per_batch = batch // self._envs_per_worker
        self._blocks = Blocks(self.num_workers, per_batch, zero_copy=zero_copy, in_order=in_order)
        return batch

    def _declare(self, rows: Rows) -> None:
        """Take spaces, fields and sizes from one environment."""
        objects = self.num_workers * self._envs_per_worker
        self.rows = rows
        self.single_observation_space = rows.single_observation_space
        self.single_action_space = rows.single_action_space
        self.agents_per_env, self.agent_types = rows.agents_per_env, rows.agent_types
        self.log_fields = rows.columns
        self.num_envs = rows.num_instances * objects
        self.num_agents = rows.num_agents * objects
        self._rows_per_worker = rows.num_agents * self._envs_per_worker
        self._instances_per_worker = rows.num_instances * self._envs_per_worker
        self.agents_per_batch = self._blocks.per_batch * self._rows_per_worker
        self._sums = LogSums(self.log_fields)
        self.action_mask = None

    @property
    def _open_s(self) -> float:
        """Seconds that a worker has to open its environments."""
        return max(OPEN_S, self._timeout or 0.0)

    def _place(self, number: int, position: int | None = None) -> str:
        """Name a worker, or one of its instances, for a message."""
        first = number * self._instances_per_worker
        last = first + self._instances_per_worker - 1
        if position is not None or first == last:
            return f"environment {first + (position or 0)} in worker {number}"
        return f"worker {number} (environments {first} to {last})"

    # -- actions ------------------------------------------------------------------------------------------------------

    def _put_actions(self, actions: Array, rows: Array) -> None:
        put_actions(actions, rows, self.name, self.single_action_space if self._strict else None)

    def _workers_to_hold(self, hold: npt.NDArray[np.bool_]) -> Block:
        """Return the workers of the batch received whose rows are to be held.

        Raises:
            UsageError: If batches are whole, or only some rows of a worker are to be held.
        """
        received = self._blocks.received
        held = hold.reshape(len(received), -1)
        if self._blocks.mode == "full" or (held.any(axis=1) != held.all(axis=1)).any():
            msg = f"{self.name}: agents can be held in partial batches only, and all of a worker's or none"
            raise UsageError(msg, hint=f"a worker has {self._rows_per_worker} consecutive rows of the batch")
        return tuple(worker for worker, is_held in zip(received, held[:, 0], strict=True) if is_held)

    # -- calls between steps ------------------------------------------------------------------------------------------

    @abstractmethod
    def _call(self, number: int, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of a worker's `Serial` does, once its step is done; errors leave it usable."""

    def _call_all(self, name: str, **kwargs: Any) -> list[Any]:
        """Return what a method does in every worker."""
        return [self._call(number, name, **kwargs) for number in range(self.num_workers)]

    @abstractmethod
    def _load(self, parts: list[dict[str, bytes]]) -> None:
        """Restore the state of each worker, and show the arrays of all of them as received."""

    def set_params(self, **values: Any) -> None:
        """Set parameters of every environment; a step that is under way is finished first.

        What the first worker refuses changes nothing in any other.
        """
        self._check_open()
        self._call(0, "set_params", **values)
        for number in range(1, self.num_workers):
            self._call(number, "set_params", **values)

    def save(self) -> dict[str, bytes] | None:
        """Return the state of every environment, as `Serial` does, after the step that is under way.

        None where one can't be saved, or where batches are partial and some agent is not held.
        """
        self._check_open()
        if self._blocks.mode != "full" and self._held < self.num_agents:
            return None
        states = self._call_all("save")
        return None if None in states else join_states(states)

    def load(self, state: Mapping[str, bytes]) -> None:
        """Restore what `save` returned, here or by a `Serial`; send the actions for the batch received then.

        Where batches are partial, every agent has to be held, and still is: `send_held` goes on.

        Raises:
            EnvError: If some agent of partial batches is not held, or the state is of another number of environments.
        """
        self._check_open()
        is_partial = self._blocks.mode != "full"
        if is_partial and self._held < self.num_agents:
            raise EnvError(f"{self.name}: a state can't be restored into partial batches unless all agents are held")
        parts = split_state(state, self.num_workers, self._envs_per_worker, self.name)
        if is_partial:
            for number, part in enumerate(parts):
                self._call(number, "load", part)
        else:
            self._load(parts)
            self._phase = SEND

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        """Return a picture or a text of one instance."""
        self._check_open()
        if not 0 <= index < self.num_envs:
            raise OptionError(f"index={index!r} is not an integer from 0 to {self.num_envs - 1}")
        number, position = divmod(index, self._instances_per_worker)
        return self._call(number, "render", position, mode)
