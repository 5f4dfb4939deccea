from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from puffer_core.config.schema import PolicyConfig
from puffer_core.errors import EnvError, UnknownNameError
from puffer_core.policies import ActionLayout, MinGRULayer, Policy, layer_init, make_policy
from puffer_core.policies.mingru import log_space_segments

A = (0.3, -1, 2, -0.2)
G = (0, 1, -1, 0.5)
P = (0.2, -0.4, 0, 1)
X = (1, -1, 0.5, 2)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def build(
    action_space: spaces.Space[Any] | None = None, shape: tuple[int, ...] = (5,), seed: int = 0, **config: Any
) -> Policy:
    space = spaces.Box(-1, 1, shape, np.float32)
    settings_ = PolicyConfig(**{"hidden_size": 8, "num_layers": 2, **config})
    return make_policy(settings_, space, action_space or spaces.Discrete(3), seeded(seed))


# -- MinGRU ------------------------------------------------------------------------------------------------------------


def gates_as_inputs() -> tuple[Tensor, Tensor]:
    """Inputs (4, 1, 4) and a weight (12, 4) that give unit 0 the gates and the input of Test 6a at each step."""
    inputs = torch.zeros(4, 4, dtype=torch.float64)
    inputs[:, 0] = torch.tensor(X, dtype=torch.float64)
    inputs[1, 1] = inputs[2, 2] = inputs[3, 3] = 1.0
    weight = torch.zeros(12, 4, dtype=torch.float64)
    for block, gate in enumerate((A, G, P)):
        weight[4 * block] = torch.linalg.solve(inputs, torch.tensor(gate, dtype=torch.float64))
    return inputs[:, None], weight


@pytest.mark.parametrize(
    ("h", "resets", "states", "outputs"),
    [
        (0.0, set(), (0.4, 0.3041885, 0.8947332, 0.6180082), (0.6700996, -0.4766131, 0.6973666, 0.989683)),
        (0.7, set(), (0.75, 0.398318, 0.9635473, 0.6439883), (0.8625415, -0.4388377, 0.7317737, 1.008676)),
        (0.7, {2}, (0.75, 0.398318, 0.6723536, 0.5340508), (0.8625415, -0.4388377, 0.5861768, 0.9283053)),
    ],
)
def test_mingru_matches_test_6a_in_all_three_forms(h: float, resets: set[int], states: Any, outputs: Any) -> None:
    inputs, weight = gates_as_inputs()
    layer = MinGRULayer(4, seeded()).double()
    layer.weight.data = weight
    entering = torch.tensor([[h, 0, 0, 0]], dtype=torch.float64)
    flags = torch.tensor([[t in resets] for t in range(4)])
    fused = layer(inputs, entering, flags.flatten().nonzero().squeeze(1))[:, 0, 0]
    logarithmic = log_space_segments(inputs, weight, entering, flags)[:, 0, 0]
    assert fused.tolist() == pytest.approx(outputs, abs=5e-8)
    assert logarithmic.tolist() == pytest.approx(fused.tolist(), abs=1e-12)
    state, stepped, followed = entering, [], []
    for t in range(4):
        output, state = layer.step(inputs[t], torch.zeros_like(state) if t in resets else state)
        stepped.append(output[0, 0].item())
        followed.append(state[0, 0].item())
    assert stepped == pytest.approx(outputs, abs=5e-8)
    assert followed == pytest.approx(states, abs=5e-8)


