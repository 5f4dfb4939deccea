"""Tests of opening environments: parameters that are refused, and constructors and closes that hang."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from fakes_env import Count
from fakes_sampling import sampling_env
from gymnasium.spaces import Box

from puffer_core import vector
from puffer_core.errors import EnvError, OptionError, WorkerError
from puffer_core.vector.bounded import within
from puffer_core.vector.faults import Fault
from puffer_core.vector.source import source_of

Sampling: Any = sampling_env(Box(0, 1, (2,)))


class Picky(Sampling):
    def __init__(self, size: int = 1, mode: str = "a") -> None:
        assert size > 0, "size must be positive"
        self.mode = {"a": 0, "b": 1}[mode]


class Broken(Sampling):
    def __init__(self, size: int = 1) -> None:
        raise ValueError("never works")


class SlowToOpen(Sampling):
    def __init__(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                time.sleep(0.01)
            except Exception as error:  # as careless code does
                self.seen = error


class SlowToClose(Sampling):
    def close(self) -> None:
        time.sleep(20)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"size": 0}, r"Picky can't be made with size=0: AssertionError: size must be positive"),
        ({"size": 2, "mode": "c"}, r"Picky can't be made with mode='c': KeyError: 'c'"),
        ({"size": "x"}, r"Picky can't be made with size='x': TypeError"),
    ],
)
def test_refused_parameter_is_named(params: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        vector.make(Picky, params=params)


@pytest.mark.parametrize("params", [{}, {"size": 3}])
def test_constructor_that_never_works_raises_its_own_error(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="never works") as caught:
        vector.make(Broken, params=params)
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("is_main", [True, False])
def test_calls_are_bounded(is_main: bool) -> None:
    found: list[object] = []

    def work() -> None:
        found.append(within(5, lambda: 3))
        try:
            within(0.05, lambda: time.sleep(20))
        except TimeoutError:
            found.append("late")
        try:
            within(5, lambda: [][0])
        except IndexError:
            found.append("own")

    if is_main:
        work()
    else:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [3, "late", "own"]


@pytest.mark.parametrize("backend", ["multiprocessing", vector.Multiprocessing])
def test_constructor_that_hangs_is_told_within_the_timeout(backend: Any) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"SlowToOpen: the environment has not opened within 0\.2 s"):
        vector.make(SlowToOpen, 2, backend, timeout=0.2)
    assert time.monotonic() - began < 10


def test_close_that_hangs_is_told_within_the_timeout() -> None:
    with pytest.warns(UserWarning, match=r"SlowToClose: close has not returned within 0\.2 s"):
        assert vector.describe(SlowToClose, timeout=0.2)[2] == 1


def test_timeout_changes_nothing_for_what_opens() -> None:
    assert vector.describe(Count, timeout=5.0)[:3] == source_of(Count).spaces


def test_exception_whose_text_cannot_be_made_keeps_its_traceback() -> None:
    class MuteError(RuntimeError):
        def __str__(self) -> str:
            raise LookupError

    try:
        raise MuteError
    except MuteError as error:
        told = str(Fault.of(error).as_error("vector", lambda position: "worker 0"))
    assert "(its text can't be made: LookupError)" in told
    assert "raise MuteError" in told


def test_memory_that_is_not_there_is_told_before_it_is_taken() -> None:
    with pytest.raises(OptionError, match=r"num_envs=\d+ environments need more than [\d,]+ bytes, available are"):
        vector.make(Count, 10**11, "serial")
    with pytest.raises(OptionError, match=r"arrays of all environments need [\d,]+ bytes, available are [\d,]+"):
        vector.make(sampling_env(Box(0, 1, (10**6,))), 2 * 10**5, "serial")


@pytest.mark.parametrize("backend", ["multiprocessing"])
def test_info_that_cannot_be_sent_is_named(backend: str) -> None:
    class Locked(Sampling):
        def step(self, action: Any) -> Any:
            *arrays, _ = super().step(action)
            return *arrays, {"fine": 1, "deep": {"lock": threading.Lock()}}

    with vector.make(Locked, 2, backend) as opened:
        opened.reset()
        with pytest.raises(EnvError, match=r"info\['deep'\]\['lock'\] is a lock, which can't be sent"):
            opened.step(np.zeros(2, np.int32))
