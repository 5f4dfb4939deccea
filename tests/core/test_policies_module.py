"""A user's own module as a policy: every calling convention acts and learns alike, and mistakes are named."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from fakes_modules import Both, Demands, Gaussian, Mutates, Parts, Plain, Returns, Stacked
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical

from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import EnvError, OptionError, ShapeError
from puffer_core.policies.module import CoreModule, ModulePolicy, PolicyEnv, adapt, module_name

OBSERVED = spaces.Box(-1, 1, (3,), np.float32)
VIEW = PolicyEnv(OBSERVED, spaces.Discrete(4), 5)
WIDTHS = {Plain: 0, Both: 0, Returns: 8, Stacked: 32, Mutates: 16, Demands: 16}


def adapted(kind: Any, view: PolicyEnv = VIEW, **options: Any) -> Any:
    torch.manual_seed(3)
    return adapt(kind(view), view.single_observation_space, view.single_action_space, **options)


def act_through(policy: Any, observations: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
    """What acting computes step by step; the reference of the pass over segments."""
    logits, values = [], []
    for t, seen in enumerate(observations):
        state = torch.where(resets[t][:, None], 0.0, state) if t else state
        z, v, state = policy.forward_eval(seen, state)
        logits.append(z)
        values.append(v)
    return torch.cat(logits), torch.cat(values)


@pytest.mark.parametrize("kind", list(WIDTHS), ids=lambda kind: kind.__name__)
def test_module_learns_from_what_it_acted_on(kind: Any) -> None:
    policy = adapted(kind)
    state = policy.initial_state(5)
    assert state.shape == ((1, 5, WIDTHS[kind]) if WIDTHS[kind] else (0, 5, 0))
    observations, resets = torch.randn(6, 5, 3), torch.rand(6, 5) < 0.3
    if WIDTHS[kind]:
        state = torch.randn_like(state)
    with torch.no_grad():
        wanted = act_through(policy, observations, state, resets)
        found = policy(observations, state, resets)
    assert torch.allclose(found[0], wanted[0], atol=1e-6)
    assert torch.allclose(found[1], wanted[1], atol=1e-6)
    assert set(policy.state_dict()) == {f"module.{name}" for name in policy.module.state_dict()}
    if WIDTHS[kind]:
        assert not torch.allclose(policy(observations, state, torch.zeros_like(resets))[0], wanted[0])


def test_state_of_torchs_own_lstm_goes_in_as_it_came_out() -> None:
    policy, observations = adapted(Stacked), torch.randn(2, 5, 3)
    module = policy.module
    with torch.no_grad():
        _, _, after = module(observations[0])
        wanted = module(observations[1], after)[0]
        _, _, state = policy.forward_eval(observations[0], policy.initial_state(5))
        found, _, _ = policy.forward_eval(observations[1], state)
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("core", ["mingru", "lstm"])
def test_encoder_and_decoder_get_a_core(core: str) -> None:
    policy = adapted(Parts, core=core, num_layers=2, generator=torch.Generator().manual_seed(1))
    assert isinstance(policy, CoreModule)
    state = torch.rand_like(policy.initial_state(5))
    observations, resets = torch.randn(6, 5, 3), torch.rand(6, 5) < 0.3
    with torch.no_grad():
        wanted, found = act_through(policy, observations, state, resets), policy(observations, state, resets)
    assert torch.allclose(found[0], wanted[0], atol=1e-5)
    assert torch.allclose(found[1], wanted[1], atol=1e-5)
    names = set(policy.state_dict())
    assert {"module.body.weight", "layers.0.weight", "layers.1.weight"} <= names
    assert not any(name.startswith("_") for name in names)


def test_encoder_and_decoder_stay_alone_without_a_core() -> None:
    assert isinstance(adapted(Parts), ModulePolicy)
    assert module_name(adapted(Parts)) == "Parts"


def test_normal_of_the_state_brings_its_own_deviations() -> None:
    view = PolicyEnv(OBSERVED, spaces.Box(-1, 1, (1,), np.float32))
    policy = adapted(Gaussian, view)
    assert (policy.layout.deviates_by_state, policy.layout.width, policy.logstd) == (True, 2, None)
    observations = torch.randn(5, 3)
    logits, _, _ = policy.forward_eval(observations, policy.initial_state(5))
    distribution, actions = policy.module(observations)[0], torch.randn(5, 1)
    found = policy.layout.log_prob(logits, actions, None, None)
    assert torch.allclose(found, distribution.log_prob(actions).sum(1), atol=1e-5)
    noise = torch.randn(5, 1)
    drawn = policy.layout.sample(logits, noise, None, None)
    assert torch.allclose(drawn, distribution.loc + distribution.scale * noise, atol=1e-6)
    assert torch.equal(policy.layout.greedy(logits, None), distribution.loc)


class Answer(nn.Module):
    """Returns what it is told."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, observations: Any) -> Any:
        return self.answer(observations)


def answering(answer: Any, action_space: Any, **more: Any) -> ModulePolicy:
    return ModulePolicy(Answer(answer), OBSERVED, action_space, **more)


def test_means_alone_get_learned_deviations() -> None:
    policy = answering(lambda o: (o[:, :2], o[:, 0]), spaces.Box(-1, 1, (2,), np.float32), box="squashed")
    assert policy.logstd is not None
    assert policy.logstd.shape == (1, 2)
    assert policy.layout.is_squashed


