from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from puffer_core.errors import EnvError, OptionError, UnknownNameError
from puffer_core.testing.target import find_target, is_declared

SOURCE = "import helper_beside_it\n\nclass Maze:\n    class Inner:\n        pass\n\nWALLS = 3\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my-maze.py").write_text(SOURCE)
    (tmp_path / "maze_module.py").write_text(SOURCE)
    (tmp_path / "helper_beside_it.py").write_text("")
    (tmp_path / "needs_more.py").write_text("import a_package_that_is_not_there")
    (tmp_path / "broken.py").write_text("x = 1\nraise ValueError('half way')\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_file_is_loaded_once_with_its_folder_on_the_path(folder: Path) -> None:
    found = find_target(f"{folder}/my-maze.py:Maze")
    assert found.__name__ == "Maze"
    assert find_target(f"{folder}/my-maze.py:Maze") is found
    assert find_target(f"{folder}/my-maze.py:Maze.Inner") is found.Inner


def test_module_of_the_current_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert find_target("maze_module:Maze").__name__ == "Maze"


def test_names_stay_names() -> None:
    assert find_target("breakout") == "breakout"
    assert is_declared("ocean/breakout")
    assert not is_declared("x.py:Maze")
    assert not is_declared("maze_module:Maze")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("no_such.py:Maze", OptionError, "there is no file `no_such.py`"),
        ("{}/broken.py:Maze", EnvError, r"can't be loaded: ValueError: half way \(broken.py:2"),
        ("no_such_module:Maze", OptionError, "there is no module `no_such_module` here"),
        (
            "needs_more:Maze",
            EnvError,
            "`needs_more` can't be imported: ModuleNotFoundError.*a_package_that_is_not_there",
        ),
        ("{}/my-maze.py:Maize", OptionError, "there is no `Maize` in it"),
        ("{}/my-maze.py:WALLS", OptionError, "is a int, not a class or a factory"),
        ("braekout", UnknownNameError, "braekout"),
    ],
)
def test_what_can_not_be_found_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception], words: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(kind, match=words):
        find_target(text.format(folder))


def test_closest_name_in_the_module_is_proposed(folder: Path) -> None:
    with pytest.raises(OptionError, match=re.escape("Maize")) as caught:
        find_target(f"{folder}/my-maze.py:Maize")
    assert caught.value.hint == "did you mean `Maze`?"
