"""How environments divide into workers and batches."""

from __future__ import annotations

import pytest

from puffer_core.errors import OptionError
from puffer_core.vector.blocks import auto_workers
from puffer_core.vector.counts import check_counts, check_index


@pytest.mark.parametrize(
    ("num_envs", "workers", "batch"), [(8, 4, 4), (8, 4, 8), (8, 4, 2), (12, 6, 4), (4096, 16, 2048)]
)
def test_legal_numbers_pass(num_envs, workers, batch):
    check_counts(num_envs, workers, batch, True)


@pytest.mark.parametrize(
    ("num_envs", "workers", "batch", "zero_copy", "message", "hint"),
    [
        (
            8,
            4,
            3,
            True,
            "batch_size=3 is no whole number of workers with 2 of num_envs=8 each",
            "batch_size can be 2 or 4",
        ),
        (6, 4, 6, True, "num_envs=6 can't be divided among num_workers=4", "num_workers can be 3 or 6"),
        (8, 4, 6, True, "num_envs=8 is no multiple of batch_size=6, which zero_copy needs", "batch_size can be 4 or 8"),
        (8, 7, "auto", True, "num_envs=8 can't be divided among num_workers=7", "num_workers can be 4 or 8"),
        (8, 9, "auto", True, "num_envs=8 can't be divided among num_workers=9", "num_workers can be 8"),
        (8, "auto", 3, True, "num_envs=8 is no multiple of batch_size=3", "batch_size can be 2 or 4"),
        (8, 4, 10, False, "batch_size=10 is more than num_envs=8", "batch_size can be 8"),
        (8, "auto", 9, False, "batch_size=9 is more than num_envs=8", "batch_size can be 8"),
        (12, 3, 8, True, "num_envs=12 is no multiple of batch_size=8", "batch_size can be 4 or 12"),
        (12, 3, 7, True, "no whole number of workers with 4 of num_envs=12", "batch_size can be 4 or 12"),
        (12, 3, 7, False, "no whole number of workers with 4 of num_envs=12", "batch_size can be 4 or 8"),
        (8, 0, "auto", True, "num_workers=0 is not an integer of at least 1", None),
        (8, 2, 0, True, "batch_size=0 is not an integer of at least 1", None),
        (0, "auto", "auto", True, "num_envs=0 is not an integer of at least 1", None),
        (8, 2.0, "auto", True, "num_workers=2.0 is not an integer of at least 1", None),
        (8, True, "auto", True, "num_workers=True is not an integer of at least 1", None),
        (8, "many", "auto", True, "num_workers='many' is not an integer of at least 1", None),
    ],
)
def test_illegal_numbers_are_named_with_the_nearest_legal_ones(num_envs, workers, batch, zero_copy, message, hint):
    with pytest.raises(OptionError, match=message) as caught:
        check_counts(num_envs, workers, batch, zero_copy)
    assert caught.value.hint == hint


@pytest.mark.parametrize("index", [-1, 1.0, True, "0"])
def test_instances_before_a_vector_are_a_count(index):
    with pytest.raises(OptionError, match=r"first_index=.* is not an integer of at least 0"):
        check_index(index)


def test_zero_copy_is_true_or_false():
    with pytest.raises(OptionError, match="zero_copy='no' is not True or False"):
        check_counts(4, 2, 2, "no")


def test_any_number_of_whole_workers_is_a_batch_without_zero_copy():
    check_counts(8, 4, 6, False)


@pytest.mark.parametrize(
    ("num_envs", "batch", "cores", "workers"),
    [(64, 64, 2, 2), (1, 1, 8, 1), (6, 6, 4, 3), (8, 2, 2, 4), (7, 7, 2, 1), (7, 3, 2, 7)],
)
def test_auto_is_a_worker_per_core_where_that_divides(num_envs, batch, cores, workers):
    assert auto_workers(num_envs, batch, cores) == workers
    check_counts(num_envs, workers, batch, False)
