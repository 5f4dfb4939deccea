"""How long a step of an environment takes, measured in a process of its own: nothing here is disturbed by it.

The forked process has generators, files and environments of its own, and is ended when its time is up, so an
environment that is slow to open, hangs or breaks costs no more than that time. It is asked once for each environment.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
import weakref
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from puffer_core.env import Array, Space
from puffer_core.vector.serial import Serial
from puffer_core.vector.source import Source

LIMIT_S = 1.0
"""How long everything may take, opening included."""
_STEPS_S = 0.02
"""How long steps are taken; one more round where one takes longer."""
_SEVERAL = 8
"""Environments that are stepped together where opening one takes less than `_QUICK_S`."""
_QUICK_S = 0.02

_known: weakref.WeakKeyDictionary[Any, dict[str, float | None]] = weakref.WeakKeyDictionary()
"""What was found before, by factory and then by name, parameters and wrappers."""


def step_seconds(source: Source) -> float | None:
    """Return the seconds that one environment's step takes, its share of the loop around it included.

    None where that was not to be found out: for environments in C, those that are open already, those that take longer
    than `LIMIT_S` to open or to step, and where processes can't be forked safely.
    """
    if source.make is None or sys.platform != "linux" or multiprocessing.current_process().daemon:
        return None
    factory = source.make.func if isinstance(source.make, partial) else source.make
    key = f"{source.name} {dict(source.params)!r} {source.wraps!r}"
    try:
        known = _known.setdefault(factory, {})
    except TypeError:
        return _measured(source)
    if key not in known:
        known[key] = _measured(source)
    return known[key]


def random_batches(space: Space, rows: int, count: int) -> list[Array]:
    """Return so many batches of random actions, the same every time; infinite bounds of a Box are taken as 1."""
    rng = np.random.default_rng(0)
    if isinstance(space, Box):
        low, high = np.maximum(space.low, -1e6), np.minimum(space.high, 1e6)
        low, high = np.where(np.isinf(space.low), -1.0, low), np.where(np.isinf(space.high), 1.0, high)
        return [rng.uniform(low, high, (rows, *space.shape)).astype(np.float32) for _ in range(count)]
    if isinstance(space, MultiDiscrete):
        return [rng.integers(0, space.nvec, (rows, len(space.nvec))).astype(np.int32) for _ in range(count)]
    return [rng.integers(0, int(space.n), rows).astype(np.int32) for _ in range(count)]  # type: ignore[attr-defined]


def _measured(source: Source) -> float | None:
    """Return what a forked process finds, or None."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(source, sender), daemon=True)
    with warnings.catch_warnings():
        # Python 3.12 warns of forks while there are threads; a child that they block is ended when its time is up.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(LIMIT_S) else None
    except EOFError:
        return None
    finally:
        receiver.close()
        _kill(process)


def _kill(process: BaseProcess) -> None:
    """End the process and those that its environments started."""
    assert process.pid is not None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.join()
    process.close()


def _tell(source: Source, sender: Connection) -> None:
    """Measure and send the result; an environment that fails sends nothing."""
    os.setsid()
    # Ends this process should its parent not be there to do so.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 2 * LIMIT_S)
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    sys.stdout = sys.stderr = os.fdopen(silence, "w")
    with suppress(Exception):
        sender.send(_found(source))


def _found(source: Source) -> float:
    """Return the seconds of a step: of several environments in turn, where they open quickly, else of one."""
    began = time.perf_counter()
    with Serial(source) as vector:
        if time.perf_counter() - began >= _QUICK_S:
            return _time_of(vector)
    with Serial(source, _SEVERAL) as vector:
        return _time_of(vector)


def _time_of(vector: Serial) -> float:
    """Return the seconds of a step per environment: of most rounds of four, since others may use the core too."""
    batches = random_batches(vector.single_action_space, vector.num_agents, 4)
    vector.reset()
    rounds: list[float] = []
    began = time.perf_counter()
    while not rounds or time.perf_counter() - began < _STEPS_S:
        at = time.perf_counter()
        for batch in batches:
            vector.step(batch)
        rounds.append((time.perf_counter() - at) / len(batches))
    return float(np.quantile(rounds, 0.25)) / len(vector.members)
