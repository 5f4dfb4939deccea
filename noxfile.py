"""Every routine task of the repository: `nox -l` lists them, plain `nox` does what CI does.

Sessions run in the interpreter that runs nox (README: `.venv`), so that torch is installed once; only `wheels` makes
environments of its own, because there a missing requirement must show.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
HEADERS = ROOT / "puffer_core" / "include" / "puffer"
PYTHON = sys.executable
TOOLS = Path(PYTHON).parent

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "native", "tests"]

# One thread per process: two pytest workers share two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))


def _run(session: nox.Session, tool: str, *arguments: str) -> None:
    """Run a tool of nox's own environment; nox itself looks for programs on the caller's path only."""
    session.run(str(TOOLS / tool), *arguments, external=True)


def _install_tools(session: nox.Session) -> None:
    """Install the development tools at the pinned versions."""
    _run(session, PYTHON, "-m", "pip", "install", "-q", "-c", "constraints.txt", "-r", "requirements-dev.txt")


def _install(session: nox.Session) -> None:
    """Install the tools, the core and every plugin, editable, the compiled ones built in their kept build folders."""
    _install_tools(session)
    targets = [word for path in (ROOT, *PLUGINS) for word in ("-e", str(path))]
    pip = (PYTHON, "-m", "pip", "install", "-q", "-c", "constraints.txt", "--no-build-isolation")
    _run(session, *pip, *targets)


def _c_sources() -> list[str]:
    """Return every C and C++ file that clang-format checks: the plugins' copies of the headers have their master."""
    patterns = (
        "puffer_core/include/puffer/*.h",
        "plugins/*/csrc/*.*",
        "plugins/*/csrc/envs/*.h",
        "plugins/*/tests/**/*.c",
        "tests/core/*.c",
    )
    return sorted(str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern))


@nox.session
def run(session: nox.Session) -> None:
    """Install everything and run `puffer run breakout` (or what is given after `--`)."""
    _install(session)
    _run(session, "puffer", "run", *(session.posargs or ["breakout"]))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the default tests: fast and deterministic."""
    _install(session)
    _run(session, PYTHON, "-m", "pytest", "-q", "-n", "2", "--timeout", "300", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """Run the learning and soak tests, one at a time: they are timed against two free cores."""
    _install(session)
    os.environ.pop("OMP_NUM_THREADS", None)
    _run(session, PYTHON, "-m", "pytest", "-q", "-m", "slow", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """Run what needs a CUDA device."""
    _install(session)
    _run(session, PYTHON, "-m", "pytest", "-q", "-m", "gpu", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and spelling of Python, C and text."""
    _install_tools(session)
    _run(session, "ruff", "check", ".")
    _run(session, "ruff", "format", "--check", ".")
    _run(session, "clang-format", "--dry-run", "--Werror", *_c_sources())
    _run(
        session, "codespell", "puffer_core", "plugins", "tests", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"
    )


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    _install(session)
    _run(session, "mypy")


@nox.session
def native(session: nox.Session) -> None:
    """Build every C environment with ASan and UBSan, then with TSan, and run the fuzzing harness."""
    _install_tools(session)
    for script in sorted(ROOT.glob("plugins/*/tests/sanitize/run.py")):
        _run(session, PYTHON, str(script), *session.posargs)


@nox.session
def headers(session: nox.Session) -> None:
    """Copy the master ABI headers into every plugin that compiles."""
    for folder in sorted(ROOT.glob("plugins/*/csrc/puffer")):
        for header in sorted(HEADERS.glob("*.h")):
            shutil.copy(header, folder / header.name)
            session.log(f"{header.name} -> {folder.relative_to(ROOT)}")


@nox.session
def docs(session: nox.Session) -> None:
    """Write the generated parts of the documentation: options and environment parameters."""
    _install(session)
    _run(session, PYTHON, "-m", "puffer_core.config.reference", "docs/options.md")
    _run(session, PYTHON, "-m", "puffer_core.testing.docs", *[str(path / "docs") for path in PLUGINS])


@nox.session
def bench(session: nox.Session) -> None:
    """Print the benchmark tables (timings are never tests)."""
    _install(session)
    os.environ.pop("OMP_NUM_THREADS", None)
    for script in sorted(ROOT.glob("tests/benchmarks/bench_*.py")):
        _run(session, PYTHON, str(script), *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build sdist, then wheel from it, for every package; install them into a fresh environment and use them."""
    _install_tools(session)
    with tempfile.TemporaryDirectory() as folder:
        for path in (ROOT, *PLUGINS):
            _run(session, PYTHON, "-m", "build", "--outdir", folder, str(path))
        _run(session, PYTHON, "-m", "venv", f"{folder}/venv")
        found = [str(path) for path in Path(folder).glob("*.whl")]
        _run(session, f"{folder}/venv/bin/pip", "install", "-q", "-c", "constraints.txt", *found)
        _run(session, f"{folder}/venv/bin/puffer", "envs")
        _run(session, f"{folder}/venv/bin/puffer", "plugins")
