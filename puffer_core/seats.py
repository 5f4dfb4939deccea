"""Who sits where in environments with several agents, where two policies meet.

The first side has one seat of an environment, seat k % A of environment k with A agents, the other side all the rest:
so each of the first side's seats comes equally often.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from puffer_core.config.plan import environments_against_pool
from puffer_core.config.schema import SelfPlayConfig

Flags = npt.NDArray[np.bool_]


def first_seats(num_agents: int, agents_per_env: int) -> Flags:
    """Return (N,) bool, the rows of the first side."""
    rows = np.arange(num_agents)
    chosen: Flags = rows % agents_per_env == rows // agents_per_env % agents_per_env
    return chosen


def frozen_rows(config: SelfPlayConfig, num_agents: int, agents_per_env: int) -> Flags:
    """Return (N,) bool, the rows that opponents from the pool play."""
    num_envs = num_agents // agents_per_env
    met = np.arange(num_envs) >= num_envs - environments_against_pool(config, num_envs)
    return np.repeat(met, agents_per_env) & ~first_seats(num_agents, agents_per_env)
