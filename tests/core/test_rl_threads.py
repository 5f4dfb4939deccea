from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from fakes import ScriptedVector, make_trainer, run

from puffer_core.policies.scan import Recurrence
from puffer_core.rl.threads import LONGEST_WAIT, OneThreadPerOperation, Threads


def counts_used(threads: Threads, seconds: Callable[[int, int], float], units: int) -> list[int]:
    """Run units of work that take ``seconds(count, unit)``; return the count that each was given."""
    used = []
    for unit in range(units):
        with threads:
            used.append(torch.get_num_threads())
            threads._started -= seconds(used[-1], unit)
    return used


def test_the_faster_count_is_used_after_a_few_trials() -> None:
    for fastest in (1, 2):
        used = counts_used(Threads(2), lambda count, _, fastest=fastest: 10.0 if count == fastest else 20.0, 100)
        assert {1, 2} == set(used[:6])
        assert sum(count == fastest for count in used) > 90
        assert torch.get_num_threads() == 1


def test_threads_are_left_at_once_where_they_become_slow_and_taken_up_again_later() -> None:
    # From unit 100 to 1100 another program wants a core: two threads are then ten times slower.
    def seconds(count: int, unit: int) -> float:
        return 20.0 if count == 1 else 150.0 if 100 <= unit < 1100 else 10.0

    used = counts_used(Threads(2), seconds, 4000)
    assert used[50:99].count(2) > 45
    assert used[100:1100].count(2) < 20
    assert used[1100 + LONGEST_WAIT :].count(2) > 1800


def test_one_thread_needs_no_clock() -> None:
    assert set(counts_used(Threads(1), lambda *_: 1.0, 10)) == {1}


def test_operations_are_not_split_inside_and_may_be_outside() -> None:
    before = torch.get_num_threads()
    with OneThreadPerOperation():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("core", ["mingru", "none"])
def test_threads_do_not_change_the_numbers(core: str) -> None:
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(130, 128, 64)).astype(np.float32)
    scripts = {"rewards": rng.normal(size=(130, 128)), "terminals": rng.random((130, 128)) < 0.02}
    weights = []
    for threads in (1, 2):
        trainer = make_trainer(
            ScriptedVector(observations, **scripts), threads=threads, horizon=64, minibatch_size=4096,
            replay_ratio=2.0, policy_hidden_size=64, policy_core=core,
        )  # fmt: skip
        run(trainer, 2)
        weights.append(torch.cat([p.detach().flatten() for p in trainer.policy.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("length", [1, 2, 9])
def test_recurrence_in_one_call_equals_the_loop(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    rows, factors = (torch.randn(length, 3, 4, generator=generator) for _ in range(2))
    looped = rows.clone()
    for t in range(1, length):
        looped[t].addcmul_(factors[t], looped[t - 1])
    Recurrence(rows.unbind(0), factors.unbind(0)[1:]).run()
    assert torch.equal(rows, looped)


def test_recurrence_falls_back_to_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puffer_core.policies.scan._lists_run_in_order", lambda: False)
    rows = torch.ones(4, 2)
    Recurrence(rows.unbind(0), torch.full((3, 2), 2.0).unbind(0)).run()
    assert rows[:, 0].tolist() == [1.0, 3.0, 7.0, 15.0]
