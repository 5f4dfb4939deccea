"""The global random generators of processes that hold environments."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np


def seed_globals(seed: int, first_index: int) -> None:
    """Give a worker global generators of its own: those of all workers would draw the same numbers else.

    Args:
        seed: Of the vector.
        first_index: Instances before those of the worker.
    """
    state = np.random.SeedSequence((seed, first_index)).generate_state(2)
    random.seed(int(state[0]))
    np.random.seed(int(state[1]))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int(state[0]))
