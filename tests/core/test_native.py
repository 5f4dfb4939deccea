"""`NativeEnv`, with the environment of `counter.c`; the P-tests of puffer-ocean run over real ones."""

from __future__ import annotations

import ctypes as ct
import os

import numpy as np
import pytest
from counter import AGENTS, capsule_of, counter_table

from puffer_core import abi
from puffer_core.errors import EnvError, OptionError, PluginError, RenderError, UsageError
from puffer_core.native import NativeEnv, Param, spaces_of, table_params, validate_params

ONES = np.ones((AGENTS, 2), np.int32)


@pytest.fixture
def table():
    return counter_table()


@pytest.fixture
def env(table):
    with NativeEnv(table, {"start": "zero"}, seed=1) as env:
        env.reset(seed=1)
        yield env


# -- what the table says ----------------------------------------------------------------------------------------------


def test_parameters_come_from_the_table(table):
    params = {param.name: param for param in table_params(table)}
    assert list(params) == ["limit", "bonus", "start", "absent", "title"]
    assert params["limit"].legal == "an integer from 3 to 99 in steps of 2"
    assert params["bonus"].legal == "a number from 0 to 2"
    assert params["start"].legal == "one of zero, random"
    assert [params[name].live for name in ("limit", "bonus")] == [False, True]
    assert params["title"].help == "What the text view begins with."


def test_validation_fills_in_defaults_and_types(table):
    values = validate_params(table, {"limit": np.int64(7), "bonus": 1, "absent": 1})
    assert values == {"limit": 7, "bonus": 1.0, "start": "random", "absent": True, "title": "counter"}
    assert [type(value) for value in values.values()] == [int, float, str, bool, str]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"limit": 101}, "limit=101 is not legal: an integer from 3 to 99 in steps of 2"),
        ({"limit": 1}, "limit=1 is not legal"),
        ({"limit": 4}, "limit=4 is not legal"),
        ({"limit": 5.5}, "limit=5.5"),
        ({"limit": "5"}, "limit='5'"),
        ({"limit": True}, "limit=True"),
        ({"limit": 10**400}, "limit=10000"),
        ({"bonus": float("nan")}, "bonus=nan is not legal: a number from 0 to 2"),
        ({"bonus": 10**400}, "bonus=10000"),
        ({"start": "two"}, "start='two' is not legal: one of zero, random"),
        ({"start": 1}, "start=1"),
        ({"absent": 2}, "absent=2 is not legal: true or false"),
        ({"title": 3}, "title=3 is not legal: a text"),
        ({"title": "a\0b"}, "title="),
        ({"limit": 99, "bonus": 2}, "counter: limit=99 with bonus=2 counts too far"),
    ],
)
def test_illegal_parameters_are_refused_with_value_and_range(table, params, words):
    with pytest.raises(OptionError, match=words):
        NativeEnv(table, params)


def test_a_float_has_steps_where_the_table_says_so():
    param = Param("gain", "float", 0.0, -1.0, 1.0, 0.1, (), False, "")
    assert param.legal == "a number from -1 to 1 in steps of 0.1"
    assert [abi.check_value("toy", param, value) for value in (-1, 0.3, 0.7000000000000001)] == [
        -1.0,
        0.3,
        0.7000000000000001,
    ]
    with pytest.raises(OptionError, match=r"toy: gain=0.35 is not legal: a number from -1 to 1 in steps of 0.1"):
        abi.check_value("toy", param, 0.35)


def test_a_host_with_more_members_reads_what_the_writer_has(table, monkeypatch):
    class Table(abi.Table):
        _fields_ = (("later", ct.c_void_p * 4),)

    class ParamRow(abi.ParamRow):
        _fields_ = (("later", ct.c_void_p),)

    class Spaces(abi.Spaces):
        _fields_ = (("later", ct.c_int32 * 8),)

    class IO(abi.IO):
        _fields_ = (("later", ct.c_void_p * 4),)

    for cls in (Table, ParamRow, Spaces, IO):
        monkeypatch.setattr(abi, cls.__name__, cls)
    assert list(abi.open_table(table).later) == [None] * 4
    assert [param.name for param in table_params(table)] == ["limit", "bonus", "start", "absent", "title"]
    with NativeEnv(table, {"start": "zero"}) as env:
        env.reset(seed=1)
        env.step(ONES)
        assert env.rewards.tolist() == [0.5, 0.5]


