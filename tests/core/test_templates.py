"""Packages that `puffer new` writes install, keep the contract and train as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from puffer_core import get_include, plugins, templates
from puffer_core.cli.main import main
from puffer_core.errors import OptionError
from puffer_core.templates import KINDS, PYTHON_KINDS, create

CHECK_AND_TRAIN = """
import json, sys
import puffer_core
from puffer_core.check import check
report = check(sys.argv[1], isolated=False)
result = puffer_core.train(sys.argv[2], options=sys.argv[3:])
print(json.dumps({"failed": report.as_dict()["failed"], "warnings": len(report.warnings), "steps": result["steps"]}))
"""
FEW_STEPS = ("--train.total-timesteps", "4096", "--vec.backend", "serial")


@pytest.fixture(autouse=True)
def fresh_plugins() -> None:
    plugins.configure()


def python(*args: str, site: Path, cwd: Path) -> str:
    """Run Python with a package beside the installed ones."""
    env = {**os.environ, "PYTHONPATH": str(site), "PUFFER_RUNS": str(cwd / "runs"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(package: Path, site: Path) -> None:
    pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site))
    python(*pip, str(package), site=site, cwd=package.parent)


def put_on_path(name: str, package: Path) -> Path:
    """Make the sources of a Python package look installed, without building it."""
    info = package / "src" / f"puffer_{name}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: puffer-{name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[puffer]\n{name} = puffer_{name}.plugin\n")
    return package / "src"


def check_and_train(name: str, kind: str, site: Path, cwd: Path) -> dict[str, Any]:
    said = python("-c", CHECK_AND_TRAIN, f"{name}/{kind}", name, *FEW_STEPS, site=site, cwd=cwd)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.parametrize("kind", PYTHON_KINDS)
def test_package_passes_the_check_and_trains(kind: str, tmp_path: Path) -> None:
    create("fresh", kind, tmp_path)
    site = put_on_path("fresh", tmp_path / "puffer-fresh")
    found = check_and_train("fresh", kind, site, tmp_path)
    assert (found["failed"], found["warnings"]) == ([], 0)
    assert 3000 < found["steps"] <= 4096


def test_package_in_c_builds_passes_the_check_and_trains(tmp_path: Path) -> None:
    create("fresh", "catch", tmp_path)
    install(tmp_path / "puffer-fresh", tmp_path / "site")
    found = check_and_train("fresh", "catch", tmp_path / "site", tmp_path)
    assert (found["failed"], found["warnings"]) == ([], 0)
    assert 3000 < found["steps"] <= 4096


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "score"), [("grid", 0.9), ("multi", 0.0), ("dict", 0.85), ("catch", 0.95)], ids=list(KINDS)
)
def test_package_installs_passes_its_own_tests_and_learns(kind: str, score: float, tmp_path: Path) -> None:
    create("fresh", kind, tmp_path)
    install(tmp_path / "puffer-fresh", tmp_path / "site")
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", site=tmp_path / "site", cwd=tmp_path / "puffer-fresh")
    run = ("-m", "puffer_core", "run", "fresh", "--episodes", "100", "--json")
    assert json.loads(python(*run, site=tmp_path / "site", cwd=tmp_path))["score"] > score


@pytest.mark.parametrize("kind", KINDS)
def test_every_mark_is_filled_in(kind: str, tmp_path: Path) -> None:
    made = create("maze", kind, tmp_path)
    assert made["env"] == f"maze/{kind}"
    assert made["folder"] == str(tmp_path / "puffer-maze")
    for name in made["files"]:
        assert "@" not in name
        if "csrc/puffer/" not in name:
            text = (tmp_path / "puffer-maze" / name).read_text()
            assert not re.search(r"@(name|upper|package|env|kind|class|about)@", text), name
            assert text.endswith("\n")


@pytest.mark.parametrize("kind", KINDS)
def test_python_of_a_package_is_as_tidy_as_ours(kind: str, tmp_path: Path) -> None:
    create("maze", kind, tmp_path)
    tool = Path(sys.executable).parent / "ruff"
    if not tool.exists():
        pytest.skip("ruff is not installed")
    for args in (("check", "--select", "B,E,F,I,N,RUF,SIM,UP,W"), ("format", "--check")):
        done = subprocess.run(
            [tool, *args, "--isolated", "--line-length", "120", "."],
            cwd=tmp_path / "puffer-maze",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout


def test_package_in_c_has_the_headers_of_the_core(tmp_path: Path) -> None:
    create("maze", "catch", tmp_path)
    for header in (Path(get_include()) / "puffer").iterdir():
        assert (tmp_path / "puffer-maze" / "csrc" / "puffer" / header.name).read_bytes() == header.read_bytes()


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("My-Maze", "'My-Maze' is not a lower-case word", "`mymaze` would do"),
        ("puffer-maze", "is not a lower-case word", "`maze` would do"),
        ("3d", "is not a lower-case word", "`d` would do"),
        ("../maze", "is not a lower-case word", "`maze` would do"),
        ("", "name '' is not a lower-case word", "for example `maze`"),
        ("breakout", "`breakout` is the name of environments already", "`puffer envs` lists the names taken"),
        ("gym", "`gym` is the name of environments already", "`puffer envs` lists the names taken"),
        ("core", "there is a package puffer_core already", "choose another name"),
    ],
)
def test_name_that_can_not_be_is_refused(name: str, words: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=re.escape(words)) as caught:
        create(name, "grid", tmp_path)
    assert caught.value.hint == hint
    assert not list(tmp_path.iterdir())


def test_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "puffer-maze").mkdir()
    with pytest.raises(OptionError, match="puffer-maze` exists already"):
        create("maze", "grid", tmp_path)
    assert not list((tmp_path / "puffer-maze").iterdir())


def test_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="kind='gird' is not one of grid, multi, dict, catch") as caught:
        create("maze", "gird", tmp_path)
    assert caught.value.hint == "did you mean `grid`?"


def test_half_a_package_is_never_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(templates.shutil, "copytree", fail)
    with pytest.raises(OptionError, match="can't be written: No space left on device"):
        create("maze", "catch", tmp_path)
    assert not list(tmp_path.iterdir())


def test_command_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "env", "maze", "--kind", "dict"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("wrote puffer-maze\n  README.md\n")
    assert said.endswith("next:\n  pip install -e puffer-maze\n  puffer check maze/dict\n  puffer run maze\n")
    assert main(["new", "cenv", "ball", "--folder", "there", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == "there/puffer-ball"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["env", "maze", "--kind", "c"], "'c' is not one of 'grid', 'multi', 'dict'"),
        (["cenv", "My-Maze"], "hint: `mymaze` would do"),
        (["env"], "Missing argument 'NAME'"),
    ],
)
def test_misuse_of_the_command_exits_with_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", *words]) == 2
    assert message in capsys.readouterr().err
