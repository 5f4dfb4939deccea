"""The row of `final_observations` is what `observe` shows of the state in which the episode ended.

That state is gone when a step returns, so it is checked from inside (`final_rows.c`), and from outside with a twin
whose limit is one higher: it reaches the same state and goes on.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import puffer_core
from puffer_core import abi
from puffer_core.native import NativeEnv, table_params
from puffer_core.testing import play, random_actions
from puffer_ocean.plugin import NAMES

HERE = Path(__file__).parent
STEP_LIMITS = ("max_steps", "max_ticks", "max_episode_steps", "horizon")


@pytest.fixture(scope="module")
def checking(tmp_path_factory):
    """The environments of `final_rows.c`."""
    folder = tmp_path_factory.mktemp("final-rows")
    (folder / "env_includes.h").write_text("".join(f'#include "envs/{name}.h"\n' for name in NAMES))
    include = [f"-I{folder}", f"-I{HERE.parent / 'csrc'}", f"-I{puffer_core.get_include()}"]
    flags = ["-std=gnu11", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wno-missing-field-initializers"]
    compiler = os.environ.get("CC", "cc")
    command = [compiler, *flags, *include, str(HERE / "final_rows.c"), "-o", str(folder / "rows.so"), "-pthread", "-lm"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(folder / "rows.so"))
    library.ends_seen.restype = library.wrong_rows.restype = ctypes.c_int64
    library.watch.argtypes = [ctypes.c_void_p]
    return library


def _capsule(library, name):
    """Return the table of ``name`` as a capsule, and make it the watched one."""
    address = ctypes.addressof(ctypes.c_char.in_dll(library, f"puffer_env_{name}"))
    library.watch(address)
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes, new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
    return new(address, abi.CAPSULE, None)


def test_kept_row_is_what_observe_shows_before_the_reset(checking, name, sets, steps):
    ends = 0
    for label, params in sets:
        with NativeEnv(_capsule(checking, name), params, num_envs=4, seed=1) as env:
            env.reset(seed=1)
            play(env, steps(env, 1500 if label == "defaults" else 80, 1500))
        assert checking.wrong_rows() == 0, f"{label}: {checking.wrong_rows()} of {checking.ends_seen()} rows"
        ends += checking.ends_seen()
    assert ends > 0


def test_truncated_row_is_the_observation_of_a_twin_that_goes_on(opened, table):
    limits = [param for param in table_params(table) if param.name in STEP_LIMITS]
    if not limits:
        pytest.skip("no parameter limits the steps alone")
    (limit,) = limits
    compared = 0
    for steps in (max(wanted, limit.min) for wanted in (3, 7, 12)):
        cut, twin = (opened({limit.name: steps + more}, num_envs=64, seed=1) for more in (0, 1))
        cut.reset(seed=1)
        twin.reset(seed=1)
        intact = np.ones(cut.num_agents, bool)  # rows that have not ended yet
        for step in range(steps):
            actions = random_actions(cut, steps, step, cut.action_mask)
            cut.step(actions)
            twin.step(actions)
            reached = intact & cut.truncations & ~twin.terminals & ~twin.truncations
            assert np.array_equal(cut.final_observations[reached], twin.observations[reached]), f"step {step}"
            compared += int(reached.sum())
            intact &= ~(cut.terminals | cut.truncations)
    assert compared > 0
