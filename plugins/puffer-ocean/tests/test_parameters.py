"""P9: every bound broken one at a time, wrong names and types, and the cross rules: a ValueError, never a crash."""

from __future__ import annotations

import pytest

from puffer_core.errors import OptionError
from puffer_core.native import NativeEnv, table_params, validate_params
from puffer_core.testing import cross_cases, illegal_cases, run_isolated
from puffer_ocean.plugin import puffer_envs

TRY = "puffer_core.testing.params:try_case"


@pytest.fixture(scope="module")
def outcomes():
    """What became of every case of every environment, by table; one child works through all of them."""
    tables = [spec.table for spec in puffer_envs()]
    cases = [case for table in tables for case in (*illegal_cases(table), *cross_cases(table, count=40, seed=3))]
    answers = list(zip(cases, run_isolated(TRY, cases), strict=True))
    return {table: [(case, outcome) for case, outcome in answers if case.table == table] for table in tables}


def test_illegal_values_are_refused_in_words(outcomes, spec):
    illegal = [(case, outcome) for case, outcome in outcomes[spec.table] if case.legal is False]
    assert illegal
    for case, outcome in illegal:
        assert outcome.status == "raised", f"{case.label}: {outcome}"
        assert "ValueError" in outcome.classes, f"{case.label}: {outcome}"
        (name,) = case.values
        assert name in outcome.detail, f"{case.label}: {outcome.detail} does not name the parameter"


def test_cross_rules_answer_every_combination(outcomes, spec):
    for case, outcome in outcomes[spec.table]:
        assert outcome.status in ("ok", "raised"), f"{case.label}: {outcome}"
        assert outcome.status == "ok" or "ValueError" in outcome.classes, f"{case.label}: {outcome}"


def test_range_errors_give_the_value_and_the_legal_range(table):
    numeric = [param for param in table_params(table) if param.kind in ("int", "float")]
    for param in numeric:
        value = param.max + 1
        with pytest.raises(OptionError, match=param.name) as caught:
            NativeEnv(table, {param.name: value})
        text = f"{caught.value} {caught.value.hint}"
        for number in (value, param.min, param.max):
            assert any(form in text for form in (str(number), f"{number:g}")), f"{param.name}: {number} not in {text!r}"


def test_a_misspelt_parameter_gets_the_nearest_name(table):
    param = table_params(table)[0]
    with pytest.raises(OptionError, match="has no parameter") as caught:
        NativeEnv(table, {param.name + "x": 1})
    assert param.name in f"{caught.value} {caught.value.hint}"


def test_defaults_are_legal_and_documented(table):
    for param in table_params(table):
        assert param.help.endswith("."), f"{param.name}: help is a sentence"
        assert validate_params(table, {param.name: param.default})[param.name] == param.default
