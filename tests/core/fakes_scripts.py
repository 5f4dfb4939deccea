"""Runs a script that steps worker processes again and again, each time ended in some way, and tells what it left.

``python fakes_scripts.py HOW COUNT`` with HOW one of ``interrupt``, ``terminate`` and ``raise`` prints how many ended
as they should. The script is a fork of this process, which has imported everything, and ends as any script does.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from fakes_workers import Picture

from puffer_core.vector import Multiprocessing

STATUS = {"interrupt": -signal.SIGINT, "terminate": -signal.SIGTERM, "raise": 1}


def script(how: str, tell: int) -> None:
    """Open a vector and step it: for ever, or until an error of the script itself."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    opened = Multiprocessing(Picture, 4, num_workers=2)
    opened.reset()
    os.write(tell, " ".join(map(str, opened.worker_pids)).encode() + b"\n")
    for step in range(10**9):
        opened.step(np.zeros(4, int))
        if how == "raise" and step == 5:
            raise KeyError("mine")


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; one that nobody has waited for yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def are_gone(pids: list[int], seconds: float) -> bool:
    """Wait for processes to end."""
    deadline = time.monotonic() + seconds
    while not all(map(is_gone, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def run_once(how: str, number: int) -> None:
    """Run the script; check its status and that its workers end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        script(how, writer)
    os.close(writer)
    with os.fdopen(reader) as lines:
        pids = [int(pid) for pid in lines.readline().split()]
    if how != "raise":
        time.sleep(0.001 * (number % 7))
        os.kill(child, -STATUS[how])
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == STATUS[how], f"script {number} ended with {status}"
    assert len(pids) == 2, f"script {number} told of workers {pids}"
    assert are_gone(pids, 5.0), f"script {number} left workers"


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in range(int(sys.argv[2])):
        run_once(sys.argv[1], number)
    sys.stdout.write(f"{sys.argv[2]}\n")
