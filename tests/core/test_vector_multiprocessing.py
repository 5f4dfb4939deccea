"""Worker processes: the arrays of `Serial`, whatever the split; batches, calls between steps, and what is refused."""

from __future__ import annotations

import os
import time
import warnings
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from counter import counter_table
from fakes_workers import Facts, Picture, Product, Slow, Team, Walk

from puffer_core import vector
from puffer_core.errors import EnvError, OptionError, RenderError, UsageError
from puffer_core.vector import Multiprocessing, Serial
from puffer_core.vector.shared import map_arrays, open_region

ARRAYS = ("observations", "rewards", "terminals", "truncations", "masks", "log", "logged")


def ocean_squared():
    pytest.importorskip("puffer_ocean")
    return "ocean/squared"


KINDS = {
    "single": (lambda: Walk, {}),
    "pictures": (lambda: Picture, {"params": [{"mark": 10 + i} for i in range(8)]}),
    "multi-agent": (lambda: Team, {}),
    "in C": (counter_table, {"params": {"num_envs": 2}}),
    "ocean": (ocean_squared, {}),
}


def actions_of(opened, rng):
    space = opened.single_action_space
    sizes = space.nvec if hasattr(space, "nvec") else space.n
    shape = (opened.num_agents, len(sizes)) if np.ndim(sizes) else opened.num_agents
    return rng.integers(0, sizes, shape).astype(np.int32)


def snapshot(opened, ids=slice(None)):
    """Return copies of the arrays' rows; of last observations and the log only where they mean something."""
    ended = opened.terminals | opened.truncations
    arrays = {name: getattr(opened, name).copy() for name in ARRAYS}
    arrays["final_observations"] = np.where(
        ended.reshape(-1, *[1] * (opened.observations.ndim - 1)), opened.final_observations, 0
    )
    arrays["log"][~arrays["logged"]] = 0
    if opened.action_mask is not None:
        arrays["action_mask"] = opened.action_mask.copy()
    return {name: array[ids] for name, array in arrays.items()}


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    if all(array.tobytes() == wanted[name].tobytes() for name, array in found.items()):
        return
    for name, array in found.items():
        np.testing.assert_array_equal(array, wanted[name], name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("workers", "options", "steps"), [(1, {}, 200), (2, {}, 1000), (4, {}, 200), (8, {"debug": True}, 200)]
)
def test_arrays_are_those_of_serial(kind, workers, options, steps):
    make, settings = KINDS[kind]
    env, rng = make(), np.random.default_rng(3)
    with (
        Serial(env, 8, seed=5, **settings) as serial,
        Multiprocessing(env, 8, num_workers=workers, seed=5, **settings, **options) as split,
    ):
        assert split.log_fields == serial.log_fields
        assert (split.num_envs, split.agents_per_env, split.num_agents) == (
            serial.num_envs,
            serial.agents_per_env,
            serial.num_agents,
        )
        assert split.agents_per_batch == split.num_agents
        assert split.agent_ids.tolist() == list(range(split.num_agents))
        serial.reset(), split.reset()
        for step in range(steps):
            actions = actions_of(serial, rng)
            serial.step(actions), split.step(actions)
            assert_same(snapshot(split), snapshot(serial))
            assert split.infos == serial.infos
            if step % 90 == 89:
                assert split.drain_log() == pytest.approx(serial.drain_log(), nan_ok=True)
        serial.reset(), split.reset()
        assert_same(snapshot(split), snapshot(serial))
        serial.reset(seed=1), split.reset(seed=1)
        assert_same(snapshot(split), snapshot(serial))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("batch", "options"), [(4, {}), (2, {}), (6, {"zero_copy": False}), (4, {"sync_traj": False})])
def test_rows_of_partial_batches_are_those_of_serial(kind, batch, options):
    """Every agent goes through the same steps as in `Serial`, in whichever batches it comes."""
    make, settings = KINDS[kind]
    env, rng = make(), np.random.default_rng(3)
    with Serial(env, 8, seed=5, **settings) as serial:
        serial.reset()
        played = [actions_of(serial, rng) for _ in range(40)]
        wanted = [snapshot(serial)]
        for actions in played:
            serial.step(actions)
            wanted.append(snapshot(serial))
    with Multiprocessing(env, 8, num_workers=4, batch_size=batch, seed=5, **settings, **options) as split:
        per_env = split.num_agents // 8
        assert split.agents_per_batch == batch * per_env
        taken = np.zeros(split.num_agents, int)
        split.async_reset()
        while taken.min() < 40:
            split.recv()
            ids = split.agent_ids.copy()
            found = snapshot(split)
            for row, agent in enumerate(ids):
                at = min(taken[agent], 40)
                if taken[agent] <= 40:
                    for name in found:
                        np.testing.assert_array_equal(found[name][row], wanted[at][name][agent], name)
            split.send(np.stack([played[min(taken[agent], 39)][agent] for agent in ids]))
            taken[ids] += 1


