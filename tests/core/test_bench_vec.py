"""Tests of `puffer bench vec`: what is tried, how it is told, and what happens to a setting that fails."""

from __future__ import annotations

import json
from typing import Any

import counter
import pytest
from click.testing import CliRunner
from fakes_env import Count

from puffer_core import bench_vec
from puffer_core.bench_vec import Setting, settings
from puffer_core.cli.bench import command
from puffer_core.config import options
from puffer_core.console.summary import bench_vec_summary
from puffer_core.errors import EnvError, OptionError, WorkerError
from puffer_core.vector import Multiprocessing, Native, Serial


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_vec, "cores", lambda: 2)


def tried(num_envs: int, count: int, is_native: bool = False) -> list[tuple[Any, ...]]:
    return [
        (one.backend, one.num_workers, one.batch_size, one.zero_copy, one.num_threads)
        for one in settings(num_envs, count, is_native)
    ]


def test_python_is_tried_in_this_process_and_in_workers_of_every_kind() -> None:
    assert tried(8, 2) == [
        ("serial", 1, 8, True, 1),
        ("multiprocessing", 1, 8, True, 1),
        ("multiprocessing", 2, 8, True, 1),
        ("multiprocessing", 2, 4, True, 1),
        ("multiprocessing", 4, 4, True, 1),
        ("multiprocessing", 4, 4, False, 1),
    ]


def test_c_is_tried_with_threads_and_in_workers() -> None:
    assert tried(8, 3, is_native=True) == [
        ("native", 1, 8, True, 1),
        ("native", 1, 8, True, 2),
        ("native", 1, 8, True, 3),
        ("multiprocessing", 1, 8, True, 1),
        ("multiprocessing", 2, 8, True, 1),
    ]


@pytest.mark.parametrize("num_envs", [1, 3, 6, 7, 64])
def test_every_setting_divides(num_envs: int) -> None:
    from puffer_core.vector import check_counts

    for one in settings(num_envs, 4, is_native=False):
        check_counts(num_envs, one.num_workers, one.batch_size, one.zero_copy)


@pytest.mark.parametrize("num_envs", [8, 9])
@pytest.mark.parametrize("is_native", [False, True])
def test_options_are_options_of_a_run(num_envs: int, is_native: bool) -> None:
    for one in settings(num_envs, 2, is_native):
        parsed = options.parse(one.options.split(), "gym/CartPole-v1")
        assert parsed["vec.backend"] == one.backend
        inner, outer = int(parsed.get("env.num_envs", 1)), int(parsed.get("vec.num_envs", 1))
        assert inner * outer == num_envs


def test_options_say_what_differs_from_the_default() -> None:
    one = Setting("multiprocessing", 8, 4, 4, zero_copy=False)
    assert one.options == (
        "--vec.backend multiprocessing --vec.num-envs 8 --vec.num-workers 4 --vec.batch-size 4 --no-vec.zero-copy"
    )


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (Setting("serial", 4, 1, 4), Serial),
        (Setting("multiprocessing", 4, 2, 2), Multiprocessing),
        (Setting("native", 4, 1, 4, num_threads=2, is_native=True), Native),
        (Setting("multiprocessing", 4, 2, 4, is_native=True), Multiprocessing),
    ],
)
def test_a_setting_opens_what_it_says(one: Setting, kind: type) -> None:
    if kind is Multiprocessing and one.is_native:
        env: Any = "ocean/squared"
        pytest.importorskip("puffer_ocean")
    else:
        env = counter.counter_table() if one.is_native else Count
    with one.open(env, {}, None) as opened:
        assert type(opened) is kind
        assert opened.num_envs == 4
        assert opened.agents_per_batch == opened.agents_per_env * one.batch_size