def test_the_sizes_of_version_1_stay_what_they_were():
    structs = {"table": abi.Table, "io": abi.IO, "param": abi.ParamRow, "spaces": abi.Spaces}
    assert all(ct.sizeof(structs[name]) >= least for name, least in abi.SIZES.items())


@pytest.mark.parametrize(("name", "size"), [("table", 300), ("io", 8), ("param", 71), ("spaces", 1 << 17)])
def test_a_table_of_other_sizes_is_refused(table, name, size):
    copied = abi.Table.from_buffer_copy(abi.open_table(table))
    setattr(copied, f"{name}_size", size)
    with pytest.raises(PluginError, match=f"counter: {name}_size is {size}, this core knows"):
        abi.open_table(capsule_of(ct.addressof(copied)))


@pytest.mark.parametrize("heads", [-1, 0, 33])
def test_a_number_of_heads_that_is_not_allowed_is_refused(table, heads):
    opened, own = abi.open_table(table), abi.open_table(table).spaces

    def spaces(values, block):
        own(values, block)
        abi.Spaces.from_address(block).num_heads = heads

    opened.spaces = type(own)(spaces)
    with pytest.raises(EnvError, match=f"counter declares {heads} action heads, not 1 to 32"):
        abi.spaces_of_table(opened, validate_params(table, {}))


def test_an_unknown_parameter_gets_the_closest_name(table):
    with pytest.raises(OptionError, match="counter has no parameter `limmit`") as caught:
        validate_params(table, {"limmit": 5})
    assert caught.value.hint == "did you mean `limit`?"


def test_spaces_are_data(table):
    observation, action, agents, mask_width = spaces_of(table)
    assert (observation.shape, observation.dtype, agents, mask_width) == ((2,), np.float32, 2, 5)
    assert action.nvec.tolist() == [3, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_envs": 0}, "num_envs=0 is not an integer from 1 to 1048576"),
        ({"num_envs": 2**20 + 1}, "num_envs=1048577"),
        ({"num_envs": 2.0}, "num_envs=2.0"),
        ({"seed": -1}, "seed=-1 is not an integer from 0"),
        ({"seed": 2**63}, "seed=9223372036854775808"),
        ({"num_threads": 257}, "num_threads=257 is not an integer from 1 to 256"),
        ({"num_threads": True}, "num_threads=True"),
        ({"first_index": -1}, "first_index=-1"),
        ({"strict": "yes"}, "strict='yes' is not true or false"),
        ({"render_mode": "svg"}, "render_mode='svg' is not one of human, rgb_array, ansi"),
    ],
)
def test_illegal_arguments_are_refused_with_value_and_range(table, arguments, words):
    with pytest.raises(OptionError, match=words):
        NativeEnv(table, **arguments)


# -- stepping ---------------------------------------------------------------------------------------------------------


def test_step_writes_in_place_and_returns_its_own_arrays(env):
    result = env.step(ONES)
    for got, name in zip(result, ("observations", "rewards", "terminals", "truncations"), strict=False):
        assert got is getattr(env, name)
    assert result[4] == []
    assert env.observations.tolist() == [[1, 1], [1, 1]]
    assert env.rewards.tolist() == [0.5, 0.5]


def test_actions_written_into_the_own_array_need_no_copy(env):
    env.actions[...] = 2
    env.step(env.actions)
    assert env.observations[:, 1].tolist() == [2, 2]


def test_illegal_actions_are_replaced_and_counted(env):
    for action in (-1, 3, 2**31 - 1, -(2**31), 1):
        env.step(np.full((AGENTS, 2), action, np.int32))
    assert env.log[:, 4].tolist() == [4, 4]
    assert env.final_observations[:, 1].tolist() == [1, 1]


def test_strict_refuses_and_changes_nothing(table):
    with NativeEnv(table, strict=True) as env:
        env.reset(seed=1)
        before = env.save()
        with pytest.raises(EnvError, match="counter: agent 1, head 1: action 2 is not from 0 to 1"):
            env.step(np.array([[0, 0], [0, 2]]))
        assert env.save() == before


def test_absent_agents_are_masked(table):
    with NativeEnv(table, {"absent": True}) as env:
        env.reset(seed=1)
        assert env.masks.tolist() == [True, False]
        assert not env.observations[1].any()
        env.step(ONES)
        assert env.masks.all()
        assert env.rewards.tolist() == [0.5, 0]


def test_action_mask_follows_the_state(env):
    assert env.action_mask.tolist() == [[1, 1, 1, 1, 1]] * 2
    env.step(ONES)
    assert env.action_mask.tolist() == [[1, 1, 0, 1, 1]] * 2


