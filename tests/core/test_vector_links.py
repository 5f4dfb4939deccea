"""Words and pipes between a parent and a worker: who is told what, who is woken, and that no word is lost."""

import os
import threading
import time

import numpy as np
import pytest

from puffer_core.vector import Multiprocessing
from puffer_core.vector.links import CALL, DONE, GONE, INFOS, STEP, Link, is_readable, words_layout
from puffer_core.vector.processes import Processes
from puffer_core.vector.shared import open_region


@pytest.fixture
def ends():
    """Both ends of the link to the second of two workers."""
    region = open_region(words_layout(2), "test")
    there, back = os.pipe(), os.pipe()
    parent = Link(back[0], there[1], region, 1, is_parent=True)
    worker = Link(there[0], back[1], region, 1, is_parent=False)
    os.close(region)
    yield parent, worker
    for fd in (*there, *back):
        try:
            os.close(fd)
        except OSError:
            assert fd == there[1]  # closed by a test


def test_a_step_needs_no_byte_while_the_other_end_is_awake(ends):
    parent, worker = ends
    worker.put()
    assert parent.take() == DONE
    parent.put()
    assert not is_readable(worker.reader)
    assert worker.is_told
    assert parent.is_at_work
    assert worker.get(0.0) == STEP
    assert not worker.is_told
    worker.put()
    assert parent.is_told
    assert not parent.is_at_work


def test_who_sleeps_is_woken_by_a_byte(ends):
    parent, worker = ends
    parent.set_asleep(True)
    worker.put()
    assert is_readable(parent.reader)
    assert parent.woken()
    assert not is_readable(parent.reader)
    parent.set_asleep(False)
    assert parent.take() == DONE


@pytest.mark.parametrize("spin_s", [0.0, 1e-4])
def test_a_worker_sleeps_until_it_is_told_something(ends, spin_s):
    parent, worker = ends
    timer = threading.Timer(0.05, parent.put)
    timer.start()
    assert worker.get(spin_s) == STEP
    timer.join()
    timer = threading.Timer(0.05, parent.put_object, (CALL, "name"))
    timer.start()
    assert worker.get(spin_s) == CALL
    assert worker.get_object() == "name"
    timer.join()


def test_bytes_of_wake_ups_that_came_late_are_passed_over(ends):
    parent, worker = ends
    os.write(worker.writer, DONE * 2)
    worker.put_object(INFOS, [1])
    assert parent.take() == INFOS
    assert parent.get_object() == [1]
    os.write(parent.writer, STEP)
    timer = threading.Timer(0.05, parent.put)
    timer.start()
    assert worker.get(0.0) == STEP
    assert parent.is_at_work
    timer.join()


def test_the_bytes_of_an_object_are_no_wake_up(ends):
    parent, worker = ends
    worker.put_object(INFOS, "text")
    assert parent.woken()
    assert parent.take() == INFOS
    assert parent.get_object() == "text"


def test_a_fence_that_was_interrupted_stops_nobody(ends):
    parent, worker = ends
    parent._lock.acquire()
    parent.put()
    assert worker.is_told
    assert not parent._lock.locked()


def test_a_closed_pipe_is_the_end(ends):
    parent, worker = ends
    os.close(parent.writer)
    assert worker.get(0.0) == GONE


def test_an_object_may_be_larger_than_a_pipe(ends):
    parent, worker = ends
    value = b"x" * 1_000_000
    sender = threading.Thread(target=worker.put_object, args=(INFOS, value))
    sender.start()
    while not parent.is_told:
        time.sleep(0.001)
    assert parent.take() == INFOS
    assert parent.get_object() == value
    sender.join()


class Count:
    """Shows how many steps it took."""

    def __init__(self):
        from gymnasium.spaces import Box, Discrete

        self.observation_space, self.action_space = Box(0, 1e6, (1,), np.float32), Discrete(2)

    def reset(self):
        self.steps = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.steps += 1
        return np.full(1, self.steps, np.float32), 0.0, False, {"odd": 1} if self.steps % 100 == 0 else {}


@pytest.mark.parametrize("spins", ["never", "now and then", "always"])
def test_no_word_is_lost_however_long_each_side_looks(monkeypatch, spins):
    """Sleeping at once, and so briefly before that words come just then, makes every order of events happen."""
    seconds = {"never": 0.0, "now and then": 5e-6, "always": 1e-3}[spins]
    for module in ("processes", "multiprocessing"):
        monkeypatch.setattr(f"puffer_core.vector.{module}.SPIN_S", seconds)
    with Multiprocessing(Count, 4, num_workers=2, timeout=20) as vector:
        vector.reset()
        for step in range(1, 1001):
            observations = vector.step(np.zeros(4, int))[0]
            assert (observations == step).all()


def test_a_vector_that_is_interrupted_while_it_waits_goes_on(monkeypatch):
    """A wait may end with an exception, as Ctrl-C is one; what was said meanwhile is not lost."""
    monkeypatch.setattr("puffer_core.vector.processes.SPIN_S", 0.0)
    hear, calls = Processes._hear, iter([KeyboardInterrupt])

    def interrupted(self, *args):
        for error in calls:
            raise error
        return hear(self, *args)

    with Multiprocessing(Count, 2, num_workers=1) as vector:
        vector.reset()
        monkeypatch.setattr(Processes, "_hear", interrupted)
        vector.send(np.zeros(2, int))
        while True:
            try:
                observations = vector.recv()[0]
            except KeyboardInterrupt:
                continue
            break
        assert (observations == 1).all()