def test_result_is_best_first_with_the_keys_of_the_command() -> None:
    told: list[str] = []
    found = bench_vec.bench_vec(Count, 4, 0.05, say=told.append)
    assert list(found) == ["settings"]
    rates = [row["steps_per_second"] for row in found["settings"]]
    assert rates == sorted(rates, reverse=True)
    assert len(told) == len(rates) == len(settings(4, 2, is_native=False))
    first = found["settings"][0]
    assert {"env", "backend", "num_envs", "num_workers", "batch_size", "steps_per_second"} < set(first)
    assert (first["env"], first["num_envs"], first["error"]) == ("Count", 4, None)


def test_a_run_has_64_agents_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_vec, "_rate", lambda *_: (1.0, None))
    assert bench_vec.bench_vec(Count)["settings"][0]["num_envs"] == 64
    assert bench_vec.bench_vec(Count, params={"agents": 16})["settings"][0]["num_envs"] == 4
    assert bench_vec.bench_vec(counter.counter_table())["settings"][0]["num_envs"] == 4096 // counter.AGENTS


def test_a_setting_that_fails_is_last_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_or_fail(self: Setting, *_: Any) -> Any:
        if self.num_workers == 2:
            raise EnvError("no room")
        return Serial(Count, 4)

    monkeypatch.setattr(Setting, "open", open_or_fail)
    rows = bench_vec.bench_vec(Count, 4, 0.02)["settings"]
    assert [row["num_workers"] for row in rows[-2:]] == [2, 2]
    assert all(row["steps_per_second"] is None and "no room" in row["error"] for row in rows[-2:])
    text = bench_vec_summary({"settings": rows})
    assert "failed" in text
    assert "no room" in text


def test_settings_that_all_fail_are_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Setting, *_: Any) -> Any:
        raise WorkerError("worker 0 raised ValueError: no\n\nTraceback (most recent call last)")

    monkeypatch.setattr(Setting, "open", fail)
    told: list[str] = []
    with pytest.raises(EnvError, match=r"^Count: all 6 settings fail, .* with: worker 0 raised ValueError: no$"):
        bench_vec.bench_vec(Count, 4, 0.02, say=told.append)
    assert len(told) == 6
    assert all("failed" in line and "\n" not in line for line in told)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_seconds_are_a_positive_number(seconds: float) -> None:
    with pytest.raises(OptionError, match="is not a positive number"):
        bench_vec.bench_vec(Count, 4, seconds)


def test_summary_compares_with_the_best() -> None:
    rows = [
        {"env": "count", "num_envs": 1024, "steps_per_second": rate, "options": f"--vec.x {rate}", "error": None}
        for rate in (2000.0, 500.0)
    ]
    assert bench_vec_summary({"settings": rows}).splitlines() == [
        "count, 1,024 environments: agent-steps per second, best first",
        "         2,000  100.0 %  --vec.x 2000.0",
        "           500   25.0 %  --vec.x 500.0",
    ]


def test_command_prints_one_object_and_takes_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def rate(setting: Setting, env: Any, params: Any, wrap: Any, seconds: float) -> tuple[float, None]:
        asked.append((env, dict(params), dict(wrap or {}), seconds))
        return 10.0, None

    monkeypatch.setattr(bench_vec, "_rate", rate)
    words = ["vec", "gym/CartPole-v1", "--json", "--seconds", "2", "--vec.num-envs", "6", "--env.sutton_barto_reward"]
    result = CliRunner().invoke(command, [*words, "--wrap.action-repeat", "2"], catch_exceptions=False)
    rows = json.loads(result.output)["settings"]
    assert {row["num_envs"] for row in rows} == {6}
    env, params, wrap, seconds = asked[0]
    assert (env, params, seconds) == ("gym/CartPole-v1", {"sutton_barto_reward": True}, 2.0)
    assert wrap["action_repeat"] == 2
    assert rows[0]["env"] == "gym/CartPole-v1"


def test_command_refuses_what_it_ignores() -> None:
    words = ["vec", "gym/CartPole-v1", "--vec.num-workers", "2"]
    with pytest.raises(OptionError, match=r"`--vec\.num-workers` has no meaning here") as caught:
        CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
    assert caught.value.hint == "this takes --env.KEY, --wrap.KEY, --vec.num-envs"
