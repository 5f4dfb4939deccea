"""What the console shows, as a function of a snapshot: nothing here remembers anything.

Lines are put together by hand from styled pieces rather than from Rich's tables: a panel costs half a millisecond
this way instead of nine, which a fast run would notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from puffer_core.console.format import bar, count, duration, number, sparkline

WIDTH = 80
"""Columns the panel takes where the terminal has them."""
_ROWS = 9
_GAP = 2
_TIME = 22
_FRAME, _ACCENT, _TITLE, _DIM, _GOOD, _SPEED, _PLAIN = "cyan", "cyan", "bold", "dim", "bold green", "bold yellow", ""

Piece = tuple[str, str]
"""Text and its style."""
Line = Sequence[Piece]


@dataclass(frozen=True)
class Snapshot:
    """One moment of a run, all that a console needs to draw it.

    Args:
        title: The environment.
        subtitle: Trainer, device and backend, in a few words.
        status: What is going on: ``starting``, ``training``, ``evaluating``, or how it ended.
        steps, total_steps: Agent steps done and planned; a total of 0 is not known yet.
        seconds: Wall time of the training loop.
        steps_per_second: Of the last moments.
        score: The latest training score, None before the first episode ended.
        scores: Its history, oldest first.
        phases: Seconds by phase, of the last moments.
        losses, environment: Latest means by name, without their prefixes.
    """

    title: str
    subtitle: str = ""
    status: str = "starting"
    steps: int = 0
    total_steps: int = 0
    seconds: float = 0.0
    steps_per_second: float = 0.0
    score: float | None = None
    scores: tuple[float, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, float] = field(default_factory=dict)

    @property
    def fraction(self) -> float:
        """Share of the planned steps that is done, in [0, 1]."""
        return min(self.steps / self.total_steps, 1.0) if self.total_steps else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time to go at the present speed, None while that is not known."""
        if not self.total_steps or self.steps_per_second <= 0:
            return None
        return max(self.total_steps - self.steps, 0) / self.steps_per_second


class Panel:
    """A snapshot that draws itself as wide as the console, up to `WIDTH`; below 28 columns only a line is left."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the segments of every line."""
        for pieces in _lines(self._snapshot, min(WIDTH, options.max_width)):
            for text, style in pieces:
                yield Segment(text, Style.parse(style) if style else None)
            yield Segment.line()


def line(snapshot: Snapshot) -> str:
    """Return ``snapshot`` as one plain line, for logs and very narrow terminals."""
    if not snapshot.steps:
        return f"{snapshot.title}  {snapshot.status}"
    parts = [
        f"{100 * snapshot.fraction:3.0f} %",
        f"{count(snapshot.steps):>5} steps",
        f"{count(snapshot.steps_per_second):>5} steps/s",
        f"score {number(snapshot.score)}",
        duration(snapshot.seconds),
        f"{duration(snapshot.seconds_left)} left" if snapshot.status == "training" else snapshot.status,
    ]
    return "  ".join(parts)


def _lines(snapshot: Snapshot, width: int) -> list[Line]:
    if width < 28:
        return [_fit([(line(snapshot), _PLAIN)], width)]
    inner = width - 4
    body = [_headline(snapshot, inner), _progress(snapshot, inner)]
    columns = _columns(snapshot, inner)
    if columns:
        body += [[], *columns]
    top = _edge("╭", "╮", [("puffer ", f"bold {_ACCENT}"), (snapshot.title, _TITLE)], width, right=False)
    bottom = _edge("╰", "╯", [(snapshot.subtitle, _DIM)], width, right=True)
    return [top, *([("│ ", _FRAME), *_fit(pieces, inner), (" │", _FRAME)] for pieces in body), bottom]


def _edge(left: str, end: str, label: Line, width: int, *, right: bool) -> Line:
    """Return a border of ``width`` columns that carries ``label`` near its left or right end."""
    size = min(_length(label), width - 6)
    if not size:
        return [(left + "─" * (width - 2) + end, _FRAME)]
    filling = ("─" * (width - 6 - size), _FRAME)
    before, after = (f"{left}─", _FRAME), (f"─{end}", _FRAME)
    text = [(" ", _PLAIN), *_fit(label, size), (" ", _PLAIN)]
    return [before, filling, *text, after] if right else [before, *text, filling, after]


