from __future__ import annotations

import pytest

from puffer_core.testing import run_isolated

MODULE = """
import ctypes
import time

def work(case):
    print("noise")
    if case == "crash":
        ctypes.string_at(1)
    if case == "hang":
        time.sleep(60)
    if case == "exit":
        raise SystemExit(3)
    if case == "raise":
        raise LookupError("no such thing")
    return case
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    (tmp_path / "isolated_target.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "isolated_target:work"


def test_each_case_has_its_own_outcome(target):
    outcomes = run_isolated(target, ["a", "raise", "crash", "b", "exit", "hang", "c"], case_timeout_s=5.0)
    assert [outcome.status for outcome in outcomes] == ["ok", "raised", "crashed", "ok", "crashed", "hung", "ok"]
    assert outcomes[0].detail == "a"
    assert outcomes[1].detail == "LookupError: no such thing"
    assert "LookupError" in outcomes[1].classes
    assert "Exception" in outcomes[1].classes
    assert "exit status -11" in outcomes[2].detail
    assert "exit status 3" in outcomes[4].detail


def test_others_are_not_tried_after_too_many_that_hung(target):
    outcomes = run_isolated(target, ["a", "hang", "hang", "b", "c"], case_timeout_s=2.0, max_hung=2)
    assert [outcome.status for outcome in outcomes] == ["ok", *["hung"] * 4]
    assert outcomes[4].detail == "not tried after 2 that gave no answer within 2.0 s"


def test_no_cases_give_no_outcomes(target):
    assert run_isolated(target, []) == []


def test_a_target_that_is_not_there_is_blamed_on_the_first_case(target):
    outcomes = run_isolated("no_such_module:work", ["a"])
    assert outcomes[0].status == "crashed"
    assert "no_such_module" in outcomes[0].detail


def test_the_start_of_each_case_is_told(target):
    begun: list[int] = []
    run_isolated(target, ["a", "crash", "b"], case_timeout_s=5.0, on_start=begun.append)
    assert begun == [0, 1, 2]
