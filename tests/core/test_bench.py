from __future__ import annotations

import counter
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from puffer_core.bench import AGENTS, EnvBench, bench_env
from puffer_core.vector.probe import random_batches


@pytest.fixture
def table():
    return counter.counter_table()


def test_result_has_the_keys_of_the_command(table):
    result = bench_env(table, num_envs=16, threads=2, seconds=0.02)
    assert list(result) == ["env", "num_envs", "threads", "steps_per_second", "steps_per_cpu_second"]
    assert result["env"] == "counter"
    assert result["num_envs"] == 16
    assert result["threads"] == 2
    assert result["steps_per_second"] > 0


def test_default_is_4096_agents_whatever_one_environment_has(table):
    with EnvBench(table) as measured:
        assert measured.num_agents == AGENTS
        assert measured.num_envs == AGENTS // counter.AGENTS


def test_measure_counts_agent_steps_and_goes_on(table):
    with EnvBench(table, num_envs=8) as measured:
        first, second = measured.measure(0.01), measured.measure(0.01)
        for result in (first, second):
            assert result.steps % (8 * counter.AGENTS) == 0
            assert result.seconds >= 0.01
            assert result.per_second == result.steps / result.seconds


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (Discrete(3), np.int32, (5,)),
        (MultiDiscrete([2, 7]), np.int32, (5, 2)),
        (Box(-1, 1, (3,), np.float32), np.float32, (5, 3)),
    ],
    ids=["discrete", "multi-discrete", "box"],
)
def test_batches_are_legal_and_differ(space, dtype, shape):
    batches = random_batches(space, 5, 64)
    assert len(batches) == 64
    assert {(batch.dtype, batch.shape) for batch in batches} == {(np.dtype(dtype), shape)}
    assert all(space.contains(row) for batch in batches for row in batch)
    assert not np.array_equal(batches[0], batches[1])