def test_mingru_gradient_matches_test_6b() -> None:
    inputs, weight = gates_as_inputs()
    inputs.requires_grad_()
    weight.requires_grad_()
    entering = torch.tensor([[0.7, 0, 0, 0]], dtype=torch.float64, requires_grad=True)
    layer = MinGRULayer(4, seeded()).double()
    layer.weight = torch.nn.Parameter(weight.detach().clone())
    layer(inputs, entering, torch.tensor([2]))[:, 0, 0].sum().backward()
    d_a = torch.tensor((0.3288818, 0.0576826, 0.2086997, 0.1126335), dtype=torch.float64)
    d_g = torch.tensor((0.0164441, -0.0379569, 0.3814293, -0.0381722), dtype=torch.float64)
    d_p = torch.tensor((-0.0618791, 0.3359609, 0.0430884, -0.2882231), dtype=torch.float64)
    highway = torch.tensor((0.450166, 0.5986877, 0.5, 0.2689414), dtype=torch.float64)
    assert layer.weight.grad is not None
    assert inputs.grad is not None
    assert entering.grad is not None
    for block, gate in enumerate((d_a, d_g, d_p)):
        assert torch.allclose(layer.weight.grad[4 * block], gate @ inputs.detach()[:, 0], atol=3e-7)
    through_gates = sum(gate[:, None] * weight.detach()[4 * block] for block, gate in enumerate((d_a, d_g, d_p)))
    through_gates[:, 0] += highway
    assert torch.allclose(inputs.grad[:, 0], through_gates, atol=3e-7)
    assert entering.grad[0, 0].item() == pytest.approx(0.3288818, abs=5e-8)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_mingru_gradient_is_that_of_the_recurrence(seed: int, horizon: int) -> None:
    g = seeded(seed)
    x, weight, h = (
        torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((horizon, 3, 4), (12, 4), (3, 4))
    )
    flags = torch.rand(horizon, 3, generator=g) < 0.3
    flags[0] = False
    layer = MinGRULayer(4, seeded()).double()
    layer.weight = torch.nn.Parameter(weight)
    leaves = [x.requires_grad_(), layer.weight, h.abs().requires_grad_()]
    probe = torch.randn(horizon, 3, 4, generator=g, dtype=torch.float64)
    fused = layer(x, leaves[2], flags.flatten().nonzero().squeeze(1))
    logarithmic = log_space_segments(x, layer.weight, leaves[2], flags)
    assert torch.allclose(fused, logarithmic, atol=1e-12)
    found, wanted = (torch.autograd.grad((out * probe).sum(), leaves) for out in (fused, logarithmic))
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-10)


def test_mingru_of_zero_inputs_has_the_gradient_of_the_upper_branch() -> None:
    layer = MinGRULayer(2, seeded()).double()
    x = torch.zeros(1, 1, 2, dtype=torch.float64, requires_grad=True)
    layer(x, torch.zeros(1, 2, dtype=torch.float64), torch.empty(0, dtype=torch.int64)).sum().backward()
    # At a = 0: h = z (a + 1/2), so dy/da = s z = 1/4; the gates contribute z' s c = 1/16 and s' h = 1/16.
    weight = layer.weight.detach()
    expected = 0.5 + weight[:2].sum(0) / 4 + weight[2:4].sum(0) / 16 + weight[4:].sum(0) / 16
    assert x.grad is not None
    assert torch.allclose(x.grad[0, 0], expected)


def test_log_space_error_in_float32_is_small_but_larger_than_that_of_the_scan() -> None:
    g = seeded(3)
    x, weight = 2 * torch.randn(64, 8, 16, generator=g), 0.5 * torch.randn(48, 16, generator=g)
    flags, h = torch.zeros(64, 8, dtype=torch.bool), torch.zeros(8, 16)
    layer = MinGRULayer(16, seeded())
    layer.weight.data = weight
    exact = log_space_segments(x.double(), weight.double(), h.double(), flags)
    scan = (layer(x, h, torch.empty(0, dtype=torch.int64)) - exact).abs().max()
    logarithmic = (log_space_segments(x, weight, h, flags) - exact).abs().max()
    assert scan < 2e-5
    assert scan < logarithmic < 1e-3


def test_policy_matches_test_6c() -> None:
    policy = build(spaces.Discrete(2), (2,), hidden_size=2, num_layers=1)
    policy.load_state_dict(
        {
            "encoder.weight": torch.tensor([[1.0, 0], [0.5, -1]]),
            "encoder.bias": torch.zeros(2),
            "layers.0.weight": torch.tensor([[0.1, 0.2], [0.3, -0.4], [0, 0.5], [-0.5, 0], [1, 1], [-1, 0.5]]),
            "decoder.weight": torch.tensor([[1.0, -1], [0.5, 0.5], [2, 0]]),
            "decoder.bias": torch.zeros(3),
        }
    )
    with torch.no_grad():
        first, value, state = policy.forward_eval(torch.tensor([[1.0, 2]]), policy.initial_state(1))
        assert first[0].tolist() == pytest.approx((1.8766627, -0.2613465), abs=2e-7)
        assert value.item() == pytest.approx(1.3539697, abs=2e-7)
        assert state[0, 0].tolist() == pytest.approx((0.1444228, 0.5285569), abs=2e-7)
        second, value, state = policy.forward_eval(torch.tensor([[0.0, -1]]), state)
        assert second[0].tolist() == pytest.approx((-0.3085443, 0.5126714), abs=2e-7)
        assert value.item() == pytest.approx(0.7167986, abs=2e-7)
        assert state[0, 0].tolist() == pytest.approx((0.490247, 0.4649346), abs=2e-7)