def test_seeds_and_indices_count_on_over_workers():
    with Multiprocessing(Facts, 8, num_workers=4, first_index=100) as opened:
        observations = opened.reset(seed=42)[0]
        assert observations[:, 1].tolist() == [142 + i for i in range(8)]
        pids = observations[:, 0].astype(int).tolist()
        assert [pids[i] for i in (0, 2, 4, 6)] == [pids[i] for i in (1, 3, 5, 7)] == opened.worker_pids
        assert os.getpid() not in pids


def test_global_generators_of_workers_differ_and_are_the_same_in_every_run():
    drawn = []
    for _ in range(2):
        with Multiprocessing(Facts, 2, num_workers=2, seed=7) as opened:
            drawn.append(opened.reset()[0][:, 2].tolist())
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


def test_whole_batches_are_the_same_views_in_every_step():
    with Multiprocessing(Picture, 4, num_workers=2) as opened:
        observations = opened.reset()[0]
        opened.actions[:] = 1
        assert opened.step(opened.actions)[0] is observations
        assert (observations[:, 0] == 1).all()


def test_row_i_is_environment_i():
    params = [{"mark": 20 * i} for i in range(8)]
    with Multiprocessing(Picture, 8, num_workers=4, params=params) as opened:
        opened.reset()
        for _ in range(3):
            opened.step(np.zeros(8, int))
        assert opened.observations[:, 2, 0, 0].tolist() == [20 * i for i in range(8)]
    with Multiprocessing([lambda i=i: Picture(i) for i in range(4)], 4, num_workers=2) as opened:
        assert opened.reset()[0][:, 2, 0, 0].tolist() == [0, 1, 2, 3]


# -- batches ----------------------------------------------------------------------------------------------------------


def blocks_of(opened, count):
    """Return whose rows the next batches are, as environments."""
    blocks = []
    for _ in range(count):
        opened.recv()
        blocks.append(opened.agent_ids.tolist())
        opened.send(np.zeros(opened.agents_per_batch, int))
    return blocks


def test_ring_comes_in_order_whoever_is_slow():
    params = [{"sleep": 0.02}] * 2 + [{}] * 2
    with Multiprocessing(Slow, 4, num_workers=4, batch_size=2, params=params) as opened:
        opened.async_reset()
        assert blocks_of(opened, 4) == [[0, 1], [2, 3]] * 2


def answer_all(opened):
    """Answer batches until every environment has been answered."""
    seen = set()
    while len(seen) < opened.num_envs:
        seen |= set(*blocks_of(opened, 1))


def test_ring_takes_the_block_that_is_ready_without_sync_traj():
    params = [{"sleep": 0.5}] * 2 + [{}] * 2
    with Multiprocessing(Slow, 4, num_workers=4, batch_size=2, params=params, sync_traj=False) as opened:
        opened.async_reset()
        answer_all(opened)
        assert blocks_of(opened, 3) == [[2, 3]] * 3


def test_single_workers_come_as_they_get_ready_without_sync_traj():
    params = [{"sleep": 0.5}, {}, {}]
    with Multiprocessing(Slow, 3, num_workers=3, batch_size=1, params=params, sync_traj=False) as opened:
        opened.async_reset()
        answer_all(opened)
        assert [0] not in blocks_of(opened, 6)


def test_asynchronous_batches_are_the_first_that_are_ready():
    params = [{"mark": i, "sleep": 0.5 if i == 1 else 0.0} for i in range(4)]
    with Multiprocessing(Slow, 4, num_workers=4, batch_size=2, params=params, zero_copy=False) as opened:
        opened.async_reset()
        answer_all(opened)
        for _ in range(5):
            opened.recv()
            ids = opened.agent_ids.tolist()
            assert 1 not in ids
            assert opened.observations[:, 2, 0, 0].tolist() == ids
            opened.send(np.zeros(2, int))


