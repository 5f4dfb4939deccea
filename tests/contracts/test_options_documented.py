"""Every option is documented, in its own words: the pages are made from the schema and may not lag behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from puffer_core.config import ini, load
from puffer_core.config.options import COMMAND_KEYS, spell
from puffer_core.config.reference import INI, PAGE, default_ini, field_docs, page
from puffer_core.config.schema import SECTIONS, CommandConfig, SweepRange
from puffer_core.config.sections import join
from puffer_core.config.values import kinds

ROOT = Path(__file__).parents[2]
REMEDY = "run `python -m puffer_core.config.reference`"


def test_page_of_options_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text("utf-8") == page(), REMEDY


def test_default_ini_is_up_to_date() -> None:
    assert (ROOT / INI).read_text("utf-8") == default_ini(), REMEDY


def test_default_ini_holds_every_key_with_its_default() -> None:
    sections = ini.read(ROOT / INI)
    written = {join(section, name) for section, entries in sections.items() for name in entries}
    assert written == {join(section, name) for section, cls in SECTIONS.items() for name in kinds(cls)}
    assert load(None, file=ROOT / INI) == load(None)


def test_page_names_every_option() -> None:
    keys = [join(section, name) for section, cls in SECTIONS.items() for name in kinds(cls)]
    text = (ROOT / PAGE).read_text("utf-8")
    assert [key for key in [*keys, *COMMAND_KEYS] if f"| `{spell(key)}` |" not in text] == []


@pytest.mark.parametrize("cls", [*SECTIONS.values(), SweepRange, CommandConfig], ids=lambda cls: cls.__name__)
def test_every_field_has_a_sentence(cls: type) -> None:
    docs = field_docs(cls)
    assert list(docs) == list(kinds(cls))
    assert all(text.endswith(".") and text[0] in "`" + text[0].upper() for text in docs.values())
