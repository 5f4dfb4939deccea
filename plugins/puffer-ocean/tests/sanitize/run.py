"""Build every environment with sanitizers and fuzz it: ASan and UBSan first, then TSan.

``python run.py [--rounds N] [--seed N] [--only address|thread] [--env NAME]``; any report ends it with status 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "csrc"
FLAGS = (
    *("-std=gnu11", "-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"),
    *("-ffp-contract=off", "-Wall", "-Wextra", "-Wno-missing-field-initializers"),
)
SANITIZERS = {"address": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}


def main() -> int:
    """Build and run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24, help="parameter sets per environment")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=SANITIZERS)
    parser.add_argument("--env", help="name of one environment; all where it is not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kind in [options.only] if options.only else SANITIZERS:
            program = build(kind, Path(folder))
            rounds = options.rounds if kind == "address" else max(1, options.rounds // 4)
            arguments = [str(options.seed), str(rounds), "4", *([options.env] if options.env else [])]
            if status := run(kind, program, arguments):
                return status
    return 0


def build(kind: str, folder: Path) -> Path:
    """Compile `fuzz.c` with the environments of the table; return the program."""
    names = re.findall(r"X\(([a-z0-9_]+)\)", (CSRC / "env_table.h").read_text())
    (folder / "env_includes.h").write_text("".join(f'#include "envs/{name}.h"\n' for name in names))
    program = folder / f"fuzz-{kind}"
    compiler = os.environ.get("CC", "cc")
    paths = ["-I", str(CSRC), "-I", str(folder), str(HERE / "fuzz.c"), "-o", str(program), "-pthread", "-lm"]
    subprocess.run([compiler, *FLAGS, SANITIZERS[kind], *paths], check=True)
    return program


def run(kind: str, program: Path, arguments: list[str]) -> int:
    """Run the program; TSan needs an address space that is laid out without chance on some kernels."""
    fixed = [setarch, "-R"] if kind == "thread" and (setarch := shutil.which("setarch")) else []
    settings = {
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    }
    started = time.perf_counter()
    status = subprocess.run([*fixed, str(program), *arguments], env={**os.environ, **settings}, check=False).returncode
    outcome = "ok" if status == 0 else f"failed with status {status}"
    sys.stdout.write(f"{kind}: {outcome}, {time.perf_counter() - started:.0f} s\n")
    sys.stdout.flush()
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