def test_asynchronous_batches_are_copies():
    with Multiprocessing(Picture, 4, num_workers=4, batch_size=3, zero_copy=False) as opened:
        opened.async_reset()
        opened.recv()
        kept = opened.observations
        opened.send(np.zeros(3, int))
        opened.recv()
        assert opened.observations is not kept
        assert (kept[:, 0] == 0).all()


def test_asynchronous_batches_come_in_order_with_sync_traj():
    params = [{"sleep": 0.01 * (4 - i)} for i in range(4)]
    with Multiprocessing(
        Slow, 4, num_workers=4, batch_size=3, params=params, zero_copy=False, sync_traj=True
    ) as opened:
        opened.async_reset()
        assert blocks_of(opened, 4) == [[0, 1, 2], [3, 0, 1], [2, 3, 0], [1, 2, 3]]


def test_partial_views_are_valid_until_their_workers_are_sent_to():
    with Multiprocessing(Picture, 4, num_workers=2, batch_size=2) as opened:
        opened.async_reset()
        opened.recv()
        first = opened.observations
        opened.send(np.zeros(2, int))
        opened.recv()
        opened.send(np.zeros(2, int))
        opened.recv()
        assert np.shares_memory(opened.observations, first)
        assert (first[:, 0] == 1).all()


def test_debug_mode_poisons_what_is_stale(monkeypatch):
    monkeypatch.setenv("PUFFER_DEBUG", "1")
    with Multiprocessing(Picture, 2, num_workers=1) as opened:
        kept = opened.reset()[0]
        rewards = opened.rewards
        opened.step(np.zeros(2, int))
        assert (kept == 0xA5).all()
        assert (np.abs(rewards) < 1e-10).all()
        assert (rewards != 0).all()
        assert (opened.observations[:, 0] == 1).all()


def test_actions_of_a_partial_batch_reach_its_agents():
    with Multiprocessing(Team, 4, num_workers=4, batch_size=3, zero_copy=False) as opened:
        opened.async_reset()
        answered = np.zeros(8, bool)
        for _ in range(6):
            opened.recv()
            assert (opened.rewards == opened.agent_ids % 3 * answered[opened.agent_ids]).all()
            opened.actions[:, 0] = opened.agent_ids % 3
            opened.actions[:, 1] = 0
            opened.send(opened.actions)
            answered[opened.agent_ids] = True


def test_held_agents_are_answered_later():
    with Multiprocessing(Picture, 4, num_workers=4, batch_size=2) as opened:
        opened.async_reset()
        opened.recv()
        opened.send(np.zeros(2, int), hold=np.array([True, False]))
        opened.recv()
        assert opened.agent_ids.tolist() == [2, 3]
        opened.send(np.zeros(2, int))
        opened.recv()
        assert opened.agent_ids.tolist() == [1]
        assert (opened.observations[:, 0] == 1).all()
        opened.send_held(np.zeros(1, int))
        opened.send(np.zeros(1, int))
        assert sorted(chain(*blocks_of(opened, 2))) == [0, 1, 2, 3]


def test_part_of_a_worker_or_of_a_whole_batch_can_not_be_held():
    with Multiprocessing(Picture, 4, num_workers=2, batch_size=2) as opened:
        opened.async_reset()
        opened.recv()
        with pytest.raises(UsageError, match="all of a worker's or none"):
            opened.send(np.zeros(2, int), hold=np.array([True, False]))
    with Multiprocessing(Picture, 4, num_workers=2) as opened:
        opened.reset()
        with pytest.raises(UsageError, match="in partial batches only"):
            opened.send(np.zeros(4, int), hold=np.array([True, True, False, False]))


