"""Every instruction-set level that this machine can run gives the same trajectories, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve
from puffer_core.testing import legal_sets, play
from puffer_ocean.plugin import puffer_envs

STEPS = 40
CHILD = """
import json, sys
from puffer_core.native import NativeEnv
from puffer_core.plugins import resolve
from puffer_core.testing import play
hashes = []
for table, params, steps in json.load(sys.stdin):
    with NativeEnv(resolve(table), params, num_envs=5, seed=1) as env:
        env.reset(seed=2)
        hashes.append(play(env, steps)[0])
json.dump(hashes, sys.stdout)
"""


@pytest.fixture(scope="module")
def expected():
    """(table, parameters, steps) and the hash that this process, at the level it chose, gives for them."""
    cases, hashes = [], []
    for spec in puffer_envs():
        for _, params in legal_sets(resolve(spec.table), count=6, seed=11):
            with NativeEnv(resolve(spec.table), params, num_envs=5, seed=1) as env:
                env.reset(seed=2)
                hashes.append(play(env, STEPS)[0])
            cases.append((spec.table, params, STEPS))
    return cases, hashes


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_level_gives_the_same_hashes(expected, level):
    cases, hashes = expected
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(cases),
        env={**os.environ, "PUFFER_ISA": level},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "this processor does not have it" in child.stderr:
        pytest.skip(f"this processor does not have {level}")
    assert child.returncode == 0, child.stderr
    for case, mine, theirs in zip(cases, hashes, json.loads(child.stdout), strict=True):
        assert mine == theirs, case
