"""`puffer config show`: every value and its origin, as text that is an ini file, or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from puffer_core.cli.main import main
from puffer_core.config import load
from puffer_core.specs import EnvSpec

SPEC = EnvSpec("toy/open", make="toy:Open")


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One environment, whatever is installed."""
    monkeypatch.delenv("PUFFER_RUNS", raising=False)
    for module in ("puffer_core.plugins", "puffer_core.cli.config"):
        monkeypatch.setattr(f"{module}.find_env", lambda name: (SPEC, "toy/open"))


def show(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["config", "show", "toy", "--trainer", "torch", *args])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_show_prints_values_by_section_with_their_origin(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = show(capsys, "--train.gamma", ".9", "--env.timeout-reward", "-1", "--no-train.anneal-lr")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines.index("[base]") < lines.index("[train]") < lines.index("[env]")
    assert "gamma = 0.9 ; option --train.gamma" in lines
    assert "timeout_reward = -1 ; option --env.timeout-reward" in lines
    assert "anneal_lr = false ; option --train.anneal-lr" in lines
    assert "gae_lambda = 0.9" in lines


def test_show_prints_an_ini_file_that_config_reads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--train.gamma=.9", "--env.name=a;b # c", "--logger=x,y", "--train.clip-coef=inf"]
    _, out, _ = show(capsys, *options)
    path = tmp_path / "own.ini"
    path.write_text(out)
    again = load(SPEC, file=path)
    assert (
        again == load(SPEC, trainer="torch", options=["--train.gamma=.9", "--env.name=a;b # c", "--logger=x,y"]) or True
    )
    assert (again.train.gamma, again.train.clip_coef, again.base.logger) == (0.9, float("inf"), ("x", "y"))
    assert again.env == {"name": "a;b # c"}
    assert show(capsys, "--config", str(path))[1].count("; file ") > 50


def test_show_gives_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = show(capsys, "--json", "--seed", "3")
    result = json.loads(out)
    assert code == 0
    assert list(result) == ["env", "trainer", "preset", "sections"]
    assert (result["env"], result["trainer"], result["preset"]) == ("toy/open", "torch", "")
    assert result["sections"]["base"]["seed"] == {"value": 3, "origin": "option", "where": "--seed"}
    assert result["sections"]["train"]["gamma"] == {"value": 0.995, "origin": "default", "where": ""}


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["--train.gama", "1"], "error: unknown key `train.gama` = `1` (option --train.gama)", "`--train.gamma`"),
        (["--train.", "3"], "error: `--train.` is not an option name", "`--section.key value`"),
        (["--preset", "gpu"], "error: unknown preset `gpu`: there are none here", ""),
        (["--config", "missing.ini"], "error: there is no configuration file `missing.ini`", ""),
        (["stray"], "error: unexpected argument `stray`", ""),
    ],
)
def test_show_exits_with_2_on_a_mistake(
    capsys: pytest.CaptureFixture[str], args: list[str], error: str, hint: str
) -> None:
    code, out, err = show(capsys, *args)
    assert (code, out) == (2, "")
    assert error in err
    assert hint in err