# -- the whole policy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "layers", "count"), [(64, 2, 32384), (128, 4, 212224)])
def test_parameters_of_breakout_match_test_6d(width: int, layers: int, count: int) -> None:
    policy = build(shape=(118,), hidden_size=width, num_layers=layers, bias=False)
    assert sum(p.numel() for p in policy.parameters()) == count


def test_names_and_shapes_are_those_of_the_shared_checkpoint() -> None:
    shapes = {name: tuple(p.shape) for name, p in build(spaces.Box(-1, 1, (2,))).named_parameters()}
    assert shapes == {
        "encoder.weight": (8, 5),
        "encoder.bias": (8,),
        "layers.0.weight": (24, 8),
        "layers.1.weight": (24, 8),
        "decoder.weight": (3, 8),
        "decoder.bias": (3,),
        "decoder.logstd": (1, 2),
    }
    assert "layers.1.bias" in dict(build(core="none").named_parameters())
    assert not any("bias" in name for name, _ in build(core="none", bias=False).named_parameters())


def test_initial_weights_are_uniform_within_the_published_bounds() -> None:
    policy = build(shape=(118,), hidden_size=64, num_layers=1)
    for weight, bound in (
        (policy.encoder.weight, 0.1301889),
        (policy.layers[0].weight, 0.125),
        (policy.decoder.weight, 0.125),
    ):
        assert isinstance(weight, Tensor)
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert weight.abs().max().item() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert all(not p.any() for name, p in policy.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(
    ("core", "layer", "decoder"),
    [
        ("mingru", (0.0441372, 0.3166752), (0.1753767, -0.323126)),
        ("none", (-0.476299, -0.0089871), (-0.3182187, -0.0238603)),
        ("lstm", (0.3483862, -0.2236897), (-0.147678, -0.2270049)),
    ],
)
def test_initial_weights_of_a_seed_stay_what_they_were(core: str, layer: Any, decoder: Any) -> None:
    weights = build(core=core).state_dict()
    for name, expected in (("encoder", (-0.0047351, 0.3392767)), ("layers.1", layer), ("decoder", decoder)):
        assert weights[f"{name}.weight"][0, :2].tolist() == pytest.approx(expected, abs=1e-6)


def test_weights_follow_the_generator_alone() -> None:
    torch.manual_seed(5)
    first = build(seed=1).state_dict()
    torch.manual_seed(6)
    second, other = build(seed=1).state_dict(), build(seed=2).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["encoder.weight"], other["encoder.weight"])


@pytest.mark.parametrize("core", ["mingru", "none"])
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 4]), spaces.Box(-1, 1, (2,))])
def test_training_forward_reproduces_acting(core: str, space: spaces.Space[Any]) -> None:
    policy, g = build(space, core=core), seeded(9)
    observations, resets = torch.randn(7, 4, 5, generator=g), torch.rand(7, 4, generator=g) < 0.3
    entering = torch.rand(policy.initial_state(4).shape, generator=g)
    logits, values = policy(observations, entering, resets)
    state = entering
    for t in range(7):
        if t > 0:
            state = torch.where(resets[t, :, None], 0.0, state)
        acted, value, state = policy.forward_eval(observations[t], state)
        assert torch.allclose(logits.view(7, 4, -1)[t], acted, atol=1e-5)
        assert torch.allclose(values.view(7, 4)[t], value, atol=1e-5)


def test_forward_eval_leaves_the_state_it_was_given() -> None:
    policy = build()
    state = torch.rand(2, 3, 8, generator=seeded())
    kept = state.clone()
    policy.forward_eval(torch.randn(3, 5, generator=seeded()), state)
    assert torch.equal(state, kept)


def test_integer_observations_of_any_shape_are_taken_as_they_are() -> None:
    policy = build(shape=(2, 3))
    pixels = torch.randint(0, 255, (4, 2, 3), dtype=torch.uint8, generator=seeded())
    state = policy.initial_state(4)
    assert torch.equal(policy.forward_eval(pixels, state)[0], policy.forward_eval(pixels.float(), state)[0])


