"""The encoder `attention`: its sums, that the order of entities and absent ones change nothing, what it refuses."""

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
from puffer_core.policies.attention import AttentionEncoder
from puffer_core.policies.options import AttentionOptions

ENTITIES = Box(-1, 1, (6, 3))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def encoder(space: spaces.Box = ENTITIES, seed: int = 0, bias: bool = True, **options: Any) -> AttentionEncoder:
    return AttentionEncoder(space, 16, bias, seeded(seed), AttentionOptions(**{"width": 8, "heads": 2, **options}))


def build(config: dict[str, Any] | None = None, space: spaces.Box = ENTITIES, **options: Any) -> Policy:
    settings = PolicyConfig(**{"name": "attention", "hidden_size": 16, "num_layers": 1, **(config or {})})
    return make_policy(settings, space, Discrete(3), seeded(), AttentionOptions(**options))


def rows(count: int = 4, absent: Any = ()) -> Tensor:
    x = torch.randn(count, 6, 3, generator=seeded(7))
    x[:, :, 0] = 1.0
    for row, entity in absent:
        x[row, entity, 0] = 0.0
    return x


def by_hand(net: AttentionEncoder, x: Tensor) -> Tensor:
    """Return what ``net`` should, one row and one head at a time."""
    encoded = []
    for row in x:
        there = row[row[:, net.present] > 0] if net.present >= 0 else row
        e = there @ net.embed.weight.T
        for block in net.blocks:
            parts = (block.attention_norm(e) @ block.qkv.weight.T).chunk(3, 1)  # type: ignore[operator,union-attr]
            heads = []
            for q, k, v in zip(*(part.chunk(block.heads, 1) for part in parts), strict=True):  # type: ignore[arg-type]
                heads.append(torch.softmax(q @ k.T / q.shape[1] ** 0.5, 1) @ v)
            e = e + torch.cat(heads, 1) @ block.out.weight.T  # type: ignore[operator,union-attr]
            e = e + block.reduce(torch.relu(block.expand(block.mlp_norm(e))))  # type: ignore[operator]
        e = net.norm(e)
        encoded.append(torch.cat([e.mean(0), e.amax(0)]) @ net.weight.T)
    return torch.stack(encoded)


@pytest.mark.parametrize(("present", "blocks"), [(-1, 1), (0, 1), (0, 2)])
def test_attention_is_what_it_says(present: int, blocks: int) -> None:
    net, x = encoder(present=present, blocks=blocks), rows(absent=[(0, 2), (0, 5), (1, 0), (2, 1)])
    assert torch.allclose(net(x), by_hand(net, x), atol=1e-5)


@pytest.mark.parametrize("present", [-1, 0])
def test_order_of_entities_changes_nothing(present: int) -> None:
    net, x = encoder(present=present, blocks=2), rows(absent=[(0, 2), (3, 4)])
    order = torch.randperm(6, generator=seeded(1))
    assert torch.allclose(net(x), net(x[:, order]), atol=1e-5)


def test_features_of_absent_entities_change_nothing() -> None:
    net, x = encoder(present=0, blocks=2), rows(absent=[(0, 2), (0, 5)])
    other = x.clone()
    other[0, [2, 5], 1:] = 1e6
    assert torch.allclose(net(x), net(other), atol=1e-5)
    other[0, 2, 0] = 1.0
    assert not torch.allclose(net(x)[0], net(other)[0], atol=1e-2)


def test_no_entity_at_all_is_the_bias_and_has_a_finite_gradient() -> None:
    net, x = encoder(present=0), rows(absent=[(1, entity) for entity in range(6)])
    assert net.bias is not None
    net.bias.data.normal_(generator=seeded())
    encoded = net(x)
    assert torch.equal(encoded[1], net.bias)
    encoded.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)


def test_names_and_shapes() -> None:
    net = AttentionEncoder(Box(-1, 1, (6, 3)), 128, True, seeded())
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters()}
    assert shapes == {
        "embed.weight": (64, 3),
        "embed.bias": (64,),
        "blocks.0.attention_norm.weight": (64,),
        "blocks.0.attention_norm.bias": (64,),
        "blocks.0.mlp_norm.weight": (64,),
        "blocks.0.mlp_norm.bias": (64,),
        "blocks.0.qkv.weight": (192, 64),
        "blocks.0.qkv.bias": (192,),
        "blocks.0.out.weight": (64, 64),
        "blocks.0.out.bias": (64,),
        "blocks.0.expand.weight": (128, 64),
        "blocks.0.expand.bias": (128,),
        "blocks.0.reduce.weight": (64, 128),
        "blocks.0.reduce.bias": (64,),
        "norm.weight": (64,),
        "norm.bias": (64,),
        "weight": (128, 128),
        "bias": (128,),
    }
    assert not [name for name, _ in encoder(bias=False).named_parameters() if "bias" in name]


def test_weights_follow_the_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = encoder(seed=1), encoder(seed=1), encoder(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.weight, other.weight)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
def test_every_weight_learns_with_every_core(core: str) -> None:
    policy, x = build({"core": core}), rows(8).view(4, 2, 6, 3)
    logits, values = policy(x, policy.initial_state(2), torch.zeros(4, 2, dtype=torch.bool))
    (logits.square().sum() + values.square().sum()).backward()
    # A bias of the keys shifts all scores of a query alike, so softmax does not see it.
    still = {n for n, p in policy.named_parameters() if p.grad is None or not p.grad.any()}
    assert still <= {"encoder.blocks.0.qkv.bias"}
    bias = policy.get_parameter("encoder.blocks.0.qkv.bias").grad
    assert bias is not None
    assert bias[:64].any()
    assert bias[128:].any()


def test_integers_and_one_entity_are_read() -> None:
    space = Box(0, 9, (1, 4), np.int32)
    policy = build(space=space)
    logits, _, _ = policy.forward_eval(torch.ones(3, 1, 4, dtype=torch.int32), policy.initial_state(3))
    assert logits.shape == (3, 3)


def test_normalised_observations_keep_the_order_of_entities_free_where_all_are_there() -> None:
    policy = build({"normalize_observations": True})
    assert isinstance(policy.normalizer, nn.Module)
    with pytest.raises(OptionError, match="would change the feature that says which entities are present"):
        build({"normalize_observations": True}, present=0)


@pytest.mark.parametrize(
    ("space", "options", "message", "hint"),
    [
        (Box(-1, 1, (9,)), {}, r"\(entities, features\), these have \(9,\)", "a row"),
        (Box(-1, 1, (0, 9)), {}, r"these have \(0, 9\)", "a row"),
        (FlatBox(Dict({"a": ENTITIES, "b": Discrete(2)})), {}, "list of entities.* Dict", "multi-input"),
        (ENTITIES, {"width": 10}, "attention.width=10 is not a multiple of attention.heads=4", "--attention.width 12"),
        (ENTITIES, {"present": 3}, "attention.present=3: an entity has the features 0 to 2", "-1"),
    ],
)
def test_what_does_not_fit_is_refused(space: Any, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        build(space=space, **options)
    assert hint in str(error.value.hint)
