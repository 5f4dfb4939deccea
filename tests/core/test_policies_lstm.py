"""The LSTM: its step, its pass over segments, its gradients, and that it acts and trains alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Guess, ScriptedVector, make_trainer, run
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from puffer_core.config.schema import PolicyConfig
from puffer_core.policies import LSTMLayer, Policy, make_policy
from puffer_core.rl.rollout import Rollout
from puffer_core.vector import make

CPU = torch.device("cpu")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(observed: int = 3, seed: int = 0, **config: Any) -> Policy:
    options = PolicyConfig(**{"core": "lstm", "hidden_size": 8, "num_layers": 2, **config})
    return make_policy(options, spaces.Box(-9, 9, (observed,)), spaces.Discrete(3), seeded(seed))


def by_torch(layer: LSTMLayer, x: Tensor, state: Tensor, flags: Tensor) -> Tensor:
    """Return the outputs of torch's own cell with the same weights, step by step; ``flags`` are (H, S) resets."""
    width, outputs = x.shape[2], []
    cell = torch.nn.LSTMCell(width, width).to(x.dtype)
    bias = torch.zeros(4 * width, dtype=x.dtype) if layer.bias is None else layer.bias
    weights = {
        "weight_ih": layer.weight[:, :width],
        "weight_hh": layer.weight[:, width:],
        "bias_ih": bias,
        "bias_hh": 0 * bias,
    }
    h, c = state.split(width, 1)
    for step, flag in zip(x, flags[..., None], strict=True):
        kept = torch.where(flag, 0.0, h), torch.where(flag, 0.0, c)
        h, c = torch.func.functional_call(cell, weights, (step, kept))
        outputs.append(h)
    return torch.stack(outputs)


def random_case(seed: int, horizon: int, bias: bool, dtype: torch.dtype = torch.float64) -> tuple[Any, ...]:
    g = seeded(seed)
    layer = LSTMLayer(4, bias, g).to(dtype)
    if layer.bias is not None:
        layer.bias.data.normal_(generator=g)
    x, probe = (torch.randn(horizon, 3, 4, generator=g, dtype=dtype) for _ in range(2))
    flags = torch.rand(horizon, 3, generator=g) < 0.3
    flags[0] = False
    return layer, x, torch.randn(3, 8, generator=g, dtype=dtype), flags, probe


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6), st.integers(1, 7), st.booleans())
def test_lstm_and_its_gradient_are_those_of_torch(seed: int, horizon: int, bias: bool) -> None:
    layer, x, state, flags, probe = random_case(seed, horizon, bias)
    leaves = [x.requires_grad_(), state.requires_grad_(), *layer.parameters()]
    fused = layer(x, state, flags.flatten().nonzero().squeeze(1))
    wanted = by_torch(layer, x, state, flags)
    assert torch.allclose(fused, wanted, rtol=0, atol=1e-14)
    for ours, theirs in zip(
        *(torch.autograd.grad((out * probe).sum(), leaves) for out in (fused, wanted)), strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_lstm_in_float32_is_close_to_torch() -> None:
    layer, x, state, flags, _ = random_case(5, 64, True, torch.float32)
    fused = layer(x, state, flags.flatten().nonzero().squeeze(1))
    assert torch.allclose(fused, by_torch(layer, x, state, flags), rtol=0, atol=2e-6)


def test_step_has_a_gradient_too() -> None:
    layer, x, state, _, probe = random_case(2, 1, True)
    leaves = [x.requires_grad_(), *layer.parameters()]
    stepped = layer.step(x[0], state)[0]
    wanted = by_torch(layer, x, state, torch.zeros(1, 3, dtype=torch.bool))[0]
    for ours, theirs in zip(
        *(torch.autograd.grad((out * probe[0]).sum(), leaves) for out in (stepped, wanted)), strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_minibatches_of_changing_shape_and_type_share_nothing() -> None:
    layer, x, state, flags, probe = random_case(7, 6, True)
    indices = flags.flatten().nonzero().squeeze(1)

    def gradient() -> Tensor:
        return torch.autograd.grad((layer(x, state, indices) * probe).sum(), layer.weight)[0]

    first = gradient()
    none = indices[:0]
    layer(x[:2, :1], state[:1], none).sum().backward()
    outputs = [layer(x + shift, state, none) for shift in (0.0, 1.0)]  # two passes, before the first one's gradient
    assert torch.equal(gradient(), first)
    for shift, output in zip((0.0, 1.0), outputs, strict=True):
        late, at_once = (torch.autograd.grad(o.sum(), layer.weight)[0] for o in (output, layer(x + shift, state, none)))
        assert torch.equal(late, at_once)
    layer.float()(x.float(), state.float(), none).sum().backward()


def test_weights_are_uniform_as_those_of_torch_and_biases_zero() -> None:
    layer = LSTMLayer(64, True, seeded())
    assert layer.weight.shape == (256, 128)
    assert layer.weight.abs().max().item() == pytest.approx(0.125, rel=0.01)
    assert layer.bias is not None
    assert not layer.bias.any()


# -- in a policy -------------------------------------------------------------------------------------------------------


def test_names_shapes_and_state_of_the_lstm() -> None:
    policy = build()
    shapes = {name: tuple(p.shape) for name, p in policy.named_parameters() if name.startswith("layers")}
    assert shapes == {
        "layers.0.weight": (32, 16),
        "layers.0.bias": (32,),
        "layers.1.weight": (32, 16),
        "layers.1.bias": (32,),
    }
    assert policy.initial_state(5).shape == (2, 5, 16)
    assert not [name for name in build(bias=False).state_dict() if "bias" in name]


def test_forward_eval_keeps_h_then_c_and_leaves_the_state_it_was_given() -> None:
    policy, x = build(num_layers=1), torch.randn(4, 3, generator=seeded())
    before = torch.randn(1, 4, 16, generator=seeded(1))
    kept = before.clone()
    _, _, after = policy.forward_eval(x, before)
    assert torch.equal(before, kept)
    layer = policy.layers[0]
    assert isinstance(layer, LSTMLayer)
    h = by_torch(layer, policy.encoder(x)[None], before[0], torch.zeros(1, 4, dtype=torch.bool))[0]
    assert torch.allclose(after[0, :, :8], h, atol=1e-6)


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 10**6))
def test_t05_training_forward_reproduces_acting_of_the_lstm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 6, (21, 6))
    vector = ScriptedVector(
        rng.normal(size=(21, 6, 3)).astype(np.float32),
        spaces.Discrete(3),
        terminals=kind == 0,
        truncations=kind == 1,
        final_observations=rng.normal(size=(21, 6, 3)).astype(np.float32),
    )
    policy = build(seed=seed)
    rollout = Rollout(vector, policy, 10, seeded(), device=CPU, storage=CPU)
    rollout.start(0)
    for _ in range(2):
        rollout.collect()
        segments = rollout.gather(torch.tensor([4, 1, 3, 1]))
        logits, values = policy(segments.observations, segments.state, segments.resets)
        assert torch.allclose(values.view(10, 4), rollout.values[:-1, [4, 1, 3, 1]], atol=1e-5)
        logprobs = policy.layout.log_prob(logits, segments.actions.flatten(), None, None)
        assert torch.allclose(logprobs.view(10, 4), segments.logprobs, atol=1e-5)


