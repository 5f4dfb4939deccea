"""P11: an action mask always leaves a choice, and play within it is never illegal."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core.testing import head_sizes, random_actions

ILLEGAL = 4


@pytest.fixture
def masked_sets(opened, sets):
    chosen = [(label, params) for label, params in sets if opened(params).action_mask is not None]
    if not chosen:
        pytest.skip("no action mask")
    return chosen


def test_mask_is_binary_and_leaves_a_choice_in_every_head(opened, masked_sets, steps):
    for label, params in masked_sets:
        env = opened(params, num_envs=8, seed=1)
        env.reset(seed=1)
        sizes = head_sizes(env.single_action_space)
        assert env.action_mask.shape == (env.num_agents, sum(sizes))
        for step in range(steps(env, 100, 1000)):
            assert env.action_mask.max() <= 1, f"{label}, step {step}"
            for first, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
                assert env.action_mask[:, first : first + size].any(axis=1).all(), f"{label}, step {step}"
            env.step(random_actions(env, 1, step, env.action_mask))


def test_masked_play_is_never_illegal_and_other_play_is(opened, masked_sets, steps):
    for label, params in masked_sets:
        env = opened(params, num_envs=32, seed=1)
        for masked in (True, False):
            env.reset(seed=1)
            illegal = logs = 0
            for step in range(steps(env, 150, 1000)):
                env.step(random_actions(env, 1, step, env.action_mask if masked else None))
                illegal += env.log[env.logged, ILLEGAL].sum()
                logs += env.logged.sum()
            if masked:
                assert illegal == 0, label
            elif logs > 100:
                assert illegal > 0, label
