"""The README's commands and examples are those that run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run_script(folder: Path, text: str) -> None:
    script = folder / "example.py"
    script.write_text(text, encoding="utf-8")
    env = {**os.environ, "PUFFER_RUNS": str(folder / "runs")}
    found = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=env, cwd=folder, timeout=240
    )
    assert found.returncode == 0, found.stderr


def test_ci_runs_the_readme_test_command() -> None:
    _, command = [block.strip() for block in blocks("bash") if block.startswith("python3 -m venv")]
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == command


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_readme_use_from_python_runs(tmp_path: Path) -> None:
    pytest.importorskip("puffer_ocean")
    text = blocks("python")[0]
    assert '"500k"' in text
    run_script(tmp_path, text.replace('"500k"', '"40k"'))


def test_readme_own_environment_trains(tmp_path: Path) -> None:
    text = blocks("python")[1]
    run_script(tmp_path, f"{text}\nassert puffer.train(Walk, options={{'train.total_timesteps': '8k'}})['steps'] > 0\n")


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)", README))))
def test_readme_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