def test_seeds_and_indices_make_instances(table):
    def starts(num_envs, first_index=0, **reset):
        with NativeEnv(table, num_envs=num_envs, seed=1, first_index=first_index) as env:
            return env.reset(**reset)[0][:, 1].tolist()

    whole = starts(6, seed=9)
    assert starts(2, seed=9) + starts(4, first_index=2, seed=9) == whole
    assert starts(2, seed=9) + starts(4, seed=9, index=2) == whole
    assert starts(4, first_index=2, seed=9, index=2) == whole[4:]
    assert starts(6) == starts(6, seed=1) != whole
    assert len(set(whole)) > 6


def test_an_index_holds_for_the_resets_that_follow(table):
    with NativeEnv(table, num_envs=2) as env, NativeEnv(table, num_envs=2, first_index=5) as other:
        env.reset(seed=3, index=5)
        other.reset(seed=3)
        for _ in range(2):
            env.reset()
            other.reset()
            assert np.array_equal(env.observations, other.observations)


def test_results_do_not_depend_on_threads(table):
    results = []
    for threads in (1, 2, 4):
        with NativeEnv(table, num_envs=300, num_threads=threads) as env:
            env.reset(seed=3)
            for step in range(30):
                env.step(np.full((600, 2), step % 3, np.int32))
            results.append((env.observations.tobytes(), env.rewards.tobytes(), env.drain_log(), env.save()))
    assert results[0] == results[1] == results[2]


def test_a_forked_child_gets_threads_of_its_own(table):
    with NativeEnv(table, num_envs=300, num_threads=2) as env:
        env.reset(seed=3)
        env.step(np.ones((600, 2), np.int32))
        env.load(env.save())
        child = os.fork()
        if child == 0:
            env.step(np.ones((600, 2), np.int32))
            os._exit(int(env.rewards.sum() != 300))
        assert os.waitpid(child, 0)[1] == 0
        env.step(np.ones((600, 2), np.int32))
        assert env.rewards.sum() == 300


# -- logs and live parameters -----------------------------------------------------------------------------------------


def test_drain_log_gives_means_once(env):
    assert env.drain_log() is None
    for _ in range(10):
        env.step(ONES)
    assert env.drain_log() == pytest.approx(
        {"score": 2.5, "perf": 0, "episode_return": 2.5, "episode_length": 5, "illegal_actions": 0, "n": 4}
    )
    assert env.drain_log() is None


def test_a_seeded_reset_forgets_what_was_logged(env):
    for _ in range(5):
        env.step(ONES)
    env.reset(seed=1)
    assert env.drain_log() is None
    assert not env.logged.any()


def test_live_parameters_are_adopted_at_the_next_reset(env):
    env.set_params(bonus=2)
    env.step(ONES)
    assert env.rewards.tolist() == [0.5, 0.5]
    for _ in range(5):
        env.step(ONES)
    assert env.rewards.tolist() == [2, 2]
    env.reset(seed=1, index=3)
    env.step(ONES)
    assert env.rewards.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"limit": 7}, "`limit` can't change while running"),
        ({"bonuss": 1}, "no parameter `bonuss`"),
        ({"bonus": 3}, "bonus=3 is not legal"),
    ],
)
def test_other_parameters_can_not_be_set_while_running(env, values, words):
    with pytest.raises(OptionError, match=words):
        env.set_params(**values)


# -- state ------------------------------------------------------------------------------------------------------------


def test_a_saved_instance_goes_on_anywhere(table):
    with NativeEnv(table, num_envs=3, seed=1) as env, NativeEnv(table, num_envs=2, seed=2) as other:
        env.reset()
        env.step(np.ones((6, 2), np.int32))
        blob = env.save_instance(1)
        other.load_instance(0, blob)
        other.load_instance(1, blob)
        assert np.array_equal(other.observations, np.tile(env.observations[2:4], (2, 1)))
        for _ in range(9):
            env.step(np.ones((6, 2), np.int32))
            other.step(np.ones((4, 2), np.int32))
        assert np.array_equal(other.observations[:2], env.observations[2:4])
        assert np.array_equal(other.observations[2:], env.observations[2:4])


def test_saved_states_keep_who_is_there(table):
    with NativeEnv(table, {"absent": True}) as env, NativeEnv(table, {"absent": True}) as other:
        env.reset(seed=1)
        other.reset(seed=1)
        other.step(ONES)
        other.load(env.save())
        assert other.masks.tolist() == [True, False]


