"""What is cheap stays cheap: neither the package, nor the help, nor the list of names imports anything heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "numpy", "gymnasium", "gym", "pettingzoo", "rich", "safetensors", "cloudpickle", "psutil", "ray")
PROBE = """
import sys
import puffer_core
if sys.argv[1:]:
    from puffer_core.cli.main import main
    assert main(sys.argv[1:]) == 0
print(*sys.modules, file=sys.stderr)
"""


def modules_after(*args: str, **env: str) -> set[str]:
    """Return the names of all modules that a process has imported in the end."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, **env},
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("args", [(), ("--help",), ("envs",), ("envs", "--json"), ("plugins",), ("--version",)])
def test_start_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    assert sorted(modules_after(*args) & set(HEAVY)) == []


def test_help_imports_no_plugin() -> None:
    assert not [
        name
        for name in modules_after("--help")
        if name.startswith("puffer_") and name.partition(".")[0] != "puffer_core"
    ]


def test_help_imports_no_command_and_no_plugin_system_of_others() -> None:
    assert not {"pluggy", "puffer_core.cli.envs", "puffer_core.builtin"} & modules_after("--help")


def test_listing_names_imports_no_compiled_module() -> None:
    assert not [name for name in modules_after("envs") if name.endswith("._native")]


def test_help_lists_a_command_whose_module_does_not_exist(tmp_path: Path) -> None:
    info = tmp_path / "slow-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[puffer]\nslow = slow_plugin\n[puffer.commands]\nslowly = slow_plugin:go\n")
    (tmp_path / "slow_plugin.py").write_text("raise SystemExit('imported')\n")
    done = subprocess.run(
        [sys.executable, "-m", "puffer_core", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert "slowly  from slow 1.0" in done.stdout
    assert done.stderr == ""
