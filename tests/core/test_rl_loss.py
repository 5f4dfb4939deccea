from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from puffer_core.policies import ActionLayout
from puffer_core.rl.diagnosis import explained_variance
from puffer_core.rl.loss import TERMS, Coefficients, Targets, ppo_loss

COEFS = Coefficients(clip=0.2, vf_clip=0.2, vf=2.0, ent=0.001)


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def leaf(values: Any) -> Tensor:
    return double(values).requires_grad_()


def targets(n: int, **given: Any) -> Targets:
    nothing = torch.zeros(n, dtype=torch.float64)
    fields = {"logprobs": nothing, "values": nothing, "advantages": nothing, "returns": nothing}
    return Targets(**{**fields, "action_mask": None, "live": None, "count": float(n), **given})


def test_discrete_loss_matches_test_4a() -> None:
    logits, values = leaf([[1, 0, -1], [0.5, 0.5, 0]]), leaf([0.3, 1])
    batch = targets(
        2,
        actions=torch.tensor([0, 2]),
        logprobs=double([-0.5, -1.2]),
        values=double([0.2, 0.5]),
        advantages=double([1, -0.5]),
        returns=double([1, 0.4]),
    )
    loss, terms, ratio = ppo_loss(logits, values, None, ActionLayout.from_space(spaces.Discrete(3)), batch, COEFS)
    loss.backward()
    assert loss.item() == pytest.approx(0.07564816, abs=5e-9)
    assert dict(zip(TERMS, terms.tolist(), strict=True)) == pytest.approx(
        {
            "policy": -0.34839846,
            "value": 0.2125,
            "entropy": 0.95338197,
            "old_kl": 0.08281303,
            "kl": 0.01750134,
            "clipfrac": 0.5,
            "importance": 0.93468831,
        },
        abs=5e-9,
    )
    assert ratio.tolist() == pytest.approx((1.0967969, 0.7725797), abs=5e-8)
    assert logits.grad is not None
    assert values.grad is not None
    assert logits.grad.flatten().tolist() == pytest.approx(
        (-0.18344, 0.1341383, 0.0493017, 0.0000223, 0.0000223, -0.0000446), abs=5e-8
    )
    assert values.grad.tolist() == pytest.approx((-0.7, 0.6))


def test_clipped_discrete_step_has_only_the_entropy_gradient() -> None:
    logits, values = leaf([[1, 0, -1], [0.5, 0.5, 0]]), leaf([0.3, 1])
    batch = targets(
        2,
        actions=torch.tensor([0, 2]),
        logprobs=double([-1, -1.2]),
        advantages=double([1, -0.5]),
        values=values.detach(),
    )
    layout = ActionLayout.from_space(spaces.Discrete(3))
    loss, _, ratio = ppo_loss(logits, values, None, layout, batch, COEFS)
    loss.backward()
    assert ratio[0].item() == pytest.approx(1.8083124, abs=5e-8)
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx((0.0001413, -0.0000704, -0.0000709), abs=5e-8)


def test_masked_heads_match_test_4b() -> None:
    logits, values = leaf([[0.2, -0.3, 1, 2, 0]]), leaf([0.0])
    batch = targets(
        1,
        actions=torch.tensor([[1, 2]]),
        logprobs=double([-2.0]),
        advantages=double([1.0]),
        action_mask=torch.tensor([[1, 1, 1, 0, 1]]),
    )
    layout = ActionLayout.from_space(spaces.MultiDiscrete([2, 3]))
    loss, terms, ratio = ppo_loss(logits, values, None, layout, batch, COEFS)
    loss.backward()
    assert layout.log_prob(logits, batch.actions, batch.action_mask, None).item() == pytest.approx(-2.2873387, abs=5e-8)
    assert terms[TERMS.index("entropy")].item() == pytest.approx(1.2450504, abs=5e-8)
    assert ratio.item() == pytest.approx(0.7502576, abs=5e-8)
    assert loss.item() == pytest.approx(-0.75150265, abs=5e-9)
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx((0.4671223, -0.4671223, 0.5486789, 0, -0.5486789), abs=5e-8)


@pytest.mark.parametrize(
    ("old", "ratio", "loss", "d_means", "d_logstd"),
    [
        (-1.95, 1.0569014, -0.84815898, (-0.6895094, -0.3248223), (0.6376683, 0.6171455)),
        (-2.5, 1.8318775, None, (0.0, 0.0), (-0.001, -0.001)),
    ],
)
def test_box_loss_matches_test_4c(old: float, ratio: float, loss: float | None, d_means: Any, d_logstd: Any) -> None:
    means, logstd, values = leaf([[0.1, -0.2]]), leaf([[-0.5, 0.3]]), leaf([0.0])
    batch = targets(1, actions=double([[0.4, 0.5]]), logprobs=double([old]), advantages=double([0.8]))
    layout = ActionLayout.from_space(spaces.Box(-1, 1, (2,)))
    found, terms, found_ratio = ppo_loss(means, values, logstd, layout, batch, COEFS)
    found.backward()
    assert layout.log_prob(means, batch.actions, None, logstd).item() == pytest.approx(-1.8946586, abs=5e-8)
    assert terms[TERMS.index("entropy")].item() == pytest.approx(2.6378771, abs=5e-8)
    assert found_ratio.item() == pytest.approx(ratio, abs=5e-8)
    if loss is not None:
        assert found.item() == pytest.approx(loss, abs=5e-9)
    assert means.grad is not None
    assert logstd.grad is not None
    assert means.grad[0].tolist() == pytest.approx(d_means, abs=5e-8)
    assert logstd.grad[0].tolist() == pytest.approx(d_logstd, abs=5e-8)


