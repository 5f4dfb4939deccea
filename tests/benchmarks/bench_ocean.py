"""Throughput of the ocean environments: one core beside the targets, and two threads beside one.

Every number is the median of interleaved runs, so that a slow minute of the machine slows all rows alike. Random
actions come from a ring of 64 batches prepared outside the clock, and steps are taken through Python, as a trainer
takes them.

    python tests/benchmarks/bench_ocean.py [NAME ...] [--seconds 1] [--runs 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from puffer_core.bench import EnvBench, Throughput
from puffer_ocean.plugin import NAMES

Key = TypeVar("Key", bound=Hashable)
Row = dict[str, Any]

TARGETS = {  # agent-steps per second of CPU time, one core, 1,024 to 4,096 instances
    "squared": 80e6,
    "cartpole": 40e6,
    "target": 15e6,
    "snake": 5e6,
    "breakout": 8e6,
    "connect4": 0.5e6,
}
PARAMS: dict[str, dict[str, object]] = {"breakout": {"frameskip": 4}}
SCALED = ("breakout", "snake", "connect4")
FEW, MANY = 1024, 4096
SPEED_UP = 1.7
"""Wanted of two threads at 4,096 instances, in wall time on two free cores."""


def medians(
    benches: Mapping[Key, EnvBench], runs: int, seconds: float, rate: Callable[[Throughput], float]
) -> dict[Key, float]:
    """Return the median rate of each bench; they take turns, ``runs`` times."""
    rates: dict[Key, list[float]] = {key: [] for key in benches}
    for bench in benches.values():
        bench.measure(seconds / 4)
    for _ in range(runs):
        for key, bench in benches.items():
            rates[key].append(rate(bench.measure(seconds)))
    return {key: statistics.median(values) for key, values in rates.items()}


def one_core(names: list[str], runs: int, seconds: float) -> list[Row]:
    """Return one row per environment: agent-steps per second of CPU time, one thread."""
    with ExitStack() as stack:
        benches = {}
        for name in names:
            bench = EnvBench(name, MANY, params=PARAMS.get(name))
            if bench.num_agents > MANY:
                bench.close()
                bench = EnvBench(name, FEW, params=PARAMS.get(name))
            benches[name] = stack.enter_context(bench)
        rates = medians(benches, runs, seconds, lambda result: result.per_cpu_second)
        return [
            {
                "env": name,
                "num_envs": bench.num_envs,
                "steps_per_cpu_second": rates[name],
                "target": TARGETS.get(name),
                "ratio": rates[name] / TARGETS[name] if name in TARGETS else None,
            }
            for name, bench in benches.items()
        ]


def two_threads(names: list[str], runs: int, seconds: float) -> list[Row]:
    """Return one row per environment: how much faster two threads are than one, in wall time."""
    rows = []
    for name in names:
        with ExitStack() as stack:
            benches = {
                threads: stack.enter_context(EnvBench(name, MANY, threads, PARAMS.get(name))) for threads in (1, 2)
            }
            rates = medians(benches, runs, seconds, lambda result: result.per_second)
        ratio = rates[2] / rates[1]
        rows.append({"env": name, "num_envs": MANY, "one": rates[1], "two": rates[2], "ratio": ratio})
    return rows


def machine() -> str:
    """Return the processor and what is running on it besides this."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return f"{model} ({platform.machine()}), {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def print_tables(cores: list[Row], threads: list[Row]) -> None:
    """Print both tables as Markdown."""
    print(f"{machine()}\n")
    print("| environment | instances | M steps/s of CPU time | target | ratio |\n|---|---|---|---|---|")
    for row in cores:
        target = f"{row['target'] / 1e6:g} | {row['ratio']:.2f}" if row["target"] else "- | -"
        print(f"| {row['env']} | {row['num_envs']} | {row['steps_per_cpu_second'] / 1e6:.2f} | {target} |")
    if threads:
        print("\n| environment | instances | 1 thread, M steps/s | 2 threads | ratio | target |")
        print("|---|---|---|---|---|---|")
    for row in threads:
        rates = f"{row['one'] / 1e6:.2f} | {row['two'] / 1e6:.2f} | {row['ratio']:.2f}"
        print(f"| {row['env']} | {row['num_envs']} | {rates} | {SPEED_UP} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments (all)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one run (1)")
    parser.add_argument("--runs", type=int, default=5, help="of which the median is taken (5)")
    parser.add_argument("--no-threads", action="store_true", help="leave out the comparison of two threads with one")
    parser.add_argument("--json", action="store_true", help="print one object")
    args = parser.parse_args()
    names = args.names or list(NAMES)
    cores = one_core(names, args.runs, args.seconds)
    scaled = [] if args.no_threads else [name for name in names if name in SCALED]
    threads = two_threads(scaled, args.runs, args.seconds)
    if args.json:
        print(json.dumps({"machine": machine(), "one_core": cores, "two_threads": threads}))
    else:
        print_tables(cores, threads)


if __name__ == "__main__":
    main()
