"""How environments divide into workers and batches, and what a backend without workers refuses."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from puffer_core.errors import OptionError

_SEEDS = 2**63
_ENDLESS = 2**40


def check_counts(num_envs: object, num_workers: object, batch_size: object, zero_copy: bool) -> None:
    """Check that environments divide into workers and workers into batches.

    Raises:
        OptionError: The text names the numbers, the hint the nearest legal ones.
    """
    if not isinstance(zero_copy, bool | np.bool_):
        raise OptionError(f"zero_copy={zero_copy!r} is not True or False")
    for name, value in (("num_envs", num_envs), ("num_workers", num_workers), ("batch_size", batch_size)):
        if name == "num_envs" or not is_auto(value):
            check_count(name, value)
    envs = cast(int, num_envs)
    workers = envs if is_auto(num_workers) else cast(int, num_workers)
    batch = envs if is_auto(batch_size) else cast(int, batch_size)
    if envs % workers:
        msg = f"num_envs={envs} can't be divided among num_workers={workers}"
        raise OptionError(msg, hint=f"num_workers can be {_nearest(workers, _divisors(envs))}")
    share = envs // workers
    if batch > envs:
        msg = f"batch_size={batch} is more than num_envs={envs}"
    elif batch % share:
        msg = f"batch_size={batch} is no whole number of workers with {share} of num_envs={envs} each"
    elif zero_copy and envs % batch:
        msg = f"num_envs={envs} is no multiple of batch_size={batch}, which zero_copy needs"
    else:
        return
    near = min(batch, envs) // share
    legal = _divisors(workers) if zero_copy else [n for n in (near, near + 1) if 0 < n <= workers]
    raise OptionError(msg, hint=f"batch_size can be {_nearest(batch, [share * n for n in legal])}")


def check_count(name: str, value: object) -> int:
    """Return an integer of at least 1.

    Raises:
        OptionError: For anything else.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < 1:
        raise OptionError(f"{name}={value!r} is not an integer of at least 1")
    return int(value)


def check_seed(seed: object) -> int:
    """Return a seed: an integer of at least 0.

    Raises:
        OptionError: For anything else.
    """
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer) or not 0 <= seed < _SEEDS:
        raise OptionError(f"seed={seed!r} is not an integer from 0 to 2**63 - 1")
    return int(seed)


def check_index(index: object) -> int:
    """Return the instances before those of a vector: an integer of at least 0.

    Raises:
        OptionError: For anything else.
    """
    if isinstance(index, bool | np.bool_) or not isinstance(index, int | np.integer) or index < 0:
        raise OptionError(f"first_index={index!r} is not an integer of at least 0")
    return int(index)


def check_seconds(name: str, value: object) -> float:
    """Return a number of seconds above 0.

    Raises:
        OptionError: For anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise OptionError(f"{name}={value!r} is not a number of seconds above 0, or None")
    return float(value)


def is_auto(value: object) -> bool:
    """Return whether a count is left to the backend."""
    return isinstance(value, str) and value == "auto"


def refuse_split(num_envs: int, num_workers: Any, batch_size: Any, zero_copy: bool) -> str | None:
    """Return what a backend without workers can't do; None where nothing is to be split."""
    asked = []
    if not is_auto(num_workers) and num_workers != 1:
        asked.append(f"num_workers={num_workers}")
    if not is_auto(batch_size) and batch_size != num_envs:
        asked.append(f"batch_size={batch_size} of num_envs={num_envs}")
    if not zero_copy:
        asked.append("zero_copy=False")
    return f"it has no workers for {' and '.join(asked)}" if asked else None


def _divisors(total: int) -> list[int]:
    """Return the divisors of a number, in order; of one that no machine has that many environments for 1 and itself."""
    low = [i for i in range(1, math.isqrt(total) + 1) if total % i == 0] if total < _ENDLESS else [1]
    return sorted({*low, *(total // i for i in low)})


def _nearest(value: int, legal: list[int]) -> str:
    """Return the legal numbers beside ``value``, in words."""
    below, above = [i for i in legal if i < value], [i for i in legal if i > value]
    return " or ".join(str(i) for i in below[-1:] + above[:1])
