"""Tests of the Ray backend against a Ray that runs on this machine."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")

import counter
from fakes_env import Count
from fakes_ray import Walk
from fakes_workers import Facts

from puffer_core.errors import EnvError, OptionError, UsageError, WorkerError
from puffer_core.vector import Ray, Serial, make, raypool
from puffer_core.vector.logs import EPISODE_FIELDS

OFFSETS = [{"offset": 100.0 * i} for i in range(4)]
ARRAYS = ("observations", "rewards", "terminals", "truncations", "masks", "logged")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """One Ray for all tests; actors find the fakes through the path."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        yield ray
        ray.shutdown()


def actions_for(ids: Any, step: int) -> Any:
    return ((ids * 7 + step * 3) % 4).astype(np.int32)


def require_same(expected: Any, got: Any, rows: Any = slice(None)) -> None:
    """Compare what two vectors show; ``rows`` are those of the whole that a batch has."""
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(expected, name)[rows], getattr(got, name), err_msg=name)
    ended = expected.terminals[rows] | expected.truncations[rows]
    np.testing.assert_array_equal(expected.final_observations[rows][ended], got.final_observations[ended])
    np.testing.assert_array_equal(expected.log[rows][expected.logged[rows]], got.log[got.logged])


@pytest.fixture(scope="module")
def whole(cluster: Any) -> Iterator[Ray]:
    """Two actors with two environments each, for all tests that leave them alive: starting actors takes seconds."""
    with Ray(Walk, 4, num_workers=2, params=OFFSETS, seed=5, strict=True) as vector:
        yield vector


@pytest.fixture(scope="module")
def ring(cluster: Any) -> Iterator[Ray]:
    """Four actors, of which two make a batch."""
    with Ray(Walk, 4, num_workers=4, batch_size=2) as vector:
        yield vector


@pytest.fixture(scope="module")
def loose(cluster: Any) -> Iterator[Ray]:
    """Three actors, of which any two make a batch; the first one is slow."""
    params = {"sleep_s": 1.5, "only": 0}
    with Ray(Walk, 3, num_workers=3, batch_size=2, zero_copy=False, params=params) as vector:
        yield vector


def require_serial(ray: Any, steps: int, **arguments: Any) -> None:
    """Compare a vector of whole batches with a `Serial` of the same environments, from a reset on."""
    with Serial(Walk, 4, **arguments) as serial:
        serial.reset(5), ray.reset(5)
        for step in range(steps):
            require_same(serial, ray)
            assert ray.infos == serial.infos
            serial.step(actions_for(serial.agent_ids, step))
            ray.step(actions_for(ray.agent_ids, step))
        assert serial.drain_log() == pytest.approx(ray.drain_log(), nan_ok=True)


def require_trajectories(ray: Any, steps: int, **arguments: Any) -> None:
    """Compare what each agent of a vector with partial batches sees, step by step, with a `Serial`."""
    with Serial(Walk, ray.num_envs, **arguments) as serial:
        serial.reset(2)
        expected = [serial.observations.copy()]
        for step in range(steps):
            serial.step(actions_for(serial.agent_ids, step))
            expected.append(serial.observations.copy())
    ray.async_reset(2)
    counts = np.zeros(ray.num_agents, int)
    while counts.max() <= steps:
        observations, *_, ids, _ = ray.recv()
        assert len(ids) == ray.agents_per_batch == 4
        step = counts[ids]
        np.testing.assert_array_equal(observations, np.stack(expected)[step, ids])
        counts[ids] += 1
        ray.send(actions_for(ids, step))


def test_whole_batches_are_those_of_serial(whole: Ray) -> None:
    assert whole.backend_note == "ray: 4 x Walk in 2 actors of 2, batches of 4 (full)"
    assert (whole.num_envs, whole.num_agents, whole.agents_per_batch, whole.agents_per_env) == (4, 8, 8, 2)
    assert whole.log_fields == EPISODE_FIELDS
    np.testing.assert_array_equal(whole.agent_ids, np.arange(8))
    require_serial(whole, 200, params=OFFSETS)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_split_gives_the_arrays_of_serial(workers: int) -> None:
    with Ray(Walk, 4, num_workers=workers) as ray:
        require_serial(ray, 1000)


def test_a_ring_gives_the_trajectories_of_serial(ring: Ray) -> None:
    require_trajectories(ring, 20)


