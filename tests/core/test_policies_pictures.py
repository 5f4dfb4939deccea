"""The encoders of pictures, `cnn` and `impala`, and what they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete
from torch import Tensor, nn

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import OptionError
from puffer_core.policies import Policy, make_policy
from puffer_core.policies.choice import choose_encoder
from puffer_core.policies.options import CNNOptions, ImpalaOptions
from puffer_core.policies.pictures import Pixels, convolution

OPTIONS: dict[str, Any] = {"cnn": CNNOptions, "impala": ImpalaOptions}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def bytes_of(*shape: int, high: int = 255) -> spaces.Box:
    return Box(0, high, shape, np.uint8)


def build(name: str, space: spaces.Box, seed: int = 0, config: dict[str, Any] | None = None, **options: Any) -> Policy:
    settings = PolicyConfig(**{"name": name, "hidden_size": 16, "num_layers": 1, **(config or {})})
    return make_policy(settings, space, Discrete(3), seeded(seed), OPTIONS[name](**options))


def pictures(space: spaces.Box, count: int = 2) -> Tensor:
    space.seed(3)
    return torch.from_numpy(np.stack([space.sample() for _ in range(count)]))


# -- shapes and numbers -----------------------------------------------------------------------------------------------


def test_cnn_of_an_atari_picture_has_the_published_sizes() -> None:
    encoder = build("cnn", bytes_of(84, 84, 4), config={"hidden_size": 512}).encoder
    shapes = {name: tuple(p.shape) for name, p in encoder.named_parameters()}
    assert shapes == {
        "conv.0.weight": (32, 4, 8, 8),
        "conv.0.bias": (32,),
        "conv.1.weight": (64, 32, 4, 4),
        "conv.1.bias": (64,),
        "conv.2.weight": (64, 64, 3, 3),
        "conv.2.bias": (64,),
        "weight": (512, 3136),
        "bias": (512,),
    }
    sides, x = [], torch.zeros(1, 4, 84, 84)
    for layer in encoder.conv:  # type: ignore[union-attr]
        x = layer(x)
        sides.append(x.shape[-1])
    assert sides == [20, 9, 7]


def test_impala_of_an_atari_picture_has_fifteen_convolutions() -> None:
    shapes = {n: tuple(p.shape) for n, p in build("impala", bytes_of(84, 84, 4)).encoder.named_parameters()}
    assert [shapes[f"conv.{i}.weight"][:2] for i in range(15)] == [
        *[(16, 4), *[(16, 16)] * 4],
        *[(32, 16), *[(32, 32)] * 4],
        *[(32, 32), *[(32, 32)] * 4],
    ]
    assert shapes["weight"] == (16, 32 * 11 * 11)
    assert len(shapes) == 32


def test_impala_computes_sections_of_a_pool_and_two_residual_blocks() -> None:
    encoder = build("impala", bytes_of(9, 7, 3)).encoder
    rows = pictures(bytes_of(9, 7, 3))
    x, convolutions = rows.permute(0, 3, 1, 2).float() / 255, iter(encoder.conv)  # type: ignore[arg-type]
    for _ in range(3):
        x = nn.functional.max_pool2d(next(convolutions)(x), kernel_size=3, stride=2, padding=1)
        for _ in range(2):
            first, second = next(convolutions), next(convolutions)
            x = x + second(torch.relu(first(torch.relu(x))))
    expected = torch.relu(x).flatten(1) @ encoder.weight.T  # type: ignore[operator]
    assert torch.allclose(encoder(rows), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["cnn", "impala"])
@pytest.mark.parametrize("shape", [(36, 36, 1), (37, 61, 3), (3, 50, 41), (45, 38)])
def test_pictures_of_odd_sizes_are_encoded(name: str, shape: tuple[int, ...]) -> None:
    policy = build(name, bytes_of(*shape))
    logits, values, _ = policy.forward_eval(pictures(bytes_of(*shape), 3), policy.initial_state(3))
    assert (logits.shape, values.shape) == ((3, 3), (3,))


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 4, 2), (8, 8)])
def test_impala_reads_pictures_of_any_size(shape: tuple[int, ...]) -> None:
    policy = build("impala", bytes_of(*shape))
    assert policy.forward_eval(pictures(bytes_of(*shape)), policy.initial_state(2))[0].shape == (2, 3)


@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_picture_is_read_the_same_wherever_its_channels_are(name: str) -> None:
    last, first = build(name, bytes_of(40, 38, 3)), build(name, bytes_of(3, 40, 38))
    rows, state = pictures(bytes_of(40, 38, 3)), last.initial_state(2)
    one, two = last.forward_eval(rows, state), first.forward_eval(rows.permute(0, 3, 1, 2).contiguous(), state)
    assert torch.allclose(one[0], two[0], atol=1e-6)


@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_option_says_where_channels_are(name: str) -> None:
    for channels, count in {"auto": 40, "last": 40, "first": 44}.items():
        encoder = build(name, bytes_of(44, 40, 40), channels=channels).encoder
        assert encoder.conv[0].weight.shape[1] == count  # type: ignore[index,union-attr]


def test_width_is_a_factor_on_the_channels() -> None:
    cnn, impala = build("cnn", bytes_of(40, 40, 3), width=0.5), build("impala", bytes_of(8, 8, 3), width=0.01)
    assert [layer.weight.shape[0] for layer in cnn.encoder.conv] == [16, 32, 32]  # type: ignore[union-attr]
    assert {layer.weight.shape[0] for layer in impala.encoder.conv} == {1}  # type: ignore[union-attr]


def test_bytes_are_divided_by_their_largest_bound_and_floats_are_not() -> None:
    for space, scale in ((bytes_of(4, 4, 3), 255), (bytes_of(4, 4, 3, high=1), 1), (Box(0, 9, (4, 4, 3)), 1)):
        rows = pictures(space)
        x = Pixels(space)(rows)
        assert x.dtype == torch.float32
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(x, rows.permute(0, 3, 1, 2).float() / scale)


@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_networks_of_another_type_compute_in_it(name: str) -> None:
    policy, rows = build(name, bytes_of(36, 36, 3)), pictures(bytes_of(36, 36, 3))
    single = policy.encoder(rows)
    double = policy.double().encoder(rows)
    assert double.dtype == torch.float64
    assert torch.allclose(single.double(), double, atol=1e-5)


# -- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_weights_follow_the_generator_alone(name: str) -> None:
    space, weights = bytes_of(40, 40, 3), []
    for seed, noise in ((1, 5), (1, 6), (2, 6)):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        weights.append(build(name, space, seed).state_dict())
        assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not torch.equal(weights[0]["encoder.conv.0.weight"], weights[2]["encoder.conv.0.weight"])


def test_convolution_leaves_the_generator_of_torch_alone() -> None:
    before = torch.get_rng_state()
    layer = convolution(3, 8, 3, seeded(), bias=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert layer.bias is None
    assert layer.weight.abs().max().item() == pytest.approx((6 / 27) ** 0.5, rel=0.02)


@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_features_stay_of_the_size_of_the_pixels(name: str) -> None:
    encoder = build(name, bytes_of(64, 64, 3), config={"hidden_size": 256}).encoder
    assert 0.1 < encoder(pictures(bytes_of(64, 64, 3), 8)).std().item() < 1.5


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_every_weight_learns_with_every_core(name: str, core: str) -> None:
    space = bytes_of(36, 36, 3)
    policy, rows = build(name, space, config={"core": core}), pictures(space, 8).view(4, 2, 36, 36, 3)
    logits, values = policy(rows, policy.initial_state(2), torch.zeros(4, 2, dtype=torch.bool))
    (logits.square().sum() + values.square().sum()).backward()
    assert [n for n, p in policy.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_bias_off_leaves_no_bias(name: str) -> None:
    policy = build(name, bytes_of(36, 36, 3), config={"bias": False})
    assert not [key for key in policy.state_dict() if "bias" in key]


def test_float_pictures_can_be_normalised() -> None:
    space = Box(0, 9, (36, 36, 2))
    policy = build("cnn", space, config={"normalize_observations": True})
    assert policy.normalizer is not None
    policy.normalizer.update(pictures(space, 5))
    assert policy.forward_eval(pictures(space), policy.initial_state(2))[0].isfinite().all()


# -- refusals and the choice ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "message", "hint"),
    [
        (bytes_of(35, 84, 4), "at least 36 x 36, these are 35 x 84 with 4 channels", "impala"),
        (bytes_of(84, 4, 84), "at least 36 x 36, these are 84 x 4 with 84 channels", "--cnn.channels first"),
        (Box(-1, 1, (9,)), r"pictures of two or three axes, these observations have shape \(9,\)", "mlp"),
        (bytes_of(4, 84, 84, 3), "pictures of two or three axes", r"\(height, width, channels\)"),
        (FlatBox(Dict({"a": bytes_of(84, 84, 3), "b": Discrete(2)})), "reads one picture.* Dict", "multi-input"),
    ],
)
def test_cnn_refuses_what_is_no_picture_of_its_size(space: spaces.Box, message: str, hint: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        build("cnn", space)
    assert error.value.hint is not None
    assert hint.replace("\\", "") in error.value.hint


@pytest.mark.parametrize("name", ["cnn", "impala"])
def test_pixels_are_not_normalised(name: str) -> None:
    with pytest.raises(OptionError, match="needs observations in floating point"):
        build(name, bytes_of(40, 40, 3), config={"normalize_observations": True})


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (bytes_of(84, 84, 4), "cnn"),
        (bytes_of(3, 64, 64), "cnn"),
        (bytes_of(36, 36, 1), "cnn"),
        (bytes_of(35, 36, 1), "mlp"),
        (bytes_of(84, 84), "mlp"),
        (Box(0, 1, (84, 84, 3)), "mlp"),
    ],
)
def test_auto_reads_large_pictures_of_bytes_with_the_cnn(space: spaces.Box, name: str) -> None:
    assert choose_encoder(PolicyConfig(), space).name == name