def _headline(snapshot: Snapshot, width: int) -> Line:
    score = [("score ", _DIM), (number(snapshot.score), _GOOD)]
    speed = [(count(snapshot.steps_per_second), _SPEED), (" steps/s", _DIM)]
    room = width - _length(score) - _length(speed)
    trend = sparkline(snapshot.scores, room - 6) if room >= 20 else ""
    before = (room - len(trend)) // 2
    return [*score, (" " * before, _PLAIN), (trend, "green"), (" " * (room - before - len(trend)), _PLAIN), *speed]


def _progress(snapshot: Snapshot, width: int) -> Line:
    cells = []
    if snapshot.total_steps:
        cells.append(f"{100 * snapshot.fraction:.0f} %")
        if width >= 40:
            cells.append(f"{count(snapshot.steps)}/{count(snapshot.total_steps)}")
    left = snapshot.seconds_left
    cells.append(f"{duration(left)} left" if snapshot.status == "training" and left is not None else snapshot.status)
    text = "  ".join(cells)
    size = max(width - len(text) - 2, 0)
    full = round(size * snapshot.fraction)
    return [("━" * full, _ACCENT), ("━" * (size - full), "bright_black"), ("  ", _PLAIN), (text, _PLAIN)]


def _columns(snapshot: Snapshot, width: int) -> list[Line]:
    """Return time, environment and losses beside each other, as many of them as fit; nothing while all are empty."""
    environment = {name: value for name, value in snapshot.environment.items() if name not in ("score", "n")}
    tables = [
        _table("time", _shares(snapshot.phases)),
        _table("environment", {name: number(value) for name, value in environment.items()}),
        _table("loss", {name: number(value) for name, value in snapshot.losses.items()}),
    ]
    tables = [table for table in tables if table][: 1 + (width >= 48) + (width >= 70)]
    if not tables:
        return []
    sizes = _widths(tables, width)
    rows: list[Line] = []
    for index in range(max(map(len, tables))):
        pieces: list[Piece] = []
        for table, size in zip(tables, sizes, strict=True):
            name, value, style = table[index] if index < len(table) else ("", "", _PLAIN)
            pieces += [(" " * _GAP, _PLAIN)] if pieces else []
            pieces += [(set_cell_size(name, size - len(value) - 1), style), (" ", _PLAIN), (value, _PLAIN)]
        rows.append(pieces)
    return rows


def _widths(tables: Sequence[Sequence[tuple[str, str, str]]], width: int) -> list[int]:
    """Return the columns of each table: the times need few, the others share the rest."""
    room = width - _GAP * (len(tables) - 1)
    if len(tables) == 1 or tables[0][0][0] != "time":
        return [room // len(tables)] * len(tables)
    rest = (room - _TIME) // (len(tables) - 1)
    return [_TIME, *[rest] * (len(tables) - 1)]


def _shares(phases: Mapping[str, float]) -> dict[str, str]:
    """Return the largest phases as percentages with a small bar, full for the largest."""
    total = sum(phases.values())
    if total <= 0:
        return {}
    largest = sorted(phases.items(), key=lambda item: -item[1])
    most = largest[0][1]
    return {name: f"{bar(seconds / most, 3)} {100 * seconds / total:3.0f} %" for name, seconds in largest}


def _table(title: str, values: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return rows of name, value and the style of the name; empty without values."""
    rows = [(name.replace("_", " "), value, _DIM) for name, value in list(values.items())[:_ROWS]]
    return [(title, "", _TITLE), *rows] if rows else []


def _length(pieces: Line) -> int:
    return sum(cell_len(text) for text, _ in pieces)


def _fit(pieces: Line, width: int) -> list[Piece]:
    """Return ``pieces`` cut or filled with blanks to exactly ``width`` columns."""
    fitted: list[Piece] = []
    room = width
    for text, style in pieces:
        size = cell_len(text)
        if size > room:
            text = set_cell_size(text, room - 1) + "…" if room else ""
            size = room
        fitted.append((text, style))
        room -= size
    return [*fitted, (" " * room, _PLAIN)] if room else fitted