def test_ring_comes_in_order(ring: Ray) -> None:
    ring.async_reset(0)
    seen = []
    for _ in range(4):
        seen.append(ring.recv()[5].tolist())
        ring.send(np.zeros(4, np.int32))
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2


@pytest.mark.slow
def test_a11_asynchronous_batches_do_not_wait_for_a_slow_actor(loose: Ray) -> None:
    """A11: the batch is of any actors that are ready."""
    loose.async_reset(0)
    counts = np.zeros(3, int)
    while counts.min() < 2:
        ids = loose.recv()[5]
        counts[ids[::2] // 2] += 1
        loose.send(np.zeros(4, np.int32))
    assert counts[1:].min() > 4


@pytest.mark.slow
def test_asynchronous_batches_give_the_trajectories_of_serial(loose: Ray) -> None:
    require_trajectories(loose, 20)


@pytest.mark.slow
def test_batches_without_zero_copy_stay_as_they_were(loose: Ray) -> None:
    loose.async_reset(0)
    first = loose.recv()[0]
    kept = first.copy()
    for _ in range(4):
        loose.send(np.ones(4, np.int32))
        loose.recv()
    np.testing.assert_array_equal(first, kept)


def test_agents_may_be_held_and_answered_later(ring: Ray) -> None:
    actions = np.arange(8, dtype=np.int32) % 4
    with Serial(Walk, 4) as serial:
        serial.reset(1)
        serial.step(actions)
        ring.async_reset(1)
        for _ in range(2):
            ring.recv()
            ring.send(ring.actions, hold=np.ones(4, np.bool_))
        with pytest.raises(UsageError, match="every agent is held: send_held first"):
            ring.recv()
        ring.send_held(actions)
        for rows in (slice(0, 4), slice(4, 8)):
            ring.recv()
            require_same(serial, ring, rows)
            with pytest.raises(UsageError, match="all of a worker's or none"):
                ring.send(ring.actions, hold=np.array([True, False, False, False]))
            ring.send(ring.actions)


def test_part_of_a_batch_may_be_held(ring: Ray) -> None:
    ring.async_reset(0)
    ring.recv()
    ring.send(ring.actions, hold=np.array([False, False, True, True]))
    assert ring.recv()[5].tolist() == [4, 5, 6, 7]
    ring.send(ring.actions)
    assert ring.recv()[5].tolist() == [0, 1]
    assert ring.observations.shape == (2, 3)
    ring.send(np.zeros(2, np.int32))
    ring.send_held(np.zeros(2, np.int32))
    ring.recv()
    ring.send(ring.actions)
    assert ring.recv()[5].tolist() == [0, 1, 2, 3]


def test_parameters_are_of_each_row_and_can_change(whole: Ray) -> None:
    whole.reset(0)
    np.testing.assert_array_equal(np.round(whole.observations[::2, 1] / 100), range(4))
    assert whole.render(3) == "3: 300"
    whole.set_params(offset=7.0)
    assert whole.render(2) == "2: 7"
    with pytest.raises(OptionError, match="Walk has no parameter"):
        whole.set_params(gravity=1)
    with pytest.raises(OptionError, match="index=4 is not an integer from 0 to 3"):
        whole.render(4)
    whole.step(np.zeros(8, np.int32))
    np.testing.assert_array_equal(whole.rewards, 7)


def test_reset_is_legal_while_steps_are_under_way(whole: Ray) -> None:
    whole.set_params(offset=0.0)
    whole.reset(0)
    whole.send(np.zeros(8, np.int32))
    with Serial(Walk, 4) as serial:
        serial.reset(9), whole.reset(9)
        require_same(serial, whole)


def test_a_saved_state_goes_on_in_the_other_backend(whole: Ray) -> None:
    whole.set_params(offset=0.0)
    with Serial(Walk, 4, seed=4) as serial:
        serial.reset(), whole.reset(0)
        for step in range(5):
            serial.step(actions_for(serial.agent_ids, step))
        state = serial.save()
        whole.load(state)
        assert whole.save() == state
        for step in range(20):
            serial.step(actions_for(serial.agent_ids, step))
            whole.step(actions_for(whole.agent_ids, step))
            require_same(serial, whole)
        serial.step(np.zeros(8, np.int32)), whole.send(np.zeros(8, np.int32))
        assert whole.save() == serial.save()
        with pytest.raises(EnvError, match="the saved state has 3 environments, not 4"):
            whole.load({name: state[name] for name in state if name != "env.3"})


def test_partial_batches_have_no_state(ring: Ray) -> None:
    ring.reset(0)
    assert ring.save() is None
    with pytest.raises(EnvError, match="can't be restored into partial batches"):
        ring.load({})


def test_illegal_actions_are_refused_before_they_are_sent(whole: Ray) -> None:
    whole.reset(0)
    with pytest.raises(EnvError, match="action 4 is not from 0 to 3"):
        whole.step(np.full(8, 4))
    with pytest.raises(EnvError, match="actions are"):
        whole.step(np.zeros(3, np.int32))
    whole.step(np.zeros(8, np.int32))


@pytest.mark.slow
def test_calls_out_of_order_are_refused() -> None:
    """A vector from its name, of as many actors as there are CPUs."""
    ray = make(Walk, 4, "ray", first_index=2)
    assert type(ray) is Ray
    assert "in 2 actors of 2" in ray.backend_note
    with pytest.raises(UsageError, match="reset before stepping"):
        ray.recv()
    ray.reset(0)
    with Serial(Walk, 6) as serial:
        serial.reset(0)
        np.testing.assert_array_equal(serial.observations[4:], ray.observations)
    with pytest.raises(UsageError, match="received already"):
        ray.recv()
    ray.send(np.zeros(8, np.int32))
    with pytest.raises(UsageError, match="sent already"):
        ray.send(np.zeros(8, np.int32))
    ray.close()
    ray.close()
    with pytest.raises(UsageError, match="used after close"):
        ray.reset()


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("raise", WorkerError, r"Walk: worker 1 \(environments 2 to 3\) raised ZeroDivisionError: planted at 3"),
        pytest.param("exit", WorkerError, r"worker 1 \(environments 2 to 3\) is gone", marks=pytest.mark.slow),
        pytest.param("refuse", EnvError, r"worker 1 \(environments 2 to 3\): planted", marks=pytest.mark.slow),
        pytest.param("hang", WorkerError, r"worker 1 \(environments 2 to 3\) has not fin", marks=pytest.mark.slow),
    ],
)
def test_a_fault_is_one_error_and_ends_the_vector(cluster: Any, fault: str, error: type, words: str) -> None:
    ray = Ray(Walk, 4, num_workers=2, params={"at": 3, "fault": fault, "only": 2}, timeout=1.0)
    ray.reset(0)
    ray.step(np.zeros(8, np.int32))
    ray.step(np.zeros(8, np.int32))
    with pytest.raises(error, match=words) as caught:
        ray.step(np.zeros(8, np.int32))
    if fault == "raise":
        assert "fakes_ray.py" in str(caught.value)
    if fault == "refuse":
        assert caught.value.hint == "unplant it"
    with pytest.raises(UsageError, match="used after close"):
        ray.step(np.zeros(8, np.int32))
    assert cluster.is_initialized()


