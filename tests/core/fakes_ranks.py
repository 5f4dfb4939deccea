"""A training run on several ranks: what ``torchrun`` runs in each, and a way to start it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from puffer_core.place import PARENT
from puffer_core.rl.ranks import Ranks

OPTIONS = {
    "train.total_timesteps": "1536",
    "train.horizon": "8",
    "train.minibatch_size": "64",
    "env.num_envs": "16",
    "policy.hidden_size": "16",
    "train.prio": "true",
    "checkpoint_interval": "1000",
}


class EndedError(Exception):
    """What a rank fails with on purpose."""


def start(world_size: int, folder: Path, task: str = "train", **more: Any) -> list[subprocess.Popen[str]]:
    """Start ``task`` on some ranks, each a process of its own that writes ``rank{r}.json`` to ``folder``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size)}
    shared |= {PARENT: str(os.getpid()), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, __file__, task, str(folder), json.dumps(more)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        for rank in range(world_size)
    ]


def end(ranks: list[subprocess.Popen[str]], timeout: float = 60.0) -> tuple[list[int], list[str]]:
    """Return exit codes and error outputs by rank, once all have ended; none is left running."""
    try:
        errors = [rank.communicate(timeout=timeout)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [rank.returncode for rank in ranks], errors


def reports(folder: Path, world_size: int) -> list[dict[str, Any]]:
    """Return what the ranks wrote."""
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world_size)]


class Probe:
    """Notes, at every call of a trainer, what a test compares."""

    def __init__(self, trainer: Any, misdeed: str | None) -> None:
        self._trainer, self._misdeed = trainer, misdeed
        self.weights: list[str] = []
        self.observations: list[str] = []
        self.actions: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def evaluate(self) -> None:
        """Collect, or do what this rank is to do amid a run."""
        if self._trainer.epoch == 2 and self._misdeed == "raise":
            raise EndedError("on purpose")
        if self._trainer.epoch == 2 and self._misdeed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._misdeed == "slow":
            time.sleep(0.2)
        self._trainer.evaluate()
        rollout = self._trainer.rollout
        self.observations += [digest(rollout.observations[:, row]) for row in range(rollout.rows)]
        self.actions.append(digest(rollout.actions))

    def train(self) -> Any:
        """Learn, and note the weights."""
        losses = self._trainer.train()
        self.weights.append(digest(torch.cat([p.detach().flatten() for p in self._trainer.policy.parameters()])))
        return losses


def digest(tensor: torch.Tensor) -> str:
    """Return a hash of the bytes of a tensor."""
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def train(folder: Path, *, misdeed: dict[str, str] | None = None, verb: str = "train", **request: Any) -> None:
    """Train, and report what this rank saw."""
    from puffer_core import training
    from puffer_core.rl import job
    from puffer_core.training import job as jobs

    rank = int(os.environ["RANK"])
    kept: list[Probe] = []

    def make(*args: Any) -> Any:
        kept.append(Probe(job.make(*args), (misdeed or {}).get(str(rank))))
        return kept[0]

    spec = jobs.plugins.manager().trainers.get("torch")
    jobs.plugins.resolve = _resolving(jobs.plugins.resolve, spec.make, make)
    options = {**OPTIONS, **request.pop("options", {})}
    if request.get("resume"):
        options = {"runs_dir": str(folder / "runs"), **request.pop("changes", {})}
    result = getattr(training, verb)("puffer/squared", options=options, **request)
    probe = kept[0]
    noted = {"weights": probe.weights, "observations": probe.observations, "actions": probe.actions}
    counters = {"global_step": probe.global_step, "epoch": probe.epoch, "result": result}
    (folder / f"rank{rank}.json").write_text(json.dumps({**noted, **counters}))


def _resolving(resolve: Any, target: Any, make: Any) -> Any:
    return lambda what: make if what is target or what == target else resolve(what)


class Threads(Ranks):
    """One of some ranks that are threads of this process.

    Args:
        rank: Its number.
        shared: What ranks put down for each other, a place for each.
        barrier: Where they meet.
    """

    def __init__(self, rank: int, shared: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.world_size = rank, len(shared)
        self._shared, self._barrier = shared, barrier

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all threads."""
        self._shared[self.rank] = value
        self._barrier.wait(10)
        values = list(self._shared)
        self._barrier.wait(10)
        return values

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over threads."""
        return tensor.copy_(torch.stack(self.gather(tensor.clone())).sum(0))

    def max_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take the maximum over threads."""
        return tensor.copy_(torch.stack(self.gather(tensor.clone())).amax(0))


def in_threads(count: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """Return what ``work`` gives on each of some ranks."""
    shared: list[Any] = [None] * count
    barrier = threading.Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda rank: work(Threads(rank, shared, barrier)), range(count)))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), **json.loads(sys.argv[3]))
