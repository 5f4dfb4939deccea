from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes import Guess, run
from gymnasium import spaces

from puffer_core.config.plan import plan
from puffer_core.config.schema import BaseConfig, Config, PolicyConfig, TrainConfig, VecConfig
from puffer_core.errors import UnknownNameError
from puffer_core.rl import job as rl
from puffer_core.specs import EnvSpec, Job
from puffer_core.vector import Vector


def a_job(**changes: Any) -> Job:
    config = Config(
        base=BaseConfig(seed=7),
        vec=VecConfig(num_envs=8, num_threads=changes.pop("num_threads", "auto")),
        policy=PolicyConfig(name=changes.pop("policy", "mlp"), hidden_size=8),
        train=TrainConfig(total_timesteps=1280, horizon=8, minibatch_size=32, **changes.pop("train", {})),
    )
    env = Guess()
    job = Job(
        env=EnvSpec("test/guess", make="fakes:Guess"),
        env_name="test/guess",
        params={},
        observation_space=env.single_observation_space,
        action_space=env.single_action_space,
        agents_per_env=1,
        table=None,
        config=config,
        device="cpu",
    )
    return replace(job, **changes)


def test_torch_supports_the_job() -> None:
    assert rl.supports(a_job()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train": {"compile": True}}, "train.compile: the network `mlp` has nothing to compile"),
        ({"device": "foo"}, "train.device=foo: torch knows no such device"),
        ({"device": "cuda:x"}, "knows no such device"),
        ({"device": "meta"}, "can't compute on it"),
        ({"action_space": spaces.MultiBinary(2)}, "not an action space"),
    ],
)
def test_torch_says_what_it_does_not_support(changes: dict[str, Any], reason: str) -> None:
    found = rl.supports(a_job(**changes))
    assert found is not None
    assert reason in found


def test_torch_says_that_a_compiler_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = {
        "observation_space": spaces.Box(0, 255, (36, 36, 1), np.uint8),
        "policy": "cnn",
        "train": {"compile": True},
    }
    assert rl.supports(a_job(**pictures)) is None
    monkeypatch.setattr("puffer_core.rl.job.lacks_compiler", lambda: True)
    found = rl.supports(a_job(**pictures))
    assert found is not None
    assert "needs a C++ compiler, and neither $CXX nor g++, c++, clang++ is on PATH" in found


@pytest.mark.parametrize("changes", [{"precision": "bfloat16"}])
def test_torch_supports_options_of_speed(changes: dict[str, Any]) -> None:
    assert rl.supports(a_job(train=changes)) is None


@pytest.mark.parametrize(("count", "reason"), [(0, "no GPU"), (2, "torch finds 2 GPUs")])
def test_torch_says_that_a_gpu_is_missing(monkeypatch: pytest.MonkeyPatch, count: int, reason: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: count > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    assert reason in str(rl.supports(a_job(device="cuda:99")))


def test_make_opens_the_vector_and_trains() -> None:
    job = a_job()
    trainer = rl.make(job, plan(job.config, 1, is_native=False))
    assert (trainer.vector.num_agents, trainer.total_epochs) == (8, 20)
    rows = run(trainer, 2)
    assert rows[-1]["step"] == 128
    trainer.close()
    trainer.close()


def test_make_closes_the_vector_when_the_network_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    monkeypatch.setattr(Vector, "close", lambda self: closed.append(self.name))
    job = a_job(policy="no-such-encoder")
    with pytest.raises(UnknownNameError, match="no-such-encoder"):
        rl.make(job, plan(job.config, 1, is_native=False))
    assert len(closed) == 1
