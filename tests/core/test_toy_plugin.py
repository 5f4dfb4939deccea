"""A third party's plugin, found through its metadata by another process, and broken ones beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.core.conftest import Site

BROKEN = {
    "import-error": "import a_package_that_is_not_there",
    "syntax-error": "def half(:",
    "system-exit": "raise SystemExit(3)",
    "keyboard-interrupt": "raise KeyboardInterrupt",
    "raises-in-hook": "@hookimpl\ndef puffer_envs():\n    return 1 / 0",
    "wrong-return": "@hookimpl\ndef puffer_envs():\n    return ['env']",
    "half-way": "@hookimpl\ndef puffer_envs():\n    yield EnvSpec('half/way', make='a:b')\n    raise ValueError",
    "unknown-hook": "@hookimpl\ndef puffer_wishes():\n    return []",
    "extra-argument": "@hookimpl\ndef puffer_envs(config):\n    return []",
    "other-api": "puffer_api = 7",
    "no-api": "del puffer_api",
}
TAKEN = {
    "taken-name": "@hookimpl\ndef puffer_envs():\n    return [EnvSpec('x/y', make='a:b', aliases=('corridor',))]",
    "own-name-twice": "@hookimpl\ndef puffer_policies():\n    return 2 * [PolicySpec('twice', encoder='a:b')]",
    "core-name": "@hookimpl\ndef puffer_policies():\n    return [PolicySpec('mlp', encoder='a:b')]",
}


def run_json(site: Site, *args: str) -> Any:
    done = site.run(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["toy/corridor", "corridor", "TOY-Corridor"])
def test_toy_environment_is_found_under_every_spelling(site: Site, name: str) -> None:
    site.toy()
    found = run_json(site, "envs", name)
    assert found == {
        "name": "toy/corridor",
        "aliases": ["corridor"],
        "observation": "Box(0.0, 1.0, (2,), float32)",
        "action": "Discrete(2)",
        "params": [
            {
                **dict.fromkeys(("min", "max", "step", "choices", "live", "help")),
                "name": "length",
                "kind": "int",
                "default": 5,
            }
        ],
        "log_fields": ["score", "perf", "episode_return", "episode_length"],
        "limits": [],
        "plugin": "toy",
    }


def test_toy_family_lists_and_resolves_its_rooms(site: Site) -> None:
    site.toy()
    assert [row["name"] for row in run_json(site, "envs", "rooms/")["envs"]] == ["rooms/long", "rooms/short"]
    assert run_json(site, "envs", "rooms-LONG")["name"] == "rooms/long"
    done = site.run("envs", "rooms/lnog")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown room `lnog`\nhint: did you mean `long`?\n"


def test_toy_command_runs(site: Site) -> None:
    site.toy()
    done = site.run("toy", "--loud")
    assert (done.returncode, done.stdout) == (0, "HELLO\n")


def test_broken_plugins_are_listed_with_reason_and_stop_nothing(site: Site) -> None:
    site.toy()
    for name, source in {**BROKEN, **TAKEN}.items():
        site.plugin(name, source)
    site.plugin("same", "", distribution="first-same")
    site.plugin("same", "", distribution="second-same")
    states = {row["name"]: row for row in run_json(site, "plugins")["plugins"]}
    assert {name for name in states if states[name]["state"] == "broken"} == set(BROKEN)
    assert {name for name in states if states[name]["state"] == "conflict"} == {*TAKEN, "same", "toy"}
    assert all(row["reason"] for row in states.values() if row["state"] != "loaded")
    assert run_json(site, "envs", "toy/corridor")["name"] == "toy/corridor"
    done = site.run("envs", "corridor")
    assert done.returncode == 2
    assert done.stderr.startswith("error: environment `corridor` is claimed twice: by `x/y` of plugin taken-name")
    assert site.run("--block-plugin", "taken-name", "envs", "corridor").returncode == 0
    assert site.run("toy").stdout == "hello\n"
    assert site.run("--help").stderr == ""


@pytest.mark.parametrize("name", ["import-error", "raises-in-hook"])
def test_errors_of_a_broken_plugin_are_raised_for_its_author(site: Site, name: str) -> None:
    site.plugin(name, BROKEN[name])
    done = site.run("envs", PUFFER_RAISE_PLUGIN_ERRORS="1")
    assert done.returncode == 1
    assert f"puffer_{name.replace('-', '_')}_entry.py" in done.stderr
    assert done.stderr.startswith("Traceback")
    assert site.run("--block-plugin", name, "envs", PUFFER_RAISE_PLUGIN_ERRORS="1").returncode == 0
    assert site.run("envs", PUFFER_RAISE_PLUGIN_ERRORS="1", PUFFER_PLUGINS="").returncode == 0


TRAIN = """
import json, sys
import puffer_core
print(json.dumps(puffer_core.train(sys.argv[1], options=sys.argv[2:])))
"""
TINY = [
    "--vec.num-envs",
    "4",
    "--train.horizon",
    "16",
    "--train.minibatch-size",
    "64",
    "--train.total-timesteps",
    "192",
]


def train(site: Site, name: str, *options: str) -> tuple[dict[str, Any], Path, str]:
    """Train for three epochs; return the result, the run directory, and what was said on stderr."""
    done = site.python("-c", TRAIN, name, *TINY, "--policy.hidden-size", "16", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result, site.path.parent / result["run_dir"], done.stderr


def test_toy_environment_policy_logger_and_observer_are_used_in_a_run(site: Site) -> None:
    site.toy()
    site.plugin("broken", BROKEN["raises-in-hook"])
    result, directory, _ = train(
        site, "corridor", "--policy.name", "toy-net", "--logger", "toy-log", "--env.length", "3"
    )
    assert (result["env"], result["steps"]) == ("toy/corridor", 192)
    assert (directory / "toy-observer.txt").read_text().split("\n") == [
        *("started", "epoch 1", "epoch 2", "epoch 3", "finished 192", ""),
    ]
    steps = [line.split()[0] for line in (directory / "toy-log.txt").read_text().splitlines()]
    assert steps[-1] == "192"
    config = (directory / "config.ini").read_text()
    assert "name = toy-net" in config
    assert "length = 3" in config


EVALUATE = """
import sys
import numpy as np
import puffer_core
found = puffer_core.evaluate("corridor", load=sys.argv[1], episodes=3)
agent = puffer_core.load(sys.argv[1])
print(found["episodes"], agent.act(np.zeros((2, 2), np.float32))[0].shape, agent.policy.encoder.first.shape[0])
"""


def test_toy_policy_with_options_of_its_own_is_trained_resumed_evaluated_and_loaded(site: Site) -> None:
    site.toy()
    options = ("--policy.name", "toy-net", "--toy-net.inner", "6", "--toy-net.names", "a,b")
    directory = run_json(site, "train", "corridor", *TINY, *options, "--train.stop-at", "64")["run_dir"]
    assert run_json(site, "train", "corridor", "--resume", directory)["steps"] == 192
    done = site.python("-c", EVALUATE, directory)
    assert (done.returncode, done.stdout) == (0, "3 (2,) 6\n"), done.stderr


def test_observer_that_raises_is_reported_once_and_training_goes_on(site: Site) -> None:
    site.toy()
    site.plugin("rude", "@hookimpl\ndef puffer_epoch_finished(run, metrics):\n    raise ValueError('rude')")
    result, directory, said = train(site, "corridor")
    assert result["steps"] == 192
    assert (directory / "toy-observer.txt").read_text().endswith("finished 192\n")
    report = "plugin rude 1.0: puffer_epoch_finished raised ValueError: rude (puffer_rude_entry.py:6)"
    assert said.count(report) == 1
