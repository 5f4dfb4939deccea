"""Who may import whom (DESIGN, section 2), read from the syntax trees of the whole repository."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = {path: path.relative_to(ROOT) for path in sorted((ROOT / "puffer_core").rglob("*.py"))}
PLUGINS = sorted(path for path in ROOT.glob("plugins/*/src/*") if path.is_dir() and path.name.isidentifier())
PACKAGES = {path.name for path in PLUGINS}
ENTRIES = [path / "plugin.py" for path in PLUGINS]
SOURCES = sorted(
    path for suffix in ("*.h", "*.c", "*.cpp", "*.cu", "*.cuh") for path in ROOT.glob(f"plugins/*/csrc/**/{suffix}")
)

LIGHT = {"puffer_core", "puffer_core.errors", "puffer_core.specs", "puffer_core.hookspecs"}
BELOW_RL = ("env", "native", "abi", "emulation", "vector")
ABOVE_VECTOR = (
    *("rl", "policies", "training", "evaluate", "play", "matches", "trained", "actors", "bench", "launch"),
    *("screens", "window", "terminal", "console", "cli", "export", "runs", "run_list", "loggers", "sync"),
)
BEHIND_VECTOR = ("env", "native", "abi", "emulation")


def is_type_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(path: Path, *, module_level: bool = False) -> Iterator[str]:
    """Yield every module that a file imports, but for those that only name types.

    Relative imports are made absolute; ``from package import name`` gives ``package.name`` too, which may be a module.
    """
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    package = package[package.index("src") + 1 :] if "src" in package else package
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if is_type_only(node):
            continue
        if not (module_level and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))):
            nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_in(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def breaches(paths: list[Path], *forbidden: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in paths
        for module in imports(path)
        if is_in(module, *forbidden)
    ]


def part(*names: str) -> list[Path]:
    """Return the files of the core that are these modules, or lie in these packages."""
    return [path for path, relative in CORE.items() if relative.parts[1].removesuffix(".py") in names]


def core(*names: str) -> list[str]:
    return [f"puffer_core.{name}" for name in names]


def test_core_never_imports_a_plugin() -> None:
    assert "puffer_ocean" in PACKAGES
    assert breaches(list(CORE), *PACKAGES) == []


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_plugins_never_import_each_other(plugin: Path) -> None:
    files = sorted(plugin.rglob("*.py"))
    assert breaches(files, *PACKAGES - {plugin.name}) == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "plugins")))
def test_c_sources_include_only_their_own_files_and_libraries(source: Path) -> None:
    folder = next(parent for parent in source.parents if parent.name == "csrc")
    generated = re.findall(r"/generated/(\S+)", (folder.parent / "CMakeLists.txt").read_text())
    quoted = re.findall(r'^\s*#\s*include\s+"([^"]+)"', source.read_text(), re.MULTILINE)
    for name in set(quoted) - set(generated):
        found = [base / name for base in (source.parent, folder) if (base / name).exists()]
        assert found, f"{name} is not in {folder.relative_to(ROOT)}"
        assert found[0].resolve().is_relative_to(folder.resolve())


def test_errors_specs_and_hookspecs_import_nothing_of_ours() -> None:
    assert breaches(part("errors", "specs", "hookspecs"), "puffer_core") == []


def test_environments_and_vectors_know_nothing_of_rl() -> None:
    assert breaches(part(*BELOW_RL), *core(*ABOVE_VECTOR), "torch") == []


def test_rl_sees_environments_only_through_the_vector() -> None:
    # Emulated spaces are what a vector declares of its rows, as other spaces are; they know no environment.
    found = breaches(part("rl", "policies"), *core(*BEHIND_VECTOR))
    assert [breach for breach in found if not is_in(breach.split()[-1], "puffer_core.emulation.spaces")] == []


def test_plugins_and_config_are_below_what_runs() -> None:
    lower = part("plugins", "registry", "isolation", "builtin", "config")
    assert breaches(lower, *core("cli", "console", "rl", "training", "evaluate", "vector")) == []


def test_nothing_imports_the_command_line_but_itself() -> None:
    others = [path for path in CORE if path not in part("cli", "__main__")]
    assert breaches(others, "puffer_core.cli") == []


def test_command_line_holds_no_logic_that_needs_numbers() -> None:
    assert breaches(part("cli"), "torch", "numpy", "gymnasium", "puffer_core.rl", "puffer_core.policies") == []


def test_only_the_console_draws() -> None:
    others = [path for path in CORE if path not in part("console")]
    assert breaches(others, "rich") == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda path: path.parent.name)
def test_entry_module_of_a_plugin_is_light(entry: Path) -> None:
    for module in imports(entry, module_level=True):
        top = module.partition(".")[0]
        light = any(is_in(module, name) for name in LIGHT - {"puffer_core"}) or module == "puffer_core"
        own = top == entry.parent.name
        assert light or own or top in sys.stdlib_module_names, f"{entry.relative_to(ROOT)} imports {module}"


def test_import_reader_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "puffer_core" / "rl" / "x.py"
    source.parent.mkdir(parents=True)
    source.write_text(
        "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\n"
        "def later():\n    import h\n"
        "if TYPE_CHECKING:\n    import i\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    found = set(imports(source))
    assert found == {"a.b", "c", "c.d", "puffer_core.rl", "puffer_core.rl.e", "puffer_core.f", "puffer_core.f.g", "h"}
    assert "h" not in set(imports(source, module_level=True))
