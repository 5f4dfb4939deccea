"""The `multi-input` encoder, and which encoder `auto` is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fakes_spaces import Sentry, boxes, discretes, nested
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox, observation_codec
from puffer_core.errors import OptionError
from puffer_core.policies import MLPEncoder, make_policy
from puffer_core.policies.choice import choose_encoder
from puffer_core.policies.multi_input import MultiInputEncoder, make_encoder
from puffer_core.training.job import named, prepare


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows_of(flat: FlatBox, *samples: Any) -> torch.Tensor:
    codec = observation_codec(flat.original)
    rows = np.zeros((len(samples), *flat.shape), flat.dtype)
    for row, sample in zip(rows, samples, strict=True):
        codec.write(row, sample)
    return torch.from_numpy(rows)


def features(space: Any, *samples: Any) -> list[list[float]]:
    """What the linear layer of an encoder gets."""
    flat = FlatBox(space)
    encoder = MultiInputEncoder(flat, 4, False, seeded())
    size = encoder.weight.shape[1]
    encoder.weight = torch.nn.Parameter(torch.eye(size))
    return encoder(rows_of(flat, *samples)).tolist()  # type: ignore[no-any-return]


# -- features of each kind of leaf ------------------------------------------------------------------------------------


def test_choices_are_ones_among_zeros_counted_from_their_start() -> None:
    assert features(Discrete(3, start=5), 5, 7) == [[1, 0, 0], [0, 0, 1]]
    assert features(MultiDiscrete([2, 3], start=[1, -1]), [2, 1], [1, -1]) == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]


def test_numbers_are_flattened_and_bytes_scaled() -> None:
    space = Dict(
        {
            "a": Box(-9, 9, (2, 1)),
            "b": Box(0, 4, (1,), np.uint8),
            "c": MultiBinary(2),
            "d": Box(-8, 7, (1,), np.int8),
            "e": Box(0, 1, (1,), np.bool_),
            "f": Box(0, 1000, (1,), np.int32),
            "g": Box(0, 1, (), np.float64),
        }
    )
    sample = {"a": [[2], [3]], "b": [2], "c": [0, 1], "d": [-4], "e": [True], "f": [500], "g": 0.5}
    assert features(space, sample) == [[2, 3, 0.5, 0, 1, -0.5, 1, 500, 0.5]]


def test_choice_out_of_range_is_no_choice() -> None:
    flat = FlatBox(Discrete(3))
    encoder = MultiInputEncoder(flat, 3, False, seeded())
    assert not encoder(torch.tensor([[7], [-1]], dtype=torch.int32)).any()


def test_many_choices_have_a_table() -> None:
    flat = FlatBox(Dict({"many": MultiDiscrete([2000, 3000]), "few": Discrete(2)}))
    encoder = MultiInputEncoder(flat, 16, True, seeded())
    assert encoder.weight.shape == (16, 32 + 2)
    table = encoder.inputs[1].weight
    assert table.shape == (5000, 32)
    rows = rows_of(flat, {"many": [3, 4], "few": 1}, {"many": [1999, 2999], "few": 0})
    expected = torch.cat([torch.eye(2)[[1, 0]], table[[3, 1999]] + table[[2004, 4999]]], 1)
    assert torch.allclose(encoder(rows), expected @ encoder.weight.t(), atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "convolutions", "size"),
    [((84, 84, 4), 4, 64 * 36), ((3, 32, 16), 2, 32 * 8 * 4), ((7, 7, 3), 1, 16 * 49), ((1, 1, 1), 1, 16)],
)
def test_images_go_through_convolutions(shape: tuple[int, ...], convolutions: int, size: int) -> None:
    flat = FlatBox(Dict({"image": Box(0, 255, shape, np.uint8), "speed": Box(-1, 1, (1,))}))
    encoder = MultiInputEncoder(flat, 8, True, seeded())
    assert len(encoder.inputs[0].conv) == convolutions
    assert encoder.weight.shape == (8, size + 1)
    assert encoder(torch.from_numpy(np.stack([flat.sample(), flat.sample()]))).shape == (2, 8)


def test_floats_of_three_axes_are_a_picture_too_and_not_scaled() -> None:
    flat = FlatBox(Dict({"image": Box(0, 1, (20, 10, 3)), "board": Box(0, 1, (3, 3, 2), np.int8)}))
    encoder = MultiInputEncoder(flat, 8, True, seeded())
    assert [len(list(part.parameters())) for part in encoder.inputs] == [0, 4]
    image = encoder.inputs[1]
    rows = torch.rand(2, 20, 10, 3, generator=seeded())
    by_hand = torch.relu(image.conv[1](torch.relu(image.conv[0](rows.permute(0, 3, 1, 2)))))
    assert torch.allclose(image(rows), by_hand.flatten(1), atol=1e-6)


def test_image_is_read_the_same_whichever_axis_holds_the_channels() -> None:
    last, first = (FlatBox(Tuple([Box(0, 255, s, np.uint8), Discrete(2)])) for s in ((9, 9, 3), (3, 9, 9)))
    image = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    one, two = (MultiInputEncoder(flat, 8, True, seeded()) for flat in (last, first))
    encoded = one(rows_of(last, (image, 1))), two(rows_of(first, (image.transpose(2, 0, 1), 1)))
    assert torch.allclose(*encoded, atol=1e-6)


# -- as a part of a network -------------------------------------------------------------------------------------------


def test_output_has_the_scale_of_a_small_mlp_however_many_choices_there_are() -> None:
    for space in (Discrete(4), Discrete(400), Tuple([Discrete(50)] * 6 + [Box(-1, 1, (4,))])):
        flat = FlatBox(space)
        flat.seed(0)
        encoder = MultiInputEncoder(flat, 256, True, seeded())
        out = encoder(torch.from_numpy(np.stack([flat.sample() for _ in range(64)])))
        assert 0.3 < out.std().item() < 1.2


def test_same_seed_same_weights_and_every_weight_learns() -> None:
    flat = FlatBox(
        Dict(
            {
                "i": Box(0, 255, (16, 16, 3), np.uint8),
                "n": MultiDiscrete([2000, 9]),
                "d": Discrete(4),
                "v": Box(-1, 1, (3,)),
            }
        )
    )
    config = PolicyConfig(hidden_size=16)
    one, two = (make_policy(config, flat, Discrete(2), seeded(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    flat.seed(0)
    rows = torch.from_numpy(np.stack([flat.sample() for _ in range(8)]))
    logits, values = one(rows.view(4, 2, -1), one.initial_state(2), torch.zeros(4, 2, dtype=torch.bool))
    (logits.square().sum() + values.square().sum()).backward()
    assert all(p.grad is not None and p.grad.any() for p in one.parameters() if p.numel() and p.requires_grad)
    assert not [name for name in one.state_dict() if "_choices" in name or "_shift" in name]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(nested(st.one_of(boxes(), discretes())))
def test_any_nested_observation_is_encoded(space: Any) -> None:
    flat = FlatBox(space)
    flat.seed(1)
    policy = make_policy(PolicyConfig(hidden_size=8, num_layers=1), flat, Discrete(2), seeded())
    rows = torch.from_numpy(np.stack([flat.sample() for _ in range(3)]))
    logits, values, _ = policy.forward_eval(rows, policy.initial_state(3))
    assert logits.shape == (3, 2)
    assert torch.isfinite(torch.cat([logits.flatten(), values])).all()


def test_plain_box_gets_the_mlp() -> None:
    box = Box(-1, 1, (3,))
    one, two = make_encoder(box, 8, True, seeded()), MLPEncoder(box, 8, True, seeded())
    assert type(one) is MLPEncoder
    assert torch.equal(one.weight, two.weight)


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (Box(-1, 1, (3,)), "mlp"),
        (Box(0, 255, (8, 8, 3), np.uint8), "mlp"),
        (FlatBox(Dict({"a": Box(-1, 1, (2,)), "b": Box(-1, 1, ())})), "mlp"),
        (FlatBox(Tuple([Box(-1, 1, (2,), np.float64)])), "mlp"),
        (FlatBox(Tuple([Box(-1, 1, (2,)), Box(-1, 1, (2,), np.float64)])), "multi-input"),
        (FlatBox(Dict({"a": Box(-1, 1, (2,)), "b": Discrete(3)})), "multi-input"),
        (FlatBox(Discrete(16)), "multi-input"),
        (FlatBox(Tuple([Box(0, 9, (2,), np.uint16)])), "multi-input"),
    ],
)
def test_auto_is_chosen_by_the_observation_space(space: spaces.Box, name: str) -> None:
    assert PolicyConfig().name == "auto"
    assert choose_encoder(PolicyConfig(), space).name == name


def test_name_given_by_a_person_is_kept() -> None:
    for name in ("mlp", "multi-input", "own-net"):
        assert choose_encoder(PolicyConfig(name=name), Box(-1, 1, (3,))).name == name
    assert choose_encoder(PolicyConfig(name="mlp"), FlatBox(Discrete(4))).name == "mlp"


def test_mlp_on_the_bytes_of_a_struct_is_refused() -> None:
    flat = FlatBox(Dict({"a": Box(-1, 1, (2,)), "b": Discrete(3)}))
    with pytest.raises(OptionError, match=r"policy.name=mlp reads a row of numbers.* bytes of Dict") as error:
        make_policy(PolicyConfig(name="mlp"), flat, Discrete(2), seeded())
    assert "multi-input" in str(error.value.hint)


def test_job_names_the_encoder_that_was_chosen() -> None:
    options = {"train.total_timesteps": "10000", "train.device": "cpu"}
    assert prepare(named(Sentry), options=options).job.config.policy.name == "multi-input"
    assert prepare(named(Plain), options=options).job.config.policy.name == "mlp"
    with pytest.raises(OptionError, match=r"policy.name=mlp reads a row of numbers"):
        prepare(named(Sentry), options={**options, "policy.name": "mlp"})


class Plain(Sentry):
    observation_space = Box(-1, 1, (2,))  # type: ignore[assignment]
