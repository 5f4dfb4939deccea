"""For tests of rollouts: a vector with partial batches, of workers that step in this process when asked to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from puffer_core.vector import Serial
from puffer_core.vector.base import Vector

ARRAYS = (
    "observations", "rewards", "terminals", "truncations", "masks", "final_observations", "action_mask", "actions",
    "log", "logged",
)  # fmt: skip


class PartialVector(Vector):
    """Workers of one `Serial` each; a batch is a block of them in turn, or those that a draw says are ready first.

    Args:
        make: Makes an environment.
        workers: How many, each with ``envs`` environments.
        batch: Workers in one batch.
        order: Seed of the order in which workers are ready; None gives blocks in a ring.
    """

    backend = "partial"

    def __init__(
        self, make: Callable[..., Any], workers: int, envs: int = 1, batch: int = 1, order: int | None = None
    ) -> None:
        super().__init__("partial", 0)
        self.workers = [Serial(make, envs, first_index=i * envs) for i in range(workers)]
        first = self.workers[0]
        self.single_observation_space, self.single_action_space = (
            first.single_observation_space,
            first.single_action_space,
        )
        self.agents_per_env, self.log_fields = first.agents_per_env, first.log_fields
        self.rows, self.batch = first.num_agents, batch
        self.num_envs, self.num_agents = workers * envs, workers * self.rows
        self.agents_per_batch = batch * self.rows
        self._rng = None if order is None else np.random.default_rng(order)
        self.batches: list[tuple[int, ...]] = []
        self._running = self._chosen = list(range(workers))
        self._show(list(range(batch)))

    def _show(self, chosen: Sequence[int]) -> None:
        self._chosen = list(chosen)
        for name in ARRAYS:
            arrays = [getattr(self.workers[i], name) for i in chosen]
            setattr(self, name, None if arrays[0] is None else np.concatenate(arrays))
        self.agent_ids = np.concatenate([np.arange(i * self.rows, (i + 1) * self.rows) for i in chosen])

    def _async_reset(self, seed: int | None) -> None:
        for worker in self.workers:
            worker.reset(seed)
        self._running = list(range(len(self.workers)))

    def _recv(self) -> None:
        # Those that were sent first come first: a ring.
        size = min(self.batch, len(self._running))
        chosen = self._running[:size]
        if self._rng is not None:
            chosen = self._rng.choice(self._running, size, replace=False).tolist()
        self._running = [i for i in self._running if i not in chosen]
        self._show(chosen)
        self.batches.append(tuple(chosen))

    def _send(self, actions: Any) -> None:
        self._send_but(actions, np.zeros(len(actions), np.bool_))

    def _send_but(self, actions: Any, hold: Any) -> None:
        for k, i in enumerate(self._chosen):
            rows = slice(k * self.rows, (k + 1) * self.rows)
            assert hold[rows].all() or not hold[rows].any()
            if not hold[rows].any():
                self._step(i, actions[rows])

    def _send_held(self, actions: Any) -> None:
        held = [i for i in range(len(self.workers)) if i not in self._running]
        assert len(held) * self.rows == len(actions)
        for k, i in enumerate(held):
            self._step(i, actions[k * self.rows : (k + 1) * self.rows])

    def _step(self, i: int, actions: Any) -> None:
        self.workers[i].step(actions)
        self._running.append(i)

    def _close(self) -> None:
        for worker in self.workers:
            worker.close()

    def drain_log(self) -> dict[str, float] | None:
        logs = [log for worker in self.workers if (log := worker.drain_log())]
        count = sum(log["n"] for log in logs)
        names = set.intersection(*map(set, logs)) - {"n"} if logs else set()
        means = {name: sum(log[name] * log["n"] for log in logs) / count for name in names}
        return {**means, "n": count} if logs else None

    def set_params(self, **values: Any) -> None:
        raise NotImplementedError

    def save(self) -> None:
        return None

    def load(self, state: Any) -> None:
        raise NotImplementedError

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        raise NotImplementedError