# -- order of calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"batch_size": 1}, {"batch_size": 1, "zero_copy": False}])
def test_calls_out_of_order_are_refused_and_harmless(options):
    opened = Multiprocessing(Picture, 2, num_workers=2, **options)
    rows = opened.agents_per_batch
    with pytest.raises(UsageError, match="reset before stepping"):
        opened.recv()
    with pytest.raises(UsageError, match="reset and recv before sending"):
        opened.step(np.zeros(rows, int))
    opened.async_reset()
    with pytest.raises(UsageError, match="actions were sent already: recv first"):
        opened.send(np.zeros(rows, int))
    opened.recv()
    with pytest.raises(UsageError, match="received already: send actions first"):
        opened.recv()
    opened.send(np.zeros(rows, int))
    with pytest.raises(UsageError, match="actions were sent already"):
        opened.send(np.zeros(rows, int))
    with pytest.raises(UsageError, match="no agent is held"):
        opened.send_held(np.zeros(rows, int))
    opened.recv()
    opened.close()
    opened.close()
    for call in (
        opened.reset,
        opened.recv,
        opened.drain_log,
        opened.save,
        opened.render,
        lambda: opened.step(np.zeros(rows, int)),
        lambda: opened.set_params(limit=1),
        lambda: opened.load({}),
    ):
        with pytest.raises(UsageError, match="used after close"):
            call()


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"batch_size": 2, "zero_copy": False}])
def test_reset_is_legal_at_any_time(options):
    with Multiprocessing(Picture, 4, num_workers=4, **options) as opened:
        opened.async_reset(seed=1)
        opened.async_reset(seed=1)
        for calls in range(4):
            opened.recv()
            for _ in range(calls):
                opened.send(np.zeros(opened.agents_per_batch, int))
                opened.recv()
            if calls % 2:
                opened.send(np.zeros(opened.agents_per_batch, int))
            opened.async_reset(seed=1)
        opened.recv()
        assert (opened.observations[:, 0] == 0).all()


def test_wrong_actions_are_refused_before_any_worker_steps():
    with Multiprocessing(Picture, 4, num_workers=2, strict=True) as opened:
        opened.reset()
        with pytest.raises(EnvError, match=r"actions are int64 \(3,\), needed are int32 \(4,\)"):
            opened.step(np.zeros(3, int))
        with pytest.raises(EnvError, match="agent 3, head 0: action 2 is not from 0 to 1"):
            opened.step(np.array([0, 0, 0, 2]))
        opened.step(np.zeros(4, int))
        assert (opened.observations[:, 0] == 1).all()


# -- calls between steps ----------------------------------------------------------------------------------------------


def test_params_change_in_every_worker():
    with Multiprocessing(Team, 4, num_workers=2) as opened:
        opened.reset()
        opened.set_params(limit=2)
        opened.reset()
        for _ in range(2):
            opened.step(np.zeros((8, 2), int))
        assert opened.terminals.tolist() == [True, False] * 4
        with pytest.raises(OptionError, match="Team has no parameters that change while running: speed") as caught:
            opened.set_params(speed=2)
        assert "environment 0 in worker 0" in str(caught.value)
        opened.step(np.zeros((8, 2), int))


def test_pictures_are_drawn_by_the_worker():
    with Multiprocessing(Picture, 4, num_workers=2, params=[{"mark": i} for i in range(4)]) as opened:
        opened.reset()
        assert opened.render(2).shape == (4, 3, 3)
        opened.send(np.zeros(4, int))
        assert opened.render(3)[:, 0, 0].tolist() == [1, 3, 3, 3]
        opened.recv()
        assert (opened.observations[:, 0] == 1).all()
        with pytest.raises(OptionError, match="index=4 is not an integer from 0 to 3"):
            opened.render(4)
    with Multiprocessing(Team, 2, num_workers=2) as opened:
        opened.reset()
        with pytest.raises(RenderError, match="Team does not render"):
            opened.render(1)


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"batch_size": 2, "zero_copy": False}])
def test_log_can_be_drained_while_workers_are_at_work(options):
    with Multiprocessing(Team, 4, num_workers=4, **options) as opened:
        opened.async_reset()
        assert opened.drain_log() is None
        episodes = 0
        for _ in range(60):
            opened.recv()
            opened.send(np.ones((opened.agents_per_batch, 2), int))
            means = opened.drain_log()
            if means:
                episodes += int(means["n"])
                assert means["episode_return"] == means["episode_length"] == means["length"] == 5
        assert episodes > 20


def test_a_seeded_reset_forgets_what_was_logged():
    with Multiprocessing(Team, 2, num_workers=2) as opened:
        opened.reset(seed=1)
        for _ in range(7):
            opened.step(np.ones((4, 2), int))
        opened.reset(seed=1)
        assert opened.drain_log() is None


@pytest.mark.parametrize("kind", ["multi-agent", "in C"])
def test_states_are_those_of_serial_and_restore_into_any_split(kind):
    make, settings = KINDS[kind]
    env, rng = make(), np.random.default_rng(0)
    with Serial(env, 4, **settings) as serial, Multiprocessing(env, 4, num_workers=4, **settings) as split:
        serial.reset(seed=3), split.reset(seed=3)
        for _ in range(7):
            actions = actions_of(serial, rng)
            serial.step(actions), split.step(actions)
        state = split.save()
        assert state == serial.save()
        later = [actions_of(serial, rng) for _ in range(20)]
        wanted = []
        for actions in later:
            serial.step(actions)
            wanted.append(snapshot(serial))
    with Multiprocessing(env, 4, num_workers=2, **settings) as again:
        again.load(state)
        for actions, rows in zip(later, wanted, strict=True):
            again.step(actions)
            assert_same(snapshot(again), rows)