@pytest.mark.slow
def test_a_dead_actor_is_told_at_once_though_others_are_slow() -> None:
    params = [{"sleep_s": 8.0, "only": 0}, {"at": 1, "fault": "exit"}]
    ray = Ray(Walk, 2, num_workers=2, params=params)
    ray.reset(0)
    began = time.monotonic()
    with pytest.raises(WorkerError, match="worker 1"):
        ray.step(np.zeros(4, np.int32))
    assert time.monotonic() - began < 5.0


@pytest.mark.slow
def test_an_environment_that_cannot_be_opened_is_told() -> None:
    def broken(**_: Any) -> Any:
        raise FileNotFoundError("no rom")

    with pytest.raises(WorkerError, match=r"worker 0 .*raised FileNotFoundError: no rom"):
        Ray(broken, 2, num_workers=1)
    with pytest.raises(EnvError, match="environment 1 has single_observation_space"):
        Ray([Walk, Count], 2, num_workers=2)


@pytest.mark.slow
def test_lambdas_and_local_classes_are_taken() -> None:
    class Local(Walk):
        def render(self) -> str:
            return "local"

    with Ray([lambda: Walk(offset=50.0), Local], 2, num_workers=1) as ray:
        ray.reset(0)
        assert (ray.observations[:2] > 25).all()
        assert ray.render(1) == "local"


