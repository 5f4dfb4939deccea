"""Steps on the way to the reference numbers, where the tests of one module look at the ends only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from puffer_core.config.schema import PolicyConfig
from puffer_core.policies import ActionLayout, make_policy
from puffer_core.rl.replay import draw, normalize, probabilities

ADVANTAGES = torch.tensor([[0.5, -0.5, 0.0], [1, 1, 0], [0, 0.1, 0], [2, -1, 0]], dtype=torch.float64).t()
"""Those of Test 3, (3, 4)."""


def double(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_3_priorities_before_their_sum_is_divided_out() -> None:
    probability = probabilities(ADVANTAGES, 0.8)
    assert ADVANTAGES.abs().sum(0).tolist() == pytest.approx((1.0, 2.0, 0.1, 3.0))
    assert (probability / probability[0]).tolist() == pytest.approx((1, 1.7411011, 0.1584893, 2.4082247), abs=5e-6)
    assert probability.cumsum(0).tolist() == pytest.approx((0.1884015, 0.5164274, 0.5462872, 1.0), abs=5e-7)
    assert draw(probability, torch.tensor([0.1, 0.5, 0.9, 0.05])).tolist() == [0, 1, 3, 0]


def test_3_normalised_advantages_undo_to_their_mean_and_deviation() -> None:
    rows = ADVANTAGES[:, [3, 1]]
    assert (float(rows.mean()), float(rows.std())) == (pytest.approx(0.5), pytest.approx(1.0488088, abs=5e-8))
    assert torch.allclose(normalize(rows, None) * 1.0488088 + 0.5, rows, atol=1e-6)


def test_4a_log_probabilities_of_each_row() -> None:
    layout = ActionLayout.from_space(spaces.Discrete(3))
    logits = double([[1, 0, -1], [0.5, 0.5, 0]])
    found = layout.log_prob(logits, torch.tensor([0, 2]), None, None)
    assert found.tolist() == pytest.approx((-0.407606, -1.4580201), abs=5e-8)
    assert _entropies(layout, logits) == [pytest.approx(h, abs=5e-8) for h in (0.8323956, 1.0743684)]


def test_4b_probabilities_of_a_masked_head() -> None:
    layout = ActionLayout.from_space(spaces.MultiDiscrete([2, 3]))
    logits, mask = double([[0.2, -0.3, 1, 2, 0]]), torch.tensor([[1, 1, 1, 0, 1]], dtype=torch.uint8)
    joint = [[layout.log_prob(logits, torch.tensor([[i, j]]), mask, None).exp().item() for j in (0, 2)] for i in (0, 1)]
    found = np.array(joint)
    assert found.sum() == pytest.approx(1.0)
    assert found.sum(0).tolist() == pytest.approx((0.7310586, 0.2689414), abs=5e-8)
    heads = [-(p * np.log(p)).sum() for p in (found.sum(1), found.sum(0))]
    assert heads == pytest.approx([0.6628473, 0.5822031], abs=5e-8)


def test_4c_log_probabilities_of_each_dimension() -> None:
    layout = ActionLayout.from_space(spaces.Box(-1, 1, (1,)))
    for mean, logstd, action, expected in ((0.1, -0.5, 0.4, -0.5412612), (-0.2, 0.3, 0.5, -1.3533974)):
        found = layout.log_prob(double([[mean]]), double([[action]]), None, double([[logstd]]))
        assert found.item() == pytest.approx(expected, abs=5e-8)


def test_6d_the_convolutions_for_pictures_of_84_leave_3136_numbers() -> None:
    picture, config = spaces.Box(0, 255, (4, 84, 84), np.uint8), PolicyConfig(hidden_size=8, num_layers=1)
    policy = make_policy(config, picture, spaces.Discrete(2), torch.Generator().manual_seed(0))
    assert 3136 in {parameter.shape[-1] for parameter in policy.parameters()}


def _entropies(layout: ActionLayout, logits: torch.Tensor) -> list[float]:
    """Return the entropy of each row of one head, from the probability of each of its actions."""
    size = logits.shape[1]
    rows = [layout.log_prob(logits, torch.full((len(logits),), a), None, None) for a in range(size)]
    logprobs = torch.stack(rows, 1)
    return (-(logprobs.exp() * logprobs).sum(1)).tolist()
