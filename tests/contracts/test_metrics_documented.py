"""`docs/metrics.md` explains every key that a run writes, and no key that none writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from puffer_core.runs import RunDirectory
from puffer_core.specs import EnvSpec
from puffer_core.training import train

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
EXPLAINED = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
OWN = "env/<field>"
RUNS: dict[str, tuple[EnvSpec, dict[str, str]]] = {
    "match": (EnvSpec("fake/match", make="fakes_env:Match"), {}),
    "duel": (
        EnvSpec("fake/duel", make="fakes_selfplay:Duel"),
        {"selfplay.enabled": "true", "train.total_timesteps": "384"},
    ),
    "count": (EnvSpec("fake/count", make="fakes_single:Count"), {}),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Keys of all rows of a run of each environment, 2 rollouts long."""
    return {name: _keys(spec, tmp_path_factory.mktemp(name), more) for name, (spec, more) in RUNS.items()}


def _keys(spec: EnvSpec, runs_dir: Path, more: dict[str, Any]) -> set[str]:
    sizes = {"vec.num_envs": "8", "train.horizon": "16", "train.minibatch_size": "64", "policy.hidden_size": "8"}
    options = {**sizes, "train.total_timesteps": "256", "train.device": "cpu", **more}
    result = train(spec, options={**options, "runs_dir": str(runs_dir)})
    return {key for row in RunDirectory.open(result["run_dir"]).metrics() for key in row}


def _numbered(key: str) -> str:
    return re.sub(r"_\d+$", "_<i>", key)


@pytest.mark.parametrize("name", RUNS)
def test_every_metric_that_is_written_is_explained(name: str, written: dict[str, set[str]]) -> None:
    unknown = {key for key in map(_numbered, written[name]) if key not in EXPLAINED and not key.startswith("env/")}
    assert unknown == set()


def test_every_metric_that_is_explained_is_written(written: dict[str, set[str]]) -> None:
    seen = {_numbered(key) for keys in written.values() for key in keys}
    assert [key for key in EXPLAINED if key != OWN and key not in seen] == []


def test_no_metric_is_explained_twice() -> None:
    assert len(EXPLAINED) == len(set(EXPLAINED))
