"""Vectors beside their peers: environment steps per second, paired and interleaved, medians of several runs.

All contenders for a row are opened at once, each in a process of its own, and then measured in turns, so that a slow
minute of the machine slows all of them alike. Gymnasium and Stable-Baselines3 are those of this interpreter; PufferLib
3 needs other versions of everything, and gets a virtual environment of its own, which is made at first use. Its
CartPole and its simple_spread are therefore older ones, of another speed: there, beside the plain ratio to PufferLib
stands the ratio of what both keep of a bare loop over their own environments, and that one says who is slower.

    python tests/benchmarks/bench_vector.py [--only TEXT ...] [--seconds 0.5] [--runs 5] [--peers FOLDER] [--json]

Ours are opened by name where they have one, as `make("gym/CartPole-v1")`; the bare loop and the peers step what the
framework's own `make` gives. ``--only`` takes rows of which the name has one of the texts in it, as ``cartpole/64`` or
``/workers``; ``--no-peers`` leaves PufferLib out. Nothing else should run meanwhile. One row takes seconds x runs for
each contender.

How PufferLib 3.0.0 is installed without a GPU, torch or its environments in C: from its source distribution with
``NO_OCEAN=1 NO_TRAIN=1`` and ``--no-build-isolation``, beside setuptools, wheel, Cython and numpy < 2. Its setup.py
then still imports torch, without use, and reads a variable it set only with the environments: two stand-ins on the path
of the build supply these. It imports psutil without asking for it; PettingZoo's simple_spread needs pygame.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vector_contenders import WORKLOADS

COUNTS = (8, 64, 256)
SETTLE_S = 0.7
"""PufferLib's workers spin for half a second after their last step; others are measured after that."""
SERIAL = ("gymnasium-sync", "sb3-dummy", "pufferlib-serial")
ONE_PROCESS_EACH = ("gymnasium-async", "sb3-subproc")
"""Peers that have a process for every environment; they stand in the rows of two workers."""
OTHER_VERSIONS = ("cartpole", "spread")
"""Workloads of which PufferLib's environments are of another version than ours."""
IDLE_LIMIT, CROWD_LIMIT = 0.01, 0.8

STAND_INS = {
    "sitecustomize.py": "import builtins\n\nbuiltins.c_extension_paths = []\n",
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/cpp_extension.py": (
        "CppExtension = CUDAExtension = CUDA_HOME = None\n\n\nclass BuildExtension:\n    pass\n"
    ),
}


@dataclass(frozen=True)
class Row:
    """One comparison: ours first, then who it is compared with."""

    workload: str
    num_envs: int
    kind: str
    workers: int
    ours: str
    others: tuple[str, ...]

    @property
    def name(self) -> str:
        """What ``--only`` looks in."""
        return f"{self.workload}/{self.num_envs}/{self.kind}{self.workers if self.kind == 'workers' else ''}"


