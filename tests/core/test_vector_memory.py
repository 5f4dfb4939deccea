"""The memory of vectors does not grow with the episodes: native, and actors of Ray with the process that asks them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from counter import counter_table
from fakes_memory import LIMIT, growth

from puffer_core.vector import Native, Ray, make

EPISODES = 20_000
pytestmark = pytest.mark.slow


def stepper(opened: Any, actions: Any) -> Any:
    """Return what steps a vector so often; the log is drained now and then, as a trainer does."""
    opened.reset(seed=1)

    def run(steps: int) -> None:
        for step in range(steps):
            opened.step(actions)
            if step % 100 == 99:
                opened.drain_log()

    return run


def test_native_is_flat_over_20000_episodes() -> None:
    """Sixteen instances of two agents end an episode every five ticks."""
    with make(counter_table(), 16, Native, num_threads=2) as opened:
        run = stepper(opened, np.ones((32, 2), np.int32))
        grown = growth([os.getpid()], run, 2_000, EPISODES * 5 // 16)
        run(5)
        opened.drain_log()
        run(5)
        assert opened.drain_log()["n"] == 32
    assert grown[0] < LIMIT


def test_ray_is_flat_over_20000_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen agents end an episode in one of eight steps each."""
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from fakes_ray import Walk

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    backend = partial(Ray, ray_options={"num_cpus": 2, "log_to_driver": False})
    with make(Walk, 8, backend, num_workers=2) as opened:
        run = stepper(opened, np.zeros(16, np.int32))
        run(1)
        actors = actor_pids()
        assert len(actors) == 2
        grown = growth([os.getpid(), *actors], run, 3_000, EPISODES * 8 // 16)
    assert max(grown) < LIMIT, grown


def actor_pids() -> list[int]:
    """Return the processes of actors: they are named after their class, and idle workers are not."""
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if "".join(child.cmdline()[:1]).startswith("ray::Worker")]
