from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from puffer_core import vector
from puffer_core.emulation import VectorPufferEnv, adapt
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import EnvError, OptionError, UsageError

ARRAYS = ("observations", "rewards", "terminals", "truncations", "masks", "logged")


class Walk(gymnasium.Env):
    """Ends when the sum of draws passes 10, or is cut after 9 steps; observations are float64, infos come and go."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)
    action_space = Discrete(3, start=1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.place = 0, 0.0
        return self.observe(), {}

    def observe(self) -> Any:
        return np.array([self.time, self.place, self.np_random.random()])

    def step(self, action: int) -> Any:
        assert action in self.action_space
        self.time += 1
        self.place += self.np_random.random() * action
        ended, cut = self.place > 10, self.time == 9
        return self.observe(), self.place, ended, cut, {"score": self.place} if ended or cut else {}


class Nested(Walk):
    observation_space = Dict({"walk": Walk.observation_space, "clock": Discrete(20)})  # type: ignore[assignment]
    action_space = Tuple((Discrete(3, start=1), Box(-1, 1, (2,), np.float32)))  # type: ignore[assignment]

    def observe(self) -> Any:
        return {"walk": super().observe(), "clock": self.time}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.time += 1
        self.place += float(action[0]) + float(action[1].sum())
        return self.observe(), self.place, self.place > 10, self.time == 9, {}


class Native(VectorEnv):
    """Three counters in one object that resets with the next step; row ``i`` ends after ``3 + i`` steps.

    Args:
        mode: What it declares.
    """

    def __init__(self, mode: Any = AutoresetMode.NEXT_STEP) -> None:
        self.metadata = {} if mode is None else {"autoreset_mode": mode}
        self.num_envs = 3
        self.single_observation_space = Box(0, 100, (2,), np.float32)
        self.single_action_space = Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, 3)
        self.action_space = batch_space(self.single_action_space, 3)

    def observe(self) -> Any:
        return np.stack([self.episodes, self.times], axis=1).astype(np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.times, self.episodes = np.zeros(3, int), np.zeros(3, int)
        self.done = np.zeros(3, bool)
        return self.observe(), {}

    def step(self, actions: Any) -> Any:
        self.times = np.where(self.done, 0, self.times + 1)
        self.episodes += self.done
        rewards = np.where(self.done, 0.0, 1.0)
        infos = {"reset": self.done.astype(float), "_reset": self.done.copy()} if self.done.any() else {}
        self.done = self.times >= 3 + np.arange(3)
        return self.observe(), rewards, self.done.copy(), np.zeros(3, bool), infos


def play(envs: Any, steps: int, seed: int = 5) -> list[list[Any]]:
    rng = np.random.default_rng(seed)
    envs.reset(seed)
    found: list[list[Any]] = [[envs.observations.copy()]]
    for _ in range(steps):
        envs.step(rng.integers(0, 3, envs.num_agents))
        ended = envs.terminals | envs.truncations
        parts = [getattr(envs, name).copy() for name in ARRAYS]
        found.append([*parts, envs.final_observations[ended], np.nan_to_num(envs.log[ended]), list(envs.infos)])
    return found


def assert_equal(found: Any, expected: Any) -> None:
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        for position, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if isinstance(one, list):
                assert [info for info in one if info] == [info for info in other if info], step
            else:
                np.testing.assert_array_equal(one, other, err_msg=f"step {step}, part {position}")


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_sync_vector_gives_what_serial_gives_over_1000_steps(mode: AutoresetMode) -> None:
    with vector.make(Walk, num_envs=4, backend="serial") as serial:
        expected = play(serial, 1000)

    def make() -> Any:
        return SyncVectorEnv([Walk] * 4, autoreset_mode=mode)

    with vector.make(make, backend="serial") as wrapped:
        assert (wrapped.num_envs, wrapped.num_agents, wrapped.agents_per_env) == (4, 4, 1)
        assert_equal(play(wrapped, 1000), expected)
        assert sum(part[5].sum() for part in expected[1:]) > 100


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_async_vector_gives_what_serial_gives(mode: AutoresetMode) -> None:
    with vector.make(Walk, num_envs=2, backend="serial") as serial:
        expected = play(serial, 12)

    def make() -> Any:
        return AsyncVectorEnv([Walk] * 2, autoreset_mode=mode)

    with vector.make(make, backend="serial") as wrapped:
        assert_equal(play(wrapped, 12), expected)


def test_seed_of_the_constructor_is_that_of_the_first_reset() -> None:
    first, second = VectorPufferEnv(SyncVectorEnv([Walk] * 2), seed=4), VectorPufferEnv(SyncVectorEnv([Walk] * 2))
    assert (first.reset()[0] == second.reset(4)[0]).all()


def test_vectors_side_by_side_get_the_seeds_of_their_places() -> None:
    with (
        vector.make(Walk, num_envs=4, backend="serial") as serial,
        vector.make(lambda: SyncVectorEnv([Walk] * 2), num_envs=2, backend="serial") as wrapped,
    ):
        assert wrapped.num_envs == 4
        assert_equal(play(wrapped, 50), play(serial, 50))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_nested_spaces_are_flat_rows_and_back(mode: AutoresetMode) -> None:
    def run(envs: Any) -> list[Any]:
        envs.reset(3)
        rng, found = np.random.default_rng(0), []
        for _ in range(40):
            envs.step(np.column_stack([rng.integers(0, 3, 3), rng.normal(size=(3, 2)) * 3]).astype(np.float32))
            ended = envs.terminals | envs.truncations
            found.append([envs.observations.copy(), envs.rewards.copy(), envs.final_observations[ended]])
        return found

    def make() -> Any:
        return SyncVectorEnv([Nested] * 3, autoreset_mode=mode)

    with (
        vector.make(Nested, num_envs=3, backend="serial") as serial,
        vector.make(make, backend="serial") as wrapped,
    ):
        assert isinstance(wrapped.single_observation_space, FlatBox)
        assert_equal(run(wrapped), run(serial))


def test_step_that_only_resets_is_masked_and_never_counted() -> None:
    with vector.make(Native, backend="serial") as envs:
        envs.reset(1)
        seen = []
        for _ in range(9):
            envs.step(np.zeros(3, np.int32))
            seen.append((envs.masks.tolist(), envs.terminals.tolist(), envs.rewards.tolist()))
            assert not envs.observations[~envs.masks].any()
            if envs.logged.any():
                assert envs.log[envs.logged, 2].tolist() == envs.log[envs.logged, 3].tolist()
        assert seen[2] == ([False, True, True], [True, False, False], [1, 1, 1])
        assert seen[3] == ([True, False, True], [False, True, False], [0, 1, 1])
        assert seen[4] == ([True, True, False], [False, False, True], [1, 0, 1])
        assert [masks[0] for masks, _, _ in seen] == [True, True, False, True, True, True, False, True, True]
        assert envs.final_observations[0].tolist() == [1, 3]
        assert envs.observations[0].tolist() == [2, 1]


def test_step_that_only_resets_has_no_info() -> None:
    env = VectorPufferEnv(Native())
    env.reset(1)
    for _ in range(3):
        assert env.step(np.zeros(3, np.int32))[4] == []
    assert env.step(np.zeros(3, np.int32))[4] == []
    assert env.env.done.tolist() == [False, True, False]


def test_wrapped_sync_vector_is_not_reset_behind_its_wrappers_back() -> None:
    def make() -> Any:
        return gymnasium.wrappers.vector.RecordEpisodeStatistics(SyncVectorEnv([Walk] * 2))

    with vector.make(make, backend="serial") as envs:
        envs.reset(1)
        lengths = []
        for _ in range(40):
            envs.step(np.zeros(2, np.int32))
            assert (envs.masks == ~envs.logged).all()
            for row in np.flatnonzero(envs.logged):
                told = envs.infos[row]["episode"]
                assert told["l"] == envs.log[row, 3]
                assert told["r"] == pytest.approx(envs.log[row, 2])
                lengths.append(int(told["l"]))
        assert len(lengths) > 4


def test_mode_that_is_not_declared_is_refused_and_can_be_given() -> None:
    with pytest.raises(EnvError, match="Native declares no autoreset mode") as caught:
        adapt(Native(None))
    assert "set metadata['autoreset_mode'], or give VectorPufferEnv autoreset_mode=" in str(caught.value.hint)
    assert VectorPufferEnv(Native(None), autoreset_mode="next_step").num_agents == 3
    with pytest.raises(EnvError, match="Native: autoreset_mode='sometimes' is none"):
        VectorPufferEnv(Native("sometimes"))


def test_same_step_without_final_observations_is_refused() -> None:
    env = VectorPufferEnv(Native(AutoresetMode.SAME_STEP))
    env.reset(1)
    for _ in range(2):
        env.step(np.zeros(3, np.int32))
    with pytest.raises(EnvError, match="an episode ended, and infos have no `final_obs`"):
        env.step(np.zeros(3, np.int32))


def test_flags_of_both_kinds_are_one_end_of_the_task() -> None:
    class Both(Native):
        def step(self, actions: Any) -> Any:
            observations, rewards, done, _, infos = super().step(actions)
            return observations, rewards, done, done, infos

    env = VectorPufferEnv(Both())
    env.reset(1)
    for _ in range(3):
        env.step(np.zeros(3, np.int32))
    assert env.terminals.tolist() == [True, False, False]
    assert not env.truncations.any()


def test_results_of_the_wrong_shape_are_refused() -> None:
    class Odd(Native):
        def step(self, actions: Any) -> Any:
            observations, _, *rest = super().step(actions)
            return observations, np.zeros((3, 1)), *rest

    env = VectorPufferEnv(Odd())
    env.reset(1)
    with pytest.raises(EnvError, match=r"Odd: step gave rewards of shape \(3, 1\), not \(3,\)"):
        env.step(np.zeros(3, np.int32))


def test_observations_of_another_dtype_are_converted_with_a_warning() -> None:
    class Double(Native):
        def observe(self) -> Any:
            return super().observe().astype(np.float64)

    env = VectorPufferEnv(Double())
    with pytest.warns(UserWarning, match="Double gives observations as float64"):
        env.reset(1)
    for _ in range(3):
        env.step(np.zeros(3, np.int32))
    assert env.final_observations[0].tolist() == [0, 3]


def test_actions_are_legal_or_refused() -> None:
    class Bounded(Native):
        def __init__(self) -> None:
            super().__init__()
            self.single_action_space = Box(-1, 1, (2,), np.float32)  # type: ignore[assignment]
            self.action_space = batch_space(self.single_action_space, 3)

        def step(self, actions: Any) -> Any:
            assert self.action_space.contains(actions)
            return super().step(actions)

    env = VectorPufferEnv(Bounded())
    env.reset(1)
    env.step(np.full((3, 2), 7, np.float32))
    with pytest.raises(EnvError, match="is not a number"):
        env.step(np.full((3, 2), np.nan, np.float32))
    discrete = VectorPufferEnv(Native())
    discrete.reset(1)
    with pytest.raises(EnvError, match="action 2 is not from 0 to 1"):
        discrete.step(np.full(3, 2, np.int32))


def test_actions_of_several_heads_arrive_as_declared() -> None:
    class Heads(Native):
        def __init__(self) -> None:
            super().__init__()
            self.single_action_space = MultiDiscrete([3, 4])  # type: ignore[assignment]
            self.action_space = batch_space(self.single_action_space, 3)

        def step(self, actions: Any) -> Any:
            assert self.action_space.contains(actions)
            return super().step(actions)

    env = VectorPufferEnv(Heads())
    env.reset(1)
    env.step(np.array([[2, 3], [0, 0], [1, 1]], np.int32))


def test_infos_of_several_kinds_are_told_by_row() -> None:
    class Telling(Native):
        def step(self, actions: Any) -> Any:
            *result, _ = super().step(actions)
            has = np.array([True, False, True])
            return *result, {"lives": np.arange(3), "deep": {"x": np.arange(3.0), "_x": has}, "_deep": has}

    env = VectorPufferEnv(Telling())
    env.reset(1)
    expected = [{"lives": 0, "deep": {"x": 0.0}}, {"lives": 1}, {"lives": 2, "deep": {"x": 2.0}}]
    assert env.step(np.zeros(3, np.int32))[4] == expected


def test_step_before_reset_and_missing_environments_are_refused() -> None:
    with pytest.raises(UsageError, match="Native: reset before stepping"):
        VectorPufferEnv(Native()).step(np.zeros(3, np.int32))
    with pytest.raises(OptionError, match="of env and env_creator neither were given"):
        VectorPufferEnv()
    assert VectorPufferEnv(env_creator=Native).num_agents == 3


def test_a_frame_is_that_of_the_first_environment() -> None:
    class Drawn(Native):
        def render(self) -> Any:
            return "one", "two", "three"

    env = VectorPufferEnv(Drawn())
    assert env.render() == "one"
    env.close()
    assert env.env.closed
