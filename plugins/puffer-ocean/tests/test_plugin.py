"""What the plugin declares agrees with what is compiled, and declaring it loads nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from puffer_core.config import load
from puffer_core.config.plan import plan
from puffer_core.native import NativeEnv, spaces_of
from puffer_core.plugins import resolve
from puffer_ocean.plugin import NAMES, puffer_envs

TABLE = Path(__file__).parents[1] / "csrc" / "env_table.h"


def test_names_are_the_rows_of_the_table():
    assert tuple(re.findall(r"X\(([a-z0-9_]+)\)", TABLE.read_text())) == NAMES


def test_every_spec_resolves_to_the_environment_it_names():
    for spec in puffer_envs():
        name = spec.name.partition("/")[2]
        assert spec.aliases == (name, f"puffer_{name}")
        with NativeEnv(resolve(spec.table)) as env:
            assert env.name == name
        package, _, path = spec.config.partition(":")
        assert files(package).joinpath(path).is_file()


@pytest.mark.parametrize("preset", [None, "gpu"])
@pytest.mark.parametrize("name", NAMES)
def test_configuration_makes_a_run_with_the_counts_it_names(name, preset):
    config = load(name, preset=preset, trainer="torch")
    params = {key: value for key, value in config.env.items() if key != "num_envs"}
    agents = spaces_of(resolve(f"puffer_ocean._native:{name}"), params)[2]
    counts = plan(config, agents, is_native=True)
    assert counts.num_envs == config.env["num_envs"]
    assert (counts.horizon, counts.minibatch_size) == (config.train.horizon, config.train.minibatch_size)


def test_published_configuration_of_breakout_has_the_published_observation():
    assert load("breakout", preset="gpu").env["published_velocity"] is True
    assert load("breakout").env["published_velocity"] is False


def test_declaring_environments_does_not_load_the_compiled_module():
    code = (
        "import sys; from puffer_ocean.plugin import puffer_envs; puffer_envs(); "
        "sys.exit('puffer_ocean._native' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("level", "words"), [("v9", "PUFFER_ISA=v9: known are"), ("", "")])
def test_isa_is_chosen_by_name(level, words):
    result = subprocess.run(
        [sys.executable, "-c", "import puffer_ocean._native as n; print(n.isa)"],
        env={**os.environ, "PUFFER_ISA": level},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode == 0) == (not words)
    assert words in result.stderr
