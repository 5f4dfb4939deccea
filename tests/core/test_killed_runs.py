"""A run that is killed again and again loses nothing that was checkpointed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "soak_kill.py"
KILLS = int(os.environ.get("PUFFER_TEST_KILLS", "8"))


@pytest.mark.slow
def test_breakout_that_is_killed_at_random_moments_loses_no_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("puffer_ocean")
    words = ["--kills", str(KILLS), "--minutes", str(KILLS * 2 / 60), "--checkpoint-seconds", "0.3"]
    small = [
        "--env.num-envs",
        "64",
        "--train.horizon",
        "16",
        "--train.minibatch-size",
        "1024",
        "--policy.hidden-size=16",
    ]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--folder", str(tmp_path), *small],
        capture_output=True,
        text=True,
        timeout=60 * KILLS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["kills"] == KILLS
    assert figures["steps"] > 0
