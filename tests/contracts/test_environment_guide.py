"""The package that docs/environments.md spells out builds, installs and trains."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import puffer_core

ROOT = Path(__file__).resolve().parents[2]
FILES = ("csrc/hop.h", "csrc/native.c", "setup.py", "pyproject.toml", "puffer_hop/plugin.py")


def run(*command: str, folder: Path, **env: str) -> str:
    found = subprocess.run(
        [sys.executable, *command], cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=240
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_package_of_the_guide_builds_and_trains(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    source, site = tmp_path / "puffer-hop", tmp_path / "site"
    for name in FILES:
        found = re.search(rf"^`{re.escape(name)}`.*?^```\w+\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
        assert found, name
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found[1], encoding="utf-8")
    (source / "puffer_hop" / "__init__.py").touch()
    shutil.copytree(Path(puffer_core.get_include()) / "puffer", source / "csrc" / "puffer")
    pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), ".")
    run(*pip, folder=source)
    trained = run(
        "-m", "puffer_core", "train", "hop/line", "--train.total-timesteps", "20k", "--env.limit", "20", "--json",
        folder=tmp_path, PYTHONPATH=str(site), PUFFER_RUNS=str(tmp_path / "runs"),
    )  # fmt: skip
    result = json.loads(trained)
    assert (result["env"], result["backend"]) == ("hop/line", "native")
    assert result["steps"] > 0
