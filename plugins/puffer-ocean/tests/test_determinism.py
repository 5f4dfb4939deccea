"""P3 and P12: one seed gives one trajectory, whatever the split and the number of threads; stored hashes hold.

A new environment's golden file is written by ``PUFFER_UPDATE_GOLDEN=1 pytest <this file> -k golden``, as is a changed
one, whose version must have risen. Integer environments (Det-I) are stored under ``any``; set that key by hand
once. The others (Det-F) are stored per platform.
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import numpy as np
import pytest

from puffer_core.native import NativeEnv
from puffer_core.testing import Digest, play, random_actions

GOLDEN = Path(__file__).parent / "golden"
PLATFORM = f"{platform.system()}-{platform.machine()}".lower()
GOLDEN_SETS = ("defaults", "minima", "random-0", "random-1")
GOLDEN_STEPS = 200


def test_same_seed_gives_same_trajectory(opened, sets, steps):
    for label, params in sets:
        first, again = (opened(params, num_envs=3, seed=5) for _ in range(2))
        first.reset(seed=6)
        again.reset(seed=6)
        count = steps(first, 50, 500)
        expected, _ = play(first, count)
        assert play(again, count)[0] == expected, label
        again.reset(seed=6)
        assert play(again, count)[0] == expected, f"{label}: a second reset(seed=6) differs from the first"
        first.close()
        again.close()


def test_defaults_repeat_over_2000_steps(opened):
    first, again = (opened(num_envs=8, seed=5) for _ in range(2))
    first.reset(seed=6)
    again.reset(seed=6)
    assert play(first, 2000)[0] == play(again, 2000)[0]


def test_constructor_seed_is_the_seed_of_a_bare_reset(opened):
    by_constructor, by_reset = opened(num_envs=3, seed=11), opened(num_envs=3, seed=12)
    by_constructor.reset()
    by_reset.reset(seed=11)
    assert play(by_constructor, 50)[0] == play(by_reset, 50)[0]


def test_bare_reset_continues_the_streams(opened):
    env = opened(num_envs=8, seed=5)
    hashes = []
    for seed in (6, None, 6, None):
        env.reset(seed=seed)
        hashes.append(play(env, 60)[0])
    assert hashes[:2] == hashes[2:]
    assert hashes[0] != hashes[1]


def test_other_seed_and_other_instance_differ(opened):
    env, other = (opened(rows=64, seed=0) for _ in range(2))
    env.reset(seed=6)
    other.reset(seed=7)
    assert play(env, 50)[0] != play(other, 50)[0]
    half = env.num_agents // 2
    assert not np.array_equal(env.observations[:half], env.observations[half:])


def test_split_vector_gives_the_same_rows(opened, sets):
    for label, params in sets[:10]:
        whole = opened(params, num_envs=5, seed=1)
        parts = [opened(params, num_envs=2, seed=1), opened(params, num_envs=3, seed=1, first_index=2)]
        whole.reset(seed=9)
        parts[0].reset(seed=9)
        parts[1].reset(seed=9, index=2)
        rows = parts[0].num_agents
        for step in range(60):
            actions = random_actions(whole, 4, step, whole.action_mask)
            whole.step(actions)
            parts[0].step(actions[:rows])
            parts[1].step(actions[rows:])
            for field in ("observations", "rewards", "terminals", "truncations", "masks", "logged"):
                joined = np.concatenate([getattr(part, field) for part in parts])
                assert np.array_equal(getattr(whole, field), joined), f"{label}: {field} at step {step}"
        for env in (whole, *parts):
            env.close()


def test_threads_do_not_change_a_trajectory_or_a_log(opened, steps):
    expected = None
    for threads in (1, 2, 4, 8):
        env = opened(num_envs=200, seed=3, num_threads=threads)
        env.reset(seed=3)
        result = (play(env, steps(env, 200, 1000))[0], env.drain_log())
        expected = expected or result
        assert result == expected, f"{threads} threads"


def _golden_hash(table, params):
    with NativeEnv(table, params, num_envs=4, seed=0) as env:
        env.reset(seed=2026)
        digest = Digest()
        digest.update(env)
        for step in range(GOLDEN_STEPS):
            env.step(random_actions(env, 2026, step, env.action_mask))
            digest.update(env)
        return digest.hexdigest()


def test_golden_hashes_hold(name, table, sets):
    path = GOLDEN / f"{name}.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    with NativeEnv(table) as env:
        version = env.version
    if os.environ.get("PUFFER_UPDATE_GOLDEN"):
        key = "any" if "any" in stored.get("hashes", {}) else PLATFORM
        cases = [params for label, params in sets if label in GOLDEN_SETS]
        hashes = {key: [_golden_hash(table, params) for params in cases]}
        path.write_text(json.dumps({"version": version, "params": cases, "hashes": hashes}, indent=1) + "\n")
        pytest.skip(f"wrote {path.name}")
    assert stored, f"{path.name} is missing"
    assert stored["version"] == version, "the version rose: store new hashes"
    hashes = stored["hashes"].get("any") or stored["hashes"].get(PLATFORM)
    if hashes is None:
        pytest.skip(f"no hashes stored for {PLATFORM}")
    for params, expected in zip(stored["params"], hashes, strict=True):
        assert _golden_hash(table, params) == expected, f"{params}: the trajectory changed, so the version must rise"
