"""Scripts that end while worker processes step, hundreds of times: nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def run(how: str, count: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(FOLDER / "fakes_scripts.py"), how, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)


@pytest.mark.parametrize("count", [3, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["interrupt", "terminate", "raise"])
def test_scripts_that_end_leave_nothing(how: str, count: int) -> None:
    before = set(Path("/dev/shm").iterdir())
    done = run(how, count)
    assert (done.stdout, done.returncode) == (f"{count}\n", 0), done.stderr
    assert set(Path("/dev/shm").iterdir()) <= before
