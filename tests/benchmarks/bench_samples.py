"""Steps that PPO takes to a reference score in Gymnasium's environments: ours, Stable-Baselines3, CleanRL's settings.

    python tests/benchmarks/bench_samples.py [--seeds 5] [--out samples.jsonl] [--only CONTENDER] [--env NAME]

Every run is a process of its own, with one thread, and one line of the output file; runs that are there already are
not repeated. The table gives the median over seeds and the 95 % interval of the mean (bootstrap); a run that did not
reach the score counts with all its steps, and is told.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from sample_contenders import CONTENDERS, TASKS

FIRST_SEED = 101
"""None of the seeds that settings were picked by."""


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("samples.jsonl"))
    parser.add_argument("--only", choices=CONTENDERS, action="append")
    parser.add_argument("--env", choices=TASKS, action="append")
    parser.add_argument("--run", nargs=3, metavar=("CONTENDER", "ENV", "SEED"), help="One run, in this process.")
    options = parser.parse_args()
    if options.run:
        contender, env, seed = options.run
        print(json.dumps(CONTENDERS[contender](TASKS[env], int(seed))))
        return
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        for env in options.env or TASKS:
            for contender in options.only or CONTENDERS:
                if (contender, env, seed) not in _read(options.out):
                    _run(contender, env, seed, options.out)
    _print_table(_read(options.out))


def _run(contender: str, env: str, seed: int, out: Path) -> None:
    started = time.perf_counter()
    words = [sys.executable, __file__, "--run", contender, env, str(seed)]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(words, env={**os.environ, **threads}, stdout=subprocess.PIPE, text=True, check=True)
    steps = json.loads(done.stdout.splitlines()[-1])
    row = {
        "contender": contender,
        "env": env,
        "seed": seed,
        "steps": steps,
        "seconds": round(time.perf_counter() - started, 1),
    }
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _read(out: Path) -> dict[tuple[str, str, int], int | None]:
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return {(row["contender"], row["env"], row["seed"]): row["steps"] for row in rows}


def _print_table(found: dict[tuple[str, str, int], int | None]) -> None:
    random = np.random.default_rng(0)
    print("| environment | contender | reached | median | mean, 95 % interval |\n|---|---|---|---|---|")
    for env, task in TASKS.items():
        for contender in CONTENDERS:
            runs = [steps for (who, where, _), steps in found.items() if (who, where) == (contender, env)]
            if not runs:
                continue
            steps = np.array([task.steps if count is None else count for count in runs])
            means = random.choice(steps, (10_000, len(steps))).mean(1)
            low, high = np.percentile(means, (2.5, 97.5))
            reached = sum(count is not None for count in runs)
            print(
                f"| {env} | {contender} | {reached}/{len(runs)} | {np.median(steps) / 1e3:,.0f}k "
                f"| {steps.mean() / 1e3:,.0f}k ({low / 1e3:,.0f}k to {high / 1e3:,.0f}k) |"
            )


if __name__ == "__main__":
    main()