def test_explained_variance_matches_test_4d() -> None:
    advantages, values = double([1, -1, 0.5, 0]), double([0, 1, 2, 3])
    assert explained_variance(advantages, values, None) == pytest.approx(0.6153846, abs=5e-8)
    assert explained_variance(double([9, *advantages]), double([9, *values]), torch.arange(5) > 0) == pytest.approx(
        0.6153846, abs=5e-8
    )
    assert explained_variance(advantages * 0, values * 0, None) != explained_variance(advantages, values, None)


def test_kl_estimates_match_test_4d() -> None:
    batch = targets(2, actions=torch.tensor([0, 1]), logprobs=double([0.5, 0.5]).log() - double([0.1, -0.2]))
    layout = ActionLayout.from_space(spaces.Discrete(2))
    _, terms, _ = ppo_loss(leaf([[0, 0], [0, 0]]), leaf([0, 0]), None, layout, batch, COEFS)
    found = dict(zip(TERMS, terms.tolist(), strict=True))
    assert (found["old_kl"], found["kl"]) == pytest.approx((0.05, 0.0119508), abs=5e-8)


def plain_loss(logits: Tensor, values: Tensor, logstd: Tensor | None, layout: ActionLayout, batch: Targets) -> Tensor:
    """The formulas of 4.1, as autograd sees them, on live steps only."""
    live = torch.ones_like(values, dtype=torch.bool) if batch.live is None else batch.live
    mask = None if batch.action_mask is None else batch.action_mask[live]
    logprob = layout.log_prob(logits[live], batch.actions[live], mask, logstd)
    if logstd is None:
        entropy = sum(-(torch.softmax(z, 0) * torch.log_softmax(z, 0)).sum(0) for z in layout.heads(logits[live], mask))
    else:
        entropy = (logstd + 1.4189385332046727).sum(1).expand(int(live.sum()))
    ratio = (logprob - batch.logprobs[live]).exp()
    a, v, old, target = (x[live] for x in (batch.advantages, values, batch.values, batch.returns))
    clipped = old + (v - old).clamp(-COEFS.vf_clip, COEFS.vf_clip)
    policy = torch.maximum(-a * ratio, -a * ratio.clamp(1 - COEFS.clip, 1 + COEFS.clip))
    value = 0.5 * torch.maximum((v - target).square(), (clipped - target).square())
    return (policy + COEFS.vf * value - COEFS.ent * entropy).sum() / batch.count


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["discrete", "multi", "masked", "box"]), st.booleans())
def test_gradient_equals_that_of_autograd(seed: int, kind: str, some_dead: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    space = {"discrete": spaces.Discrete(4), "box": spaces.Box(-1, 1, (3,))}.get(kind, spaces.MultiDiscrete([3, 2]))
    layout, n = ActionLayout.from_space(space), 12

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    live = torch.rand(n, generator=g) > 0.3 if some_dead else None
    mask = None
    if kind == "masked":
        mask = (torch.rand(n, layout.width, generator=g) > 0.4).to(torch.uint8)
        mask[:, [0, 3]] = 1
    logits, values = normal(n, layout.width).requires_grad_(), normal(n).requires_grad_()
    logstd = (0.3 * normal(1, 3)).requires_grad_() if kind == "box" else None
    noise = torch.rand(n, len(layout.sizes), generator=g, dtype=torch.float64)
    actions = layout.sample(logits.detach(), noise, mask, None if logstd is None else logstd.detach())
    batch = Targets(
        actions=actions,
        logprobs=layout.log_prob(logits, actions, mask, logstd).detach() + 0.3 * normal(n),
        values=values.detach() + 0.3 * normal(n),
        advantages=normal(n),
        returns=normal(n),
        action_mask=mask,
        live=live,
        count=float(n if live is None else live.sum()),
    )
    inputs = [x for x in (logits, values, logstd) if x is not None]
    loss, _, _ = ppo_loss(logits, values, logstd, layout, batch, COEFS)
    expected = plain_loss(logits, values, logstd, layout, batch)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    for found, wanted in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert torch.allclose(found, wanted, atol=1e-12)


def test_a26_dead_steps_take_part_in_nothing_whatever_stands_there() -> None:
    layout, live = ActionLayout.from_space(spaces.Discrete(3)), torch.tensor([True, False, True])
    nan = float("nan")
    full = {"logits": [[1, 0, -1], [nan] * 3, [0.5, 0.5, 0]], "values": [0.3, nan, 1.0]}
    rows = {
        "logprobs": [-0.5, nan, -1.2],
        "values": [0.2, nan, 0.5],
        "advantages": [1, nan, -0.5],
        "returns": [1, nan, 0.4],
    }
    results = []
    for keep in (slice(None), live):
        logits, values = double(full["logits"])[keep].requires_grad_(), double(full["values"])[keep].requires_grad_()
        batch = targets(
            len(values),
            actions=torch.tensor([0, 1, 2])[keep],
            live=live[keep],
            **{name: double(row)[keep] for name, row in rows.items()},
        )
        batch = Targets(**{**batch.__dict__, "count": 2.0})
        loss, terms, ratio = ppo_loss(logits, values, None, layout, batch, COEFS)
        results.append((loss, terms, ratio, *torch.autograd.grad(loss, (logits, values))))
    (loss, terms, ratio, *grads), (loss_2, terms_2, _, *grads_2) = results
    assert torch.equal(loss, loss_2)
    assert torch.equal(terms, terms_2)
    assert ratio[1] == 1
    for found, wanted in zip(grads, grads_2, strict=True):
        assert torch.equal(found[1], torch.zeros_like(found[1]))
        assert torch.equal(found[live], wanted)


def test_value_gradient_survives_rounding_of_the_clip() -> None:
    g = torch.Generator().manual_seed(0)
    values, old = (torch.randn(100_000, generator=g) for _ in range(2))
    returns = torch.zeros(100_000)
    layout = ActionLayout.from_space(spaces.Discrete(2))
    batch = targets(
        len(values),
        actions=torch.zeros(len(values), dtype=torch.int64),
        logprobs=torch.zeros(len(values)),
        advantages=torch.zeros(len(values)),
        values=old,
        returns=returns,
    )
    leaf_values = values.clone().requires_grad_()
    ppo_loss(torch.zeros(len(values), 2, requires_grad=True), leaf_values, None, layout, batch, COEFS)[0].backward()
    assert leaf_values.grad is not None
    unclipped = (values - old).abs() <= 0.2
    assert int((leaf_values.grad[unclipped] == 0).sum()) == int((values[unclipped] == returns[unclipped]).sum())


def test_parts_of_a_minibatch_add_up_to_the_whole() -> None:
    g = torch.Generator().manual_seed(1)
    layout = ActionLayout.from_space(spaces.Discrete(3))
    logits, values = (
        torch.randn(8, 3, generator=g, dtype=torch.float64),
        torch.randn(8, generator=g, dtype=torch.float64),
    )
    rest = {
        n: torch.randn(8, generator=g, dtype=torch.float64) for n in ("logprobs", "values", "advantages", "returns")
    }
    actions = torch.arange(8) % 3

    def loss_of(part: slice) -> Tensor:
        batch = targets(8, actions=actions[part], **{name: array[part] for name, array in rest.items()})
        return ppo_loss(logits[part], values[part], None, layout, batch, COEFS)[0]

    assert loss_of(slice(0, 5)) + loss_of(slice(5, 8)) == pytest.approx(loss_of(slice(None)).item())


def test_loss_of_half_precision_logits_is_computed_in_float32() -> None:
    logits = torch.randn(4, 3, dtype=torch.bfloat16, requires_grad=True)
    batch = targets(4, actions=torch.zeros(4, dtype=torch.int64))
    batch = Targets(
        **{k: v.float() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in vars(batch).items()}
    )
    layout = ActionLayout.from_space(spaces.Discrete(3))
    loss, terms, _ = ppo_loss(logits, torch.zeros(4, requires_grad=True), None, layout, batch, COEFS)
    loss.backward()
    assert (loss.dtype, terms.dtype) == (torch.float32, torch.float32)
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("box", ["gaussian", "squashed"])
@pytest.mark.parametrize("some_dead", [False, True])
def test_deviations_of_the_state_have_the_gradient_of_shared_ones_step_by_step(box: str, some_dead: bool) -> None:
    shared, n = ActionLayout.from_space(spaces.Box(-1, 1, (2,)), box), 6
    by_state = replace(shared, deviates_by_state=True)
    g = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    live = torch.tensor([True, False, True, True, False, True]) if some_dead else None
    means, logstd, values = normal(n, 2).requires_grad_(), (0.3 * normal(1, 2)).requires_grad_(), normal(n)
    batch = targets(n, actions=normal(n, 2), logprobs=normal(n) - 2, advantages=normal(n), live=live)
    logits = torch.cat([means, logstd.expand(n, 2)], 1).detach().requires_grad_()
    assert by_state.width == 4
    wanted, _, _ = ppo_loss(means, values, logstd, shared, batch, COEFS)
    found, _, _ = ppo_loss(logits, values, None, by_state, batch, COEFS)
    assert found.item() == pytest.approx(wanted.item(), abs=1e-12)
    (d_logits,) = torch.autograd.grad(found, logits)
    d_means, d_logstd = torch.autograd.grad(wanted, (means, logstd))
    assert torch.allclose(d_logits[:, :2], d_means, atol=1e-12)
    assert torch.allclose(d_logits[:, 2:].sum(0), d_logstd[0], atol=1e-12)
    if live is not None:
        assert not d_logits[~live].any()