def test_what_cannot_be_sent_is_told() -> None:
    lock = threading.Lock()
    with pytest.raises(OptionError, match=r"can't be sent to another process: TypeError: cannot pickle"):
        Ray(lambda: lock, 2)
    with pytest.raises(OptionError, match="Walk is open already, which can't be sent"):
        Ray(Walk(), 1)
    with pytest.raises(OptionError, match="was given as a capsule"):
        Ray(counter.counter_table(), 2)


@pytest.mark.slow
def test_environments_in_c_are_found_again_in_the_actors() -> None:
    pytest.importorskip("puffer_ocean")
    arguments = {"num_envs": 2, "params": {"num_envs": 3}, "seed": 8}
    with Serial("ocean/squared", **arguments) as serial, Ray("ocean/squared", num_workers=2, **arguments) as ray:
        assert ray.num_envs == 6
        serial.reset(), ray.reset()
        for step in range(30):
            require_same(serial, ray)
            serial.step(actions_for(serial.agent_ids, step))
            ray.step(actions_for(ray.agent_ids, step))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"num_workers": 3}, "num_envs=4 can't be divided among num_workers=3"),
        ({"num_workers": 2, "batch_size": 3}, "batch_size=3 is no whole number of workers"),
        ({"num_workers": 0}, "num_workers=0 is not an integer of at least 1"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(numbers: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Ray(Walk, 4, **numbers)


@pytest.mark.slow
def test_more_actors_than_cpus_run() -> None:
    with Ray(Walk, 5, num_workers=5) as first, Ray(Walk, 2, num_workers=2) as second:
        first.reset(0), second.reset(0)
        assert first.step(np.zeros(10, np.int32))[1].shape == (10,)


def pids_of(ray: Ray, cluster: Any) -> list[int]:
    """Return the processes of a vector's actors."""
    pids: list[int] = cluster.get([actor.__ray_call__.remote(lambda _: os.getpid()) for actor in ray._pool.actors])
    return pids


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(map(psutil.pid_exists, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_actors_are_gone_once_the_vector_is(cluster: Any) -> None:
    vector = Ray(Walk, 2, num_workers=2)
    pids = pids_of(vector, cluster)
    assert len(set(pids)) == 2
    assert all(map(psutil.pid_exists, pids))
    vector.close()
    wait_until_gone(pids)


@pytest.mark.slow
def test_actors_of_a_vector_that_is_dropped_are_gone(cluster: Any) -> None:
    vector = Ray(Walk, 1)
    pids = pids_of(vector, cluster)
    del vector
    gc.collect()
    wait_until_gone(pids)


@pytest.mark.parametrize("timeout", [-1, 0, "x", True])
def test_timeouts_that_are_none_are_refused(timeout: Any) -> None:
    with pytest.raises(OptionError, match="timeout="):
        Ray(Walk, 2, timeout=timeout)


def test_whole_batches_can_not_be_held(whole: Ray) -> None:
    whole.reset(0)
    with pytest.raises(UsageError, match="in partial batches only"):
        whole.send(whole.actions, hold=np.ones(8, np.bool_))
    whole.step(whole.actions)


@pytest.mark.slow
def test_global_generators_of_actors_differ_and_are_the_same_in_every_run() -> None:
    drawn = []
    for _ in range(2):
        with Ray(Facts, 2, num_workers=2, seed=3) as ray:
            drawn.append(ray.reset()[0][:, 2].tolist())
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 2


def test_missing_ray_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raypool, "is_installed", lambda: False)
    with pytest.raises(OptionError, match="backend ray needs Ray, which is missing") as caught:
        Ray(Walk, 2)
    assert caught.value.hint == '`pip install "puffer-core[ray]"`'


@pytest.mark.slow
def test_a_ray_that_a_vector_started_ends_with_the_last_one(tmp_path: Path) -> None:
    script = """
import ray
from puffer_core.vector import Ray
from fakes_ray import Walk

options = {"num_cpus": 1, "log_to_driver": False}
first, second = (Ray(Walk, 1, ray_options=options) for _ in range(2))
first.close()
print(ray.is_initialized(), second.reset(0)[0].shape)
second.close()
print(ray.is_initialized())
ray.init(include_dashboard=False, log_to_driver=False, num_cpus=1)
Ray(Walk, 1).close()
print(ray.is_initialized())
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path
    )
    assert result.stdout.split("\n") == ["True (2, 3)", "False", "True", ""], result.stderr
