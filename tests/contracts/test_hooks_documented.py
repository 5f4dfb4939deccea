"""Every hook has a heading in `docs/plugins.md` with its exact signature, and a contract in its docstring."""

from __future__ import annotations

import ast
import re
import types
from pathlib import Path

import click
import pytest

import puffer_core
from puffer_core import hookspecs
from puffer_core.config import load
from puffer_core.isolation import implementations
from puffer_core.plugins import KINDS
from puffer_core.training.observers import RunEnv

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text()
HOOKS = {
    node.name: node
    for node in ast.parse(Path(hookspecs.__file__).read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("puffer_")
}
OBSERVERS = ["puffer_run_started", "puffer_epoch_finished", "puffer_run_finished"]


def section(name: str) -> str:
    """Return what stands under the heading of a hook."""
    match = re.search(rf"^### `{name}\(.*?(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"docs/plugins.md has no heading for {name}"
    return match[0]


def examples(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_hooks_are_the_ones_of_the_design() -> None:
    assert set(HOOKS) == {*KINDS, *OBSERVERS}


@pytest.mark.parametrize("name", HOOKS)
def test_hook_is_documented_with_its_exact_signature(name: str) -> None:
    node = HOOKS[name]
    signature = f"{name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns or ast.Constant(None))}"
    assert section(name).startswith(f"### `{signature}`\n")


@pytest.mark.parametrize("name", HOOKS)
def test_hook_says_when_it_is_called_and_what_an_exception_does(name: str) -> None:
    text = " ".join((ast.get_docstring(HOOKS[name]) or "").split())
    for word in ("Called once per", " by ", "xception", "Model"):
        assert word in text.replace("If this raises", "On an exception"), word


@pytest.mark.parametrize("name", HOOKS)
def test_example_of_a_hook_loads_and_returns_what_it_promises(name: str) -> None:
    (source,) = examples(section(name))
    module = types.ModuleType("example")
    exec(source, module.__dict__)
    found = implementations(module)
    assert list(found) == [name]
    if name in KINDS:
        specs = list(found[name][0]({}))  # type: ignore[call-overload]
        assert specs
        assert all(isinstance(spec, KINDS[name]) for spec in specs)


def test_curriculum_makes_the_opponent_look_further_ahead(tmp_path: Path) -> None:
    (source,) = examples(section("puffer_epoch_finished"))
    module = types.ModuleType("example")
    exec(source, module.__dict__)
    with puffer_core.make("connect4", num_envs=2) as vector:
        env = RunEnv(vector.set_params)
        run = types.SimpleNamespace(config=load("connect4"), directory=tmp_path, epoch=1, env=env)
        for perf in (0.95, 0.5, 0.95, 0.95, 0.95):
            module.puffer_epoch_finished(run, {"env/perf": perf})  # the environment refuses what is no legal depth
    assert env.values == {"depth": 6}
    run.config = load("breakout")
    module.puffer_epoch_finished(run, {"env/perf": 0.95})


def test_other_examples_run() -> None:
    first, *_, last = examples(PAGE)
    module = types.ModuleType("example")
    exec(first, module.__dict__)
    assert list(implementations(module)) == ["puffer_envs"]
    exec(last, module.__dict__)
    assert isinstance(module.toy, click.Command)


@pytest.mark.parametrize("word", ["PUFFER_PLUGINS", "PUFFER_RAISE_PLUGIN_ERRORS", "--no-plugins", "--block-plugin"])
def test_settings_are_documented(word: str) -> None:
    assert f"| `{word}" in PAGE
