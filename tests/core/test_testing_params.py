from __future__ import annotations

import counter
import numpy as np
import pytest

from puffer_core.errors import OptionError
from puffer_core.native import NativeEnv, table_params, validate_params
from puffer_core.testing import Digest, cross_cases, illegal_cases, legal_sets, play, random_actions
from puffer_core.testing.docs import params_table, rendered_page, stale_pages
from puffer_core.testing.params import try_case

TABLE = "counter:TABLE"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(counter, "TABLE", counter.counter_table(), raising=False)
    return counter.TABLE


# -- legal and illegal sets -------------------------------------------------------------------------------------------


def test_legal_sets_are_legal_labelled_and_repeatable(table):
    sets = legal_sets(table, count=30, seed=1)
    assert [label for label, _ in sets[:4]] == ["defaults", "minima", "maxima", "random-0"]
    assert len(sets) == 33
    for label, values in sets:
        assert validate_params(table, values), label
    assert sets == legal_sets(table, count=30, seed=1)
    assert sets != legal_sets(table, count=30, seed=2)


def test_legal_sets_reach_both_ends_of_every_range(table):
    sets = [validate_params(table, values) for _, values in legal_sets(table, count=100)]
    for param in table_params(table):
        seen = {values[param.name] for values in sets}
        if param.kind in ("int", "float"):
            assert {param.min, param.max} <= seen, param.name
        elif param.kind != "string":
            assert len(seen) == (len(param.choices) or 2), param.name


def test_legal_sets_keep_what_fits(table):
    sets = legal_sets(table, count=20, fits=lambda values: values.get("limit", 3) < 50)
    assert all(values.get("limit", 3) < 50 for _, values in sets)


def test_illegal_cases_are_refused_by_name(table):
    cases = illegal_cases(TABLE)
    labels = " ".join(case.label for case in cases)
    for words in ("below its minimum", "above its maximum", "off its step", "no such choice", "not finite"):
        assert words in labels
    for case in cases:
        (name,) = case.values
        with pytest.raises(OptionError, match=name):
            try_case(case)


def test_cross_cases_have_values_within_their_ranges(table):
    cases = cross_cases(TABLE, count=20)
    assert len(cases) == 4 * 10 + 20  # both ends of every pair of the five parameters, and 20 at random
    assert {case.legal for case in cases} == {None}
    refused = 0
    for case in cases:
        try:
            assert try_case(case).startswith("legal")
        except OptionError as error:
            refused += "counts too far" in str(error)
    assert 0 < refused < len(cases)


# -- random play ------------------------------------------------------------------------------------------------------


def test_actions_depend_on_seed_and_step_alone(table):
    with NativeEnv(table, num_envs=50) as env:
        first = random_actions(env, 1, 2)
        assert first.shape == env.actions.shape
        assert first.dtype == env.actions.dtype
        assert np.array_equal(first, random_actions(env, 1, 2))
        assert not np.array_equal(first, random_actions(env, 1, 3))
        assert not np.array_equal(first, random_actions(env, 2, 2))


def test_masked_actions_are_legal_and_cover_every_choice(table):
    with NativeEnv(table, num_envs=200) as env:
        width = env.action_mask.shape[1]
        mask = np.ones((env.num_agents, width), np.uint8)
        mask[::2, 0] = 0
        actions = random_actions(env, 1, 1, mask).reshape(env.num_agents, -1)
        assert (actions[::2, 0] > 0).all()
        assert (actions[1::2, 0] == 0).any()


def test_play_hashes_what_was_written(table):
    digests = []
    for seed in (1, 1, 2):
        with NativeEnv(table, {"start": "random"}, num_envs=8) as env:
            env.reset(seed=seed)
            digests.append(play(env, 40))
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]
    assert digests[0][1] == 40


def test_play_stops_when_its_time_is_over(table):
    with NativeEnv(table) as env:
        env.reset(seed=1)
        assert play(env, 10**6, seconds=0.0)[1] == 1


def test_digest_sees_every_array(table):
    with NativeEnv(table) as env:
        env.reset(seed=1)
        hashes = set()
        for name in ("observations", "rewards", "terminals", "truncations", "masks", "action_mask"):
            array = getattr(env, name)
            before = array.copy()
            array.view(np.uint8)[...] ^= 1
            digest = Digest()
            digest.update(env)
            hashes.add(digest.hexdigest())
            array[...] = before
        assert len(hashes) == 6


# -- the documentation's table ----------------------------------------------------------------------------------------


def test_params_table_has_a_row_per_parameter(table):
    lines = params_table(table_params(table)).splitlines()
    assert len(lines) == 2 + len(table_params(table))
    assert "| `limit` | int | 5 | 3 to 99, every 2 |" in lines[2]
    assert "May change while running." in lines[3]
    assert "`zero`, `random`" in lines[4]


def test_page_without_markers_is_left_alone(tmp_path):
    page = tmp_path / "notes.md"
    page.write_text("# Notes\n")
    assert rendered_page(page) == "# Notes\n"
    assert stale_pages(tmp_path) == []


def test_page_with_one_marker_is_refused(tmp_path):
    page = tmp_path / "squared.md"
    page.write_text("<!-- params -->\n")
    with pytest.raises(ValueError, match=r"squared\.md.*without"):
        rendered_page(page)
