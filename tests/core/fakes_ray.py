"""Environments for tests of actors: they draw, sleep, break and leave when told to."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from puffer_core.env import PufferEnv
from puffer_core.errors import EnvError, OptionError


class Walk(PufferEnv):
    """Two agents walk at random from where the seed puts them; one in eight steps ends an episode of one of them.

    Args:
        offset: Added to what each observes, so that rows of unequal parameters differ.
        at: Step at which ``fault`` happens; never by default.
        fault: ``raise``, ``refuse``, ``exit`` or ``hang``.
        only: Happens only in the environment of this index.
        sleep_s: Of every step.
    """

    def __init__(
        self,
        buf: Any = None,
        offset: float = 0.0,
        at: int = -1,
        fault: str = "raise",
        only: int | None = None,
        sleep_s: float = 0.0,
    ) -> None:
        self.single_observation_space = Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = Discrete(4)
        self.num_agents = 2
        super().__init__(buf)
        self.offset, self.at, self.fault, self.only, self.sleep_s = offset, at, fault, only, sleep_s
        self.rng = np.random.default_rng(0)
        self.index, self.time = 0, 0

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng([seed, index])
        self.index, self.time = index, 0
        self.begin(np.ones(2, np.bool_))
        return self.observations, [{"began": 1.0}]

    def begin(self, rows: Any) -> None:
        self.observations[rows] = self.rng.normal(size=(int(rows.sum()), 3)) + self.offset

    def step(self, actions: Any) -> Any:
        self.time += 1
        time.sleep(self.sleep_s if self.only in (None, self.index) else 0)
        if self.time == self.at and self.only in (None, self.index):
            self.happen()
        self.observations[:, 0] += actions
        self.rewards[:] = actions + self.offset
        draws = self.rng.random(2)
        self.terminals[:], self.truncations[:] = draws < 1 / 16, draws > 15 / 16
        ended = self.terminals | self.truncations
        self.final_observations[ended] = self.observations[ended]
        self.begin(ended)
        return self.observations, self.rewards, self.terminals, self.truncations, self.infos(ended)

    def infos(self, ended: Any) -> list[dict[str, Any]]:
        return [{"score": float(self.time), "won": float(ended[0])}] if ended.any() else []

    def happen(self) -> None:
        if self.fault == "raise":
            raise ZeroDivisionError(f"planted at {self.time}")
        if self.fault == "refuse":
            raise EnvError("planted", hint="unplant it")
        if self.fault == "exit":
            os._exit(3)
        time.sleep(60)

    def set_params(self, **values: Any) -> None:
        if set(values) != {"offset"}:
            raise OptionError(f"Walk has no parameter {sorted(values)}")
        self.offset = values["offset"]

    def render(self) -> Any:
        return f"{self.index}: {self.offset:g}"

    def save(self) -> bytes:
        import pickle

        return pickle.dumps((self.rng, self.index, self.time, self.observations.copy()))

    def load(self, blob: bytes) -> None:
        import pickle

        self.rng, self.index, self.time, self.observations[:] = pickle.loads(blob)
