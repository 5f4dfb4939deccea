from __future__ import annotations

import gc
import threading

import pytest
import torch

from puffer_core.policies.scan import Recurrence
from puffer_core.rl.workers import MAX_PARTS, OneThreadPerOperation, Workers, cut


@pytest.mark.parametrize(
    ("size", "least", "most", "sizes"),
    [
        (64, 32, None, [32, 32]),
        (63, 32, None, [63]),
        (64, 64, 16, [16, 16, 16, 16]),
        (1000, 1, None, [125] * MAX_PARTS),
        (10, 3, None, [4, 4, 2]),
        (5, 9, None, [5]),
    ],
)
def test_cut_covers_everything_in_parts(size: int, least: int, most: int | None, sizes: list[int]) -> None:
    parts = cut(size, least, most)
    assert [part.stop - part.start for part in parts] == sizes
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(size))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_map_keeps_the_order_and_uses_every_thread(threads: int) -> None:
    workers = Workers(threads)
    barrier = threading.Barrier(threads, timeout=10)

    def work(item: int) -> tuple[int, int]:
        if item < threads:
            barrier.wait()
        return item * item, threading.get_ident()

    results = workers.map(work, range(7))
    assert [square for square, _ in results] == [i * i for i in range(7)]
    assert len({thread for _, thread in results}) == threads
    workers.close()


def test_map_raises_what_a_thread_raised_and_goes_on_afterwards() -> None:
    workers = Workers(2)

    def fail(item: int) -> int:
        if item == 1:
            raise ValueError("item 1")
        return item

    for _ in range(2):
        with pytest.raises(ValueError, match="item 1"):
            workers.map(fail, range(4))
        assert workers.map(lambda item: item, range(3)) == [0, 1, 2]
    workers.close()


def test_threads_end_with_their_owner() -> None:
    before = threading.active_count()
    workers = Workers(3)
    assert threading.active_count() == before + 2
    threads = [thread for thread in threading.enumerate() if thread.name == "puffer-rl"]
    del workers
    gc.collect()
    for thread in threads:
        thread.join(timeout=10)
    assert threading.active_count() == before


def test_operations_are_not_split_inside_and_may_be_outside() -> None:
    before = torch.get_num_threads()
    with OneThreadPerOperation():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("length", [1, 2, 9])
def test_recurrence_in_one_call_equals_the_loop(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    rows, factors = (torch.randn(length, 3, 4, generator=generator) for _ in range(2))
    looped = rows.clone()
    for t in range(1, length):
        looped[t].addcmul_(factors[t], looped[t - 1])
    recurrence = Recurrence(rows.unbind(0), factors.unbind(0)[1:])
    recurrence.run()
    assert torch.equal(rows, looped)
    recurrence._in_one_call = False
    recurrence.run()
    assert bool(rows.isfinite().all())


def test_recurrence_falls_back_to_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puffer_core.policies.scan._lists_run_in_order", lambda: False)
    rows = torch.ones(4, 2)
    Recurrence(rows.unbind(0), torch.full((3, 2), 2.0).unbind(0)).run()
    assert rows[:, 0].tolist() == [1.0, 3.0, 7.0, 15.0]