def test_a_live_parameter_does_not_make_a_state_foreign(table, env):
    env.set_params(bonus=2)
    blob = env.save()
    with NativeEnv(table, {"start": "zero"}) as other:
        other.load(blob)
        for _ in range(6):
            other.step(ONES)
        assert other.rewards.tolist() == [2, 2]


def test_a_restored_live_parameter_is_known_to_the_host(table, env):
    env.set_params(bonus=2)
    blob = env.save()
    with NativeEnv(table, {"start": "zero"}) as other:
        other.load(blob)
        assert other.params["bonus"] == 2
        other.set_params()
        other.reset()
        other.step(ONES)
        assert other.rewards.tolist() == [2, 2]
        assert other.save() == other.save()
    with NativeEnv(table, {"start": "zero"}, num_envs=2) as other:
        other.load_instance(1, env.save_instance(0))
        assert other.params["bonus"] == 0.5


def test_foreign_and_damaged_states_are_refused(table, env):
    blob = env.save()
    for wrong in (b"", blob[:-1], blob[:40] + b"x" + blob[41:], blob + b"\0"):
        with pytest.raises(EnvError, match="counter: this is no saved state, or it is damaged"):
            env.load(wrong)
    for arguments, words in (
        ({"params": {"limit": 7, "start": "zero"}}, "counter: the saved state is of parameters"),
        ({"params": {"start": "zero"}, "num_envs": 2}, "the saved state is of instances 1, not 2"),
    ):
        with NativeEnv(table, **arguments) as other, pytest.raises(EnvError, match=words):
            other.load(blob)


def test_rebind_goes_on_in_other_arrays(table):
    with NativeEnv(table, {"absent": True}) as env, NativeEnv(table, {"absent": True}) as other:
        env.reset(seed=4)
        other.reset(seed=4)
        names = ("observations", "actions", "rewards", "terminals", "truncations", "masks", "action_mask")
        buf = {name: np.zeros_like(getattr(env, name)) for name in names}
        env.rebind(buf)
        for _ in range(12):
            for name in names:
                assert getattr(env, name) is buf[name]
                assert np.array_equal(buf[name], getattr(other, name)), name
            env.step(ONES)
            other.step(ONES)


def test_rebind_to_arrays_of_its_own_keeps_who_is_there(table):
    with NativeEnv(table, {"absent": True}) as env:
        env.reset(seed=4)
        names = ("observations", "actions", "rewards", "terminals", "truncations", "masks", "action_mask")
        env.rebind({name: getattr(env, name) for name in names})
        assert env.masks.tolist() == [True, False]


# -- pictures, life ---------------------------------------------------------------------------------------------------


def test_pictures_and_texts(table, env):
    env.step(ONES)
    picture = env.render(0, "rgb_array")
    assert (picture.shape, picture.dtype) == ((32, 64, 3), np.uint8)
    assert picture[5, 0].tolist() == [0, 187, 187]
    assert picture[5, 1].tolist() == [6, 24, 24]
    assert env.frames_per_second == 30
    assert env.render(mode="ansi") == "counter: tick 1\n"
    with NativeEnv(table, {"title": "Zähler"}, render_mode="ansi") as other:
        other.reset(seed=1)
        assert other.render() == "Zähler: tick 0\n"


def test_pictures_that_can_not_be_had(env):
    with pytest.raises(RenderError, match="human needs a window, which `puffer eval`"):
        env.render(0, "human")
    with pytest.raises(OptionError, match="render mode None is not one of human, rgb_array, ansi"):
        env.render()
    with pytest.raises(OptionError, match="index=1 is not an integer from 0 to 0"):
        env.render(1, "ansi")


def test_step_before_reset_is_refused(table):
    with NativeEnv(table) as env, pytest.raises(UsageError, match="counter: reset before stepping"):
        env.step(ONES)


def test_use_after_close_is_refused(env):
    env.close()
    env.close()
    uses = (lambda: env.step(ONES), env.reset, env.save, env.drain_log, env.render, lambda: env.set_params(bonus=1))
    for use in uses:
        with pytest.raises(UsageError, match="counter: used after close"):
            use()


def test_two_python_threads_step_two_vectors(table):
    from threading import Thread

    envs = [NativeEnv(table, {"start": "zero"}, num_envs=200, num_threads=2) for _ in range(2)]

    def run(env):
        env.reset(seed=1)
        for _ in range(200):
            env.step(np.ones((400, 2), np.int32))

    threads = [Thread(target=run, args=(env,)) for env in envs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [env.drain_log()["n"] for env in envs] == [400 * 40] * 2
    for env in envs:
        env.close()
