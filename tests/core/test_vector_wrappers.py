"""Wrappers of batches: what they show, in every kind of batch, saved and restored, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from counter import counter_table
from fakes import Guess, make_trainer, run
from fakes_partial import PartialVector
from fakes_wrap import Coming, Mixed, Nested, StackReference, Tally
from gymnasium.spaces import Box
from test_rl_checkpoint import timeless, whole

from puffer_core import vector
from puffer_core.errors import EnvError, OptionError, UsageError
from puffer_core.specs import EnvSpec
from puffer_core.vector import wrap
from puffer_core.vector.wrap import images

SHAPES = [
    ((), (3,), None),
    ((4,), (12,), 0),
    ((4, 5), (4, 5, 3), None),
    ((4, 5, 2), (4, 5, 6), 2),
    ((2, 4, 5), (6, 4, 5), 0),
    ((2, 2, 2, 3), (2, 2, 2, 9), 3),
]


def actions_of(opened: Any, rng: Any) -> Any:
    return rng.normal(size=(len(opened.agent_ids), 2)).astype(np.float32)


# -- frame stack ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize(("shape", "stacked", "axis"), SHAPES, ids=str)
def test_frame_stack_shows_the_last_frames_of_each_episode(shape: Any, stacked: Any, axis: Any, dtype: str) -> None:
    plain, opened = (
        vector.make(Coming, 3, "serial", params={"shape": shape, "dtype": dtype}, wrap=keys)
        for keys in (None, {"frame_stack": 3})
    )
    assert opened.single_observation_space.shape == stacked
    assert opened.single_observation_space.dtype == dtype
    assert opened.observations.shape == (6, *stacked)
    reference, rng = StackReference(6, 3, axis), np.random.default_rng(0)
    for seed in (1, None, 2):
        for envs in (plain, opened):
            envs.reset(seed)
        for _ in range(40):
            for i in range(6):
                stack, final = reference.show(plain, i)
                assert np.array_equal(opened.observations[i], stack)
                assert final is None or np.array_equal(opened.final_observations[i], final)
            actions = actions_of(plain, rng)
            for envs in (plain, opened):
                envs.step(actions)
        reference.was_there[:] = False  # a reset begins every episode anew


@pytest.mark.parametrize("order", [None, 3], ids=["ring", "ready"])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_frame_stack_keeps_rows_apart_in_partial_batches(order: int | None, batch: int) -> None:
    opened = wrap.FrameStack(PartialVector(Coming, 4, 1, batch, order), 4)
    reference, rng = StackReference(8, 4, 0), np.random.default_rng(0)
    opened.async_reset(5)
    seen = set()
    for _ in range(120):
        observations, *_, ids, _ = opened.recv()
        assert observations.shape == (2 * batch, 12)
        seen |= set(ids.tolist())
        for i in range(len(ids)):
            stack, final = reference.show(opened.vector, i)
            assert np.array_equal(opened.observations[i], stack)
            assert final is None or np.array_equal(opened.final_observations[i], final)
        opened.send(actions_of(opened, rng))
    assert seen == set(range(8))


def test_held_agents_are_passed_through() -> None:
    opened = wrap.ClipAction(wrap.FrameStack(PartialVector(Coming, 3, 1, 2), 2))
    opened.async_reset(1)
    opened.recv()
    opened.send(np.full((4, 2), 5, np.float32), np.array([True, True, False, False]))
    opened.recv()
    opened.send(np.zeros((len(opened.agent_ids), 2), np.float32))
    opened.send_held(np.full((2, 2), -5, np.float32))
    received = [worker.members[0].env.received for worker in opened.vector.vector.workers]
    assert received[0][0].min() == received[0][0].max() == -1
    assert received[1][0].min() == received[1][0].max() == 1


# -- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "new"), [((6, 8), (3, 4)), ((7, 9), (3, 4)), ((3, 4), (6, 6)), ((5, 5), (1, 1))])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_resize_averages_areas(size: Any, new: Any, channels: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    pictures = (rng.random((18, *size, channels)) * 255).astype(dtype)
    out = np.zeros((18, *new, channels), dtype)
    images.resize(pictures, out)
    down, across = (images.area_weights(a, b) * b / a for a, b in zip(size, new, strict=True))
    assert np.allclose(down.sum(1), 1)
    expected = np.einsum("hH,wW,nHWc->nhwc", down, across, pictures.astype(np.float64))
    if dtype == np.uint8:
        assert np.abs(out - expected).max() <= 0.501
    else:
        assert np.allclose(out, expected, rtol=1e-5)


def test_area_weights_are_overlaps() -> None:
    assert images.area_weights(5, 2).tolist() == [[1, 1, 0.5, 0, 0], [0, 0, 0.5, 1, 1]]
    assert images.area_weights(2, 4).tolist() == [[0.5, 0], [0.5, 0], [0, 0.5], [0, 0.5]]


@pytest.mark.parametrize(("shape", "axis"), [((5, 4, 3), 2), ((3, 5, 4), 0)])
def test_grayscale_weighs_colours(shape: Any, axis: int) -> None:
    opened = vector.make(Coming, 2, params={"shape": shape, "dtype": "uint8"}, wrap={"grayscale": True})
    assert opened.single_observation_space == Box(0, 255, tuple(1 if n == 3 else n for n in shape), np.uint8)
    opened.reset(3)
    for _ in range(20):
        pairs = [(opened.observations, opened.vector.observations)]
        ended = opened.terminals | opened.truncations
        pairs.append((opened.final_observations[ended], opened.vector.final_observations[ended]))
        for shown, raw in pairs:
            grey = np.tensordot(raw, np.array([0.299, 0.587, 0.114]), (axis + 1, 0))
            assert np.abs(shown.squeeze(axis + 1) - grey).max(initial=0) < 1.5
        opened.step(np.zeros((4, 2), np.float32))
    grey = np.full((2, *shape), 77, np.uint8)
    images.to_grey(grey, axis, out := np.zeros_like(opened.observations[:2]))
    assert (out == 77).all()


def test_pictures_of_floats_stay_floats() -> None:
    keys = {"grayscale": True, "resize": "2x2", "frame_stack": 2}
    opened = vector.make(Coming, 1, params={"shape": (4, 4, 3)}, wrap=keys)
    assert opened.single_observation_space == Box(0, 1, (2, 2, 2), np.float32)
    opened.reset(1)
    mean = (opened.vector.vector.vector.observations @ np.float32([77, 150, 29]) / 256).mean(axis=(1, 2))
    assert np.allclose(opened.observations.mean(axis=(1, 2, 3)), mean, rtol=1e-5)


# -- rewards and actions ----------------------------------------------------------------------------------------------


def test_reward_wrappers_apply_in_listed_order_and_logs_stay_raw() -> None:
    orders = ({"reward_scale": 0.5, "reward_clip": 1.0}, {"reward_clip": 1.0, "reward_scale": 0.5})
    plain, scaled, clipped = (vector.make(Coming, 2, wrap=keys) for keys in (None, *orders))
    for envs in (plain, scaled, clipped):
        envs.reset(4)
    differ = False
    for _ in range(50):
        for envs in (plain, scaled, clipped):
            envs.step(np.zeros((4, 2), np.float32))
        raw = plain.rewards
        assert np.array_equal(scaled.rewards, np.clip(raw * np.float32(0.5), -1, 1))
        assert np.array_equal(clipped.rewards, np.clip(raw, -1, 1) * np.float32(0.5))
        differ |= not np.array_equal(scaled.rewards, clipped.rewards)
        for envs in (scaled, clipped):
            assert np.array_equal(envs.log, plain.log)
            assert np.array_equal(envs.logged, plain.logged)
    assert differ
    means = plain.drain_log()
    assert scaled.drain_log() == clipped.drain_log() == means
    assert scaled.drain_log() is None


def naive_normalized(gamma: float, trace: list[tuple[Any, Any, Any]]) -> list[Any]:
    """Return the rewards of a list of (rewards, ended, there before), divided as documented."""
    rows = len(trace[0][0])
    returns, pool, shown = np.zeros(rows), [], []
    for rewards, ended, there in trace:
        returns = returns * gamma + rewards
        pool += returns[there].tolist()
        # One return of 0 with variance 1 stands before the others.
        mean = sum(pool) / (len(pool) + 1)
        variance = (sum((x - mean) ** 2 for x in pool) + mean**2 + 1) / (len(pool) + 1)
        shown.append(rewards / variance**0.5)
        returns[ended | ~there] = 0
    return shown


@pytest.mark.parametrize("gamma", [0.9, 0.0])
def test_reward_normalize_divides_by_the_spread_of_returns(gamma: float) -> None:
    opened = vector.make(Coming, 3, wrap={"reward_gamma": gamma, "reward_normalize": True})
    opened.reset(2)
    trace, shown = [], []
    for _ in range(60):
        there = opened.masks.copy()
        opened.step(np.zeros((6, 2), np.float32))
        raw = opened.vector.rewards.astype(np.float64)
        trace.append((raw, opened.terminals | opened.truncations, there))
        shown.append(opened.rewards.copy())
    assert np.allclose(shown, naive_normalized(gamma, trace), rtol=1e-5)
    assert opened.count == 1 + sum(there.sum() for *_, there in trace)
    opened.reset()
    assert opened.count > 1
    opened.reset(2)
    assert (opened.count, opened.variance) == (1, 1)


def test_reward_normalize_is_not_spoilt_by_what_is_not_finite() -> None:
    class Broken(Tally):
        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            self.rewards[0] = np.nan if self.tick == 2 else np.inf if self.tick == 3 else self.rewards[0]
            return result

    opened = vector.make(Broken, 2, wrap={"reward_normalize": True})
    opened.reset(0)
    shown = [opened.step(np.zeros(2, int))[1].copy() for _ in range(4)]
    assert np.isnan(shown[1]).all()
    assert np.isinf(shown[2]).all()
    assert np.isfinite(shown[3]).all()
    assert opened.count == 5


def test_clip_action_accepts_any_number() -> None:
    opened = vector.make(Coming, 1, strict=True, wrap={"clip_action": True})
    assert opened.single_action_space == Box(-np.inf, np.inf, (2,), np.float32)
    env = opened.vector.members[0].env
    opened.reset(1)
    opened.step(np.array([[5, -0.5], [-1e30, 0.25]]))
    assert env.received[-1].tolist() == [[1, -0.5], [-1, 0.25]]
    opened.actions[:] = 3
    opened.step(opened.actions)
    assert (env.received[-1] == 1).all()
    with pytest.raises(EnvError, match=r"actions are float64 \(2, 3\), needed are float32 \(2, 2\)"):
        opened.step(np.zeros((2, 3)))


# -- the vector -------------------------------------------------------------------------------------------------------


def test_a_wrapped_vector_is_a_vector() -> None:
    opened = vector.make(counter_table(), 4, "native", seed=3, wrap={"frame_stack": 2, "reward_scale": 2.0})
    assert opened.backend == "native"
    assert opened.backend_note.endswith("; wrapped: frame_stack=2, reward_scale=2.0")
    assert (opened.num_envs, opened.agents_per_env, opened.num_agents) == (4, 2, 8)
    assert opened.log_fields[0] == "score"
    assert opened.observation_space.shape == (8, 4)
    with pytest.raises(UsageError, match="reset before stepping"):
        opened.recv()
    opened.reset()
    with pytest.raises(UsageError, match="received already"):
        opened.recv()
    opened.send(opened.actions)
    with pytest.raises(UsageError, match="sent already"):
        opened.send(opened.actions)
    opened.recv()
    opened.set_params(bonus=1.0)
    assert isinstance(opened.render(1, "ansi"), str)
    assert opened.action_mask is opened.vector.action_mask
    opened.close()
    opened.close()
    with pytest.raises(UsageError, match="used after close"):
        opened.vector.vector.reset()


def test_the_first_reset_takes_the_seed_of_the_vector_inside() -> None:
    plain, opened = (vector.make(Coming, 2, seed=9, wrap=keys) for keys in (None, {"reward_scale": 2.0}))
    for _ in range(2):
        assert np.array_equal(plain.reset()[0], opened.reset()[0])
    assert np.array_equal(plain.reset(1)[0], opened.reset(1)[0])


KEYS = {"frame_stack": 3, "reward_normalize": True, "reward_scale": 2.0}
NAMES = ("observations", "rewards", "terminals", "truncations", "masks", "logged")


def test_saved_state_goes_on_bit_equal() -> None:
    first, second = (
        vector.make(counter_table(), 4, "native", seed=3, params={"absent": True}, wrap=KEYS) for _ in range(2)
    )
    rng = np.random.default_rng(0)

    def play(opened: Any, actions: Any) -> list[Any]:
        shown = []
        for batch in actions:
            opened.step(batch)
            ended = opened.terminals | opened.truncations
            ends = [opened.final_observations[ended].copy(), opened.log[opened.logged].copy()]
            shown.append([*(getattr(opened, name).copy() for name in NAMES), *ends])
        return shown

    first.reset()
    actions = rng.integers(0, 2, (60, 8, 2), dtype=np.int32)
    play(first, actions[:17])
    state = first.save()
    assert set(state) == {"env", "wrap.0.frame_stack", "wrap.1.reward_normalize"}
    shown = first.observations.copy()
    expected = play(first, actions[17:])
    second.reset(77)
    second.load(state)
    assert np.array_equal(second.observations, shown)
    for found, wanted in zip(play(second, actions[17:]), expected, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_state_of_other_wrappers_is_refused() -> None:
    saved = vector.make(Guess, 2, "serial", wrap={"frame_stack": 2})
    saved.reset(1)
    for keys in ({"frame_stack": 3}, {"reward_normalize": True}):
        opened = vector.make(Guess, 2, "serial", wrap=keys)
        opened.reset(1)
        with pytest.raises(EnvError, match=r"the saved state has \d+ bytes of `wrap.0.(frame_stack|reward_normalize)`"):
            opened.load(saved.save())
    plain = vector.make(Guess, 2, "serial")
    with pytest.raises(EnvError, match="the saved state"):
        plain.load(saved.save())
    assert vector.make(Tally, 1, wrap={"episode_stats": True}).save() is None


def test_resumed_training_behind_wrappers_equals_the_uninterrupted_one(tmp_path: Any) -> None:
    def trainer() -> Any:
        return make_trainer(vector.make(Guess, 16, "serial", wrap=KEYS), epochs=8)

    uninterrupted, first, second = trainer(), trainer(), trainer()
    expected = run(uninterrupted, 8)
    run(first, 4)
    first.save(tmp_path / "c")
    assert second.load(tmp_path / "c") == ()
    assert timeless(run(second, 4)) == timeless(expected[4:])
    assert all((a == b).all() for a, b in zip(whole(second).values(), whole(uninterrupted).values(), strict=True))


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "keys", "message"),
    [
        (Tally, {"grayscale": True}, r"wrap.grayscale can't be applied to Box\(.*\): it takes pictures of three"),
        (Tally, {"resize": "8x8"}, r"wrap.resize=8x8 can't be applied to Box\(.*\): it takes pictures"),
        (Tally, {"clip_action": True}, r"wrap.clip_action can't be applied to Discrete\(3\): it takes a Box"),
        (Tally, {"frame_stack": 3, "grayscale": True}, r"wrap.grayscale is listed behind wrap.frame_stack, and takes"),
        (Tally, {"frame_stack": 3, "resize": "2x2"}, r"wrap.resize=2x2 can't be applied to Box\(-1.0, 1e\+06, \(3,\)"),
        (Nested, {"frame_stack": 3}, r"wrap.frame_stack=3 can't be applied to FlatBox.* can't be told apart again"),
        (Nested, {"resize": "3x3"}, r"wrap.resize=3x3 can't be applied to FlatBox"),
        (Mixed, {"clip_action": True}, r"wrap.clip_action can't be applied to FlatActions"),
        (Tally, {"resize": "84"}, r"wrap.resize='84' is not a height and a width"),
        (Tally, {"frame_stak": 3}, r"unknown wrapper `frame_stak` = `3`"),
        (Tally, {"frame_stack": 0}, r"`wrap.frame_stack` = `0` is out of range"),
        (Tally, {"frame_stack": 2.5}, r"`wrap.frame_stack` = `2.5` is not a whole number"),
        (Tally, {"reward_clip": -1}, r"`wrap.reward_clip` = `-1` is out of range"),
        (Tally, {"frame_stack": 2, "action_repeat": 2}, r"wrap.action_repeat is listed behind wrap.frame_stack"),
        (Tally, {"episode_stats": True, "time_limit": 3}, r"wrap.time_limit is listed behind wrap.episode_stats, and"),
        (Tally, {"reward_scale": 2, "episode_stats": 1}, r"wrap.episode_stats is listed behind wrap.reward_scale"),
    ],
)
def test_wrappers_that_do_not_fit_are_refused_before_anything_steps(make: Any, keys: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        vector.make(make, 2, wrap=keys)
    with pytest.raises(OptionError, match=message):
        vector.describe(make, wrap=keys)


def test_an_unknown_wrapper_names_the_closest() -> None:
    with pytest.raises(OptionError, match="unknown wrapper") as caught:
        vector.make(Tally, wrap={"reward-norm": True})
    assert caught.value.hint == "did you mean `reward_normalize`?"


def test_wrappers_of_instances_are_refused_for_environments_in_c() -> None:
    with pytest.raises(
        OptionError, match=r"wrap.time_limit=9 is for environments in Python, counter is one in C"
    ) as caught:
        vector.make(counter_table(), 2, wrap={"time_limit": 9})
    assert caught.value.hint == "its own parameter --env.limit may do it"
    with pytest.raises(OptionError, match=r"wrap.action_repeat=4 is for environments in Python") as caught:
        vector.make(counter_table(), 2, wrap={"action_repeat": 4})
    assert caught.value.hint == "it would need a parameter of its own for that"
    with pytest.raises(OptionError, match=r"wrap.episode_stats=True is for"):
        vector.describe(counter_table(), wrap={"episode_stats": True})


def test_the_vector_is_closed_when_a_wrapper_is_refused() -> None:
    opened = vector.make(Tally, 1)
    with pytest.raises(OptionError, match="it takes pictures"):
        wrap.wrap_vector(opened, {"grayscale": True})
    with pytest.raises(UsageError, match="used after close"):
        opened.reset()


# -- configuration ----------------------------------------------------------------------------------------------------


def test_describe_gives_the_spaces_behind_the_wrappers() -> None:
    observation, action, agents, table = vector.describe(
        Coming, {"shape": (8, 6, 3), "dtype": "uint8"}, {"grayscale": True, "frame_stack": 4, "clip_action": True}
    )
    assert (observation, agents, table) == (Box(0, 255, (8, 6, 4), np.uint8), 2, None)
    assert action == Box(-np.inf, np.inf, (2,), np.float32)


def test_open_vector_applies_the_wrappers_of_the_configuration() -> None:
    from puffer_core.config import load

    spec = EnvSpec("fake/guess", make="fakes:Guess")
    config = load(spec, options=["--wrap.reward-scale", "3", "--wrap.frame-stack", "2"])
    with vector.open_vector(config, spec, num_envs=3) as opened:
        assert isinstance(opened, wrap.FrameStack)
        assert isinstance(opened.vector, wrap.RewardScale)
        assert opened.single_observation_space.shape == (4,)


def test_what_is_off_wraps_nothing() -> None:
    assert vector.make(Tally, 1, wrap={"reward_gamma": 0.5}).backend_note.count("wrapped") == 0
    off = {"frame_stack": 1, "reward_clip": 0, "grayscale": False, "resize": "", "time_limit": 0, "reward_gamma": 0.5}
    assert type(vector.make(Tally, 1, "serial", wrap=off)) is vector.Serial


@pytest.mark.parametrize("as_list", [False, True])
def test_sequences_of_environments_and_parameters_are_wrapped(as_list: bool) -> None:
    envs: Any = [Tally, Tally] if as_list else Tally
    params = [{"limit": 3}, {"limit": 4}]
    with vector.make(envs, 2, "serial", params=params, wrap={"action_repeat": 2, "frame_stack": 2}) as opened:
        opened.reset(0)
        opened.step(np.zeros(2, int))
        opened.step(np.zeros(2, int))
        assert opened.terminals.tolist() == [True, True]
        assert opened.rewards.tolist() == [3, 7]


# -- workers ----------------------------------------------------------------------------------------------------------


def trace_of(opened: Any, steps: int) -> dict[tuple[int, int], Any]:
    """Return what is shown of each agent at each of its own steps, whatever the order of batches."""
    shown, count = {}, np.zeros(opened.num_agents, int)
    opened.async_reset(6)
    while count.min() < steps:
        observations, rewards, terminals, truncations, _, ids, _ = opened.recv()
        ended = terminals | truncations
        for i, agent in enumerate(ids.tolist()):
            last = opened.final_observations[i].copy() if ended[i] else None
            shown[agent, count[agent]] = (observations[i].copy(), rewards[i], terminals[i], truncations[i], last)
        # An action depends on the agent and on its step only.
        opened.send(((ids + count[ids]) % 3).astype(np.int32))
        count[ids] += 1
    return shown


@pytest.mark.parametrize(
    "split",
    [{}, {"batch_size": 2}, {"batch_size": 2, "zero_copy": False}, {"start_method": "spawn"}],
    ids=["whole", "ring", "ready", "spawn"],
)
def test_wrappers_show_the_same_around_workers(split: Any) -> None:
    keys = {"time_limit": 4, "frame_stack": 3, "reward_scale": 0.5}
    with (
        vector.make(Tally, 4, "serial", wrap=keys) as serial,
        vector.make(Tally, 4, "multiprocessing", num_workers=2, wrap=keys, **split) as workers,
    ):
        expected, found = trace_of(serial, 40), trace_of(workers, 40)
        for agent in range(4):
            for step in range(40):
                for a, b in zip(expected[agent, step], found[agent, step], strict=True):
                    assert np.array_equal(a, b), (agent, step)
        assert any(truncated for *_, truncated, _ in found.values())
