"""`to_sb3`: the vector as Stable-Baselines3 defines one, and its PPO learning through it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from counter import counter_table
from fakes_partial import PartialVector
from fakes_sampling import sampling_env
from fakes_wrap import Coming, Mixed, Nested, Tally
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from puffer_core import vector
from puffer_core.errors import EnvError, OptionError, UsageError

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.preprocessing import preprocess_obs  # noqa: E402
from stable_baselines3.common.utils import obs_as_tensor  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=40)


def exported(make: Any = cartpole, num_envs: int = 3, **options: Any) -> Any:
    return vector.make(make, num_envs, "serial", **options).to_sb3()


def test_it_is_equal_to_the_vector_environment_of_stable_baselines() -> None:
    ours, theirs = exported(), DummyVecEnv([lambda: Monitor(cartpole())] * 3)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert ours.seed(7) == theirs.seed(7) == [7, 8, 9]
    assert np.array_equal(ours.reset(), theirs.reset())
    rng, cut = np.random.default_rng(0), 0
    for _ in range(1000):
        actions = rng.integers(0, 2, 3)
        mine, other = ours.step(actions), theirs.step(actions)
        for a, b in zip(mine[:3], other[:3], strict=True):
            assert np.array_equal(a, b)
            assert a.dtype == b.dtype
        for a, b in zip(mine[3], other[3], strict=True):
            assert a.keys() == b.keys()
            assert a["TimeLimit.truncated"] is b["TimeLimit.truncated"]
            cut += a["TimeLimit.truncated"]
            if "terminal_observation" in b:
                assert np.array_equal(a["terminal_observation"], b["terminal_observation"])
                assert (a["episode"]["r"], a["episode"]["l"]) == (b["episode"]["r"], b["episode"]["l"])
                assert a["episode"]["t"] >= 0
    assert cut > 0


def test_a_reset_goes_on_unless_it_is_seeded() -> None:
    env = exported(num_envs=1)
    env.seed(3)
    first, second = env.reset(), env.reset()
    assert not np.array_equal(first, second)
    env.seed(3)
    assert np.array_equal(env.reset(), first)


def test_what_is_returned_are_copies() -> None:
    env = exported(Tally, 1)
    kept = [env.step(np.zeros(1, int)) for _ in range(4) if env.vector._phase == "send" or env.reset() is not None]
    assert [step[0].item() for step in kept] == [1, 2, 3, 4]
    assert [step[1].item() for step in kept] == [1, 2, 3, 4]


def test_wrappers_of_stable_baselines_go_around_it() -> None:
    env = VecNormalize(VecFrameStack(exported(), 2), norm_reward=True)
    assert env.reset().shape == (3, 8)
    for _ in range(60):
        observations, *_ = env.step(np.zeros(3, int))
    assert np.isfinite(observations).all()
    env.close()


def test_episodes_are_raw_whatever_wrappers_do() -> None:
    env = exported(Tally, 1, wrap={"reward_clip": 1.0})
    env.reset()
    for _ in range(5):
        _, rewards, dones, infos = env.step(np.zeros(1, int))
    assert rewards.tolist() == [1]
    assert dones.all()
    assert (infos[0]["episode"]["r"], infos[0]["episode"]["l"]) == (15, 5)


def test_attributes_and_methods_of_environments() -> None:
    env = exported(Tally, 2)
    assert env.get_attr("render_mode") == [None, None]
    assert env.get_attr("observation_space", 1) == [env.observation_space]
    assert not env.has_attr("gravity")
    with pytest.raises(AttributeError, match="gravity of the environments of a vector can't be reached"):
        env.get_attr("gravity")
    with pytest.raises(AttributeError, match="jump of the environments of a vector can't be called"):
        env.env_method("jump")
    assert env.env_is_wrapped(Monitor) == [True, True]
    assert env.env_is_wrapped(gymnasium.Wrapper, [0]) == [False]
    with pytest.raises(UsageError, match="gravity can't be set for some environments only"):
        env.set_attr("gravity", 1, indices=[0])
    env.set_options({"low": 1})
    with pytest.raises(OptionError, match="options can't be passed on"):
        env.reset()


def test_parameters_masks_and_pictures_of_environments_in_c() -> None:
    with vector.make(counter_table(), 2) as opened:
        env = opened.to_sb3(render_mode="rgb_array")
        env.reset()
        env.set_attr("bonus", 2.0)
        env.env_method("set_params", bonus=1.0)
        masks = env.env_method("action_masks")
        assert env.has_attr("action_masks")
        assert np.array_equal(np.stack(masks), opened.action_mask.astype(bool))
        assert np.array_equal(env.get_attr("action_masks")[1](), masks[1])
        assert len(env.get_images()) == 2
        assert env.render().ndim == 3
        assert len(env.env_method("render")) == 4


def test_absent_agents_are_refused() -> None:
    env = exported(Coming, 2)
    env.reset()
    env.vector.masks[2] = False
    env.vector.recv = lambda: None  # nothing else happens in this step
    with pytest.raises(EnvError, match=r"agent 2 is absent, and Stable-Baselines3 would learn from its row"):
        env.step_wait()


def test_what_stable_baselines_can_not_do_is_refused() -> None:
    with pytest.raises(OptionError, match="Stable-Baselines3 steps all 4 agents at once, a batch of this vector has 2"):
        PartialVector(Tally, 4, 1, 2).to_sb3()
    with pytest.raises(EnvError, match=r"Stable-Baselines3 has no policy for FlatActions"):
        exported(Mixed)
    with pytest.raises(OptionError, match="render_mode='human' is not rgb_array or None"):
        vector.make(Tally).to_sb3("human")


def test_nested_observations_train_a_multi_input_policy() -> None:
    env = exported(Nested, 2)
    model = sb3.PPO("MultiInputPolicy", env, n_steps=8, batch_size=8, device="cpu")
    model.learn(32)
    assert len(model.ep_info_buffer) == 10
    assert {info["r"] for info in model.ep_info_buffer} == {3}


def learn(env: Any, steps: int, **settings: Any) -> Any:
    options = {"n_epochs": 6, "gae_lambda": 0.9, "batch_size": 256, "seed": 1, "device": "cpu", **settings}
    model = sb3.PPO("MlpPolicy", env, **options)
    return model.learn(steps)


def mean_return(model: Any) -> float:
    return float(np.mean([info["r"] for info in model.ep_info_buffer]))


def test_ppo_begins_to_balance_the_pole() -> None:
    env = exported(lambda: gymnasium.make("CartPole-v1"), 8)
    model = learn(env, 6_000, n_steps=32, n_epochs=10, gamma=0.98, learning_rate=2e-3)
    assert mean_return(model) > 40, "random play makes 22"


def test_ppo_learns_to_reach_the_target() -> None:
    pytest.importorskip("puffer_ocean")
    with vector.make("ocean/squared", 64, params={"size": 5}) as opened:
        model = learn(opened.to_sb3(), 24_000, n_steps=16, gamma=0.97, learning_rate=2e-3, ent_coef=0.01)
        assert mean_return(model) > 0.4, "random play makes -0.5"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ppo_solves_cartpole(seed: int) -> None:
    env = exported(lambda: gymnasium.make("CartPole-v1"), 8)
    settings = {"n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98, "n_steps": 32, "ent_coef": 0.0, "seed": seed}
    model = learn(env, 100_000, learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.2 * left, **settings)
    mean, _ = evaluate_policy(model, exported(lambda: gymnasium.make("CartPole-v1"), 8), 50)
    assert mean >= 475


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ppo_learns_nearly_all_targets(seed: int) -> None:
    pytest.importorskip("puffer_ocean")
    with vector.make("ocean/squared", 64, params={"size": 5}) as opened:
        env = opened.to_sb3()
        rate = lambda left: 2e-3 * left  # noqa: E731
        model = learn(env, 150_000, n_steps=16, gamma=0.97, learning_rate=rate, ent_coef=0.05, seed=seed)
        mean, _ = evaluate_policy(model, env, 500, deterministic=False)
        assert mean > 0.7, "random play makes -0.57, every target 1"


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (Discrete(3, start=2), Discrete(3)),
        (MultiDiscrete([2, 3], start=[1, 5]), MultiDiscrete([2, 3])),
        (MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [2, 2]]), MultiDiscrete([2, 3, 4, 5])),
        (MultiBinary(3), MultiBinary(3)),
        (Dict(a=Discrete(3, start=-1), b=Box(0, 1, (2,))), Dict(a=Discrete(3), b=Box(0, 1, (2,)))),
    ],
)
def test_discrete_observations_are_counted_from_zero(space: Any, shown: Any) -> None:
    env = vector.make(sampling_env(space), 2).to_sb3()
    assert env.observation_space == shown
    seen, finals = [env.reset()], []
    for _ in range(6):
        observations, _, _, infos = env.step(np.zeros(2, np.int64))
        seen.append(observations)
        finals += [info["terminal_observation"] for info in infos if "terminal_observation" in info]
    assert len(finals) == 4
    for batch in seen:
        preprocess_obs(obs_as_tensor(batch, "cpu"), shown)
    assert all(shown.contains(final) for final in finals)
    env.close()
