"""What this machine has, as far as puffer cares."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import psutil

from puffer_core import plugins, video
from puffer_core.abi import open_table
from puffer_core.errors import PufferError
from puffer_core.specs import BackendSpec, EnvSpec, TrainerSpec

_ISA_FLAGS = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx2", "fma", "bmi1", "bmi2", "movbe"}),
    ("x86-64-v2", {"sse4_1", "sse4_2", "ssse3", "popcnt"}),
)
_COMPILERS = ("c++", "g++", "clang++")


def examine(runs_dir: str) -> dict[str, Any]:
    """Return everything `puffer doctor` tells, by topic; ``problems`` lists what a person may want to put right."""
    report: dict[str, Any] = {
        "puffer": metadata.version("puffer-core"),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "torch": _torch(),
        "trainers": _by_priority(plugins.manager().trainers.specs()),
        "backends": _by_priority(plugins.manager().backends.specs()),
        "plugins": [asdict(state) for state in plugins.manager().states()],
        "tables": _tables(),
        "compiler": next(filter(None, map(shutil.which, _COMPILERS)), None),
        "runs_dir": _runs_dir(runs_dir),
        "video": {"available": video.missing_encoder() is None, "reason": video.missing_encoder()},
    }
    report["problems"] = _problems(report)
    return report


def _cpu() -> dict[str, Any]:
    name, flags = platform.processor() or platform.machine(), set[str]()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for text in info.read_text().splitlines():
            key, _, value = text.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    level = next((level for level, needed in _ISA_FLAGS if needed <= flags), platform.machine())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "name": name,
        "level": level,
        "cores": psutil.cpu_count(logical=False),
        "threads": os.cpu_count(),
        "usable": usable,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }


def _torch() -> dict[str, Any]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"version": None, "reason": str(error)}
    devices, auto = ["cpu"], "cuda" if torch.cuda.is_available() else "cpu"
    if torch.cuda.is_available():
        devices += [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    return {"version": torch.__version__, "threads": torch.get_num_threads(), "devices": devices, "auto": auto}


def _by_priority(specs: Sequence[TrainerSpec | BackendSpec]) -> list[dict[str, Any]]:
    """Return name, priority and plugin of what is registered, in the order in which ``auto`` asks."""
    return [
        {"name": spec.name, "priority": spec.priority, "plugin": spec.plugin.name if spec.plugin else None}
        for spec in sorted(specs, key=lambda spec: -spec.priority)
    ]


def _tables() -> list[dict[str, Any]]:
    """Return one row per compiled module that registered environments come from."""
    modules: dict[str, list[EnvSpec]] = {}
    for spec in plugins.manager().envs.specs():
        if spec.table is not None:
            modules.setdefault(spec.table.partition(":")[0], []).append(spec)
    rows: list[dict[str, Any]] = []
    for module, specs in sorted(modules.items()):
        row = {"module": module, "environments": len(specs), "isa": None, "abi": None, "reason": None}
        try:
            row["abi"] = open_table(plugins.resolve(str(specs[0].table))).abi_version
            row["isa"] = getattr(import_module(module), "isa", None)
        except (PufferError, ImportError) as error:
            row["reason"] = str(error)
        rows.append(row)
    return rows


def _runs_dir(path: str) -> dict[str, Any]:
    """Return whether run directories can be made; nothing is created."""
    folder = Path(path).absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return {
        "path": str(folder),
        "writable": existing.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        "free_gib": round(shutil.disk_usage(existing).free / 2**30, 1),
    }


def _problems(report: dict[str, Any]) -> list[str]:
    found = []
    if report["torch"]["version"] is None:
        found.append(f"torch can't be imported, so the torch trainer can't run: {report['torch']['reason']}")
    for row in report["tables"]:
        if row["reason"]:
            found.append(f"{row['module']} can't be loaded: {row['reason']}")
    if not report["tables"]:
        found.append("no environments in C are installed; pip install puffer-ocean brings the first")
    if not report["runs_dir"]["writable"]:
        found.append(f"{report['runs_dir']['path']} can't be written; choose another with --runs-dir or PUFFER_RUNS")
    if report["compiler"] is None:
        found.append("no C++ compiler: plugins that come without a wheel can't be built")
    if not report["video"]["available"]:
        found.append(f"no videos: {report['video']['reason']}; pip install 'puffer-core[video]'")
    return found
