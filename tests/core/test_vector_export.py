"""`to_gymnasium`: the vector as Gymnasium defines a vector environment, held equal to Gymnasium's own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from counter import counter_table
from fakes_env import Count
from fakes_partial import PartialVector
from fakes_sampling import sampling_env
from fakes_wrap import Coming, Nested, Tally
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.utils import env_checker
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as wrappers

from puffer_core import vector
from puffer_core.errors import OptionError, UsageError


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=40)


def exported(make: Any = cartpole, num_envs: int = 3, **options: Any) -> Any:
    return vector.make(make, num_envs, "serial", **options).to_gymnasium()


def assert_same_infos(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ("final_obs" in ours) == ("final_obs" in theirs)
    if "final_obs" in theirs:
        assert np.array_equal(ours["_final_obs"], theirs["_final_obs"])
        assert np.array_equal(ours["_final_info"], theirs["_final_info"])
        for mine, other in zip(ours["final_obs"], theirs["final_obs"], strict=True):
            assert (mine is None) == (other is None)
            assert env_checker.data_equivalence(mine, other, exact=True)


def test_it_is_equal_to_gymnasiums_own_vector_environment() -> None:
    ours, theirs = exported(), SyncVectorEnv([cartpole] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    for name in ("single_observation_space", "single_action_space", "observation_space", "action_space", "num_envs"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    rng, cut = np.random.default_rng(0), 0
    for seed in (3, None):
        pairs = [(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])]
        for _ in range(1000):
            actions = rng.integers(0, 2, 3)
            mine, other = ours.step(actions), theirs.step(actions)
            # Where both flags come, ours is the end of the task.
            pairs += zip(mine[:4], (*other[:3], other[3] & ~other[2]), strict=True)
            assert_same_infos(mine[4], other[4])
            cut += mine[3].sum()
        assert all(np.array_equal(a, b) for a, b in pairs)
    assert cut > 0


@pytest.mark.parametrize(
    "check",
    [
        env_checker.check_reset_seed_determinism,
        env_checker.check_reset_options,
        env_checker.check_returned_data_not_reused,
        env_checker.check_reset_return_info_deprecation,
        env_checker.check_seed_deprecation,
        env_checker.check_reset_return_type,
    ],
    ids=lambda check: check.__name__,
)
@pytest.mark.parametrize("make", [cartpole, Nested, Tally], ids=["box", "dict", "puffer"])
def test_gymnasiums_checks_pass(check: Any, make: Any) -> None:
    # One environment: some of the checks ask whether "the" flag is set.
    env = exported(make, 1)
    check(env)
    env.close()


@pytest.mark.parametrize("make", [cartpole, Nested], ids=["box", "dict"])
def test_steps_are_deterministic(make: Any) -> None:
    # What `check_step_determinism` asks, but for its truncation, which is a flag there and an array here.
    env = exported(make, 3)
    env.action_space.seed(123)
    actions = [env.action_space.sample() for _ in range(60)]
    first, second = ([env.reset(seed=5), *(env.step(action) for action in actions)] for _ in range(2))
    assert env_checker.data_equivalence(first, second, exact=True)
    for observations, *_ in first:
        assert observations in env.observation_space


def test_gymnasiums_wrappers_go_around_it() -> None:
    env = wrappers.RecordEpisodeStatistics(exported(Tally, 2))
    env = wrappers.DictInfoToList(wrappers.ClipReward(env, max_reward=3))
    env.reset(seed=0)
    for _ in range(5):
        *_, rewards, terminals, _, infos = env.step(np.zeros(2, int))
        assert rewards.max() <= 3
    assert terminals.all()
    for i, info in enumerate(infos):
        assert info["episode"]["r"] == 15
        assert info["episode"]["l"] == 5
        assert info["final_info"]["episode_return"] == 15
        assert info["final_obs"].tolist() == [100 * i + 5]


def test_what_is_returned_are_copies() -> None:
    env = exported(Tally, 1)
    kept = [env.reset(seed=0)[0], *(env.step(np.zeros(1, int)) for _ in range(4))]
    assert kept[0].tolist() == [[0]]
    assert [step[0].item() for step in kept[1:]] == [1, 2, 3, 4]
    assert [step[1].item() for step in kept[1:]] == [1, 2, 3, 4]


def test_nested_observations_come_in_their_original_form() -> None:
    env = exported(Nested, 2)
    assert env.single_observation_space == Nested().observation_space
    assert isinstance(env.observation_space, Dict)
    observations, _ = env.reset(seed=0)
    assert observations["place"].shape == (2, 2)
    assert observations["kind"].tolist() == [1, 1]
    for _ in range(3):
        observations, *_, infos = env.step(np.zeros(2, int))
        assert observations in env.observation_space
    assert observations["kind"].tolist() == [1, 1]
    final = infos["final_obs"][1]
    assert final["place"].tolist() == [1.5, 1.5]
    assert final["kind"] == 4
    assert final in env.single_observation_space


def test_every_agent_is_an_environment_and_absent_ones_are_told() -> None:
    env = exported(Coming, 2)
    assert env.num_envs == 4
    assert env.action_space == Box(-1, 1, (4, 2), np.float32)
    env.reset(seed=0)
    absent = 0
    for _ in range(30):
        *_, infos = env.step(np.zeros((4, 2), np.float32))
        assert ("agent_mask" in infos) == (not env.vector.masks.all())
        if "agent_mask" in infos:
            absent += 1
            assert np.array_equal(infos["agent_mask"], env.vector.masks)
            assert infos["_agent_mask"].all()
        if "final_info" in infos:
            told = infos["final_info"]
            assert np.array_equal(told["_episode_return"], infos["_final_obs"])
            rows = infos["_final_obs"]
            assert np.array_equal(told["episode_length"][rows], env.vector.log[rows, 1])
    assert absent > 5


def test_environments_in_c_and_their_action_masks() -> None:
    with vector.make(counter_table(), 3) as opened:
        env = opened.to_gymnasium(render_mode="ansi")
        assert isinstance(env, VectorEnv)
        assert env.single_action_space == MultiDiscrete([3, 2])
        _, infos = env.reset(seed=2)
        assert np.array_equal(infos["action_mask"], opened.action_mask)
        assert infos["action_mask"] is not opened.action_mask
        for _ in range(5):
            *_, infos = env.step(env.action_space.sample())
        assert infos["_final_obs"].all()
        assert infos["final_info"]["episode_length"].tolist() == [5] * 6
        pictures = env.render()
        assert len(pictures) == 3
        assert all(isinstance(picture, str) for picture in pictures)


def test_rendering_and_closing() -> None:
    opened = vector.make(Count, 2)
    env = opened.to_gymnasium("rgb_array")
    assert opened.to_gymnasium().render() is None
    env.reset()
    assert [picture.shape for picture in env.render()] == [(21, 31, 3)] * 2
    env.close()
    env.close()
    assert env.closed
    with pytest.raises(UsageError, match="used after close"):
        env.reset()


def test_what_can_not_be_passed_on_is_refused() -> None:
    env = exported(Tally, 2)
    with pytest.raises(OptionError, match=r"options=\{'low': 1\} can't be passed on"):
        env.reset(options={"low": 1})
    with pytest.raises(OptionError, match=r"seed=\[1, 2\] is not an integer"):
        env.reset(seed=[1, 2])
    with pytest.raises(UsageError, match="reset and recv before sending"):
        env.step(np.zeros(2, int))
    with pytest.raises(OptionError, match="render_mode='human' is not rgb_array, ansi or None"):
        env.vector.to_gymnasium("human")
    partial = PartialVector(Tally, 4, 1, 2)
    with pytest.raises(OptionError, match="steps all 4 agents at once, a batch of this vector has 2") as caught:
        partial.to_gymnasium()
    assert caught.value.hint == "make it without batch_size"


def test_a_vector_that_went_out_and_came_in_again_is_the_same() -> None:
    plain = vector.make(cartpole, 3, "serial")
    again = vector.make(lambda: vector.make(cartpole, 3, "serial").to_gymnasium(), 1, "serial")
    rng = np.random.default_rng(0)
    for envs in (plain, again):
        envs.reset(4)
    for _ in range(300):
        actions = rng.integers(0, 2, 3)
        for envs in (plain, again):
            envs.step(actions)
        for name in ("observations", "rewards", "terminals", "truncations", "masks", "logged"):
            assert np.array_equal(getattr(plain, name), getattr(again, name)), name
        ended = plain.terminals | plain.truncations
        assert np.array_equal(plain.final_observations[ended], again.final_observations[ended])


def test_wrapped_vectors_are_exported_as_they_are_shown() -> None:
    env = exported(Tally, 2, wrap={"frame_stack": 3, "reward_scale": 2.0})
    assert env.observation_space.shape == (2, 3)
    env.reset(seed=0)
    for _ in range(5):
        observations, rewards, *_, infos = env.step(np.zeros(2, int))
    assert rewards.tolist() == [10, 10]
    assert observations.tolist() == [[0] * 3, [100] * 3]
    assert infos["final_obs"][0].tolist() == [3, 4, 5]
    assert infos["final_info"]["episode_return"].tolist() == [15, 15]


def test_samples_of_mixed_actions_are_actions() -> None:
    single = Dict(a=Discrete(3, start=-1), b=Box(0, 1, (2,)))
    env = vector.make(sampling_env(Box(0, 1, (2,)), single), 3).to_gymnasium()
    env.reset()
    env.action_space.seed(0)
    for _ in range(5):
        actions = env.action_space.sample()
        assert env.action_space.contains(actions)
        env.step(actions)
    assert not env.action_space.contains(actions + np.float32(0.5))
    env.close()