def test_activation_belongs_to_the_feed_forward_core() -> None:
    observations = torch.randn(3, 5, generator=seeded())
    outputs = {
        (core, activation): build(core=core, activation=activation)
        for core in ("none", "mingru")
        for activation in ("tanh", "gelu")
    }
    values = {key: policy.forward_eval(observations, policy.initial_state(3))[1] for key, policy in outputs.items()}
    assert not torch.equal(values["none", "tanh"], values["none", "gelu"])
    assert torch.equal(values["mingru", "tanh"], values["mingru", "gelu"])


def test_unknown_encoder_names_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="mpl"):
        build(name="mpl")


# -- actions -----------------------------------------------------------------------------------------------------------


def test_sampling_inverts_the_distribution_function_as_test_4b() -> None:
    layout = ActionLayout.from_space(spaces.Discrete(3))
    logits = torch.tensor([[1.0, 0, -1]]).expand(3, 3)
    assert layout.sample(logits, torch.tensor([[0.1], [0.7], [0.95]]), None, None).tolist() == [0, 1, 2]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_masked_actions_are_never_drawn(seed: int) -> None:
    g, layout = seeded(seed), ActionLayout.from_space(spaces.MultiDiscrete([3, 5]))
    logits, mask = 5 * torch.randn(200, 8, generator=g), (torch.rand(200, 8, generator=g) > 0.5).to(torch.uint8)
    mask[:, 1] = 1
    mask[:, 7] = 1
    noise = layout.draw_noise((200,), g)
    noise[:50], noise[50:100] = 0.0, 1 - 2**-24
    for actions in (layout.sample(logits, noise, mask, None), layout.greedy(logits, mask)):
        assert actions.shape == (200, 2)
        assert bool((mask.gather(1, actions + torch.tensor([0, 3])) == 1).all())


def test_sampled_actions_follow_the_probabilities() -> None:
    layout, logits = ActionLayout.from_space(spaces.Discrete(3)), torch.tensor([[1.0, 0, -1]]).expand(20000, 3)
    counts = torch.bincount(layout.sample(logits, layout.draw_noise((20000,), seeded()), None, None), minlength=3)
    assert (counts / 20000).tolist() == pytest.approx((0.665241, 0.2447285, 0.0900306), abs=0.01)


def test_t06_box_actions_are_stored_raw_and_sent_clipped() -> None:
    layout = ActionLayout.from_space(spaces.Box(-1, 1, (1,)))
    action = layout.sample(torch.zeros(1, 1), torch.tensor([[1.7]]), None, torch.zeros(1, 1))
    assert action.item() == pytest.approx(1.7)
    assert layout.to_env(action).item() == 1.0
    assert layout.log_prob(torch.zeros(1, 1), action, None, torch.zeros(1, 1)).item() == pytest.approx(
        -2.3639, abs=5e-5
    )


@pytest.mark.parametrize(
    ("space", "width", "shape"),
    [
        (spaces.Discrete(4), 4, ()),
        (spaces.MultiDiscrete([2, 3]), 5, (2,)),
        (spaces.Box(-2, 3, (2, 2)), 4, (4,)),
        (spaces.Box(-2, 3, ()), 1, (1,)),
    ],
)
def test_layout_follows_the_space(space: spaces.Space[Any], width: int, shape: tuple[int, ...]) -> None:
    layout = ActionLayout.from_space(space)
    assert (layout.width, layout.shape) == (width, shape)


def test_layout_of_another_space_is_refused() -> None:
    with pytest.raises(EnvError, match="not an action space that a policy can have"):
        ActionLayout.from_space(spaces.MultiBinary(3))


def test_layer_init_is_orthogonal_with_a_constant_bias() -> None:
    linear = layer_init(torch.nn.Linear(8, 4), std=0.5, bias=0.25)
    assert torch.allclose(linear.weight @ linear.weight.T, 0.25 * torch.eye(4), atol=1e-6)
    assert linear.bias.tolist() == [0.25] * 4
    flat = layer_init(torch.nn.Conv2d(3, 4, 3, bias=False)).weight.flatten(1)
    assert torch.allclose(flat @ flat.T, 2.0 * torch.eye(4), atol=1e-5)
