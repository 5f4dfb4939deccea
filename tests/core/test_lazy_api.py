from __future__ import annotations

import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path

import pytest

import puffer_core


def test_package_lists_its_names_without_resolving_them() -> None:
    assert set(puffer_core.__all__) <= set(dir(puffer_core))


@pytest.mark.parametrize("name", ["PufferEnv", "PuffeRL", "make", "train", "evaluate", "load", "emulate"])
def test_name_resolves_to_what_its_module_defines(name: str) -> None:
    module, _, attribute = puffer_core._LAZY[name].partition(":")
    assert getattr(puffer_core, name) is getattr(import_module(module), attribute)
    assert not isinstance(getattr(puffer_core, name), types.ModuleType)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'puffer_core' has no attribute 'emulat'"):
        puffer_core.emulat  # noqa: B018


def test_function_named_like_its_module_survives_the_import_of_the_module(tmp_path: Path) -> None:
    code = """
import importlib, types
import puffer_core
puffer_core._LAZY["errors"] = "puffer_core.errors:closest"     # a function that hides behind a module of one name
import puffer_core.errors
assert isinstance(puffer_core.errors, types.FunctionType), "the module hides the function"
from puffer_core import errors
assert errors is puffer_core.errors
from puffer_core.errors import PufferError
assert importlib.import_module("puffer_core.errors").PufferError is PufferError
importlib.reload(importlib.import_module("puffer_core.errors"))
assert isinstance(puffer_core.errors, types.FunctionType), "the module hides the function after a reload"
import puffer_core.specs
assert isinstance(puffer_core.specs, types.ModuleType)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("first", ["import puffer_core.evaluate", "puffer_core.evaluate"])
def test_evaluate_is_the_function_whatever_is_imported_first(first: str, tmp_path: Path) -> None:
    code = f"""
import puffer_core
{first}
from puffer_core.evaluate import evaluate
assert evaluate is puffer_core.evaluate
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_include_directory_holds_the_abi() -> None:
    assert (Path(puffer_core.get_include()) / "puffer" / "env.h").is_file()


def test_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert puffer_core.__version__ == version("puffer-core")
