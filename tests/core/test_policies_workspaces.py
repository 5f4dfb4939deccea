"""The arrays that a layer keeps from minibatch to minibatch."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from puffer_core.policies import LSTMLayer
from puffer_core.policies.mingru import MinGRULayer
from puffer_core.policies.workspaces import Workspaces


class Work:
    def __init__(self, x: Tensor) -> None:
        self.shape = x.shape

    def fits(self, x: Tensor) -> bool:
        return x.shape == self.shape


def test_what_is_given_back_is_taken_again_where_it_fits() -> None:
    kept, small, large = Workspaces(Work), torch.zeros(1), torch.zeros(2)
    first, second = kept.take(small), kept.take(small)
    assert first is not second
    kept.give_back(first)
    assert kept.take(small) is first
    kept.give_back(first)
    assert kept.take(large).shape == (2,)
    assert kept.take(small) is not first


def layers() -> list[nn.Module]:
    source = torch.Generator().manual_seed(0)
    return [LSTMLayer(8, True, source), MinGRULayer(8, source)]


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: type(layer).__name__)
def test_a_copy_of_a_layer_that_has_learnt_carries_its_weights_only(layer: nn.Module) -> None:
    before = len(pickle.dumps(layer))
    state = torch.zeros(4, 16 if isinstance(layer, LSTMLayer) else 8)
    layer(torch.ones(64, 4, 8), state, torch.empty(0, dtype=torch.int64)).sum().backward()
    layer.zero_grad()
    assert len(pickle.dumps(layer)) == before
    copied: dict[int, object] = {}
    deepcopy(layer, copied)
    sizes = sum(one.numel() for one in copied.values() if isinstance(one, Tensor) and not isinstance(one, nn.Parameter))
    assert sizes <= sum(p.numel() for p in layer.parameters())  # each parameter is a copied tensor's wrapper
