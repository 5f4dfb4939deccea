"""What acting and learning call: reduced precision, torch.compile, and threads that alter nothing."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from fakes import ScriptedVector, make_trainer, run
from fakes_modules import Parts
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.config.schema import PolicyConfig
from puffer_core.policies import Policy, make_policy
from puffer_core.policies.module import ModulePolicy, adapt
from puffer_core.rl import checkpoint, network
from puffer_core.rl.loss import Coefficients
from puffer_core.rl.threads import threads_for
from puffer_core.rl.trainer import PuffeRL

CORES = ("none", "mingru", "lstm")
PICTURES = spaces.Box(0, 255, (36, 36, 1), np.uint8)


class Plain(nn.Module):
    """A user's network."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(16, width), nn.Linear(width, 3)

    def forward(self, observations: Any) -> Any:
        out = self.head(torch.relu(self.body(observations)))
        return out[:, :2], out[:, 2]


def trainer_of(core: str = "mingru", policy: Any = None, **options: Any) -> PuffeRL:
    rng = np.random.default_rng(0)
    observations, ends = rng.normal(size=(60, 16, 16)).astype(np.float32), rng.random((60, 16)) < 0.1
    scripted = ScriptedVector(observations, rewards=rng.normal(size=(60, 16)), terminals=ends)
    return make_trainer(scripted, policy=policy, policy_hidden_size=64, policy_core=core, **options)


def first_ratios(trainer: PuffeRL) -> Tensor:
    """Return the importance ratios of four rows before any update."""
    trainer.evaluate()
    rows, zeros = torch.arange(4), torch.zeros(trainer.plan.horizon, 4)
    trainer._learn(rows, zeros, zeros, None, float(zeros.numel()), Coefficients(0.2, 0.2, 1.0, 0.0))
    return trainer._ratio[:, rows]


def picture_policy(name: str = "cnn") -> Policy:
    config = PolicyConfig(name=name, hidden_size=16, core="mingru")
    return make_policy(config, PICTURES, spaces.Discrete(3), torch.Generator().manual_seed(0))


def outputs(policy: Any, horizon: int = 3, segments: int = 4) -> tuple[Tensor, Tensor]:
    pictures = torch.arange(horizon * segments * 36 * 36).remainder(251).to(torch.uint8)
    resets = torch.zeros(horizon, segments, dtype=torch.bool)
    found: tuple[Tensor, Tensor] = policy(
        pictures.view(horizon, segments, 36, 36, 1), policy.initial_state(segments), resets
    )
    return found


@pytest.mark.parametrize("core", CORES)
def test_a27_in_bfloat16_ratios_before_the_first_update_are_one(core: str) -> None:
    ratio = first_ratios(trainer_of(core, precision="bfloat16"))
    assert ratio.dtype == torch.float32
    assert (ratio - 1.0).abs().max() < 1e-3


@pytest.mark.parametrize(("make", "core"), [(lambda _: Plain(), "none"), (Parts, "mingru"), (Parts, "lstm")])
def test_a27_of_a_users_network(make: Any, core: str) -> None:
    ratio = first_ratios(trainer_of(core, policy=make, precision="bfloat16"))
    assert (ratio - 1.0).abs().max() < 1e-3


@pytest.mark.parametrize("core", CORES)
def test_bfloat16_is_in_products_only(core: str) -> None:
    full, half = trainer_of(core), trainer_of(core, precision="bfloat16")
    for trainer in (full, half):
        run(trainer, 1)
    for array in (half.rollout.values, half.rollout.logits, half.rollout.logprobs, half.optimizer.gradient):
        assert array.dtype == torch.float32
    assert {p.dtype for p in half.policy.parameters()} == {torch.float32}
    error = (half.rollout.logits - full.rollout.logits).abs().max() / full.rollout.logits.abs().max()
    assert 0.0 < error < 0.05


@pytest.mark.parametrize("core", CORES)
def test_gradients_in_bfloat16_point_where_those_in_float32_do(core: str) -> None:
    policy = trainer_of(core).policy
    g = torch.Generator().manual_seed(1)
    observations, resets = torch.randn(8, 32, 16, generator=g), torch.rand(8, 32, generator=g) < 0.1
    resets[0] = False
    found = []
    for is_reduced in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_reduced):
            logits, values = policy(observations, policy.initial_state(32), resets)
        loss = logits.square().sum() + values.square().sum()
        found.append(torch.cat([p.flatten() for p in torch.autograd.grad(loss, list(policy.parameters()))]))
    assert torch.cosine_similarity(*found, dim=0) > 0.999


def test_a_policy_compiles_its_encoder_and_keeps_its_names() -> None:
    policy = picture_policy()
    names, before = list(policy.state_dict()), outputs(policy)
    policy.compile(backend="eager")
    assert list(checkpoint.plain(policy).state_dict()) == names
    assert torch.equal(outputs(policy)[0], before[0])