class Process:
    """A contender in a process of its own.

    Args:
        python: The interpreter that has its packages.
        arguments: Of `vector_contenders.Contender`.
    """

    def __init__(self, python: str, arguments: dict[str, Any]) -> None:
        script = Path(__file__).with_name("vector_contenders.py")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self.name = arguments["name"]
        self._process = subprocess.Popen(
            [python, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.error: str | None = None
        self.ask("open", arguments)

    def ask(self, name: str, value: Any) -> Any:
        """Return the answer to a request; None once something went wrong, which `error` then says."""
        if self.error is not None:
            return None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({name: value}) + "\n")
            self._process.stdin.flush()
            reply = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            self.error = "its process ended"
            return None
        self.error = reply.get("error")
        return reply.get("answer")

    def close(self) -> None:
        """Let it close its environments, then end it with whatever it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def install_peers(folder: Path) -> tuple[str | None, str]:
    """Return the interpreter of the environment with PufferLib, which is made if it is not there, or None and why."""
    python = folder / "bin" / "python"
    if _runs(python, "import pufferlib.vector"):
        return str(python), ""
    stand_ins = folder / "stand-ins"
    commands: list[tuple[list[str], dict[str, str]]] = [
        ([sys.executable, "-m", "venv", str(folder)], {}),
        (_pip(python, "setuptools<81", "wheel", "Cython>=3", "numpy<2", "psutil", "pygame"), {}),
        (
            _pip(python, "--no-build-isolation", "pufferlib==3.0.0"),
            {"PYTHONPATH": str(stand_ins), "NO_OCEAN": "1", "NO_TRAIN": "1"},
        ),
    ]
    for command, extra in commands:
        result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **extra})
        if result.returncode:
            last = [line for line in result.stderr.splitlines() if line.strip()][-12:]
            return None, "\n".join([f"`{' '.join(command)}` failed:", *last])
        if not stand_ins.exists():
            for name, text in STAND_INS.items():
                path = stand_ins / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    return str(python), ""


def rows(texts: Sequence[str]) -> list[Row]:
    """Return the comparisons that are asked for."""
    return [row for row in _all_rows() if not texts or any(text in row.name for text in texts)]


def measure(row: Row, pythons: dict[str, str], runs: int, seconds: float) -> dict[str, Any]:
    """Return the medians of one comparison, and why a contender has none."""
    own_loop = ["pufferlib-loop"] if row.workload in OTHER_VERSIONS else []
    names = ["loop", *own_loop, row.ours, *row.others]
    with ExitStack() as stack:
        contenders: list[Process] = []
        for name in names:
            if _family(name) in pythons:
                arguments = {"name": name, "workload": row.workload, "num_envs": row.num_envs, "workers": row.workers}
                contender = Process(pythons[_family(name)], arguments)
                stack.callback(contender.close)
                contenders.append(contender)
        for contender in contenders:
            contender.ask("measure", seconds / 5)
        rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for _ in range(runs):
            for contender in contenders:
                rate = contender.ask("measure", seconds)
                if rate is not None:
                    rates[contender.name].append(rate)
                if contender.name == "pufferlib-workers":
                    time.sleep(SETTLE_S)
        return {
            "name": row.name,
            "ours": row.ours,
            "rates": {name: statistics.median(found) for name, found in rates.items() if found},
            "errors": {contender.name: contender.error for contender in contenders if contender.error is not None},
        }


def crowd(runs: int, seconds: float) -> float:
    """Return the throughput of 8 workers over that of 2, on a 100 us environment with 64 instances."""
    shape = {"name": "puffer-workers", "workload": "100us-16B", "num_envs": 64}
    with ExitStack() as stack:
        both = [Process(sys.executable, {**shape, "workers": workers}) for workers in (2, 8)]
        for contender in both:
            stack.callback(contender.close)
        ratios = []
        for _ in range(runs):
            few, many = (contender.ask("measure", seconds) for contender in both)
            ratios.append(many / few)
        return statistics.median(ratios)


def idle(seconds: float) -> float:
    """Return which share of a core a vector of 64 CartPoles in two workers uses while nobody steps it."""
    arguments = {"name": "puffer-workers", "workload": "cartpole", "num_envs": 64, "workers": 2}
    contender = Process(sys.executable, arguments)
    try:
        contender.ask("measure", 0.2)
        return float(contender.ask("idle", seconds))
    finally:
        contender.close()


def ratios(found: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return how many times faster ours is than each other: plainly, and in what both keep of their own bare loops."""
    rates = found["rates"]
    ours = rates.get(found["ours"], 0.0)
    others = [name for name in rates if name not in (found["ours"], "pufferlib-loop")]
    return {name: (ours / rates[name], ours / rates[name] * _handicap(name, rates)) for name in others}


def slower_than(found: dict[str, Any]) -> list[str]:
    """Return the peers that ours is slower than."""
    return [name for name, (_, fair) in ratios(found).items() if fair < 1 and name != "loop"]


def text_of(found: dict[str, Any]) -> str:
    """Return one comparison as a line: ours, its share of a bare loop, how many times faster it is than each peer."""
    ours, slower = found["rates"].get(found["ours"]), slower_than(found)
    if ours is None:
        return f"{found['name']:<24} failed: {found['errors'].get(found['ours'])}"
    parts = [f"{found['name']:<24}{ours:>12,.0f}"]
    for name, (plain, fair) in ratios(found).items():
        beside = f" ({fair:.2f}x beside own loops)" if fair != plain else ""
        parts.append(f"{name} {plain:.2f}x{beside}{' SLOWER' * (name in slower)}")
    parts += [f"{name} failed ({error})" for name, error in found["errors"].items()]
    return "  ".join(parts)


def _handicap(name: str, rates: dict[str, float]) -> float:
    """Return how many times faster a bare loop over PufferLib's environments is than one over ours."""
    has_loops = _family(name) == "pufferlib" and {"loop", "pufferlib-loop"} <= rates.keys()
    return rates["pufferlib-loop"] / rates["loop"] if has_loops else 1.0


def _all_rows() -> Iterator[Row]:
    for workload in WORKLOADS:
        for num_envs in COUNTS:
            # Peers take environments of Gymnasium only.
            single = workload != "spread"
            serial = tuple(name for name in SERIAL if single or _family(name) == "pufferlib")
            yield Row(workload, num_envs, "serial", 1, "puffer-serial", serial)
            for workers in (1, 2):
                each = ONE_PROCESS_EACH if single and workers == 2 else ()
                yield Row(workload, num_envs, "workers", workers, "puffer-workers", (*each, "pufferlib-workers"))


def _family(name: str) -> str:
    return name.partition("-")[0]


def _pip(python: Path, *words: str) -> list[str]:
    return [str(python), "-m", "pip", "install", "--quiet", *words]


def _runs(python: Path, code: str) -> bool:
    return python.exists() and subprocess.run([python, "-W", "ignore", "-c", code], capture_output=True).returncode == 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Vectors beside their peers.")
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="rows with one of these in their name")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement (default 0.5)")
    parser.add_argument("--runs", type=int, default=5, help="of which the median is taken (default 5)")
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "puffer-bench-peers")
    parser.add_argument("--no-peers", action="store_true", help="leave PufferLib out")
    parser.add_argument("--json", action="store_true", help="print one object instead")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = _parse()
    pythons = dict.fromkeys(("loop", "puffer", "gymnasium", "sb3"), sys.executable)
    if not _runs(Path(sys.executable), "import stable_baselines3"):
        del pythons["sb3"]
        print("left out: Stable-Baselines3 is not installed (`pip install stable-baselines3`)", file=sys.stderr)
    if not options.no_peers:
        python, reason = install_peers(options.peers)
        if python is None:
            print(f"left out: PufferLib 3 can't be installed here.\n{reason}", file=sys.stderr)
        else:
            pythons["pufferlib"] = python
    if not options.json:
        print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
        print(f"agent-steps per second, median of {options.runs} x {options.seconds:g} s; ours over others")
    table = []
    for row in rows(options.only):
        found = measure(row, pythons, options.runs, options.seconds)
        table.append(found)
        if not options.json:
            print(text_of(found), flush=True)
    extra: dict[str, float] = {}
    if not options.only or "crowd" in options.only:
        extra["eight_workers_over_two"] = crowd(options.runs, options.seconds)
    if not options.only or "idle" in options.only:
        extra["idle_share_of_a_core"] = idle(max(5.0, options.seconds))
    if options.json:
        print(json.dumps({"rows": table, **extra}))
        return
    for name, value in extra.items():
        is_good = value < IDLE_LIMIT if name.startswith("idle") else value >= CROWD_LIMIT
        print(f"{name.replace('_', ' ')}: {value:.4f} ({'as' if is_good else 'NOT as'} wanted)")
    slower = [found["name"] for found in table if slower_than(found)]
    print(f"slower than a peer: {', '.join(slower) or 'nowhere'}")


if __name__ == "__main__":
    main()