@pytest.mark.parametrize("form", ["tuple", "categorical"])
def test_heads_may_come_one_by_one(form: str) -> None:
    def answer(seen: Tensor) -> Any:
        heads = (seen[:, :2], seen)
        return (heads if form == "tuple" else [Categorical(logits=head) for head in heads]), seen[:, :1]

    policy, seen = answering(answer, spaces.MultiDiscrete([2, 3])), torch.randn(4, 3)
    logits, values, _ = policy.forward_eval(seen, policy.initial_state(4))
    assert (logits.shape, values.shape) == ((4, 5), (4,))
    actions = torch.tensor([[0, 1], [1, 2], [0, 0], [1, 1]])
    wanted = sum(Categorical(logits=h).log_prob(a) for h, a in zip((seen[:, :2], seen), actions.t(), strict=True))
    assert torch.allclose(policy.layout.log_prob(logits, actions, None, None), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda o: o, r"`Answer` returned a tensor \(2, 3\)"),
        (lambda o: (o[:, :2], o[:, 0]), r"logits \(2, 2\), these actions need \(n, 3\)"),
        (lambda o: (o, o), r"returned a tensor \(2, 3\) as values of 2 rows"),
        (lambda o: (None, o[:, 0]), r"returned NoneType among its logits"),
        (lambda o: (o, o[:, 0], o), r"returns a state and has no argument for one"),
        (lambda o: (o[:1], o[:1, 0]), r"returned 1 rows for 2"),
        (lambda o: ((), o[:, 0]), r"returned no logits"),
    ],
)
def test_what_does_not_fit_is_named(answer: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        answering(answer, spaces.Discrete(3))


class Silent(nn.Module):
    """Can't be called."""


class Odd(nn.Module):
    """Its state has no axis of rows."""

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        return observations, observations[:, 0], torch.zeros(7)


def test_networks_that_can_not_be_called_are_named() -> None:
    with pytest.raises(ShapeError, match="`Silent` has neither `forward` nor `forward_eval`"):
        ModulePolicy(Silent(), OBSERVED, spaces.Discrete(3))
    with pytest.raises(ShapeError, match=r"`Odd` has a state \(7,\) for 2 rows and \(7,\) for 3"):
        ModulePolicy(Odd(), OBSERVED, spaces.Discrete(3))
    with pytest.raises(EnvError, match=r"`Answer` can't be called with observations of Box.*: no way"):
        answering(lambda o: (_ for _ in ()).throw(ValueError("no way")), spaces.Discrete(3))
    with pytest.raises(OptionError, match=r"a policy is a torch\.nn\.Module, this is 3"):
        adapt(3, OBSERVED, spaces.Discrete(3))


class Nested(nn.Module):
    """Asks for nested observations."""

    nativize = True

    def forward(self, observations: Any) -> Any:
        return observations["b"], observations["a"].sum(1)


def test_nested_observations_come_nested_where_they_are_asked_for() -> None:
    space = FlatBox(spaces.Dict(a=spaces.Box(-1, 1, (2,), np.float32), b=spaces.Box(-1, 1, (3,), np.float32)))
    policy = ModulePolicy(Nested(), space, spaces.Discrete(3))
    given = {"a": np.ones((4, 2), np.float32), "b": np.arange(12, dtype=np.float32).reshape(4, 3) / 12}
    rows = torch.from_numpy(space.flatten(given))
    logits, values, _ = policy.forward_eval(rows, policy.initial_state(4))
    assert torch.equal(logits, torch.from_numpy(given["b"]))
    assert values.tolist() == [2.0] * 4
    both, _ = policy(rows[None], policy.initial_state(4), torch.zeros(1, 4, dtype=torch.bool))
    assert torch.equal(both, logits)


def test_dropout_is_off_and_recurrent_layers_stay_trainable() -> None:
    class Dropping(Plain):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.drop, self.core = nn.Dropout(0.5), nn.LSTM(3, 4)

    policy = adapted(Dropping).train()
    assert not policy.module.drop.training
    assert policy.module.core.training


@pytest.mark.parametrize(("kind", "core"), [(Plain, "none"), (Both, "none"), (Parts, "none"), (Parts, "mingru")])
def test_a_copy_of_a_compiled_network_keeps_its_own_weights(kind: Any, core: str) -> None:
    policy = adapted(kind, core=core)
    policy.compile(backend="eager")
    x, state = torch.randn(5, 3), policy.initial_state(5)
    before = policy.forward_eval(x, state)[0]
    frozen = deepcopy(policy)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(1.0)
    assert torch.equal(frozen.forward_eval(x, state)[0], before)
    torch.testing.assert_close(frozen(x[None], state, torch.zeros(1, 5, dtype=torch.bool))[0], before)
    assert not torch.equal(policy.forward_eval(x, state)[0], before)


def test_a_policy_is_not_adapted_again() -> None:
    policy = adapted(Plain)
    assert adapt(policy, OBSERVED, spaces.Discrete(4)) is policy


def test_the_view_has_the_names_of_both_interfaces() -> None:
    assert VIEW.observation_space is VIEW.single_observation_space
    assert VIEW.action_space is VIEW.single_action_space
