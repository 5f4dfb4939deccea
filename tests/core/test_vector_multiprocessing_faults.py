"""What goes wrong in workers: one error in time that says what, and nothing left behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
import weakref
from pathlib import Path

import numpy as np
import psutil
import pytest
from fakes_workers import Picture, Slow, Trouble
from gymnasium.spaces import Discrete

from puffer_core.errors import EnvError, OptionError, UsageError, WorkerError
from puffer_core.vector import Multiprocessing, workers
from puffer_core.vector.faults import Fault, death
from puffer_core.vector.links import is_readable

FAULTS = {
    "raise": (WorkerError, "Trouble: environment 3 in worker 1 raised ZeroDivisionError: boom in env\n\nTraceback"),
    "refuse": (EnvError, "environment 3 in worker 1: this is wrong"),
    "leave": (WorkerError, "environment 3 in worker 1 raised SystemExit: enough"),
    "exit": (WorkerError, "Trouble: worker 1 (environments 2 to 3) ended with exit status 3"),
    "kill": (WorkerError, "Trouble: worker 1 (environments 2 to 3) was killed by SIGKILL"),
    "hang": (WorkerError, "worker 1 (environments 2 to 3) has not finished its step or reset within 1.0 s"),
    "loop": (WorkerError, "worker 1 (environments 2 to 3) has not finished its step or reset within 1.0 s"),
}


HANGS = ("hang", "loop")


def open_trouble(how, **options):
    timeout = 1.0 if how in HANGS else None
    params = [{}, {}, {}, {"how": how}]
    return Multiprocessing(Trouble, 4, num_workers=2, params=params, timeout=timeout, **options)


def remains():
    """Return what workers could leave: child processes, open descriptors, names in shared memory."""
    gc.collect()
    return len(psutil.Process().children()), len(os.listdir("/proc/self/fd")), sorted(os.listdir("/dev/shm"))  # noqa: PTH208


def play(opened, batches, began=None):
    """Answer so many batches; the time of the last answer is appended to ``began``."""
    for _ in range(batches):
        opened.recv()
        if began is not None:
            began.append(time.monotonic())
        opened.send(np.zeros(opened.agents_per_batch, int))


def run_into(how, **options):
    """Step until the fault; return the error and the seconds from the last answer to it."""
    kind, words = FAULTS[how]
    opened = open_trouble(how, **options)
    pids, began = opened.worker_pids, []
    opened.async_reset()
    with pytest.raises(kind, match=re.escape(words)) as caught:
        play(opened, 100_000, began)
    seconds = time.monotonic() - began[-1]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(UsageError, match="used after close"):
        opened.recv()
    return caught.value, seconds


@pytest.mark.parametrize("how", FAULTS)
def test_a_fault_in_a_step_is_one_error_that_says_where(how):
    before = remains()
    assert run_into(how)[1] < (2.0 if how in HANGS else 1.0)
    assert remains() == before


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": 2, "sync_traj": False}])
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_fault_is_noticed_in_partial_batches(how, options):
    error, seconds = run_into(how, **options)
    assert "worker 1" in str(error)
    assert seconds < 1.5


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_a_fault_is_noticed_while_the_parent_waits_for_another_worker(how):
    made = [lambda: Slow(sleep=3.0), lambda: Trouble(how=how, at=1)]
    opened = Multiprocessing(made, 2, num_workers=2)
    opened.reset()
    began = time.monotonic()
    with pytest.raises(WorkerError, match="worker 1"):
        opened.step(np.zeros(2, int))
    assert time.monotonic() - began < 1.5


def test_errors_that_a_person_can_put_right_keep_their_type_hint_and_traceback():
    error, _ = run_into("refuse")
    assert error.hint == "do it right"
    assert isinstance(error.__cause__, WorkerError)
    assert "in make_trouble" in str(error.__cause__)


def test_a12_a_worker_killed_while_idle_is_noticed_at_the_next_step():
    opened = Multiprocessing(Picture, 2, num_workers=2)
    opened.reset()
    opened.send(np.zeros(2, int))
    os.kill(opened.worker_pids[0], signal.SIGKILL)
    with pytest.raises(WorkerError, match="environment 0 in worker 0 was killed by SIGKILL") as caught:
        play(opened, 100_000)
    assert caught.value.hint == "out of memory? use fewer environments or workers"


class Talks(Picture):
    """Its infos hold an object."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def step(self, action):
        return *super().step(action)[:4], {"value": self.value}


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_a_worker_killed_while_it_writes_infos_is_told_as_killed():
    opened = Multiprocessing(Talks, 1, num_workers=1, params={"value": b"x" * 10_000_000})
    opened.reset()
    opened.send(np.zeros(1, int))
    while not is_readable(opened._processes.links[0].reader):
        time.sleep(0.01)
    os.kill(opened.worker_pids[0], signal.SIGKILL)
    with pytest.raises(WorkerError, match="environment 0 in worker 0 was killed by SIGKILL"):
        opened.recv()


