from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fakes_faulty import FAULTS, RIGHT, WARNED, Constant, Fault, Plain, SeedIgnored, Worded

import puffer_core.testing
from puffer_core import plugins
from puffer_core.check import Case, Finding, Report, check, check_names, probe, run_check
from puffer_core.cli.main import main
from puffer_core.specs import EnvSpec

SLOW_RESET = "slow_reset"


@pytest.fixture(autouse=True)
def fresh_plugins() -> Iterator[None]:
    yield
    plugins.configure()


@pytest.fixture
def isolated_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a child process find the fakes."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def reasons(findings: tuple[Finding, ...], fault: Fault) -> str:
    return "\n".join(finding.reason for finding in findings if finding.name == fault.check)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.env.__name__}-{fault.check}")
def test_planted_fault_is_found_by_its_check(fault: Fault) -> None:
    failure = run_check(Case(fault.env, name=fault.check)).failure
    assert failure is not None
    assert fault.words in failure.reason


@pytest.mark.parametrize("fault", WARNED, ids=lambda fault: fault.env.__name__)
def test_what_is_allowed_and_strange_is_a_warning(fault: Fault) -> None:
    if fault.check == SLOW_RESET:
        result = probe(Case(fault.env)).opening
    else:
        result = run_check(Case(fault.env, name=fault.check))
    assert result.failure is None
    assert fault.words in reasons(result.warnings, fault)


@pytest.mark.parametrize("env", RIGHT, ids=lambda env: env.__name__)
def test_nothing_is_found_in_a_right_environment(env: type) -> None:
    report = check(env)
    assert report.failed == ()
    assert report.warnings == ()
    assert report.limits == ()


def test_names_of_checks_depend_on_framework_and_limits() -> None:
    every, native = check_names(), check_names("native")
    assert every[0] == native[0] == "opens_steps_and_closes"
    assert "turns_rewards_out_of_turn_are_kept" in every
    assert not [name for name in native if name.startswith(("single", "parallel", "turns", "multi"))]
    assert not [name for name in check_names("puffer", ("no-seed",)) if "seed" in name]


def test_what_can_not_be_opened_is_looked_at_as_it_is() -> None:
    report = check(Worded)
    assert report.failed[0].name == "opens_steps_and_closes"
    assert "single_rewards_are_finite_numbers" in report.passed
    assert not [finding for finding in report.failed if "seed" in finding.name]


def test_limits_are_reported_and_not_failed() -> None:
    report = check(Plain)
    assert report.is_ok
    assert report.limits == ("no-seed",)
    assert "one_seed_gives_one_trajectory" not in report.passed
    spec = EnvSpec("fakes/no-last", make="fakes_faulty:NoLastAtCuts", limits=("no-final-observation",))
    report = check(spec)
    assert "an_end_has_one_flag_and_a_last_observation" in report.passed
    assert report.limits == ("no-final-observation",)


def test_two_seeds_may_agree_where_nothing_is_random() -> None:
    failed = [finding.name for finding in check(SeedIgnored).failed]
    assert failed == ["two_seeds_give_two_trajectories"]
    assert check(SeedIgnored, is_random=False).is_ok
    case = Case(Constant, name="two_seeds_give_two_trajectories")
    assert run_check(case).failure is None
    assert "no seed makes a difference" in run_check(case).warnings[0].reason
    assert run_check(replace(case, is_random=True)).failure is not None
    assert run_check(replace(case, is_random=False)).warnings == ()


def test_crash_costs_one_check_and_names_the_signal(isolated_path: None) -> None:
    report = check("fakes_faulty:CrashesAfterClose")
    assert [finding.name for finding in report.failed] == ["step_after_close_is_no_crash"]
    assert "the process ended by signal SIGABRT" in report.failed[0].reason
    assert "resets_leak_nothing" in report.passed


def test_crash_while_it_is_opened_is_a_report_too(isolated_path: None) -> None:
    report = check("fakes_faulty:CrashesAtOnce")
    assert [finding.name for finding in report.failed] == ["opens_steps_and_closes"]
    assert "the process ended with exit status 7" in report.failed[0].reason


def test_hang_is_a_failure_of_its_check(isolated_path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("puffer_core.check._CASE_TIMEOUT_S", 6.0)
    report = check("fakes_faulty:HangsAfterClose")
    assert [finding.name for finding in report.failed] == ["step_after_close_is_no_crash"]
    assert report.failed[0].reason == "it hung: no answer within 6.0 s"


def test_testing_offers_check_and_report() -> None:
    assert puffer_core.testing.check is check
    assert puffer_core.testing.Report is Report
    with pytest.raises(AttributeError, match=re.escape("has no attribute 'cheque'")):
        puffer_core.testing.cheque  # noqa: B018


def test_report_is_plain_data() -> None:
    report = Report("maze", ("a",), (Finding("b", "wrong", "mend it"),), (Finding("c", "strange"),), ("no-seed",))
    assert report.as_dict() == {
        "env": "maze",
        "passed": ["a"],
        "failed": [{"name": "b", "reason": "wrong", "hint": "mend it"}],
        "warnings": [{"name": "c", "reason": "strange", "hint": None}],
        "limits": ["no-seed"],
    }


def test_command_prints_every_check_and_exits_with_1(capsys: pytest.CaptureFixture[str], isolated_path: None) -> None:
    assert main(["check", "fakes_faulty:BothFlags"]) == 1
    out = capsys.readouterr().out
    assert "ok       spaces are supported\n" in out
    assert "FAILED   an end has one flag and a last observation\n         step " in out
    assert "         hint: an end has one flag: terminal where both hold\n" in out
    assert out.endswith("BothFlags: 25 ok, 2 failed, 0 warnings\n")


def test_command_gives_json_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "breakout", "--env.frameskip", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["env"], found["failed"], found["warnings"]) == ("ocean/breakout", [], [])
    assert "one_seed_gives_one_trajectory" in found["passed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["braekout"], "braekout"),
        (["breakout", "--train.horizon", "8"], "`--train.horizon` has no meaning here"),
        (["breakout", "--env.frameskipp", "2"], "frameskipp"),
        (["breakout", "--env.frameskip", "-2"], "frameskip"),
        (["no_such.py:Maze"], "there is no file `no_such.py`"),
    ],
)
def test_misuse_exits_with_2(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["check", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said


def test_each_check_is_told_when_it_begins() -> None:
    told: list[str] = []
    report = check(RIGHT[0], say=told.append)
    assert told[0] == "opens_steps_and_closes ..."
    assert [line.partition(" ")[0] for line in told] == list(report.passed)
    assert told[-1].endswith(f"({len(told)} of {len(told)})")
