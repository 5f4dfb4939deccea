"""One network per kind of agent: who computes which row, who learns from it, and what a checkpoint holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import make_trainer, run
from fakes_typed import Chase, Opposites
from gymnasium import spaces

import puffer_core
from puffer_core.config.schema import Config, PolicyConfig, SelfPlayConfig
from puffer_core.emulation.pettingzoo import PettingZooPufferEnv
from puffer_core.errors import EnvError, OptionError, RunError, ShapeError
from puffer_core.policies import Policy, make_policy
from puffer_core.policies.typed import TypedPolicy, agent_types
from puffer_core.rl.agent import load
from puffer_core.rl.replay import ALONE
from puffer_core.rl.selfplay import SelfPlay
from puffer_core.rl.streams import generator
from puffer_core.vector import make
from puffer_core.vector.base import Vector

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
SPACES = {
    "discrete": spaces.Discrete(3),
    "gaussian": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "squashed": spaces.Box(-1.0, 1.0, (2,), np.float32),
}
TYPES = (0, 1, 1, 2)
SMALL = {"train.total_timesteps": "1k", "train.horizon": "8", "train.minibatch_size": "64", "vec.num_envs": "4"}


def typed(core: str = "mingru", kind: str = "discrete", types: tuple[int, ...] = TYPES, **options: Any) -> TypedPolicy:
    box: Any = "squashed" if kind == "squashed" else "gaussian"
    config = PolicyConfig(hidden_size=8, core=core, box=box, **options)  # type: ignore[arg-type]
    policy = make_policy(config, BOX, SPACES[kind], torch.Generator().manual_seed(1), None, types)
    assert isinstance(policy, TypedPolicy)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return policy


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("kind", SPACES)
def test_each_row_is_what_the_network_of_its_kind_computes(core: str, kind: str) -> None:
    policy, agents = typed(core, kind), torch.tensor([3, 0, 2, 1, 0, 3])
    observations, state = torch.randn(6, 3), torch.randn_like(policy.initial_state(6))
    with torch.no_grad():
        found = policy.forward_eval(observations, state, agents=agents)
        every = policy.forward_every(observations, state, agents)
        for row, agent in enumerate(agents.tolist()):
            network = policy.types[TYPES[agent]]
            logits, values, after = network.forward_eval(observations[row : row + 1], state[:, row : row + 1])
            if network.logstd is not None:
                logits = torch.cat([logits, network.logstd], 1)
            for result in (found, every):
                for here, alone in zip(result, (logits, values, after), strict=True):
                    mine = here[:, row : row + 1] if here.ndim == 3 else here[row : row + 1]
                    torch.testing.assert_close(mine, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
def test_learning_computes_what_acting_does(core: str) -> None:
    policy, agents = typed(core, "gaussian", normalize_observations=True), torch.tensor([3, 0, 2, 1, 0])
    assert policy.normalizer is not None
    policy.normalizer.update(torch.randn(50, 3) + 1.0)
    observations, resets = torch.randn(6, 5, 3), torch.rand(6, 5) < 0.3
    first = state = torch.randn_like(policy.initial_state(5))
    acted = []
    with torch.no_grad():
        for t in range(6):
            state = torch.where(resets[t][None, :, None] & (t > 0), torch.zeros(()), state)
            logits, values, state = policy.forward_eval(observations[t], state, agents=agents)
            acted.append((logits, values))
        logits, values = policy(observations, first, resets, agents=agents)
    torch.testing.assert_close(logits, torch.cat([pair[0] for pair in acted]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values, torch.cat([pair[1] for pair in acted]), rtol=1e-4, atol=1e-5)


def test_only_the_network_of_a_row_learns_from_it() -> None:
    policy = typed(kind="gaussian")
    segments = torch.randn(4, 2, 3), policy.initial_state(2), torch.zeros(4, 2, dtype=torch.bool)
    logits, values = policy(*segments, agents=torch.tensor([1, 2]))  # both of type 1
    (logits.square().sum() + values.sum()).backward()  # type: ignore[no-untyped-call]
    for name, parameter in policy.named_parameters():
        has_learnt = parameter.grad is not None and bool(parameter.grad.any())
        assert has_learnt == name.startswith("types.1."), name


def test_names_and_weights_are_those_of_plain_networks() -> None:
    policy, plain = typed(), make_policy(PolicyConfig(hidden_size=8), BOX, SPACES["discrete"], torch.Generator())
    assert list(policy.state_dict()) == [f"types.{kind}.{name}" for kind in range(3) for name in plain.state_dict()]
    first, second = (dict(policy.types[kind].named_parameters()) for kind in (0, 1))
    assert not torch.equal(first["encoder.weight"], second["encoder.weight"])


@pytest.mark.parametrize(
    ("parameters", "declared", "kinds"),
    [
        ("shared", (0, 1, 0), ()),
        ("per-type", (7, 3, 7), (0, 1, 0)),
        ("per-type", (2, 2, 2), ()),
        ("per-type", (), ()),
        ("per-agent", (0, 0, 0), (0, 1, 2)),
    ],
)
def test_kinds_that_an_option_asks_for(parameters: str, declared: tuple[int, ...], kinds: tuple[int, ...]) -> None:
    with make(lambda buf=None: Opposites(buf, types=declared), num_envs=2) as vector:
        assert vector.agent_types == declared
        assert agent_types(parameters, vector) == kinds


def test_one_kind_is_the_plain_network_bit_by_bit() -> None:
    with_kinds, without = (
        make_policy(PolicyConfig(hidden_size=8), BOX, SPACES["discrete"], torch.Generator().manual_seed(2), None, kinds)
        for kinds in ((0, 0), ())
    )
    assert isinstance(with_kinds, Policy)
    for name, tensor in without.state_dict().items():
        assert torch.equal(tensor, with_kinds.state_dict()[name])


@pytest.mark.parametrize("types", [(0, 1), (0, 1, -1), (0, 1, 0.5)])
def test_types_that_fit_no_agents_are_refused(types: Any) -> None:
    with pytest.raises(EnvError, match="is not one integer of at least 0 for each of 3 agents"):
        make(lambda buf=None: Opposites(buf, types=types), num_envs=1)


def test_environments_of_other_types_do_not_go_together() -> None:
    with pytest.raises(EnvError, match=r"environment 1 has agent_types \(0, 0, 1\), the first has \(0, 1, 0\)"):
        make([Opposites, lambda buf=None: Opposites(buf, types=(0, 0, 1))], num_envs=2)


def trainer_of(vector: Vector, kinds: tuple[int, ...] = (0, 1, 0), **options: Any) -> Any:
    config = PolicyConfig(hidden_size=16, num_layers=1, parameters="per-type")
    spaces_: Any = vector.single_observation_space, vector.single_action_space
    policy = make_policy(config, *spaces_, generator(3, "policy"), None, kinds)
    return make_trainer(vector, policy=policy, policy_parameters="per-type", minibatch_size=48, **options)


def test_two_and_two_epochs_are_four(tmp_path: Path) -> None:
    with make(Opposites, num_envs=4) as vector:
        whole = trainer_of(vector)
        run(whole, 4)
    with make(Opposites, num_envs=4) as vector:
        first = trainer_of(vector)
        run(first, 2)
        first.save(tmp_path / "2")
    with make(Opposites, num_envs=4) as vector:
        second = trainer_of(vector)
        assert second.load(tmp_path / "2") == ()
        run(second, 2)
        for name, tensor in whole.policy.state_dict().items():
            assert torch.equal(tensor, second.policy.state_dict()[name]), name
    with make(Opposites, num_envs=4) as vector, pytest.raises(RunError, match="does not fit"):
        trainer_of(vector, (0, 1, 1)).load(tmp_path / "2")
    agent = load(tmp_path / "2")
    assert isinstance(agent.policy, TypedPolicy)
    assert agent.policy.agent_types == (0, 1, 0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.Box(0.0, 1.0, (1,), np.float32)])
def test_kinds_that_should_do_opposite_things_learn_to(precision: str, space: Any) -> None:
    is_short = precision != "float32" or isinstance(space, spaces.Box)
    with make(lambda buf=None: Opposites(buf, space), num_envs=8) as vector:
        trainer = trainer_of(vector, epochs=30, precision=precision)
        run(trainer, 1 if is_short else 30)
        assert is_short or trainer.rollout.rewards[1:].mean() > 0.85


def test_partial_batches_call_the_network_of_each_row() -> None:
    with make(Opposites, num_envs=4, backend="multiprocessing", num_workers=2, batch_size=2) as vector:
        assert vector.agent_types == (0, 1, 0)
        trainer = trainer_of(vector)
        trainer.evaluate()
        segments = trainer.rollout.gather(torch.arange(12))
        assert segments.agents["agents"].tolist() == [0, 1, 2] * 4
        with torch.no_grad():
            logits, _ = trainer.policy(segments.observations, segments.state, segments.resets, **segments.agents)
        torch.testing.assert_close(logits.view_as(trainer.rollout.logits), trainer.rollout.logits, rtol=1e-4, atol=1e-5)


def test_agents_of_pettingzoo_have_the_types_of_their_names() -> None:
    assert PettingZooPufferEnv(Chase()).agent_types == (0, 1, 1)


def test_a_pettingzoo_environment_trains_evaluates_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUFFER_RUNS", str(tmp_path))
    options = {**SMALL, "policy.parameters": "per-type", "policy.hidden_size": "16"}
    result = puffer_core.train(Chase, options=options)
    agent = puffer_core.load(result["run_dir"])
    assert agent.policy.agent_types == (0, 1, 1)
    seen = np.ones((3, 2), np.float32)
    assert agent.act(seen, agents=np.array([0, 1, 2]))[0].shape == (3,)
    for agents, given in ((None, "none"), (np.array([0, 1, 3]), r"\[0 1 3\]"), (np.array([0, 1]), r"\[0 1\]")):
        with pytest.raises(ShapeError, match=f"agents: each of 3 rows is one of the agents 0 to 2 .* given: {given}"):
            agent.act(seen, agents=agents)
    assert puffer_core.evaluate(Chase, load=result["run_dir"], episodes=4)["episodes"] >= 4


def test_a_network_of_ones_own_is_for_all_agents() -> None:
    with pytest.raises(OptionError, match=r"policy\.parameters=per-type: a network of your own is one for all agents"):
        puffer_core.train(Chase, policy=torch.nn.Identity, options={**SMALL, "policy.parameters": "per-type"})


def test_agents_of_two_kinds_from_mpe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpe2")
    monkeypatch.setenv("PUFFER_RUNS", str(tmp_path))
    options = {**SMALL, "policy.parameters": "per-type", "policy.hidden_size": "16", "vec.backend": "serial"}
    name = "pettingzoo/simple_adversary_v3"
    result = puffer_core.train(name, options={**options, "train.total_timesteps": "192"})
    assert puffer_core.load(result["run_dir"]).policy.agent_types == (0, 1, 1)


@pytest.mark.parametrize("types", [[0, 2, 0], [0, "one", 0], 5])
def test_damaged_types_are_found_when_loading(types: Any, tmp_path: Path) -> None:
    with make(Opposites, num_envs=4) as vector:
        trainer = trainer_of(vector)
        trainer.save(tmp_path / "0")
    state = json.loads((tmp_path / "0" / "state.json").read_text())
    state["policy"]["agent_types"] = types
    (tmp_path / "0" / "state.json").write_text(json.dumps(state))
    with pytest.raises(RunError, match="is damaged"):
        load(tmp_path / "0")


def test_selfplay_gives_opponents_their_agents() -> None:
    with make(Opposites, num_envs=4) as vector:
        config = Config(selfplay=SelfPlayConfig(enabled=True))
        policy = trainer_of(vector).policy
        selfplay = SelfPlay(config, vector, policy, policy, torch.device("cpu"), ALONE)
        selfplay.draw()
        observations, rows = torch.randn(12, 2), np.arange(12)
        with torch.no_grad():
            found = selfplay.forward_eval(observations, policy.initial_state(12), rows)
            agents = torch.from_numpy(rows % 3)
            alone = policy.forward_eval(observations, policy.initial_state(12), agents=agents)
        assert selfplay.is_frozen.any()
        torch.testing.assert_close(found[0], alone[0])
        torch.testing.assert_close(found[2], alone[2])
