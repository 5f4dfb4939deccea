"""P5 and P16: a restored instance shows what it showed, goes on as it would have, and a foreign blob is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from puffer_core.errors import EnvError
from puffer_core.native import NativeEnv, table_params, validate_params
from puffer_core.plugins import resolve
from puffer_core.testing import play, random_actions
from puffer_ocean.plugin import puffer_envs

POINTS, STEPS = 100, 500


def test_observation_after_a_step_is_what_the_restored_state_shows(opened, sets, steps):
    for label, params in sets:
        env, other = opened(params, num_envs=2, seed=1), opened(params, num_envs=2, seed=2)
        env.reset(seed=1)
        other.reset(seed=2)
        for step in range(steps(env, 24, 200)):
            env.step(random_actions(env, 1, step, env.action_mask))
            other.load(env.save())
            for field in ("observations", "masks", "action_mask"):
                mine, theirs = getattr(env, field), getattr(other, field)
                assert mine is None or np.array_equal(mine, theirs), f"{label}: {field} after step {step}"
        env.close()
        other.close()


def test_restored_instances_continue_from_a_hundred_points(opened):
    """One instance plays; a vector of its saved states replays what followed each of them."""
    env = opened(num_envs=1, seed=1)
    rng = random.Random(0)
    when = sorted(rng.randrange(300) for _ in range(POINTS))
    env.reset(seed=1)
    blobs, actions, results = {}, [], []
    for step in range(when[-1] + STEPS):
        if step in when:
            blobs[step] = env.save_instance(0)
        actions.append(random_actions(env, 1, step, env.action_mask))
        env.step(actions[-1])
        results.append([array.copy() for array in (env.observations, env.rewards, env.terminals, env.truncations)])
    replay = opened(num_envs=POINTS, seed=2)
    replay.reset(seed=2)
    for index, step in enumerate(when):
        replay.load_instance(index, blobs[step])
    for offset in range(STEPS):
        replay.step(np.concatenate([actions[step + offset] for step in when]))
        arrays = (replay.observations, replay.rewards, replay.terminals, replay.truncations)
        for position, array in enumerate(arrays):
            expected = np.concatenate([results[step + offset][position] for step in when])
            assert np.array_equal(array, expected), f"array {position}, {offset} steps after the restore"


def test_whole_vector_continues_after_load(opened, sets, steps):
    for label, params in sets:
        env, other = opened(params, num_envs=3, seed=1), opened(params, num_envs=3, seed=2)
        env.reset(seed=1)
        other.reset(seed=2)
        count = steps(env, 30, 300)
        play(env, count)
        other.load(env.save())
        for field in ("rewards", "terminals", "truncations", "final_observations"):
            getattr(other, field)[...] = getattr(env, field)
        expected, _ = play(env, count, first_step=count)
        assert play(other, count, first_step=count)[0] == expected, label
        env.close()
        other.close()


def test_damaged_blobs_are_refused(opened, name):
    env = opened(num_envs=2, seed=1)
    env.reset(seed=1)
    blob = env.save_instance(0)
    before = env.save()
    for wrong in (b"", b"puffer", blob[:-1], blob + b"\0", bytes(len(blob))):
        with pytest.raises(EnvError, match=name):
            env.load_instance(0, wrong)
    with pytest.raises(EnvError, match=name):
        env.load(blob + blob)
    assert env.save() == before


def test_blob_of_other_parameters_is_refused(opened, table, sets):
    """LIVE parameters may differ: the state holds its own values of them."""
    fixed = [param.name for param in table_params(table) if not param.live]
    env = opened(num_envs=1)
    env.reset(seed=1)
    before = env.save()
    for label, params in sets:
        values = validate_params(table, params)
        if any(values[key] != env.params[key] for key in fixed):
            other = opened(params, num_envs=1)
            other.reset(seed=1)
            with pytest.raises(EnvError, match="parameters"):
                env.load_instance(0, other.save_instance(0))
            assert env.save() == before, label
            return
    pytest.skip("every parameter may change while running")


def test_blob_of_another_environment_is_refused(opened, name, spec):
    env = opened(num_envs=1)
    env.reset(seed=1)
    blob = env.save_instance(0)
    stranger = next(other for other in puffer_envs() if other.name != spec.name)
    with NativeEnv(resolve(stranger.table)) as other:
        other.reset(seed=1)
        with pytest.raises(EnvError, match=name):
            other.load_instance(0, blob)
