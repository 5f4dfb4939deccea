from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from puffer_core.config.schema import TrainConfig
from puffer_core.errors import RunError
from puffer_core.rl.optim import Adam, Muon, Optimizer, make_optimizer, orthogonalize

G = [[1.0, 2, 3], [4, 5, 6]]


def parameter(values: Any) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def give(optimizer: Optimizer, *gradients: Any) -> None:
    parts = [torch.tensor(gradient, dtype=torch.float64).flatten() for gradient in gradients]
    optimizer.gradient.copy_(torch.cat(parts))


def test_orthogonalize_matches_test_5() -> None:
    diagonal = orthogonalize(torch.tensor([[3.0, 0, 0], [0, 4, 0]], dtype=torch.float64))
    assert diagonal.flatten().tolist() == pytest.approx((1.018629, 0, 0, 0, 1.005632, 0), abs=5e-7)
    found = orthogonalize(torch.tensor(G, dtype=torch.float64))
    assert found.flatten().tolist() == pytest.approx(
        (-0.591518, 0.110997, 0.813512, 0.707256, 0.560562, 0.413868), abs=5e-7
    )
    assert torch.linalg.svdvals(found).tolist() == pytest.approx((1.015953, 0.988727), abs=5e-7)


@pytest.mark.parametrize(
    ("x", "y"), [(1, 0.978346), (0.5, 0.985869), (0.1, 1.01905), (0.01, 1.018025), (0.001, 0.474982)]
)
def test_orthogonalize_moves_singular_values_near_one(x: float, y: float) -> None:
    big = torch.sqrt(torch.tensor(1 - x * x, dtype=torch.float64))
    matrix = torch.diag(torch.tensor([float(x), float(big)], dtype=torch.float64))
    assert orthogonalize(matrix)[0, 0].item() == pytest.approx(y, abs=5e-6)


def test_orthogonalize_keeps_zero_and_ignores_scale() -> None:
    assert torch.equal(orthogonalize(torch.zeros(3, 2)), torch.zeros(3, 2))
    matrix = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(orthogonalize(matrix), orthogonalize(1000 * matrix))
    assert torch.allclose(orthogonalize(matrix).t(), orthogonalize(matrix.t()))


def test_muon_matches_test_5_over_two_steps() -> None:
    weight = parameter([[0.0] * 3] * 2)
    muon = Muon({"w": weight}, momentum=0.95)
    give(muon, G)
    muon.step(0.1)
    assert weight.flatten().tolist() == pytest.approx(
        (0.059152, -0.0111, -0.081351, -0.070726, -0.056056, -0.041387), abs=5e-7
    )
    give(muon, [[1, -2, 3], [4, 5, -6]])
    muon.step(0.1)
    assert weight.flatten().tolist() == pytest.approx(
        (0.015852, -0.002437, -0.169848, -0.134653, -0.130181, -0.016524), abs=5e-7
    )
    assert muon.state_dict()["momentum.w"].flatten().tolist() == pytest.approx((1.95, -0.1, 5.85, 7.8, 9.75, -0.3))


def test_muon_scales_tall_matrices() -> None:
    weight = parameter([[0.0] * 2] * 3)
    muon = Muon({"w": weight}, momentum=0.95)
    give(muon, torch.tensor(G).t().tolist())
    muon.step(0.1)
    assert weight.flatten().tolist() == pytest.approx(
        (0.072446, -0.086621, -0.013594, -0.068655, -0.099634, -0.050688), abs=5e-7
    )


def test_muon_moves_vectors_by_momentum_and_logstd_as_a_matrix() -> None:
    bias, logstd = parameter([1.0, 2.0]), parameter([[0.0, 0.0]])
    muon = Muon({"bias": bias, "logstd": logstd}, momentum=0.95)
    give(muon, [0.1, -0.2], [0.03, -0.04])
    muon.step(0.1)
    assert bias.tolist() == pytest.approx((0.9805, 2.039))
    assert logstd.flatten().tolist() == pytest.approx((-0.058701, 0.078268), abs=5e-7)