def test_a_state_that_is_restored_is_shown_in_debug_mode():
    with Multiprocessing(Team, 4, num_workers=2, debug=True) as opened:
        opened.reset(1)
        state, wanted = opened.save(), opened.observations.copy()
        opened.step(np.ones((8, 2), np.int32))
        opened.load(state)
        np.testing.assert_array_equal(opened.observations, wanted)


def test_what_to_hold_may_be_a_list_and_must_fit():
    with Multiprocessing(Picture, 4, num_workers=4, batch_size=2) as opened:
        opened.async_reset(0)
        opened.recv()
        for hold in ([True], [1, 0], "yes"):
            with pytest.raises(UsageError, match="not bool of shape"):
                opened.send(opened.actions, hold=hold)
        opened.send(opened.actions, hold=[True, False])
        assert opened.recv()[5].tolist() == [2, 3]


def test_states_that_can_not_be_saved_or_do_not_fit():
    with Multiprocessing(Walk, 2, num_workers=2) as opened:
        opened.reset()
        assert opened.save() is None
    with Multiprocessing(Team, 4, num_workers=4, batch_size=2) as opened:
        opened.async_reset()
        assert opened.save() is None
        with pytest.raises(EnvError, match="can't be restored into partial batches"):
            opened.load({})
    with Multiprocessing(Team, 4, num_workers=2) as opened:
        opened.reset()
        state = opened.save()
        with (
            Multiprocessing(Team, 2, num_workers=2) as smaller,
            pytest.raises(EnvError, match="has 4 environments, not 2"),
        ):
            smaller.load(state)


# -- opening ----------------------------------------------------------------------------------------------------------


def test_make_knows_it_by_name_and_by_class():
    for backend in ("multiprocessing", Multiprocessing):
        with vector.make(Walk, 4, backend, num_workers=2, timeout=30, start_method="fork") as opened:
            assert opened.backend == "multiprocessing"
            assert opened.backend_note.startswith("multiprocessing: 4 x Walk in 2 process(es), 4 in a batch")
            assert opened.limits == ()


def test_auto_chooses_it_where_workers_or_batches_are_asked_for():
    for options in ({"num_workers": 2}, {"batch_size": 2}, {"zero_copy": False}):
        with vector.make(counter_table(), 4, **options) as opened:
            assert opened.backend == "multiprocessing"
            opened.reset()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_workers": 3}, "num_envs=4 can't be divided among num_workers=3"),
        ({"num_workers": 2, "batch_size": 3}, "batch_size=3 is no whole number of workers"),
        ({"start_method": "thread"}, "start_method='thread' is not one of auto, fork, spawn, forkserver"),
        ({"timeout": 0}, "timeout=0 is not a number of seconds above 0, or None"),
        ({"timeout": "soon"}, "timeout='soon' is not a number of seconds above 0, or None"),
        ({"params": [{}] * 3}, "3 parameter sets were given for num_envs=4"),
    ],
)
def test_illegal_options_are_refused_before_any_worker_starts(options, words, monkeypatch):
    monkeypatch.setattr("puffer_core.vector.processes.Processes.start", None)
    with pytest.raises(OptionError, match=words):
        Multiprocessing(Walk, 4, **options)


def test_backends_without_workers_refuse_their_options():
    with pytest.raises(OptionError, match="backend serial takes no timeout") as caught:
        vector.make(Walk, 2, "serial", timeout=3)
    assert caught.value.hint == "multiprocessing does"
    with vector.make(Walk, 2, timeout=3) as opened:
        assert opened.backend == "serial"


def test_more_workers_than_cores_work():
    with Multiprocessing(Picture, 16, num_workers=16) as opened:
        opened.reset()
        for _ in range(20):
            opened.step(np.zeros(16, int))
        assert (opened.observations[:, 0] == 20).all()


