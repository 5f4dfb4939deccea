"""Train an environment and kill it at random moments: no checkpointed progress may be lost, and the end has to load.

    python tests/benchmarks/soak_kill.py --minutes 30 --kills 50 --checkpoint-seconds 20 [--env breakout] [--folder DIR]

Each session is killed with SIGKILL at a random moment, checked, and resumed; the last one ends by SIGTERM. Prints a
line per kill and the figures at the end; exits 1 at the first breach.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from puffer_core.files import salvage_jsonl
from puffer_core.rl import checkpoint
from puffer_core.runs import RunDirectory, list_runs

LEFTOVERS = ("*.partial", "*.replaced", ".latest-*", ".metrics.jsonl-*", ".result.json-*", ".config.ini-*")


@dataclass
class Soak:
    """One run that is killed again and again.

    Args:
        env: Name of the environment.
        folder: Of the runs.
        options: Further options of the command line.
        seconds: How long each session lives, on average; the moment is drawn evenly from 0.1 to 1.9 times that.
        seed: Of the moments.
    """

    env: str
    folder: Path
    options: list[str]
    seconds: float
    seed: int = 0
    saved: list[int] = field(default_factory=list)
    """Step that was checkpointed last, after each kill."""

    def run(self, kills: int) -> dict[str, Any]:
        """Train and kill; return the figures.

        Raises:
            AssertionError: At the first breach.
        """
        moments = random.Random(self.seed)
        for kill in range(kills):
            with self._session() as process:
                if not self._wait_for_checkpoint(process):
                    break
                time.sleep(moments.uniform(0.1, 1.9) * self.seconds)
                process.send_signal(signal.SIGKILL)
            self.saved.append(self._check())
            print(f"kill {kill + 1}: checkpoint at step {self.saved[-1]:,}", flush=True)
        with self._session() as process:
            self._wait_for_checkpoint(process)
            process.terminate()
            code = process.wait(120)
            told = self._log().read_text()[-2000:]
            assert code in (0, 143, -signal.SIGTERM), f"the last session ended with {code}: {told}"
        last, run = self._check(), self._run()
        found = [path for pattern in LEFTOVERS for path in run.path.rglob(pattern)]
        assert not found, f"left behind: {found}"
        for path in run.checkpoints():
            checkpoint.read(path)
        return {"kills": len(self.saved), "steps": last, "checkpoints": len(run.checkpoints()), "run": str(run.path)}

    def _session(self) -> subprocess.Popen[bytes]:
        """Start the run, or go on with it."""
        words = [sys.executable, "-m", "puffer_core", "train", self.env, "--runs-dir", str(self.folder)]
        words += ["--resume", "latest"] if self._has_begun() else self.options
        with self._log().open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "PUFFER_RUNS": str(self.folder)})

    def _log(self) -> Path:
        return self.folder / "log.txt"

    def _has_begun(self) -> bool:
        """Return whether there is a checkpoint; a run that has none yet can't be resumed."""
        return bool(self.saved) and self.saved[-1] > 0

    def _run(self) -> RunDirectory:
        return RunDirectory.open(list_runs(self.folder)[-1])

    def _wait_for_checkpoint(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until a session has trained a bit: its run goes beyond what was saved; False where it has ended."""
        begun = self.saved[-1] if self.saved else 0
        while process.poll() is None:
            if list_runs(self.folder) and any(row["step"] > begun for row in salvage_jsonl(self._metrics())[0]):
                return True
            time.sleep(0.05)
        assert process.returncode == 0, f"a session ended with {process.returncode}: {self._log().read_text()[-2000:]}"
        return False

    def _metrics(self) -> Path:
        return self._run().path / "metrics.jsonl"

    def _check(self) -> int:
        """Return the step of the latest checkpoint, once everything is as it has to be after a kill."""
        run = self._run()
        rows, damaged = salvage_jsonl(self._metrics())
        assert not damaged, f"damaged lines of metrics.jsonl: {damaged}"
        steps = [row["step"] for row in rows]
        assert steps == sorted(set(steps)), "a step is twice in metrics.jsonl"
        if not run.checkpoints():
            return 0
        latest = run.latest_checkpoint()
        step = int(checkpoint.read(latest).state["global_step"])
        told = [json.loads(line)["step"] for line in self._events(run) if b'"checkpoint"' in line]
        before = self.saved[-1] if self.saved else 0
        assert step >= max([before, *told]), f"checkpointed progress was lost: {step} < {max([before, *told])}"
        assert step in steps, f"metrics.jsonl lacks step {step} of the checkpoint"
        return step

    @staticmethod
    def _events(run: RunDirectory) -> list[bytes]:
        path = run.path / "events.jsonl"
        return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def main() -> int:
    """Read the command line, soak, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--checkpoint-seconds", type=float, default=20.0)
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--seed", type=int, default=0)
    asked, rest = parser.parse_known_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--train.checkpoint-seconds", str(asked.checkpoint_seconds), "--train.total-timesteps", "10b", *rest]
    soak = Soak(asked.env, folder, options, 60 * asked.minutes / asked.kills, asked.seed)
    started = time.monotonic()
    figures = soak.run(asked.kills)
    print(json.dumps({**figures, "minutes": round((time.monotonic() - started) / 60, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
