"""docs/policies.md names every option and weight of the built-in networks, and its package installs and trains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete

from puffer_core.config.options import spell
from puffer_core.config.reference import field_docs
from puffer_core.config.schema import PolicyConfig
from puffer_core.config.sections import defaults_of
from puffer_core.emulation.spaces import FlatBox
from puffer_core.plugins import PluginManager, resolve
from puffer_core.policies import make_policy

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("|")]
FILES = ("pyproject.toml", "puffer_fourier/plugin.py", "puffer_fourier/encoder.py")
SPACES: dict[str, spaces.Box] = {
    "mlp": Box(-1, 1, (5,)),
    "cnn": Box(0, 255, (36, 36, 3), np.uint8),
    "impala": Box(0, 255, (8, 8, 3), np.uint8),
    "attention": Box(-1, 1, (4, 3)),
    "multi-input": FlatBox(Dict({"image": Box(0, 255, (9, 9, 3), np.uint8), "choice": Discrete(2000)})),
}


def test_every_policy_and_every_option_is_listed() -> None:
    for spec in (PluginManager(no_plugins=True).policies.get(name) for name in SPACES):
        assert f"| `{spec.name}` |" in TEXT
        if spec.options is not None:
            options = resolve(spec.options)
            for name, default in defaults_of(options).items():
                row = next(row for row in ROWS if f"`{spell(f'{spec.name}.{name}')}`" in row)
                assert f"| `{default}` |" in row
                assert field_docs(options)[name].replace("``", "`") in row
    assert PluginManager(no_plugins=True).policies.names() == sorted(SPACES)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("name", SPACES)
def test_every_weight_is_listed(name: str, core: str) -> None:
    config = PolicyConfig(name=name, core=core, hidden_size=8, normalize_observations=name == "mlp")  # type: ignore[arg-type]
    policy = make_policy(config, SPACES[name], Box(-1, 1, (2,)), torch.Generator())
    names = {re.sub(r"\.\d+\.", ".{i}.", key) for key in policy.state_dict()}
    assert [key for key in sorted(names) if f"`{key}`" not in TEXT] == []


def test_package_of_the_guide_installs_and_trains(tmp_path: Path) -> None:
    source, site = tmp_path / "puffer-fourier", tmp_path / "site"
    for name in FILES:
        found = re.search(rf"^`{re.escape(name)}`.*?^```\w+\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
        assert found, name
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found[1], encoding="utf-8")
    (source / "puffer_fourier" / "__init__.py").touch()
    command = re.findall(r"^```\npuffer (.*)\n```", TEXT, flags=re.MULTILINE)[-1].split()
    pip = [
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(site),
        str(source),
    ]
    train = ["puffer_core", *command, "--train.total-timesteps", "4096", "--json"]
    env = {**os.environ, "PYTHONPATH": str(site), "PUFFER_RUNS": str(tmp_path / "runs")}
    for words in (pip, train):
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 4096
