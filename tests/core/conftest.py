"""Plugins for tests: distributions written into a temporary folder on the path, found like any installed one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from puffer_core.plugins import PluginManager


def pytest_configure() -> None:
    """Undo what a shell does to its jobs in the background: they, and all that they start, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Site:
    """A folder like site-packages. `add` writes a distribution into it; `run` starts `puffer` with it on the path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: set[str] = set()

    def add(
        self,
        distribution: str,
        *,
        version: str = "1.0",
        plugins: Mapping[str, str] | None = None,
        commands: Mapping[str, str] | None = None,
        modules: Mapping[str, str] | None = None,
    ) -> None:
        self.names |= (plugins or {}).keys()
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        groups = {"puffer": plugins or {}, "puffer.commands": commands or {}}
        lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for group, rows in groups.items()]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, source in (modules or {}).items():
            (self.path / f"{module}.py").write_text(dedent(source))

    def plugin(self, name: str, source: str, *, distribution: str | None = None, api: str = "puffer_api = 1") -> None:
        """Add a distribution with one plugin of one module; the source comes after the usual imports."""
        distribution = distribution or f"puffer-{name}"
        module = f"{distribution.replace('-', '_')}_entry"
        head = f"from puffer_core.hookspecs import hookimpl\nfrom puffer_core.specs import *\n{api}\n"
        self.add(distribution, plugins={name: module}, modules={module: head + dedent(source)})

    def toy(self) -> None:
        """Add the well-behaved third-party plugin of `toy_plugin/`."""
        self.add("puffer-toy", plugins={"toy": "puffer_toy.plugin"}, commands={"toy": "puffer_toy.commands:toy"})
        shutil.copytree(Path(__file__).parent / "toy_plugin" / "puffer_toy", self.path / "puffer_toy")

    def manager(self, **settings: Any) -> PluginManager:
        """Return a manager that loads the plugins of this site only."""
        return PluginManager(**{"select": self.names, **settings})

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `puffer` with these arguments in a process of its own."""
        return self.python("-m", "puffer_core", *args, **env)

    def python(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run Python with the plugins of this site beside the installed ones."""
        return subprocess.run(
            [sys.executable, *args],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.path.parent,
            env={**os.environ, "PYTHONPATH": str(self.path), "OMP_NUM_THREADS": "1", **env},
        )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.delenv("PUFFER_PLUGINS", raising=False)
    monkeypatch.delenv("PUFFER_RAISE_PLUGIN_ERRORS", raising=False)
    monkeypatch.syspath_prepend(str(path))
    before = set(sys.modules)
    yield Site(path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(path)):
            del sys.modules[name]