def test_a_users_network_is_compiled_and_keeps_its_names() -> None:
    flat, actions = spaces.Box(-1, 1, (16,), np.float32), spaces.Discrete(2)
    policy = adapt(Plain(), flat, actions)
    assert isinstance(policy, ModulePolicy)
    names, x = list(policy.state_dict()), torch.randn(5, 16)
    before = policy.forward_eval(x, policy.initial_state(5))
    policy.compile(backend="eager")
    after = policy.forward_eval(x, policy.initial_state(5))
    assert list(policy.state_dict()) == names
    assert torch.equal(before[0], after[0])


def test_compile_is_asked_for_by_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(Policy, "compile", lambda self: asked.append(self))
    trainer = trainer_of(compile=True)
    assert asked == [trainer.policy]


def test_a_missing_compiler_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(network.shutil, "which", lambda name: None)
    assert network.lacks_compiler()
    monkeypatch.setattr(network.shutil, "which", lambda name: name if name == "clang++" else None)
    assert not network.lacks_compiler()


@pytest.mark.parametrize("actions", range(2, 13))
def test_d01_any_number_of_actions_gives_the_same_bits_on_one_thread_and_two(actions: int) -> None:
    rng = torch.Generator().manual_seed(actions)
    config = PolicyConfig(hidden_size=64, core="mingru", num_layers=1)
    policy = make_policy(config, spaces.Box(-1, 1, (16,), np.float32), spaces.Discrete(actions), rng)
    assert policy.encoder.splits_alike
    observations, resets = torch.randn(16, 64, 16, generator=rng), torch.zeros(16, 64, dtype=torch.bool)
    weights = torch.randn(16 * 64, actions, generator=rng)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            logits, values = policy(observations, policy.initial_state(64), resets)
            loss = torch.dot(logits.flatten(), weights.flatten()) + values @ weights[:, 0]
            found.append([logits, values, *torch.autograd.grad(loss, list(policy.parameters()))])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_d01_the_clock_chooses_threads_only_where_bits_are_the_same() -> None:
    flat, large = spaces.Box(-1, 1, (16,), np.float32), 1_000_000
    mlp = trainer_of().policy
    user = adapt(Plain(), flat, spaces.Discrete(2))
    assert threads_for(mlp, large, 2)._counts == (1, 2)
    assert threads_for(mlp, large, 3)._counts == (1, 2)
    assert threads_for(mlp, large, 8)._counts == (1, 8)
    assert threads_for(trainer_of("lstm").policy, large, 8)._counts == (1, 2)
    assert threads_for(mlp, large, 2, is_plain=False)._counts == (2,)
    assert threads_for(user, large, 2)._counts == (2,)
    assert threads_for(picture_policy(), 8, 2)._counts == (2,)
    for small in (mlp, user):
        assert threads_for(small, 8, 2)._counts == (1,)
    assert threads_for(mlp, large, 1)._counts == (1,)


def test_fixed_threads_are_used_and_left() -> None:
    before = torch.get_num_threads()
    try:
        with threads_for(picture_policy(), 8, 2):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_compiled_network_learns_what_the_plain_one_learns() -> None:
    policies = [Plain(), Plain()]
    trainers = [trainer_of(policy=policy, compile=asked) for policy, asked in zip(policies, (False, True), strict=True)]
    for trainer in trainers:
        run(trainer, 2)
    for one, two in zip(*(policy.parameters() for policy in policies), strict=True):
        assert torch.allclose(one, two, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("core", CORES)
def test_bfloat16_on_a_gpu(core: str) -> None:
    policy = copy.deepcopy(trainer_of(core).policy).cuda()
    reduced = network.Reduced(policy, torch.device("cuda"), torch.bfloat16)
    x, resets = torch.randn(4, 8, 16, device="cuda"), torch.zeros(4, 8, dtype=torch.bool, device="cuda")
    logits, values = reduced(x, policy.initial_state(8), resets)
    wanted, _ = policy(x, policy.initial_state(8), resets)
    assert logits.dtype == values.dtype == torch.float32
    assert (logits - wanted).abs().max() < 0.05 * wanted.abs().max()
    torch.autograd.backward(logits.sum() + values.sum())


@pytest.mark.gpu
def test_compile_on_a_gpu() -> None:
    policy = adapt(Plain(), spaces.Box(-1, 1, (16,), np.float32), spaces.Discrete(2)).cuda()
    x = torch.randn(64, 16, device="cuda")
    before = policy.forward_eval(x, policy.initial_state(64))
    policy.compile()
    after = policy.forward_eval(x, policy.initial_state(64))
    assert torch.allclose(before[0], after[0], atol=1e-5)