def test_muon_flattens_convolutions_to_matrices() -> None:
    kernel, matrix = parameter(torch.zeros(4, 2, 3, 3).tolist()), parameter(torch.zeros(4, 18).tolist())
    gradient = torch.randn(72, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for weight in (kernel, matrix):
        muon = Muon({"w": weight}, momentum=0.9)
        muon.gradient.copy_(gradient)
        muon.step(0.1)
    assert torch.equal(kernel.flatten(), matrix.flatten())


def test_clip_scales_by_the_global_norm() -> None:
    muon = Muon({"a": parameter([0.0]), "b": parameter([0.0])}, momentum=0.9)
    give(muon, [3.0], [4.0])
    assert muon.clip(1.5) == pytest.approx(5.0)
    assert muon.gradient.tolist() == pytest.approx((0.9, 1.2))
    assert muon.clip(float("inf")) == pytest.approx(1.5)
    assert muon.gradient.tolist() == pytest.approx((0.9, 1.2))


@pytest.mark.parametrize("max_norm", [1.5, float("inf")])
def test_clip_measures_a_gradient_whose_squares_overflow(max_norm: float) -> None:
    muon = Muon({"w": nn.Parameter(torch.zeros(3))}, momentum=0.9)
    muon.gradient.copy_(torch.tensor([3e30, -4e30, 0.0]))
    assert muon.clip(max_norm) == pytest.approx(5e30)
    length = min(max_norm, 5e30)
    assert muon.gradient.tolist() == pytest.approx((0.6 * length, -0.8 * length, 0.0))
    assert muon.first_non_finite() is None


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_clip_leaves_what_is_not_finite_to_be_found(number: float) -> None:
    muon = Muon({"a": nn.Parameter(torch.zeros(1)), "b": nn.Parameter(torch.zeros(2))}, momentum=0.9)
    muon.gradient.copy_(torch.tensor([3e30, 1.0, number]))
    assert not math.isfinite(muon.clip(1.5))
    assert muon.first_non_finite() == "b"


def test_adam_equals_that_of_torch() -> None:
    g = torch.Generator().manual_seed(0)
    start = [torch.randn(3, 2, generator=g, dtype=torch.float64), torch.randn(4, generator=g, dtype=torch.float64)]
    ours, theirs = ([nn.Parameter(x.clone()) for x in start] for _ in range(2))
    adam = Adam({"a": ours[0], "b": ours[1]}, (0.9, 0.999), 1e-8, weight_decay=0.01)
    reference = torch.optim.AdamW(theirs, lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    for _ in range(5):
        gradients = [torch.randn(p.shape, generator=g, dtype=torch.float64) for p in ours]
        adam.gradient.copy_(torch.cat([gradient.flatten() for gradient in gradients]))
        for p, gradient in zip(theirs, gradients, strict=True):
            p.grad = gradient
        adam.step(0.1)
        reference.step()
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p, q, atol=1e-12)


def test_weight_decay_is_decoupled() -> None:
    weight = parameter([2.0])
    muon = Muon({"w": weight}, momentum=0.9, weight_decay=0.5)
    muon.step(0.1)
    assert weight.item() == pytest.approx(2.0 * 0.95)


def test_gradient_of_unused_parameters_is_zero() -> None:
    used, unused = parameter([1.0, 2.0]), parameter([[5.0]])
    muon = Muon({"used": used, "unused": unused}, momentum=0.9)
    assert muon.gradient_of(used.square().sum() + used.sum()).tolist() == [3.0, 5.0, 0.0]


def test_first_non_finite_names_the_parameter() -> None:
    muon = Muon({"a": parameter([0.0]), "b": parameter([[0.0, 0.0]])}, momentum=0.9)
    assert muon.first_non_finite() is None
    give(muon, [1.0], [[2.0, float("nan")]])
    assert muon.first_non_finite() == "b"


def test_state_restores_the_next_step() -> None:
    results = []
    for restored in (False, True):
        weight = parameter(G)
        adam = make_optimizer(nn.ParameterDict({"w": weight}), TrainConfig(optimizer="adam"))
        give(adam, G)
        adam.step(0.1)
        if restored:
            state = {name: array.clone() for name, array in adam.state_dict().items()}
            adam = make_optimizer(nn.ParameterDict({"w": weight}), TrainConfig(optimizer="adam"))
            adam.load_state_dict(state, 1)
            give(adam, G)
        adam.step(0.1)
        results.append(weight.detach().clone())
    assert torch.equal(*results)


def test_state_of_another_network_is_refused() -> None:
    muon = Muon({"w": parameter(G)}, momentum=0.9)
    with pytest.raises(RunError, match="does not fit"):
        muon.load_state_dict({"momentum.w": torch.zeros(3, 3)}, 1)
