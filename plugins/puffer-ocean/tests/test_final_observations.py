"""The row of `final_observations` is what `observe` shows of the state in which the episode ended.

The state before the reset is gone when a step returns. A twin whose limit is one higher reaches that same state and
goes on, so what it shows then is what the cut instance must have kept.
"""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core.native import table_params
from puffer_core.testing import random_actions

STEP_LIMITS = ("max_steps", "max_ticks", "max_episode_steps", "horizon")


def test_truncated_row_is_the_observation_of_a_twin_that_goes_on(opened, table):
    limits = [param for param in table_params(table) if param.name in STEP_LIMITS]
    if not limits:
        pytest.skip("no parameter limits the steps alone")
    (limit,) = limits
    compared = 0
    for steps in (3, 7, 12):
        steps = max(steps, limit.min)
        cut, twin = (opened({limit.name: steps + more}, num_envs=64, seed=1) for more in (0, 1))
        cut.reset(seed=1)
        twin.reset(seed=1)
        intact = np.ones(cut.num_agents, bool)  # rows that have not ended yet in either
        for step in range(steps):
            actions = random_actions(cut, steps, step, cut.action_mask)
            cut.step(actions)
            twin.step(actions)
            reached = intact & cut.truncations & ~twin.terminals & ~twin.truncations
            assert np.array_equal(cut.final_observations[reached], twin.observations[reached]), f"step {step}"
            compared += int(reached.sum())
            intact &= ~(cut.terminals | cut.truncations)
    assert compared > 0


def test_final_row_is_not_the_next_first_observation(opened):
    env = opened(num_envs=64, seed=1)
    env.reset(seed=1)
    ends = same = 0
    for step in range(400):
        env.step(random_actions(env, 1, step, env.action_mask))
        ended = env.terminals | env.truncations
        shape = (np.count_nonzero(ended), -1)
        now, last = env.observations[ended], env.final_observations[ended]
        ends += len(now)
        same += int((now.reshape(shape) == last.reshape(shape)).all(axis=1).sum()) if len(now) else 0
    assert same <= 0.6 * ends