def test_workers_have_one_thread_and_no_input():
    np.ones((400, 400)) @ np.ones((400, 400))
    with Multiprocessing(Product, 2, num_workers=2) as opened:
        opened.reset()
        opened.step(np.zeros(2, int))
        for pid in opened.worker_pids:
            assert "Threads:\t1\n" in Path(f"/proc/{pid}/status").read_text()
            assert Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull)


def test_warnings_of_an_environment_do_not_stop_its_worker():
    class Warns(Picture):
        def step(self, action):
            warnings.warn("careful", stacklevel=1)
            return super().step(action)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = Multiprocessing(Warns, 2, num_workers=2)
    with opened:
        opened.reset()
        opened.step(np.zeros(2, int))


def test_infos_of_any_size_come_whole():
    class Talks(Picture):
        def step(self, action):
            return *super().step(action)[:4], {"text": "x" * (300_000 * self.tick), "mark": self.mark}

    with Multiprocessing(Talks, 4, num_workers=2, params=[{"mark": i} for i in range(4)]) as opened:
        opened.reset()
        for step in (1, 2):
            infos = opened.step(np.zeros(4, int))[4]
            assert [info["mark"] for info in infos] == [0, 1, 2, 3]
            assert {len(info["text"]) for info in infos} == {300_000 * step}


# -- memory -----------------------------------------------------------------------------------------------------------

LAYOUT = {"first": ((3,), np.uint8), "second": ((2, 5), np.float64), "none": ((0, 4), np.int32)}


@pytest.mark.parametrize("has_anonymous_files", [True, False])
def test_arrays_of_a_region_are_aligned_apart_and_seen_by_all(has_anonymous_files, monkeypatch):
    if not has_anonymous_files:
        monkeypatch.delattr(os, "memfd_create")
    before = set(Path("/dev/shm").iterdir())
    region = open_region(LAYOUT, "test")
    assert set(Path("/dev/shm").iterdir()) == before
    arrays, again = map_arrays(region, LAYOUT), map_arrays(region, LAYOUT)
    os.close(region)
    for value, (name, (shape, dtype)) in enumerate(LAYOUT.items(), start=1):
        assert (arrays[name].shape, arrays[name].dtype) == (shape, dtype)
        assert arrays[name].ctypes.data % 64 == 0 or not arrays[name].size
        arrays[name].fill(value)
    for value, name in enumerate(LAYOUT, start=1):
        assert (again[name] == value).all()


def test_too_little_memory_is_told_before_any_worker_starts(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr("puffer_core.vector.processes.Processes.start", None)
    with pytest.raises(OptionError, match=r"Picture: .* need [\d,]+ bytes, available of memory are 1,000") as caught:
        Multiprocessing(Picture, 1000, num_workers=2)
    assert caught.value.hint == "use fewer environments"


def test_too_small_a_file_system_is_told_before_any_worker_starts(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    monkeypatch.setattr("puffer_core.vector.processes.Processes.start", None)
    with pytest.raises(OptionError, match=r"need [\d,]+ bytes, available in /dev/shm are 100"):
        Multiprocessing(Picture, 4, num_workers=2)


def test_everything_works_without_anonymous_files(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with Multiprocessing(Picture, 4, num_workers=2) as opened:
        opened.reset()
        assert (opened.step(np.zeros(4, int))[0][:, 0] == 1).all()


# -- long -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_idle_vector_costs_nothing():
    import psutil

    with Multiprocessing(Picture, 4, num_workers=2) as opened:
        opened.reset()
        opened.send(np.zeros(4, int))
        time.sleep(0.5)
        processes = [psutil.Process(pid) for pid in [os.getpid(), *opened.worker_pids]]
        before = [sum(process.cpu_times()[:2]) for process in processes]
        time.sleep(5)
        used = sum(sum(process.cpu_times()[:2]) for process in processes) - sum(before)
    assert used < 0.05


@pytest.mark.slow
def test_resident_memory_is_flat_over_20000_episodes():
    import psutil

    class Short(Walk):
        def step(self, action):
            observation, reward, *_ = super().step(action)
            return observation, reward, True, False, {"bonus": 1.0}

    with Multiprocessing(Short, 4, num_workers=2) as opened:
        opened.reset()
        processes = [psutil.Process(pid) for pid in [os.getpid(), *opened.worker_pids]]
        sizes = []
        for steps in (1000, 5000):
            for _ in range(steps):
                opened.step(np.zeros(4, int))
            opened.drain_log()
            sizes.append([process.memory_info().rss for process in processes])
    assert (np.subtract(sizes[1], sizes[0]) < 1 << 20).all()
