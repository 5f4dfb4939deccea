"""Runs of a user's own network: trained, saved, gone on with, loaded and evaluated; ratio 1 at the start (T05)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Guess, make_trainer
from fakes_modules import Both, Demands, Mutates, Noisy, Parts, Plain, Returns, Stacked

import puffer_core
from puffer_core.env import PufferEnv
from puffer_core.errors import OptionError, RunError
from puffer_core.evaluate import evaluate
from puffer_core.rl.trainer import PuffeRL
from puffer_core.specs import EnvSpec
from puffer_core.training import run, train
from puffer_core.vector.serial import Serial

GUESS = EnvSpec("fake/guess", make="fakes:Guess")
KINDS = [Plain, Both, Returns, Stacked, Mutates, Demands, Parts]


def guessing(policy: Any, **options: Any) -> PuffeRL:
    return make_trainer(Serial(Guess, params={"agents": 8}), policy=policy, **options)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_t05_ratio_of_a_module_is_one_before_any_update(kind: Any) -> None:
    vector = Serial(Guess, params={"agents": 8})
    trainer = make_trainer(vector, policy=kind(vector), learning_rate=0.0)
    for _ in range(3):
        trainer.evaluate()
        losses = trainer.train()
        assert losses["importance"] == pytest.approx(1.0, abs=1e-5)
        assert losses["kl"] == pytest.approx(0.0, abs=1e-6)
    trainer.close()


def test_a_module_that_draws_is_told_off() -> None:
    trainer = guessing(Noisy, learning_rate=0.0)
    trainer.evaluate()
    with pytest.warns(UserWarning, match="policy `Noisy` computes other probabilities for learning than for acting"):
        trainer.train()
    trainer.close()


def options(path: Path, **more: str) -> dict[str, str]:
    train_ = {"horizon": "8", "minibatch_size": "64", "learning_rate": "0.03", "optimizer": "adam"}
    chosen = {f"train.{key}": value for key, value in train_.items()} | {"runs_dir": str(path / "runs")}
    return chosen | {"vec.num_envs": "4", "env.agents": "4", "train.total_timesteps": "2560"} | more


@pytest.mark.parametrize("kind", [Plain, Mutates, Parts], ids=lambda kind: kind.__name__)
def test_a_run_of_a_module_is_saved_gone_on_with_and_loaded(kind: Any, tmp_path: Path) -> None:
    result = train(GUESS, options=options(tmp_path), policy=kind)
    half = train(GUESS, options=options(tmp_path), policy=kind, stop_at=1280)
    rest = train(GUESS, options={"runs_dir": str(tmp_path / "runs")}, policy=kind, resume=half["run_dir"])
    agent, other = (puffer_core.load(found["run_dir"], policy=kind) for found in (result, rest))
    assert agent.step == other.step == 2560
    for name, weights in agent.policy.state_dict().items():
        assert torch.equal(weights, other.policy.state_dict()[name]), name
    observations, state = np.array([[-1, 0], [1, 0]], np.float32), None
    actions, state = agent.act(observations, state, greedy=True)
    assert actions.tolist() == [0, 1]
    agent.act(observations, state, resets=np.array([True, False]))


def test_a_run_of_a_module_says_what_is_missing(tmp_path: Path) -> None:
    result = train(GUESS, options=options(tmp_path, **{"train.total_timesteps": "256"}), policy=Plain)
    with pytest.raises(RunError, match="was trained with a policy of its own, the class `Plain`") as caught:
        puffer_core.load(result["run_dir"])
    assert caught.value.hint is not None
    assert "policy=Plain" in caught.value.hint
    with pytest.raises(RunError, match="trained with the class `Plain`, the policy given is `Both`"):
        puffer_core.load(result["run_dir"], policy=Both)
    built_in = train(GUESS, options=options(tmp_path, **{"train.total_timesteps": "256"}))
    with pytest.raises(RunError, match="trained with the built-in network `mlp`, the policy given is `Plain`"):
        puffer_core.load(built_in["run_dir"], policy=Plain)


def test_a_run_of_a_module_is_evaluated_when_it_is_given(tmp_path: Path) -> None:
    result = run(GUESS, options=options(tmp_path, **{"base.eval_episodes": "16"}), policy=Plain)
    assert result["episodes"] == 16
    given = {"load": result["run_dir"], "episodes": 16}
    assert evaluate(GUESS, **given, policy=Plain)["score"] == result["score"]
    with pytest.raises(RunError, match="was trained with a policy of its own, the class `Plain`"):
        evaluate(GUESS, **given)
    with pytest.raises(RunError, match="was trained with a policy of its own") as caught:
        evaluate(GUESS, load=result["run_dir"], policy=Plain, versus=result["run_dir"], options={"env.agents": "2"})
    assert "policy=Plain" in str(caught.value.hint)
    with pytest.raises(RunError, match="trained with the class `Plain`, the policy given is `Both`"):
        evaluate(GUESS, **given, policy=Both)


def test_a_network_of_ones_own_is_compiled_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr("puffer_core.rl.job.lacks_compiler", lambda: False)
    monkeypatch.setattr("torch.compile", lambda call: compiled.append(call) or call)
    chosen = options(tmp_path, **{"train.total_timesteps": "128", "train.compile": "true"})
    half = train(GUESS, options=chosen, policy=Plain, stop_at=64)
    assert len(compiled) == 2  # for acting and for learning
    train(GUESS, options={"runs_dir": str(tmp_path / "runs")}, policy=Plain, resume=half["run_dir"])
    assert len(compiled) == 4
    with pytest.raises(OptionError, match="the network `mlp` has nothing to compile"):
        train(GUESS, options=chosen)


def test_a_factory_draws_by_the_seed_of_the_run() -> None:
    first, second, third = (guessing(Plain, seed=seed) for seed in (1, 1, 2))
    state = torch.get_rng_state()
    weights = [trainer.policy.state_dict()["module.body.weight"] for trainer in (first, second, third)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)
    for trainer in (first, second, third):
        trainer.close()


class OneOfN(PufferEnv):
    """Environment i allows only action i % N, and raises at any other (case T13)."""

    N = 5

    def __init__(self, buf: Any = None) -> None:
        from gymnasium import spaces

        self.single_observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.single_action_space = spaces.Discrete(self.N)
        self.num_agents, self.has_action_mask = 1, True
        super().__init__(buf)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.legal, self.time = index % self.N, 0
        assert self.action_mask is not None
        self.action_mask[:] = 0
        self.action_mask[:, self.legal] = 1
        return self.observations, []

    def step(self, actions: Any) -> Any:
        if int(actions.ravel()[0]) != self.legal:
            raise ValueError(f"action {actions} where only {self.legal} is legal")
        self.time += 1
        self.rewards[:] = 1.0
        self.terminals[:] = self.time % 7 == 0
        return self.observations, self.rewards, self.terminals, self.truncations, []


def play_masked(rounds: int, path: Path) -> None:
    trainer = make_trainer(Serial(OneOfN, 8), horizon=32, minibatch_size=256, epochs=rounds)
    for _ in range(rounds):
        trainer.evaluate()
        trainer.train()
    trainer.save(path)
    trainer.close()
    evaluated = puffer_core.evaluate(EnvSpec("fake/one", make="test_policies_module_runs:OneOfN"), load=path)
    assert evaluated["score"] == 7.0


def test_t13_masked_actions_are_never_taken(tmp_path: Path) -> None:
    play_masked(40, tmp_path / "checkpoint")


@pytest.mark.slow
def test_t13_masked_actions_are_never_taken_in_a_million_steps(tmp_path: Path) -> None:
    play_masked(3907, tmp_path / "checkpoint")
