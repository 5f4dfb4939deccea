"""Every environment has a page with the same headings, and what a page says about the C source is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from puffer_core import abi
from puffer_core.testing.docs import START, rendered_page

PLUGIN = Path(__file__).parents[1]
HEADINGS = [
    "Description",
    "Observation Space",
    "Action Space",
    "Rewards",
    "Episode End",
    "Arguments",
    "Log",
    "Version history",
    "Source",
    "Differences from PufferLib",
]


@pytest.fixture
def page(name):
    return PLUGIN / "docs" / f"{name}.md"


def test_page_has_the_common_headings(page, name):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS


def test_arguments_are_those_of_the_c_source(page):
    text = page.read_text(encoding="utf-8")
    assert START in text
    assert rendered_page(page) == text, "stale: run `nox -s docs`"


def test_log_section_names_every_field(page, table):
    section = page.read_text(encoding="utf-8").partition("## Log\n")[2].partition("\n## ")[0]
    for field in abi.log_fields(abi.open_table(table)):
        assert f"`{field}`" in section, field


def test_version_history_ends_with_the_present_version(page, table):
    history = page.read_text(encoding="utf-8").partition("## Version history\n")[2].partition("\n## ")[0]
    assert f"- {abi.open_table(table).version}:" in history


def test_readme_lists_every_environment(name):
    readme = (PLUGIN / "README.md").read_text(encoding="utf-8")
    assert f"[{name}](docs/{name}.md)" in readme
    assert f"`puffer run {name}`" in readme
