"""Tests of which backend `auto` takes, and of the timing behind it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import counter
import numpy as np
import psutil
import pytest
from fakes_env import Count, Match
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from puffer_core.errors import OptionError
from puffer_core.place import HERE, PLACE, Place
from puffer_core.specs import EnvSpec, VectorJob
from puffer_core.vector import Multiprocessing, Native, Serial, choice, make, open_vector, probe, source_of
from puffer_core.vector.choice import Forecast, forecast, second_thoughts
from puffer_core.vector.probe import random_batches, step_seconds
from puffer_core.vector.wrap import checked, wrap_sources

FAST, SLOW = 2e-6, 1e-3


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "cores", lambda: 2)
    for name in (*PLACE, HERE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def step_takes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Call it with the seconds of a step that will be found; it counts how often that is asked."""

    def takes(seconds: float | None) -> list[str]:
        asked: list[str] = []
        monkeypatch.setattr(choice, "step_seconds", lambda source: asked.append(source.name) or seconds)
        return asked

    return takes


class Sleeping(Match):
    """A step takes a millisecond; opening takes ``open_s``, and may start a process."""

    def __init__(self, buf: Any = None, open_s: float = 0.0, command: str = "") -> None:
        time.sleep(open_s)
        if command:
            subprocess.Popen(["sleep", command])
        super().__init__(buf)

    def step(self, actions: Any) -> Any:
        time.sleep(SLOW)
        return super().step(actions)


def job(num_envs: int = 8, num_workers: Any = "auto", batch_size: Any = "auto", zero_copy: bool = True) -> VectorJob:
    return VectorJob("match", {}, None, num_envs, num_workers, batch_size, zero_copy)


# -- the forecast -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step_s", "num_envs", "workers", "is_clear"),
    [
        (1e-3, 8, 2, True),
        (100e-6, 64, 2, True),
        (8e-6, 256, 2, True),
        (8e-6, 64, 2, False),
        (1e-3, 1, 1, False),
        (1e-3, 9, 1, False),
        (2e-6, 8, 2, False),
    ],
)
def test_workers_are_clearly_faster_where_steps_are_many_or_long(
    step_s: float, num_envs: int, workers: int, is_clear: bool
) -> None:
    assert Forecast(step_s, num_envs, workers).is_clear == is_clear


def test_more_workers_than_cores_promise_no_more_than_cores() -> None:
    assert Forecast(1e-3, 8, 8).workers_s > Forecast(1e-3, 8, 2).workers_s >= 4e-3


def test_numbers_are_told() -> None:
    text = Forecast(100e-6, 64, 2).numbers
    assert text == "a step takes 100 us, so 64 take about 6.4 ms one after the other, 3.28 ms in 2 processes"


# -- auto -------------------------------------------------------------------------------------------------------------


def test_auto_is_serial_where_steps_are_short(step_takes: Any) -> None:
    step_takes(FAST)
    with make(Match, 8) as vector:
        assert type(vector) is Serial
        assert vector.backend == "serial"
        assert vector.backend_note.endswith(
            "(auto: a step takes 2 us, so 8 take about 16 us one after the other, 83 us in 2 processes)"
        )


def test_auto_is_worker_processes_where_steps_are_long(step_takes: Any) -> None:
    step_takes(SLOW)
    with make(Match, 8) as vector:
        assert type(vector) is Multiprocessing
        assert vector.backend == "multiprocessing"
        assert "(auto: a step takes 1 ms, so 8 take about 8 ms one after the other, 4.08 ms" in vector.backend_note
        vector.reset(0)
        vector.step(np.zeros(8, np.int32))


@pytest.mark.parametrize("arguments", [{"num_workers": 2}, {"batch_size": 4}, {"zero_copy": False, "batch_size": 4}])
def test_auto_takes_workers_unasked_where_something_is_to_be_split(step_takes: Any, arguments: dict[str, Any]) -> None:
    asked = step_takes(FAST)
    with make(Match, 8, **arguments) as vector:
        assert type(vector) is Multiprocessing
    assert asked == []


@pytest.mark.parametrize(
    "arguments", [{"num_workers": 1}, {"backend": "serial"}, {"backend": Serial}, {"num_envs": 1}, {"env": [Match] * 8}]
)
def test_nothing_is_timed_where_there_is_no_choice(step_takes: Any, arguments: dict[str, Any]) -> None:
    asked = step_takes(SLOW)
    with make(**{"env": Match, "num_envs": 8, **arguments}) as vector:
        assert type(vector) is Serial
    assert asked == []


def test_nothing_is_timed_for_environments_in_c(step_takes: Any) -> None:
    asked = step_takes(SLOW)
    with make(counter.counter_table(), 8) as vector:
        assert type(vector) is Native
        assert vector.backend_note.endswith(" (auto)")
    assert asked == []


