"""The headers alone: any author's environment compiles against a copy of them and runs in a core that never saw it."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from counter import capsule_of, compiler, counter_table, library

import puffer_core
from puffer_core import abi
from puffer_core.errors import PluginError
from puffer_core.native import NativeEnv, table_params

ROOT = Path(__file__).parents[2]
HEADERS = Path(puffer_core.get_include()) / "puffer"


def _compile(language: str, *flags: str, code: str) -> subprocess.CompletedProcess[str]:
    command = [compiler(), "-x", language, *flags, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", HEADERS.parent]
    return subprocess.run([*command, "-"], input=code, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("header", ["env.h", "draw.h", "vec.h"])
@pytest.mark.parametrize(("language", "standard"), [("c", "gnu11"), ("c++", "gnu++17")])
def test_headers_compile_alone(header, language, standard):
    """`vec.h` is left with its static functions unused, and pools are made of zeros."""
    allowed = ["-Wno-unused-function", "-Wno-missing-field-initializers"]
    result = _compile(language, f"-std={standard}", *allowed, code=f"#include <puffer/{header}>\n")
    assert result.returncode == 0, result.stderr


def test_env_header_is_strict_c11():
    result = _compile("c", "-std=c11", "-pedantic", code="#include <puffer/env.h>\n")
    assert result.returncode == 0, result.stderr


def test_plugins_hold_identical_copies():
    copies = sorted(ROOT.glob("plugins/*/csrc/puffer"))
    assert copies
    for folder in copies:
        for header in HEADERS.glob("*.h"):
            assert (folder / header.name).read_bytes() == header.read_bytes(), f"{folder / header.name}: nox -s headers"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (abi.IO, "PufferIO"),
        (abi.Head, "PufferHead"),
        (abi.ParamRow, "PufferParam"),
        (abi.Spaces, "PufferSpaces"),
        (abi.Canvas, "PufferCanvas"),
        (abi.Table, "PufferEnvTable"),
    ],
)
def test_structs_for_ctypes_have_the_layout_of_the_header(ours, theirs):
    names = {"masks": "alive"}
    members = [names.get(field[0], field[0]) for field in ours._fields_]
    checks = [f"sizeof({theirs}) == {ctypes.sizeof(ours)}"]
    checks += [
        f"offsetof({theirs}, {member}) == {getattr(ours, field[0]).offset}"
        for member, field in zip(members, ours._fields_, strict=True)
    ]
    code = "#include <puffer/env.h>\n" + "".join(f'_Static_assert({check}, "{theirs}");\n' for check in checks)
    result = _compile("c", "-std=c11", code=code)
    assert result.returncode == 0, result.stderr


def test_a_third_partys_environment_runs():
    with NativeEnv(counter_table(), {"start": "zero"}, num_envs=3) as env:
        observations, _ = env.reset(seed=1)
        assert observations.shape == (6, 2)
        for _ in range(5):
            env.step(np.ones((6, 2), np.int32))
        assert env.terminals.tolist() == [True, False] * 3
        assert env.truncations.tolist() == [False, True] * 3
        assert env.final_observations.tolist() == [[5, 5]] * 6
        assert env.observations.tolist() == [[0, 0]] * 6
        assert env.drain_log() == {
            "score": 2.5,
            "perf": 0,
            "episode_return": 2.5,
            "episode_length": 5,
            "illegal_actions": 0,
            "n": 6,
        }


def test_a_capsule_of_another_name_is_refused():
    with pytest.raises(PluginError, match=r"not a capsule `puffer\.env\.v1`"):
        table_params(capsule_of(ctypes.addressof(ctypes.c_int(1)), b"puffer.env.v9"))
    with pytest.raises(PluginError, match="not a capsule"):
        table_params("squared")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("abi_version", 2, "version 2 of puffer/env.h"),
        ("table_size", 64, "table_size is 64"),
        ("io_size", 8, "io_size is 8"),
        ("param_size", 1 << 20, "param_size is 1048576"),
        ("spaces_size", 0, "spaces_size is 0"),
    ],
)
def test_a_table_of_another_interface_is_refused(field, value, words):
    table = abi.Table.from_buffer_copy(abi.Table.in_dll(library(), "puffer_env_counter"))
    setattr(table, field, value)
    with pytest.raises(PluginError, match=words):
        NativeEnv(capsule_of(ctypes.addressof(table)))


def test_structs_that_have_grown_are_skipped_over():
    """A later header adds members at the end of structs; the host leaves room for them."""
    table = abi.Table.from_buffer_copy(abi.Table.in_dll(library(), "puffer_env_counter"))
    table.io_size += 64
    table.spaces_size += 32
    with NativeEnv(capsule_of(ctypes.addressof(table))) as env:
        env.reset(seed=1)
        env.step(np.ones((2, 2), np.int32))
        assert env.rewards.tolist() == [0.5, 0.5]
