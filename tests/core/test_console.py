from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from puffer_core.console import LiveReporter, Panel, PlainReporter, Reporter, Snapshot, make_reporter
from puffer_core.console.format import bar, count, duration, number, sparkline
from puffer_core.console.view import line

TRAINING = Snapshot(
    title="ocean/breakout",
    subtitle="torch · cpu · 20261129-165459707-cf19e1",
    status="training",
    steps=7_312_000,
    total_steps=10_800_000,
    seconds=27.4,
    steps_per_second=268_123,
    score=812.4,
    scores=tuple(index**1.5 for index in range(300)),
    phases={"forward": 0.34, "backward": 0.3, "loss_forward": 0.2, "env": 0.1},
    losses={"policy": -0.0123, "value": 0.312, "explained_variance": 0.91},
    environment={"score": 812.4, "n": 312.0, "perf": 0.94, "episode_length": 1823.2},
)


def text_of(snapshot: Snapshot, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)
    console.print(Panel(snapshot))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (950, "950"), (12_345, "12.3k"), (7_312_000, "7.31M"), (999_999, "1.00M"), (2e9, "2.00G")],
)
def test_count_takes_few_characters(value: float, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.44, "9.4 s"), (59.4, "59 s"), (252, "4 m 12 s"), (7500, "2 h 05 m"), (190_000, "2 d 04 h"), (None, "–")],
)
def test_duration_names_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.94, "0.9400"), (1823.2, "1823.2"), (1e-5, "1.0e-05"), (float("nan"), "–")]
)
def test_number_has_four_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_bar_is_filled_in_eighths() -> None:
    assert [bar(share, 3) for share in (0.0, 0.5, 1.0)] == ["   ", "█▌ ", "███"]


def test_sparkline_averages_into_the_width_it_has() -> None:
    assert sparkline(tuple(map(float, range(100))), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline((1.0,), 8) == ""
    assert sparkline((2.0, 2.0), 8) == "▁▁"


@pytest.mark.parametrize("width", [28, 33, 40, 50, 60, 79, 80])
@pytest.mark.parametrize("snapshot", [TRAINING, Snapshot("ocean/breakout")], ids=["training", "starting"])
def test_panel_fills_its_width_exactly(snapshot: Snapshot, width: int) -> None:
    assert {cell_len(line) for line in text_of(snapshot, width)} == {width}


def test_panel_is_no_wider_than_80_columns() -> None:
    assert {cell_len(line) for line in text_of(TRAINING, 200)} == {80}


def test_panel_shows_what_a_person_asks_for() -> None:
    text = "\n".join(text_of(TRAINING, 80))
    for part in ("ocean/breakout", "812.4", "268k steps/s", "68 %", "7.31M/10.8M", "13 s left", "loss forward", "21 %"):
        assert part in text
    for part in ("time", "environment", "loss", "perf", "explained variance"):
        assert part in text


def test_panel_survives_a_very_narrow_terminal() -> None:
    (only,) = text_of(TRAINING, 20)
    assert cell_len(only) <= 20


def test_panel_fits_long_names() -> None:
    snapshot = Snapshot("family/" + "x" * 200, subtitle="y" * 200)
    assert {cell_len(line) for line in text_of(snapshot, 80)} == {80}


def test_line_says_how_far_and_how_fast() -> None:
    assert line(TRAINING) == " 68 %  7.31M steps   268k steps/s  score 812.4  27 s  13 s left"
    assert line(Snapshot("squared")) == "squared  starting"


def test_drawing_costs_less_than_two_milliseconds() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    console.print(Panel(TRAINING))
    times = []
    for _ in range(20):
        started = time.process_time()
        console.print(Panel(TRAINING))
        times.append(time.process_time() - started)
    assert sorted(times)[5] < 2e-3


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("kind", "period"), [(PlainReporter, 5.0), (LiveReporter, 0.25)])
def test_reporter_draws_no_more_often_than_its_period(kind: type[Reporter], period: float) -> None:
    clock, asked = Clock(), []
    console = Console(file=io.StringIO(), width=80, force_terminal=True)

    def snapshot() -> Snapshot:
        asked.append(clock.now)
        return TRAINING

    with kind(console, clock=clock) as reporter:
        for _ in range(40):
            reporter.show(snapshot)
            clock.now += period / 4
    assert len(asked) == 10


def test_reporter_forced_draws_at_once() -> None:
    console = Console(file=io.StringIO(), width=80)
    with PlainReporter(console, clock=Clock()) as reporter:
        reporter.show(lambda: TRAINING)
        reporter.show(lambda: TRAINING, force=True)
    assert console.file.getvalue().count("268k steps/s") == 2


def test_live_reporter_restores_the_cursor_after_an_error() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)

    def fail() -> Snapshot:
        raise ZeroDivisionError("in a snapshot")

    with pytest.raises(ZeroDivisionError, match="in a snapshot"), LiveReporter(console) as reporter:
        reporter.show(fail)
    text = console.file.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_live_reporter_warns_at_once_without_its_console(tmp_path: Path) -> None:
    with (tmp_path / "terminal").open("w+") as file:
        with LiveReporter(Console(file=file, width=80, force_terminal=True)) as reporter:
            file.flush()
            reporter.warn_at_once("SIGINT: saved after this rollout")
            reporter.abandon()
        assert b"\r\x1b[KSIGINT: saved after this rollout\x1b[?25h\n" in (tmp_path / "terminal").read_bytes()


def test_reporter_may_be_entered_twice() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with LiveReporter(console) as reporter:
        with reporter:
            reporter.show(lambda: TRAINING)
        reporter.show(lambda: TRAINING, force=True)
    assert console.file.getvalue().count("\x1b[?25h") == 1


def test_reporter_for_json_prints_nothing_but_warnings_and_these_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with make_reporter(json=True) as reporter:
        reporter.show(lambda: TRAINING, force=True)
        reporter.say("a fact")
        reporter.warn("a warning with [brackets]")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "warning: a warning with [brackets]\n"


def test_reporter_is_plain_outside_a_terminal() -> None:
    assert isinstance(make_reporter(), PlainReporter)


def test_plain_reporter_does_not_wrap_long_paths() -> None:
    console = Console(file=io.StringIO(), width=80)
    PlainReporter(console).say("/x" * 100)
    assert console.file.getvalue() == "/x" * 100 + "\n"