def test_nothing_is_timed_on_one_core_or_beside_other_ranks(step_takes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = step_takes(SLOW)
    monkeypatch.setattr(choice, "place", lambda: Place(local_world_size=2))
    with make(Match, 8) as vector:
        assert type(vector) is Serial
    monkeypatch.setattr(choice, "place", Place)
    monkeypatch.setattr(choice, "cores", lambda: 1)
    with make(Match, 8) as vector:
        assert type(vector) is Serial
    assert asked == []


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"timeout": -3}, "timeout=-3"),
        ({"start_method": "thread"}, "start_method="),
        ({"sync_traj": "no"}, "sync_traj="),
    ],
)
def test_options_of_workers_are_checked_though_there_will_be_none(option: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make(Match, 1, **option)


def test_it_is_told_what_serial_has_no_use_for() -> None:
    with make(Match, 1, timeout=3.0, sync_traj=False) as vector:
        assert vector.backend_note.endswith("; without workers, timeout, sync_traj changes nothing")


def test_auto_is_serial_where_nothing_could_be_found_out(step_takes: Any) -> None:
    step_takes(None)
    with make(Match, 8) as vector:
        assert type(vector) is Serial
        assert vector.backend_note.endswith(" (auto)")


def test_both_choices_give_the_same_arrays(step_takes: Any) -> None:
    seen = []
    for seconds in (FAST, SLOW):
        step_takes(seconds)
        with make(Match, 8, seed=3) as vector:
            vector.reset()
            actions = [np.random.default_rng(step).integers(0, 2, 8).astype(np.int32) for step in range(50)]
            seen.append([[array.copy() for array in vector.step(batch)[:4]] for batch in actions])
    np.testing.assert_equal(*seen)


# -- where serial would be faster (V14) -------------------------------------------------------------------------------


def test_it_is_told_where_serial_would_be_faster(step_takes: Any) -> None:
    step_takes(FAST)
    note = second_thoughts("multiprocessing", job(8, 4), source_of(Match))
    assert note == (
        "; serial would be faster: a step takes 2 us, so 8 take about 16 us one after the other, 133 us in 4 processes"
    )


@pytest.mark.parametrize(
    ("backend", "asked"),
    [("serial", {}), ("multiprocessing", {"batch_size": 4}), ("multiprocessing", {"zero_copy": False})],
)
def test_it_is_not_told_of_other_backends_or_partial_batches(
    step_takes: Any, backend: str, asked: dict[str, Any]
) -> None:
    step_takes(FAST)
    assert second_thoughts(backend, job(**asked), source_of(Match)) == ""


def test_it_is_not_told_where_workers_are_faster(step_takes: Any) -> None:
    step_takes(SLOW)
    assert second_thoughts("multiprocessing", job(8, 2), source_of(Match)) == ""


def test_a_run_is_told_once(step_takes: Any) -> None:
    from puffer_core.config import load

    step_takes(FAST)
    spec = EnvSpec("local/match", make="fakes_env:Match")
    config = load(spec, options={"vec.backend": "multiprocessing", "vec.num_workers": "2"})
    with open_vector(config, spec, num_envs=8) as vector:
        assert vector.backend_note.count("serial would be faster") == 1


# -- the timing -------------------------------------------------------------------------------------------------------


def test_a_step_is_timed() -> None:
    found = step_seconds(source_of(Sleeping))
    assert found is not None
    assert SLOW <= found < 20 * SLOW


def test_timing_disturbs_nothing_and_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    class Drawing(Match):
        def __init__(self, buf: Any = None) -> None:
            opened.append(os.getpid())
            random.random(), np.random.rand()
            super().__init__(buf)

    random.seed(1), np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()
    children = psutil.Process().children()
    found = step_seconds(source_of(Drawing))
    assert found is not None
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert psutil.Process().children() == children
    monkeypatch.setattr(probe, "_measured", lambda source: pytest.fail("it was timed twice"))
    assert step_seconds(source_of(Drawing)) == found
    assert opened == []


def test_other_parameters_are_timed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_measured", lambda source: float(source.params.get("limit", 0)))
    assert step_seconds(source_of(partial(Count), {"limit": 5})) == 5.0
    assert step_seconds(source_of(Count, {"limit": 6})) == 6.0
    assert step_seconds(source_of(partial(Count), {"limit": 5})) == 5.0


def test_other_wrappers_are_timed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Sleeping:
        return Sleeping()

    monkeypatch.setattr(probe, "_measured", lambda source: float(len(source.wraps)))
    for keys in ({}, {"action_repeat": 3}, {"action_repeat": 3, "episode_stats": True}, {}):
        assert step_seconds(wrap_sources(source_of(make), {}, checked(keys))) == len(keys)


def test_opening_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LIMIT_S", 0.2)
    began = time.monotonic()
    assert step_seconds(source_of(Sleeping, {"open_s": 30.0})) is None
    assert time.monotonic() - began < 5.0


def test_what_an_environment_started_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LIMIT_S", 0.3)
    seconds = str(3600 + os.getpid() / 1e7)
    assert step_seconds(source_of(Sleeping, {"command": seconds, "open_s": 0.0})) is not None
    deadline = time.monotonic() + 5
    while _is_running(seconds) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(seconds)


@pytest.mark.parametrize("kind", ["raise", "exit", "kill"])
def test_an_environment_that_breaks_gives_nothing(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> Any:
        if kind == "exit":
            os._exit(1)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("no display")

    assert step_seconds(source_of(broken)) is None
    assert capfd.readouterr() == ("", "")


def test_environments_in_c_and_open_ones_are_not_timed() -> None:
    assert step_seconds(source_of(counter.counter_table())) is None
    assert step_seconds(source_of(Match())) is None
    assert forecast(job(), None) is None


def test_random_actions_are_legal_where_bounds_are_infinite() -> None:
    space = Box(np.array([-np.inf, 0, -2], np.float32), np.array([np.inf, np.inf, 1], np.float32))
    for batch in random_batches(space, 16, 3):
        assert batch.dtype == np.float32
        assert np.isfinite(batch).all()
        assert all(space.contains(row) for row in batch)


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete([2, 5])])
def test_random_actions_are_the_same_every_time(space: Any) -> None:
    np.testing.assert_array_equal(random_batches(space, 4, 2), random_batches(space, 4, 2))


def _is_running(argument: str) -> bool:
    return any(argument in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