def step_counter() -> Policy:
    """A policy whose c is the number of steps since the episode began, and whose value is tanh(c)."""
    policy = build(observed=1, hidden_size=2, num_layers=1)
    for parameter in policy.parameters():
        parameter.data.zero_()
    policy.layers[0].bias.data[:] = 40.0  # all gates are open, and g is 1
    policy.decoder.weight.data[-1, 0] = 1.0
    return policy


def test_t07_a_cell_that_counts_starts_again_at_every_episode_in_acting_and_training() -> None:
    ends = (np.arange(17) % 3 == 0) & (np.arange(17) > 0)
    vector = ScriptedVector(np.ones((17, 1, 1), np.float32), spaces.Discrete(3), terminals=ends[:, None])
    policy = step_counter()
    rollout = Rollout(vector, policy, 8, seeded(), device=CPU, storage=CPU)
    rollout.start(0)
    for first in (0, 8):
        rollout.collect()
        expected = [np.tanh((first + t) % 3 + 1.0) for t in range(8)]
        assert rollout.values[:-1, 0].tolist() == pytest.approx(expected, abs=1e-6)
        segments = rollout.gather(torch.tensor([0]))
        assert segments.state[0, 0, 2:].tolist() == [first % 3] * 2
        _, values = policy(segments.observations, segments.state, segments.resets)
        assert values.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_resumed_run_with_an_lstm_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    first, second = (make_trainer(make(lambda buf=None: Guess(buf), 8, "serial"), policy_core="lstm") for _ in range(2))
    run(first, 2)
    first.save(tmp_path / "c")
    second.load(tmp_path / "c")
    run(first, 2), run(second, 2)
    for name, tensor in first.policy.state_dict().items():
        assert torch.equal(tensor, second.policy.state_dict()[name]), name


def test_t05_ratio_of_the_lstm_is_one_before_any_update() -> None:
    trainer = make_trainer(make(lambda buf=None: Guess(buf), 8, "serial"), policy_core="lstm", learning_rate=0.0)
    for _ in range(3):
        trainer.evaluate()
        trainer.train()
        assert float((trainer._ratio - 1).abs().max()) < 1e-4


def test_lstm_learns_a_small_game() -> None:
    rows = run(make_trainer(make(lambda buf=None: Guess(buf), 16, "serial"), epochs=50, policy_core="lstm"), 50)
    assert rows[0]["score"] < 0.7
    assert rows[-1]["score"] > 0.9
