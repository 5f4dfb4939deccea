"""Starting the ranks of one command: the same command line once per process, each with its place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from puffer_core import config as configuration
from puffer_core import plugins, runs
from puffer_core.place import HERE, PARENT

if TYPE_CHECKING:
    from puffer_core.config.schema import CommandConfig

GRACE_S = 15.0
"""Seconds that the other ranks have to end, and to say why, once one has failed."""
POLL_S = 0.1


def processes(env: str, options: Mapping[str, str], asked: CommandConfig) -> int:
    """Return in how many processes a command is to run; a resumed run has those it had, unless others are asked for."""
    key = "train.processes"
    if asked.resume and key not in options:
        _, name = plugins.find_env(env)
        wanted = runs.find(asked.resume, name, options.get("runs_dir")).config.train.processes
    elif asked.resume:
        wanted = configuration.load(env, options={key: options[key]}).train.processes
    else:
        wanted = configuration.load(env, file=asked.config or None, options=options).train.processes
    if wanted != "auto":
        return int(wanted)
    import torch

    return torch.cuda.device_count() or 1


def launch(command: Sequence[str], count: int) -> int:
    """Run ``command`` in ``count`` processes and return when all have ended: 0, or the code of one that failed.

    Rank 0 has the output of this process, the others only its error output. A signal goes to rank 0, which tells the
    others; a second one goes to all.
    """
    port = _free_port()
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, **_variables(rank, count, port)},
            stdin=subprocess.DEVNULL if rank else None,
            stdout=subprocess.DEVNULL if rank else None,
            start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
        )
        for rank in range(count)
    ]
    try:
        with _signals_to(ranks):
            return _wait(ranks)
    finally:
        _end(ranks)


def _variables(rank: int, count: int, port: int) -> Mapping[str, str]:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, HERE: count}
    numbers = {**place, "MASTER_PORT": port, PARENT: os.getpid()}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(number) for name, number in numbers.items()}}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    """Wait for all, or for `GRACE_S` after the first failure; return rank 0's code where it is one of failure."""
    deadline = float("inf")
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
        if deadline == float("inf") and any(rank.returncode for rank in ranks):
            deadline = time.monotonic() + GRACE_S
        time.sleep(POLL_S)
    code = next((rank.returncode for rank in ranks if rank.returncode), 0)
    return 128 - code if code < 0 else code


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Leave nothing running."""
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    for rank in ranks:
        try:
            rank.wait(GRACE_S / 3)
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


@contextmanager
def _signals_to(ranks: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Pass SIGINT and SIGTERM on: the first to rank 0, later ones to all."""
    seen: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        targets = ranks if seen else ranks[:1]
        seen.append(number)
        for rank in targets:
            if rank.poll() is None:
                rank.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def same_command() -> list[str]:
    """Return the command line of this process, for another one."""
    return [sys.executable, "-m", "puffer_core", *sys.argv[1:]]
