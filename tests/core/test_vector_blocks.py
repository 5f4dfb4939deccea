"""Tests for which workers make the next batch."""

from __future__ import annotations

import random

import numpy as np
import pytest

from puffer_core.errors import OptionError
from puffer_core.vector.blocks import Blocks, auto_workers, rows_of


def ready(blocks: Blocks, *workers: int) -> Blocks:
    blocks.restart()
    for worker in workers:
        blocks.done(worker)
    return blocks


@pytest.mark.parametrize(
    ("num_workers", "per_batch", "zero_copy", "mode"),
    [
        (4, 4, True, "full"),
        (4, 4, False, "full"),
        (1, 1, True, "full"),
        (4, 1, True, "single"),
        (4, 1, False, "single"),
        (4, 2, True, "ring"),
        (4, 2, False, "asynchronous"),
        (4, 3, False, "asynchronous"),
    ],
)
def test_mode_follows_from_the_numbers(num_workers: int, per_batch: int, zero_copy: bool, mode: str) -> None:
    assert Blocks(num_workers, per_batch, zero_copy=zero_copy).mode == mode


def test_ring_takes_the_lowest_aligned_block_that_is_ready() -> None:
    assert ready(Blocks(4, 2, in_order=False), 1, 2, 3).take() == (2, 3)
    assert ready(Blocks(4, 2, in_order=False), 0, 3).take() is None
    assert ready(Blocks(4, 2, in_order=False), 3, 2, 1, 0).take() == (0, 1)


def test_ring_in_order_waits_for_block_0() -> None:
    blocks = ready(Blocks(4, 2), 2, 3, 1)
    assert blocks.take() is None
    assert blocks.wanted == (0,)
    assert blocks.missing == 1
    blocks.done(0)
    assert blocks.take() == (0, 1)


def test_ring_in_order_alternates() -> None:
    blocks = ready(Blocks(6, 2), 5, 4, 3, 2, 1, 0)
    taken = []
    for _ in range(7):
        taken.append(blocks.take())
        for worker in blocks.give_back():
            blocks.done(worker)
    assert taken == [(0, 1), (2, 3), (4, 5), (0, 1), (2, 3), (4, 5), (0, 1)]


def test_full_is_everyone_in_order_whoever_is_ready_first() -> None:
    blocks = ready(Blocks(3, 3, in_order=False), 2, 0)
    assert blocks.take() is None
    assert blocks.wanted == (1,)
    blocks.done(1)
    assert blocks.take() == (0, 1, 2)


def test_asynchronous_takes_the_first_that_are_ready_in_that_order() -> None:
    blocks = ready(Blocks(4, 2, zero_copy=False, in_order=False), 3)
    assert blocks.missing == 1
    assert blocks.wanted == (0, 1, 2)
    blocks.done(0)
    blocks.done(2)
    assert blocks.take() == (3, 0)
    assert blocks.give_back() == (3, 0)
    assert blocks.working == (1, 3, 0)
    blocks.done(0)
    assert blocks.take() == (2, 0)


def test_asynchronous_in_order_takes_those_longest_at_work() -> None:
    blocks = ready(Blocks(4, 3, zero_copy=False), 3, 2, 1, 0)
    taken = []
    for _ in range(4):
        taken.append(blocks.take())
        for worker in blocks.give_back():
            blocks.done(worker)
    assert taken == [(0, 1, 2), (3, 0, 1), (2, 3, 0), (1, 2, 3)]


def test_single_takes_the_first_that_is_ready() -> None:
    assert ready(Blocks(3, 1, in_order=False), 2, 0).take() == (2,)
    assert ready(Blocks(3, 1), 2, 0).take() == (0,)


def test_missing_of_a_ring_is_of_the_block_that_lacks_least() -> None:
    blocks = ready(Blocks(6, 2, in_order=False), 3)
    assert blocks.missing == 1
    assert ready(Blocks(6, 2, in_order=False)).missing == 2


def test_a_block_received_is_not_taken_again() -> None:
    blocks = ready(Blocks(2, 1, in_order=False), 1)
    assert blocks.take() == (1,)
    assert blocks.received == (1,)
    assert blocks.take() is None
    assert blocks.working == (0,)


def test_restart_forgets_what_was_at_work() -> None:
    blocks = ready(Blocks(4, 2), 0, 1, 2)
    blocks.take()
    blocks.give_back((0,))
    blocks.restart()
    assert blocks.received == ()
    assert blocks.held == ()
    assert blocks.working == (0, 1, 2, 3)
    assert blocks.take() is None


def test_a_ring_goes_on_without_a_block_that_is_held() -> None:
    blocks = ready(Blocks(4, 2), 0, 1, 2, 3)
    assert blocks.take() == (0, 1)
    assert blocks.give_back((0, 1)) == ()
    assert blocks.held == (0, 1)
    assert blocks.take() == (2, 3)
    assert blocks.give_back((2, 3)) == ()
    assert blocks.take() is None
    assert blocks.missing == 0
    assert blocks.release() == (0, 1, 2, 3)
    assert blocks.wanted == (0, 1)


