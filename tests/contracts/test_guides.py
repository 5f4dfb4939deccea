"""Every example of the guides runs: Python blocks each as a script, commands as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDES = {
    "vectorization.md": "",
    "integration.md": "",
    "training.md": "",
    "policies.md": "## An encoder in your own package",
    "environments.md": "## A C environment in your own package",
}
"""Pages, and the heading from which on another test runs them."""
NEEDS = {"ray": "ray", "stable_baselines3": "stable_baselines3", "pettingzoo/simple": "mpe2"}


def examples(language: str) -> list[Any]:
    found = []
    for page, until in GUIDES.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        text = text[: text.index(until)] if until else text
        blocks = re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        found += [pytest.param(block, id=f"{page}-{number}") for number, block in enumerate(blocks)]
    return found


def run(command: list[str], folder: Path) -> None:
    env = {**os.environ, "PUFFER_RUNS": str(folder / "runs"), "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", examples("python"))
def test_script_runs(text: str, tmp_path: Path) -> None:
    for word, module in NEEDS.items():
        if word in text:
            pytest.importorskip(module)
    script = tmp_path / "example.py"
    script.write_text(text, encoding="utf-8")
    run([sys.executable, str(script)], tmp_path)


@pytest.mark.parametrize("text", examples("bash"))
def test_command_runs(text: str, tmp_path: Path) -> None:
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "puffer", line
        run([sys.executable, "-m", "puffer_core", *words[1:]], tmp_path)
