"""Results of commands as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from puffer_core.console.format import count, duration, number

Result = Mapping[str, Any]
MOST_SCORES = 20
"""Scores of played episodes that are listed, the last ones."""


def train_summary(result: Result) -> str:
    """Return what `puffer train` and `puffer run` say at the end."""
    rows = []
    if result.get("score") is not None:
        rows.append(("score", _score(result)))
    if result["score_reached_steps"] is not None:
        steps, seconds = result["score_reached_steps"], result["score_reached_seconds"]
        rows.append(("reached", f"the score to stop at, after {steps:,} steps, {duration(seconds)}"))
    done = f"{result['steps']:,} of {result['steps_asked']:,} asked, {result['gradient_steps']:,} gradient steps"
    rows += [
        ("steps", done),
        ("time", f"{duration(result['seconds'])} of training, {count(result['steps_per_second'])} steps/s"),
        ("saved", _near(result["checkpoint"]) if result["checkpoint"] else "no checkpoint could be written"),
    ]
    if result["checkpoint"]:
        rows.append(("watch", f"puffer eval {result['env']} --load {_near(result['run_dir'])} --render video"))
    return _aligned(rows)


def eval_summary(result: Result) -> str:
    """Return what `puffer eval` says."""
    rows = [("score", _score(result))]
    if result["quantiles"]:
        low, lower, median, upper, high = map(number, result["quantiles"])
        rows.append(("range", f"{low} to {high}, median {median}, half of them {lower} to {upper}"))
    rows += [(name.replace("_", " "), number(result[name])) for name in ("perf", "episode_length") if result[name]]
    rows += _match(result) if "versus" in result else []
    rows += [(name, _near(result[name])) for name in ("checkpoint", "versus", "video") if result.get(name)]
    return _aligned(rows)


def _match(result: Result) -> list[tuple[str, str]]:
    """Return the rows of two agents against each other."""
    if result["win_rate"] is None:
        return []
    told = f"{result['wins']:,} won, {result['draws']:,} drawn, {result['losses']:,} lost"
    rows = [("win rate", f"{100 * result['win_rate']:.1f} %  ({told})")]
    if result["elo_difference"] is not None:
        error = result["elo_difference_stderr"]
        spread = "" if error is None else f" ± {error:.0f}"
        rows.append(("elo", f"{result['elo_difference']:+.0f}{spread}"))
    return rows


def play_summary(result: Result) -> str:
    """Return what `puffer play` says: the score of every episode, and their mean."""
    if not result["episodes"]:
        return f"{result['env']}: no episode was played to its end"
    told = ", ".join(number(score) for score in result["scores"][-MOST_SCORES:])
    rows = [("episodes", f"{result['episodes']:,}")]
    if result["scores"]:
        rows += [("scores", told), ("mean", number(result["score"]))]
    return _aligned(rows)


def bench_train_summary(result: Result) -> str:
    """Return what `puffer bench train` says: the speed, and each phase with its seconds and share."""
    total = sum(result["phases"].values()) or 1.0
    phases = sorted(result["phases"].items(), key=lambda item: -item[1])
    head = f"{result['env']}, trainer {result['trainer']}: {result['steps_per_second']:,.0f} steps/s"
    lines = [
        f"  {name.replace('_', ' '):<16}{seconds:8.3f} s  {100 * seconds / total:5.1f} %" for name, seconds in phases
    ]
    return "\n".join([head, *lines])


def bench_env_summary(result: Result) -> str:
    """Return what `puffer bench env` says."""
    return (
        f"{result['env']}, {result['num_envs']:,} environments, {result['threads']} thread(s): "
        f"{count(result['steps_per_second'])} steps/s, {count(result['steps_per_cpu_second'])} per CPU second"
    )


def check_summary(result: Result) -> str:
    """Return what `puffer check` says: a line for each check, what failed with its reason and the way out."""
    lines = [f"ok       {name.replace('_', ' ')}" for name in result["passed"]]
    for label, rows in (("FAILED", result["failed"]), ("warning", result["warnings"])):
        for names, reason, hint in _by_reason(rows):
            lines += [f"{label:<9}{', '.join(names)}", *(f"         {line}" for line in reason.splitlines())]
            lines += [f"         hint: {hint}"] if hint else []
    lines += [f"limit    {limit}: declared, not failed" for limit in result["limits"]]
    counts = f"{len(result['passed'])} ok, {len(result['failed'])} failed, {len(result['warnings'])} warnings"
    return "\n".join([*lines, f"{result['env']}: {counts}"])


def new_summary(result: Result) -> str:
    """Return what `puffer new` says: what was written, and what to do with it."""
    name = result["env"].partition("/")[0]
    lines = [f"wrote {_near(str(Path(result['folder']).absolute()))}", *(f"  {path}" for path in result["files"])]
    lines += ["", "next:", f"  pip install -e {_near(str(Path(result['folder']).absolute()))}"]
    lines += [f"  puffer check {result['env']}", f"  puffer run {name}"]
    return "\n".join(lines)


def _by_reason(rows: Sequence[Result]) -> list[tuple[list[str], str, str | None]]:
    """Return findings with the names of all checks that found the same, so that one cause is told once."""
    found: dict[str, tuple[list[str], str, str | None]] = {}
    for row in rows:
        names, _, _ = found.setdefault(row["reason"], ([], row["reason"], row["hint"]))
        names.append(row["name"].replace("_", " "))
    return list(found.values())


def bench_vec_summary(result: Result) -> str:
    """Return what `puffer bench vec` says: every setting as options to paste, best first, and how they compare."""
    rows = result["settings"]
    best = rows[0]["steps_per_second"] or 1.0
    head = f"{rows[0]['env']}, {rows[0]['num_envs']:,} environments: agent-steps per second, best first"
    lines = [
        f"{row['steps_per_second']:>14,.0f}  {100 * row['steps_per_second'] / best:5.1f} %  {row['options']}"
        if row["error"] is None
        else f"{'failed':>14}  {'':7}  {row['options']}: {row['error']}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def doctor_summary(report: Result) -> str:
    """Return what `puffer doctor` says."""
    cpu, torch, folder = report["cpu"], report["torch"], report["runs_dir"]
    rows = [
        ("puffer", report["puffer"]),
        ("python", f"{report['python']}, {report['executable']}"),
        ("platform", report["platform"]),
        ("cpu", f"{cpu['name']}: {cpu['cores']} cores, {cpu['usable']} usable threads, {cpu['level']}"),
        ("memory", f"{cpu['memory_gib']} GiB"),
        ("torch", _torch(torch)),
        ("trainers", _asked_in_order(report["trainers"])),
        ("backends", _asked_in_order(report["backends"])),
        *(("plugin", f"{row['name']} {row['version']}: {_state(row)}") for row in report["plugins"]),
        *(("C envs", f"{row['module']}: {row['environments']} environments, {_isa(row)}") for row in report["tables"]),
        ("compiler", report["compiler"] or "none"),
        ("runs", f"{folder['path']}: {'' if folder['writable'] else 'not '}writable, {folder['free_gib']} GiB free"),
        ("video", "available" if report["video"]["available"] else report["video"]["reason"]),
        *(("problem", text) for text in report["problems"]),
    ]
    return _aligned(rows)


def _score(result: Result) -> str:
    if result["score"] is None:
        return f"none, {result['episodes']:,} episodes"
    spread = "" if result["score_stderr"] is None else f" ± {number(result['score_stderr'])}"
    return f"{number(result['score'])}{spread}  ({result['episodes']:,} episodes)"


def _torch(torch: Result) -> str:
    if torch["version"] is None:
        return f"none: {torch['reason']}"
    devices = ", ".join(torch["devices"])
    return f"{torch['version']}, {torch['threads']} threads, devices {devices}; auto is {torch['auto']}"


def _asked_in_order(rows: Sequence[Result]) -> str:
    return ", ".join(f"{row['name']} (priority {row['priority']})" for row in rows) or "none"


def _state(row: Result) -> str:
    return f"{row['state']}, {row['reason']}" if row["reason"] else str(row["state"])


def _isa(row: Result) -> str:
    return f"level {row['isa'] or 'unknown'}, ABI {row['abi']}" if not row["reason"] else str(row["reason"])


def _near(path: str) -> str:
    """Return a path as one types it here: relative where it lies below this folder."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _aligned(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{text}" for name, text in rows)
