"""Measures how the memory of processes grows."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import numpy as np
import psutil

LIMIT = 1 << 20
"""Bytes that a vector may grow by after warm-up."""


def growth(pids: Sequence[int], run: Callable[[int], None], warm_up: int, steps: int) -> list[int]:
    """Return by how many bytes the resident size of each process grows over ``steps``, after ``warm_up`` steps."""
    processes = [psutil.Process(pid) for pid in pids]
    sizes = []
    for count in (warm_up, steps):
        run(count)
        gc.collect()
        sizes.append([process.memory_info().rss for process in processes])
    return [int(grown) for grown in np.subtract(sizes[1], sizes[0])]