def test_infos_that_can_not_be_read_are_one_error():
    opened = Multiprocessing(Talks, 1, num_workers=1, params={"value": Unreadable()})
    opened.reset()
    with pytest.raises(WorkerError, match="environment 0 in worker 0 sent what can't be read here: ValueError"):
        opened.step(np.zeros(1, int))
    with pytest.raises(UsageError, match="used after close"):
        opened.reset()


def test_infos_that_can_not_be_sent_are_one_error():
    opened = Multiprocessing(Talks, 1, num_workers=1, params={"value": (i for i in range(3))})
    opened.reset()
    with pytest.raises(EnvError, match=r"worker 0: info\['\w+'\] is a generator, which can't be sent"):
        opened.step(np.zeros(1, int))


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("init", OptionError, "environment 3 in worker 1: Trouble can't be made with how='init': LookupError: no such"),
        ("init exit", WorkerError, "ended with exit status 7"),
    ],
)
def test_a_fault_while_opening_stops_all_workers(how, error, words):
    before = remains()
    with pytest.raises(error, match=words):
        open_trouble(how)
    assert remains() == before


@pytest.mark.parametrize("share", [1, 2])
def test_environments_of_other_workers_must_be_of_the_same_spaces(share):
    class Choices(Picture):
        def __init__(self, choices):
            super().__init__()
            self.action_space = Discrete(choices)

    choices = [{"choices": 2}] * 2 + [{"choices": 5}] * 2
    # Two workers of one environment each may be told of in any order.
    with pytest.raises(EnvError, match=r"environment [23] has single_action_space Discrete\(5\), the first has Discre"):
        Multiprocessing(Choices, 4, num_workers=4 // share, params=choices)


def test_environments_that_do_not_open_in_time_are_told(monkeypatch):
    monkeypatch.setattr(workers, "OPEN_S", 0.3)
    before = remains()
    parent = os.getpid()

    class Hangs(Picture):
        def __init__(self, mark=0):
            super().__init__(mark)
            if mark and os.getpid() != parent:
                time.sleep(600)

    words = r"environment 1 in worker 1 has not opened its environments within 3.* s"
    with pytest.raises(WorkerError, match=words):
        Multiprocessing(Hangs, 2, num_workers=2, params=[{}, {"mark": 1}], timeout=3.0)
    assert remains() == before


def test_environments_are_closed_though_their_worker_is_writing_what_nobody_reads(tmp_path):
    class Writes(Talks):
        def close(self):
            (tmp_path / "closed").touch()

    opened = Multiprocessing(Writes, 1, num_workers=1, params={"value": b"x" * 10_000_000})
    opened.reset()
    opened.send(np.zeros(1, int))
    while not is_readable(opened._processes.links[0].reader):
        time.sleep(0.01)
    (tmp_path / "closed").unlink(missing_ok=True)
    began = time.monotonic()
    opened.close()
    assert time.monotonic() - began < 0.9
    assert (tmp_path / "closed").exists()


def test_parameters_that_the_first_worker_refuses_change_nothing():
    class Careful(Picture):
        def set_params(self, **values):
            if self.mark == 0:
                raise OptionError("never")
            self.mark = 7

    with Multiprocessing(Careful, 2, num_workers=2, params=[{}, {"mark": 1}]) as opened:
        with pytest.raises(OptionError, match="environment 0 in worker 0: never"):
            opened.set_params(mark=7)
        opened.reset()
        assert opened.observations[1, 1, 0, 0] == 1


def test_calls_between_steps_that_fail_leave_the_vector_usable():
    class Fails(Picture):
        def render(self):
            raise ValueError("no screen")

    with Multiprocessing(Fails, 2, num_workers=2) as opened:
        opened.reset()
        with pytest.raises(WorkerError, match="environment 1 in worker 1 raised ValueError: no screen"):
            opened.render(1)
        opened.step(np.zeros(2, int))


def test_environments_that_do_not_close_are_given_a_second():
    opened = Multiprocessing(Trouble, 2, num_workers=2, params=[{}, {"how": "close"}])
    pids = opened.worker_pids
    opened.reset()
    began = time.monotonic()
    opened.close()
    assert 0.9 < time.monotonic() - began < 2.0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_vector_that_is_dropped_is_closed():
    before = remains()
    opened = Multiprocessing(Picture, 2, num_workers=2)
    opened.reset()
    pids, alive = opened.worker_pids, weakref.ref(opened)
    del opened
    assert alive() is None
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert remains() == before


def test_arrays_outlive_their_vector():
    with Multiprocessing(Picture, 2, num_workers=2, params={"mark": 9}) as opened:
        observations = opened.reset()[0]
    assert (observations[:, 1:] == 9).all()


def test_one_vector_does_not_keep_workers_of_another():
    """Forked workers inherit descriptors: those of other vectors would keep these from noticing their end."""
    with Multiprocessing(Picture, 2, num_workers=2) as first, Multiprocessing(Picture, 2, num_workers=2) as second:
        first.reset(), second.reset()
        began = time.monotonic()
        first.close()
        assert time.monotonic() - began < 0.8
        second.step(np.zeros(2, int))


def test_a_vector_in_a_forked_child_is_left_alone():
    with Multiprocessing(Picture, 2, num_workers=2) as opened:
        opened.reset()
        child = os.fork()
        if child == 0:
            del opened
            gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        opened.step(np.zeros(2, int))


def test_death_without_a_word_names_what_is_known():
    assert "exit status 0" in str(death("v", "worker 0", 0))
    assert "an unknown exit status" in str(death("v", "worker 0", None))
    assert "killed by signal 63" in str(death("v", "worker 0", -63))
    assert death("v", "worker 0", -signal.SIGSEGV).hint is None


def test_errors_that_can_not_be_made_again_are_told_as_text():
    class StrangeError(EnvError):
        def __init__(self, one, two):
            super().__init__(f"{one} {two}")

    error = Fault.of(StrangeError("a", "b")).as_error("v", lambda _: "worker 0")
    assert type(error) is WorkerError
    assert "worker 0 raised" in str(error)
    assert "StrangeError: a b" in str(error)


def test_a_task_that_can_not_be_sent_is_told_in_one_line():
    import threading

    with pytest.raises(
        OptionError, match="Trouble can't be sent to another process: TypeError: cannot pickle"
    ) as caught:
        Multiprocessing(Trouble, 1, num_workers=1, params={"how": threading.Lock()}, start_method="spawn")
    assert "\n" not in str(caught.value)
    assert "fork" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("how", FAULTS)
def test_200_faults_leave_nothing(how):
    before = remains()
    for _ in range(200):
        assert run_into(how)[1] < (2.0 if how in HANGS else 1.0)
    assert remains() == before


@pytest.mark.slow
def test_200_vectors_leave_nothing():
    before = remains()
    for _ in range(200):
        with Multiprocessing(Picture, 4, num_workers=2) as opened:
            opened.reset()
            opened.step(np.zeros(4, int))
    del opened
    assert remains() == before