@pytest.mark.parametrize("in_order", [False, True])
def test_a_block_of_which_one_is_held_is_the_rest_of_it(in_order: bool) -> None:
    blocks = ready(Blocks(4, 2, in_order=in_order), 0, 1, 2, 3)
    blocks.take()
    assert blocks.give_back((1,)) == (0,)
    blocks.done(0)
    if in_order:
        assert blocks.take() == (2, 3)
        blocks.give_back()
    assert blocks.take() == (0,)
    blocks.give_back()
    blocks.release()
    for worker in blocks.working:
        blocks.done(worker)
    if in_order:
        assert blocks.take() == (2, 3)
        blocks.give_back()
    assert blocks.take() == (0, 1)


def test_full_is_in_order_after_one_was_held() -> None:
    blocks = ready(Blocks(3, 3), 0, 1, 2)
    blocks.take()
    blocks.give_back((0,))
    blocks.release()
    for worker in (1, 2, 0):
        blocks.done(worker)
    assert blocks.take() == (0, 1, 2)


@pytest.mark.parametrize("in_order", [False, True])
def test_asynchronous_batches_are_no_more_than_those_not_held(in_order: bool) -> None:
    blocks = ready(Blocks(4, 3, zero_copy=False, in_order=in_order), 0, 1, 2, 3)
    assert blocks.take() == (0, 1, 2)
    assert blocks.give_back((2, 0)) == (1,)
    assert blocks.missing == 1
    blocks.done(1)
    assert blocks.take() == (3, 1)
    blocks.give_back((3, 1))
    assert blocks.take() is None
    assert blocks.release() == (0, 1, 2, 3)
    assert blocks.held == ()


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(
    ("num_workers", "per_batch", "zero_copy"), [(4, 2, True), (6, 3, True), (5, 3, False), (7, 1, True), (4, 4, True)]
)
def test_waiting_for_wanted_always_ends_and_serves_everyone(
    num_workers: int, per_batch: int, zero_copy: bool, in_order: bool
) -> None:
    """Workers finish in a random order: every batch comes, none has a worker twice, and nobody is left out."""
    random_order = random.Random(num_workers * 10 + per_batch)
    blocks = Blocks(num_workers, per_batch, zero_copy=zero_copy, in_order=in_order)
    blocks.restart()
    served = dict.fromkeys(range(num_workers), 0)
    for _ in range(400):
        while (block := blocks.take()) is None:
            assert 1 <= blocks.missing <= len(blocks.wanted)
            blocks.done(random_order.choice(blocks.wanted))
        assert len(set(block)) == per_batch
        for worker in blocks.give_back():
            served[worker] += 1
    assert min(served.values()) > 0
    assert max(served.values()) - min(served.values()) <= (1 if in_order else 400)


@pytest.mark.parametrize(
    ("num_workers", "per_batch", "zero_copy", "words"),
    [
        (4, 0, True, "0 workers per batch are not an integer from 1 to num_workers=4"),
        (4, 5, True, "5 workers per batch are not an integer from 1 to num_workers=4"),
        (4, 3, True, "num_workers=4 is not divisible by 3 workers per batch"),
    ],
)
def test_numbers_that_do_not_fit(num_workers: int, per_batch: int, zero_copy: bool, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Blocks(num_workers, per_batch, zero_copy=zero_copy)


def test_rows_of_consecutive_workers_are_a_slice() -> None:
    assert rows_of((2, 3), 5) == slice(10, 20)
    assert rows_of((1,), 3) == slice(3, 6)


def test_rows_of_scattered_workers_are_listed_in_their_order() -> None:
    np.testing.assert_array_equal(rows_of((3, 0), 2), [6, 7, 0, 1])


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("num_workers", "per_batch", "zero_copy"), [(6, 2, True), (5, 3, False), (4, 1, True)])
def test_rollouts_that_hold_who_is_full_always_end(
    num_workers: int, per_batch: int, zero_copy: bool, in_order: bool
) -> None:
    """A rollout holds each worker after four arrivals; the next begins by answering all of them."""
    random_order = random.Random(num_workers)
    blocks = Blocks(num_workers, per_batch, zero_copy=zero_copy, in_order=in_order)
    blocks.restart()
    for _ in range(20):
        arrivals = dict.fromkeys(range(num_workers), 0)
        while min(arrivals.values()) < 4:
            while (block := blocks.take()) is None:
                blocks.done(random_order.choice(blocks.wanted))
            for worker in block:
                arrivals[worker] += 1
            blocks.give_back(tuple(worker for worker in block if arrivals[worker] == 4))
        assert set(arrivals.values()) == {4}
        assert blocks.release() == tuple(range(num_workers))


@pytest.mark.parametrize(
    ("num_envs", "batch_size", "cores", "workers"),
    [(8, 8, 2, 2), (8, 4, 2, 2), (8, 2, 2, 4), (9, 9, 2, 1), (9, 9, 4, 3), (3, 3, 16, 3), (12, 4, 4, 3), (8, 1, 2, 8)],
)
def test_auto_workers_divide_environments_and_batches(num_envs: int, batch_size: int, cores: int, workers: int) -> None:
    assert auto_workers(num_envs, batch_size, cores) == workers
