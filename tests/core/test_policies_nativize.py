"""Flat rows taken apart in torch: the same numbers as numpy's, views where possible, errors where rows are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fakes_spaces import boxes, discretes, nested, same
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import ShapeError
from puffer_core.policies.nativize import Nativizer, nativize

BYTE = Box(0, 255, (1,), np.uint8)
POSE = Dict(
    {"pos": Box(-1, 1, (3,)), "img": Box(0, 255, (2, 3), np.uint8), "inv": Tuple([Discrete(5), MultiBinary(3)])}
)


def drawn(flat: FlatBox, count: int, seed: int = 0) -> tuple[list[Any], torch.Tensor]:
    """Samples of the original space, and their rows."""
    flat.seed(seed)
    rows = [flat.sample() for _ in range(count)]
    return [flat.unflatten(row) for row in rows], torch.from_numpy(np.stack(rows))


def at(sample: Any, index: int) -> Any:
    """One entry of a nested batch, in numpy."""
    if isinstance(sample, dict):
        return {key: at(part, index) for key, part in sample.items()}
    return tuple(at(part, index) for part in sample) if isinstance(sample, tuple) else sample[index].numpy()


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(nested(st.one_of(boxes(), discretes())), st.integers(0, 2**31))
def test_any_nested_sample_is_taken_apart(space: Any, seed: int) -> None:
    flat = FlatBox(space)
    samples, rows = drawn(flat, 3, seed)
    batch = nativize(rows, flat)
    for i, sample in enumerate(samples):
        assert same(at(batch, i), sample)


def test_a14_offsets_are_those_of_numpy_where_structs_are_padded() -> None:
    flat = FlatBox(Dict({"a": BYTE, "b": Tuple([Discrete(9), Discrete(9)]), "c": BYTE}))
    row = torch.zeros(1, 16, dtype=torch.uint8)
    row[0, 0], row[0, 4], row[0, 8], row[0, 12] = 1, 2, 3, 4
    found = nativize(row, flat)
    assert [found["a"].item(), found["b"][0].item(), found["b"][1].item(), found["c"].item()] == [1, 2, 3, 4]


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("beside", [True, False])
def test_every_dtype_comes_out_as_itself(dtype: str, beside: bool) -> None:
    leaf = Box(0, 1, (2,), np.dtype(dtype).type)
    flat = FlatBox(Tuple([leaf, MultiDiscrete([2, 2])]) if beside else Tuple([leaf]))
    samples, rows = drawn(flat, 2)
    found = nativize(rows, flat)[0]
    assert found.dtype == torch.from_numpy(np.zeros(1, dtype)).dtype
    assert np.array_equal(found.numpy(), np.stack([sample[0] for sample in samples]))


def test_leading_axes_stay() -> None:
    flat = FlatBox(POSE)
    _, rows = drawn(flat, 6)
    together = nativize(rows.view(2, 3, -1), flat)
    assert {key: tuple(part.shape) for key, part in together.items() if key != "inv"} == {
        "img": (2, 3, 2, 3),
        "pos": (2, 3, 3),
    }
    assert [tuple(part.shape) for part in together["inv"]] == [(2, 3), (2, 3, 3)]


def test_aligned_rows_are_viewed_not_copied() -> None:
    flat = FlatBox(POSE)
    _, rows = drawn(flat, 4)
    found = nativize(rows, flat)
    rows.zero_()
    assert not found["pos"].any()
    assert not found["inv"][0].any()


@pytest.mark.parametrize("start", [1, 2, 3])
def test_rows_at_odd_addresses_or_strides_are_taken_apart_too(start: int) -> None:
    flat = FlatBox(POSE)
    samples, rows = drawn(flat, 3)
    wide = torch.zeros(3, 28 + 5, dtype=torch.uint8)
    wide[:, start : start + 28] = rows
    for i, sample in enumerate(samples):
        assert same(at(nativize(wide[:, start : start + 28], flat), i), sample)
        assert same(at(nativize(rows.t().contiguous().t(), flat), i), sample)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (torch.zeros(2, 28), r"rows are torch.float32 \(2, 28\), needed are torch.uint8 \(\*n, 28\)"),
        (torch.zeros(2, 27, dtype=torch.uint8), r"rows are torch.uint8 \(2, 27\)"),
    ],
)
def test_wrong_rows_are_refused(rows: torch.Tensor, match: str) -> None:
    with pytest.raises(ShapeError, match=match):
        nativize(rows, FlatBox(POSE))


def test_numbers_of_one_dtype_may_come_converted() -> None:
    flat = FlatBox(Tuple([Box(-1, 1, (2,), np.float64), Box(-1, 1, (), np.float64)]))
    found = Nativizer(flat)(torch.tensor([[1.0, 2.0, 3.0]]))
    assert found[0].tolist() == [[1, 2]]
    assert found[1].tolist() == [3]
    with pytest.raises(ShapeError, match=r"needed are numbers \(\*n, 3\)"):
        Nativizer(flat)(torch.zeros(1, 2))
