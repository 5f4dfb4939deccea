"""P7 without sanitizers: closing twice, use after closing, and resident memory over many lives."""

from __future__ import annotations

import gc

import psutil
import pytest

from puffer_core.errors import UsageError
from puffer_core.native import NativeEnv

CYCLES, WARM_UP = 200, 40
MEGABYTE = 1 << 20


def test_resident_memory_stays_over_200_lives(table):
    process = psutil.Process()
    before = 0
    for cycle in range(CYCLES + WARM_UP):
        if cycle == WARM_UP:
            gc.collect()
            before = process.memory_info().rss
        env = NativeEnv(table, num_envs=2, seed=cycle)
        env.reset(seed=cycle)
        env.step(env.actions)
        if cycle % 2:
            env.close()
        del env
    gc.collect()
    assert process.memory_info().rss - before < MEGABYTE


def test_close_is_idempotent_and_ends_all_use(opened):
    env = opened(num_envs=2)
    env.reset(seed=1)
    blob = env.save_instance(0)
    actions = env.actions.copy()
    env.close()
    env.close()
    for call in (
        lambda: env.reset(seed=1),
        lambda: env.step(actions),
        env.save,
        lambda: env.load_instance(0, blob),
        env.drain_log,
        lambda: env.render(0, "rgb_array"),
    ):
        with pytest.raises(UsageError, match="close"):
            call()


def test_step_before_reset_is_refused(opened):
    env = opened(num_envs=2)
    with pytest.raises(UsageError, match="reset"):
        env.step(env.actions.copy())


def test_context_manager_closes(table):
    with NativeEnv(table, num_envs=2) as env:
        env.reset(seed=1)
    with pytest.raises(UsageError, match="close"):
        env.reset(seed=1)
