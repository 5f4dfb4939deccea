"""`make`, the choice of a backend, the order of calls, and the native backend."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from counter import counter_table

from puffer_core import vector
from puffer_core.config import BaseConfig, Config, VecConfig
from puffer_core.errors import EnvError, OptionError, PluginError, UnknownNameError, UsageError
from puffer_core.place import Place
from puffer_core.plugins import manager
from puffer_core.specs import BackendSpec, EnvSpec, VectorJob
from puffer_core.vector import native
from puffer_core.vector.native import auto_threads

ONES = np.ones((6, 2), np.int32)


@pytest.fixture
def table():
    return counter_table()


@pytest.fixture
def opened(table):
    with vector.make(table, num_envs=3, params={"start": "zero"}) as opened:
        yield opened


def test_arrays_are_those_of_the_environment(opened):
    observations, infos = opened.reset(seed=1)
    assert infos == []
    assert observations is opened.observations is opened.env.observations
    assert (opened.num_envs, opened.agents_per_env, opened.num_agents) == (3, 2, 6)
    assert opened.action_mask is opened.env.action_mask
    assert opened.log.shape == (6, 5)
    assert opened.log_fields[0] == "score"
    assert opened.agent_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert opened.action_space.shape == (6, 2)
    assert opened.observation_space.shape == (6, 2)


def test_step_is_send_and_recv(opened):
    opened.reset(seed=1)
    by_step = [array.copy() for array in opened.step(ONES)[:4]]
    opened.async_reset(seed=1)
    opened.recv()
    opened.send(ONES)
    observations, rewards, terminals, truncations, infos, agent_ids, masks = opened.recv()
    for one, other in zip(by_step, (observations, rewards, terminals, truncations), strict=True):
        assert np.array_equal(one, other)
    assert infos == []
    assert agent_ids.tolist() == list(range(6))
    assert masks.all()


@pytest.mark.parametrize("backend", ["native", "serial"])
def test_calls_out_of_order_are_refused(table, backend):
    opened = vector.make(table, num_envs=3, backend=backend)
    with pytest.raises(UsageError, match="counter: reset before stepping"):
        opened.recv()
    for call in (opened.step, opened.send):
        with pytest.raises(UsageError, match="reset and recv before sending"):
            call(ONES)
    opened.async_reset(seed=1)
    with pytest.raises(UsageError, match="actions were sent already: recv first"):
        opened.send(ONES)
    opened.recv()
    with pytest.raises(UsageError, match="received already: send actions first"):
        opened.recv()
    opened.send(ONES)
    opened.async_reset(seed=1)
    opened.recv()


@pytest.mark.parametrize("backend", ["native", "serial"])
def test_use_after_close_is_refused(table, backend):
    opened = vector.make(table, num_envs=3, backend=backend)
    opened.reset(seed=1)
    opened.close()
    opened.close()
    for use in (
        opened.reset,
        lambda: opened.step(ONES),
        opened.drain_log,
        opened.save,
        lambda: opened.render(0, "ansi"),
    ):
        with pytest.raises(UsageError, match="used after close"):
            use()


def test_wrong_actions_are_refused(opened):
    opened.reset(seed=1)
    with pytest.raises(EnvError, match=r"counter: actions are int32 \(6,\), needed are int32 \(6, 2\)"):
        opened.step(np.ones(6, np.int32))


def test_log_parameters_and_pictures_pass_through(opened):
    opened.reset(seed=1)
    opened.set_params(bonus=1)
    for _ in range(10):
        opened.step(ONES)
    means = opened.drain_log()
    assert (means["score"], means["n"]) == (3.75, 12)
    assert opened.render(2, "ansi") == "counter: tick 0\n"


def test_saved_state_goes_on(opened, table):
    opened.reset(seed=1)
    for _ in range(7):
        opened.step(ONES)
    state = opened.save()
    with vector.make(table, num_envs=3, params={"start": "zero"}) as other:
        other.load(state)
        assert np.array_equal(other.observations, opened.observations)
        assert np.array_equal(other.step(ONES)[0], opened.step(ONES)[0])
        with pytest.raises(EnvError, match="the saved state has"):
            other.load({"env.0": state["env"]})


def test_bare_reset_begins_with_the_vectors_seed_and_goes_on(table):
    with vector.make(table, num_envs=3, seed=5) as one, vector.make(table, num_envs=3) as other:
        assert np.array_equal(one.reset()[0], other.reset(seed=5)[0])
        first = one.observations.copy()
        assert np.array_equal(one.reset()[0], other.reset()[0])
        assert not np.array_equal(one.observations, first)


def test_instances_are_one_vector_whatever_the_factor(table):
    with vector.make(table, num_envs=2, params={"num_envs": 3}) as one, vector.make(table, num_envs=6) as other:
        assert one.num_envs == 6
        assert np.array_equal(one.reset(seed=3)[0], other.reset(seed=3)[0])


def test_first_index_splits_a_population(table):
    with vector.make(table, num_envs=2, first_index=4) as part, vector.make(table, num_envs=6) as whole:
        assert np.array_equal(part.reset(seed=3)[0], whole.reset(seed=3)[0][8:])


def test_auto_picks_native_for_c_and_says_so(table, opened):
    assert isinstance(opened, vector.Native)
    assert opened.backend == "native"
    assert opened.backend_note == "native: 3 instances of counter in C on 1 thread(s) (auto)"
    with vector.make(table, num_envs=3, backend="serial") as other:
        assert other.backend_note == "serial: 3 x counter, one after the other in this process"
    with vector.make(table, backend=vector.Serial) as other:
        assert isinstance(other, vector.Serial)


def test_threads_are_chosen_by_rows(table, monkeypatch):
    monkeypatch.setattr("puffer_core.vector.native.cores", lambda: 4)
    source = vector.source_of(table)
    assert [auto_threads(source, n) for n in (1, 511, 512, 4096)] == [1, 1, 2, 4]
    monkeypatch.setattr(native, "place", lambda: Place(local_world_size=3))  # ranks share the cores
    assert [auto_threads(source, n) for n in (1, 512, 4096)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        ({"num_envs": 0}, "num_envs=0 is not an integer of at least 1", None),
        ({"num_envs": 2.5}, "num_envs=2.5 is not an integer", None),
        ({"num_workers": 0}, "num_workers=0 is not an integer of at least 1", None),
        ({"num_envs": 8, "num_workers": 7}, "num_envs=8 can't be divided among num_workers=7", "can be 4 or 8"),
        (
            {"num_envs": 8, "num_workers": 4, "batch_size": 3},
            "batch_size=3 is no whole number of workers with 2 of num_envs=8 each",
            "can be 2 or 4",
        ),
        ({"num_envs": 8, "num_workers": 4, "batch_size": 10}, "batch_size=10 is more than num_envs=8", "can be 8"),
        (
            {"num_envs": 8, "num_workers": 4, "batch_size": 6},
            "num_envs=8 is no multiple of batch_size=6, which zero_copy needs",
            "can be 4 or 8",
        ),
        (
            {"num_envs": 4, "num_workers": 2, "backend": "native"},
            "backend native can't run counter: it has no workers for num_workers=2",
            None,
        ),
        (
            {"num_envs": 4, "num_workers": 2, "backend": "serial"},
            "backend serial can't run counter: it has no workers for num_workers=2",
            None,
        ),
        ({"zero_copy": False, "backend": vector.Native}, "backend native can't run counter: .* zero_copy=False", None),
        ({"zero_copy": False, "backend": vector.Serial}, "backend serial can't run counter: .* zero_copy=False", None),
        ({"num_threads": 0}, "num_threads=0 is not an integer from 1 to 256", None),
        ({"params": {"limit": 4}}, "limit=4 is not legal", None),
        ({"limit": 4}, "limit=4 is not legal", None),
        ({"params": {"num_envs": 0}}, "num_envs=0", None),
    ],
)
def test_bad_numbers_name_the_nearest_legal_ones(table, arguments, words, hint):
    with pytest.raises(OptionError, match=words) as caught:
        vector.make(table, **arguments)
    assert hint is None or hint in caught.value.hint


@pytest.mark.parametrize(("num_workers", "batch_size"), [(4, 4), (4, 8), (4, 2)])
def test_good_splits_pass_the_check(num_workers, batch_size):
    vector.check_counts(8, num_workers, batch_size, zero_copy=True)


@pytest.mark.parametrize("backend", ["auto", "native", "serial", vector.Native, vector.Serial])
def test_a_batch_of_everything_is_no_split(table, backend):
    with vector.make(table, np.int64(3), backend, num_workers=np.int32(1), batch_size=np.int64(3)) as opened:
        assert opened.num_envs == 3
        assert isinstance(opened, vector.Native) == (backend not in ("serial", vector.Serial))


def broken_supports(job: VectorJob) -> str | None:
    raise RuntimeError("no driver")


BROKEN = [
    BackendSpec("cluster", make="elsewhere:Cluster", priority=99, supports="test_vector_native:broken_supports"),
    BackendSpec("missing", make="no_such_module:Missing", priority=98),
]


def test_a_broken_backend_stops_only_those_who_name_it(table, monkeypatch):
    registry = manager().backends
    specs = {spec.name: spec for spec in (*registry.specs(), *BROKEN)}
    fake = SimpleNamespace(get=specs.__getitem__, specs=lambda: list(specs.values()))
    monkeypatch.setattr("puffer_core.plugins.manager", lambda: SimpleNamespace(backends=fake))
    with vector.make(table) as opened:
        assert isinstance(opened, vector.Native)
    with pytest.raises(RuntimeError, match="no driver"):
        vector.make(table, backend="cluster")
    with pytest.raises(PluginError, match="no_such_module"):
        vector.make(table, backend="missing")
    del specs["multiprocessing"], specs["ray"]
    with pytest.raises(OptionError, match="cluster: it can't be asked: RuntimeError: no driver"):
        vector.make(table, num_envs=4, num_workers=2)


def test_native_is_for_c_only_and_unknown_backends_are_refused(table):
    with pytest.raises(OptionError, match="backend native can't run dict: it runs environments in C only"):
        vector.make(dict, backend="native")
    with pytest.raises(OptionError, match="dict is not an environment in C"):
        vector.Native(dict)
    with pytest.raises(UnknownNameError, match="nativ"):
        vector.make(table, backend="nativ")
    with pytest.raises(OptionError, match="7 is no environment"):
        vector.make(7)


def test_describe_reads_the_table(table):
    observation, action, agents, capsule = vector.describe(table)
    assert (observation.shape, action.shape, agents) == ((2,), (2,), 2)
    assert capsule is table


# -- from a configuration ---------------------------------------------------------------------------------------------

SPEC = EnvSpec("test/counter", table="counter:TABLE")
PYTHON = EnvSpec("test/walk", make="test_vector_serial:Walk")


@pytest.mark.parametrize(
    ("env", "num_envs", "objects"),
    [({}, 6, 1), ({"num_envs": "auto"}, 6, 1), ({"num_envs": 3}, 6, 2), ({"num_envs": 4}, 6, 1)],
)
def test_instances_in_c_are_put_into_objects_of_as_many_as_configured(env, num_envs, objects):
    for backend in ("auto", "serial"):
        with vector.open_vector(Config(env=env, vec=VecConfig(backend=backend)), SPEC, num_envs=num_envs) as opened:
            assert opened.num_envs == num_envs
            assert opened.name == "test/counter"
            if backend == "serial":
                assert [member.env.num_envs for member in opened.members] == [num_envs // objects] * objects


def test_a_configured_batch_size_reaches_the_backend():
    vec = VecConfig(batch_size=2, backend="serial")
    with pytest.raises(OptionError, match="no workers for batch_size=2 of num_envs=4"):
        vector.open_vector(Config(vec=vec), PYTHON, num_envs=4)


def make_member(name, size=2):
    from test_vector_serial import Pair

    return Pair(limit=size + len(name))


FAMILY = EnvSpec("test/*", make="test_vector_native:make_member", list="test_vector_native:make_member")


def test_an_environment_of_a_family_gets_its_name_and_no_buffers():
    with vector.open_vector(Config(env={"size": 3}), FAMILY, name="test/abc", num_envs=2) as opened:
        assert [member.env.limit for member in opened.members] == [6, 6]
    with pytest.raises(OptionError, match=r"`test/\*` is a family of environments") as caught:
        vector.make(FAMILY)
    assert "`puffer envs test/`" in caught.value.hint


def test_a_configuration_gives_parameters_seed_and_strictness(table):
    config = Config(BaseConfig(seed=9), VecConfig(strict=True, num_threads=2), env={"limit": 3, "num_envs": 700})
    with vector.open_vector(config, SPEC, first_index=5, num_envs=2) as opened:
        assert (opened.num_envs, opened.env.num_threads, opened.env.params["limit"]) == (2, 2, 3)
        with vector.make(table, num_envs=7) as other:
            assert np.array_equal(opened.reset()[0], other.reset(seed=9)[0][10:])
        with pytest.raises(EnvError, match="is not from 0 to 2"):
            opened.step(np.full((4, 2), 3))


def test_environments_in_python_are_as_many_as_planned():
    with vector.open_vector(Config(vec=VecConfig(num_envs=3)), PYTHON, num_envs=2) as opened:
        assert opened.num_envs == 2


def test_a_misspelt_parameter_in_a_configuration_is_refused():
    with pytest.raises(OptionError, match="counter has no parameter `limitt`"):
        vector.open_vector(Config(env={"limitt": 3}), SPEC, num_envs=1)
