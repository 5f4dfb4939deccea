"""`puffer train` with four worker processes is interrupted in every way: what is saved, said and left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from fakes_scripts import are_gone

WORKERS = 4
SETTINGS = [
    *["--vec.backend=multiprocessing", f"--vec.num-workers={WORKERS}", "--vec.num-envs=8"],
    *["--train.horizon=16", "--train.minibatch-size=64", "--train.device=cpu", "--policy.hidden-size=8"],
    *["--train.total-timesteps=100_000_000", "--checkpoint-interval=20"],
]
ENDS = {
    "ctrl-c": (signal.SIGINT, True, 130),
    "interrupt": (signal.SIGINT, False, 130),
    "terminate": (signal.SIGTERM, False, 143),
    "kill": (signal.SIGKILL, False, -9),
}


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    """Start `puffer train` in a process group of its own, as a shell does."""
    words = [sys.executable, "-m", "puffer_core", "train", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, cwd=folder, env=environment, start_new_session=True, **pipes)


def workers_of(process: subprocess.Popen[str], folder: Path) -> list[int]:
    """Wait until all workers are there and something was learnt; return their ids."""
    deadline = time.monotonic() + 60
    children: list[psutil.Process] = []
    while len(children) < WORKERS or not list(folder.glob("runs/**/checkpoints/latest")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
        children = psutil.Process(process.pid).children()
    return [child.pid for child in children]


@dataclass(frozen=True)
class Ended:
    """A run that was signalled: its exit code, its stderr, and whether its workers ended within 5 s."""

    folder: Path
    code: int
    err: str
    is_clean: bool


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Four runs at once, since most of their time is that of starting."""
    before = set(Path("/dev/shm").iterdir())
    folders = {how: tmp_path_factory.mktemp("run") for how in ENDS}
    processes = {how: start(folder, "gym/CartPole-v1", *SETTINGS) for how, folder in folders.items()}
    try:
        workers = {how: workers_of(process, folders[how]) for how, process in processes.items()}
        results = {how: end(processes[how], workers[how], how, folders[how]) for how in ENDS}
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    assert set(Path("/dev/shm").iterdir()) <= before
    return results


def end(process: subprocess.Popen[str], workers: list[int], how: str, folder: Path) -> Ended:
    """Send the signal and wait for the end of the run and its workers."""
    number, to_group, _ = ENDS[how]
    assert len(workers) == WORKERS
    os.killpg(process.pid, number) if to_group else os.kill(process.pid, number)
    process.wait(timeout=60)
    is_clean = are_gone(workers, 5.0)
    return Ended(folder, process.returncode, process.communicate()[1], is_clean)


@pytest.mark.parametrize("how", ENDS)
def test_a_run_with_workers_ends_in_order(ended: dict[str, Ended], how: str) -> None:
    run = ended[how]
    assert (run.code, run.is_clean) == (ENDS[how][2], True)
    assert len(run.err.splitlines()) <= (how != "kill"), run.err
    if how != "kill":
        require_resumable(run.folder)


def require_resumable(folder: Path) -> None:
    """Check that the run is saved where it was interrupted, and goes on from there."""
    (path,) = (folder / "runs").glob("**/result.json")
    result = json.loads(path.read_text())
    assert result["status"] == "interrupted"
    assert int(Path(result["checkpoint"]).name) == result["steps"] > 0
    process = start(folder, "gym/CartPole-v1", "--resume=latest", f"--train.stop-at={result['steps'] + 128}", "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["steps"] == result["steps"] + 128
