"""Start methods, scripts, signals and the ends of this process: run as scripts of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from counter import counter_table
from fakes_workers import Facts

from puffer_core.errors import OptionError
from puffer_core.specs import EnvSpec
from puffer_core.vector import Multiprocessing
from puffer_core.vector.source import source_of

HEAD = """
    import os, sys, time
    import numpy as np
    import gymnasium
    from gymnasium.spaces import Box, Discrete
    from puffer_core.vector import Multiprocessing

    class Ticks(gymnasium.Env):
        observation_space = Box(-np.inf, np.inf, (1,), np.float32)
        action_space = Discrete(2)
        def __init__(self, nap=0.0):
            self.nap, self.tick = nap, 0
        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}
        def step(self, action):
            time.sleep(self.nap)
            self.tick += 1
            return np.full(1, self.tick, np.float32), 0.0, False, False, {"pair": Pair(self.tick)}

    class Pair:
        def __init__(self, value):
            self.value = value

    def play(opened, steps):
        opened.reset()
        for _ in range(steps):
            opened.step(np.zeros(opened.num_agents, int))
        return opened.observations[:, 0].tolist(), [info["pair"].value for info in opened.infos]
"""


def start(tmp_path: Path, body: str, *args: str, group: bool = False) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(dedent(HEAD) + dedent(body))
    return subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", str(script), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=group,
    )


def gone(pids: list[int], seconds: float) -> bool:
    """Return whether all of these processes end in time."""
    deadline = time.monotonic() + seconds
    while any(is_running(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_lambdas_local_functions_and_classes_of_a_script_without_a_guard_work(tmp_path):
    body = """
        print("begins", flush=True)
        def local():
            nap = 0.0
            return lambda: Ticks(nap)
        for method in sys.argv[1:]:
            envs = [Ticks, lambda: Ticks(), local(), local()]
            with Multiprocessing(envs, 4, num_workers=2, start_method=method) as opened:
                assert play(opened, 3) == ([3, 3, 3, 3], [3, 3, 3, 3])
                assert isinstance(opened.infos[0]["pair"], Pair)
            print(method, flush=True)
    """
    process = start(tmp_path, body, "fork", "spawn", "forkserver")
    out, err = process.communicate(timeout=60)
    assert (out.split(), err, process.returncode) == (["begins", "fork", "spawn", "forkserver"], "", 0)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_new_processes_have_one_thread_and_seeds_of_their_own(method):
    before = dict(os.environ)
    with Multiprocessing(Facts, 2, num_workers=2, start_method=method, timeout=30) as opened:
        first = opened.reset(seed=4)[0].copy()
        assert first[:, 0].tolist() == opened.worker_pids
        assert first[:, 1].tolist() == [4, 5]
        for pid in opened.worker_pids:
            assert "Threads:\t1\n" in Path(f"/proc/{pid}/status").read_text()
        assert opened.step(np.zeros(2, int))[0][:, 1].tolist() == [1, 1]
    assert dict(os.environ) == before


def test_a_forkserver_of_ours_is_stopped_with_the_last_vector():
    from multiprocessing import forkserver

    with Multiprocessing(Facts, 1, start_method="forkserver"):
        with Multiprocessing(Facts, 1, start_method="forkserver"):
            pass
        assert is_running(forkserver._forkserver._forkserver_pid)
    assert forkserver._forkserver._forkserver_pid is None


def test_environments_in_c_are_found_again_by_a_new_process():
    source = source_of(EnvSpec("test/counter", table="counter:TABLE"), {"num_envs": 2})
    with Multiprocessing(source, 2, num_workers=2, start_method="spawn") as opened:
        observations = opened.reset(seed=1)[0].copy()
    with Multiprocessing(source, 2, num_workers=1) as opened:
        assert (opened.reset(seed=1)[0] == observations).all()
    with pytest.raises(OptionError, match="counter"):
        Multiprocessing(counter_table(), 2, num_workers=2, start_method="spawn")


ENDS = {
    "close": ("opened.close()", 0, ""),
    "nothing": ("", 0, ""),
    "exit": ("sys.exit(5)", 5, ""),
    "exception": ("raise KeyError('mine')", 1, "KeyError: 'mine'"),
    "exception amid a step": ("opened.send(np.zeros(4, int)); raise KeyError('mine')", 1, "KeyError: 'mine'"),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_script_ends_with_its_own_status_and_leaves_nothing(tmp_path, how):
    body = """
        opened = Multiprocessing(Ticks, 4, num_workers=2)
        print(*opened.worker_pids, flush=True)
        play(opened, 3)
    """
    end, status, words = ENDS[how]
    before = set(Path("/dev/shm").iterdir())
    process = start(tmp_path, dedent(body) + end)
    out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert err.count("Traceback") == bool(words)
    assert words in err
    assert gone([int(pid) for pid in out.split()], 5.0)
    assert set(Path("/dev/shm").iterdir()) == before


SIGNALS = {
    "ctrl-c": (signal.SIGINT, True, 0.0, "fork"),
    "interrupt": (signal.SIGINT, False, 0.0, "fork"),
    "terminate": (signal.SIGTERM, False, 0.0, "fork"),
    "kill": (signal.SIGKILL, False, 0.0, "fork"),
    "kill, hanging": (signal.SIGKILL, False, 600.0, "fork"),
    "kill, spawned": (signal.SIGKILL, False, 600.0, "spawn"),
    "kill, forkserver": (signal.SIGKILL, False, 600.0, "forkserver"),
}


@pytest.mark.parametrize("how", SIGNALS)
def test_signals_to_a_script_leave_nothing(tmp_path, how):
    """The one that kills the parent also comes while environments hang in their step."""
    number, to_group, nap, method = SIGNALS[how]
    body = """
        opened = Multiprocessing(Ticks, 4, num_workers=2, params={"nap": float(sys.argv[2])}, start_method=sys.argv[1])
        print(*opened.worker_pids, flush=True)
        play(opened, 10**9)
    """
    before = set(Path("/dev/shm").iterdir())
    process = start(tmp_path, body, method, str(nap), group=True)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.2)
    os.killpg(process.pid, number) if to_group else os.kill(process.pid, number)
    assert gone([process.pid, *pids], 5.0)
    _, err = process.communicate(timeout=10)
    assert process.returncode == -number
    assert err.count("Traceback") == (number == signal.SIGINT)
    assert set(Path("/dev/shm").iterdir()) == before
