"""Where a run reports to: a live panel in a terminal, plain lines elsewhere, nothing for ``--json``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from puffer_core.console.view import Panel, Snapshot, line

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Clock = Callable[[], float]


class Reporter:
    """Receives snapshots and messages of a run; this one drops the snapshots and writes warnings to stderr.

    `show` may be called as often as a run likes: it asks for a snapshot only when it is going to draw one. Used as a
    context manager, it leaves the terminal as it was, whatever happens inside.
    """

    period_s = float("inf")

    def __init__(self, console: Console | None = None, *, clock: Clock = time.monotonic) -> None:
        self.console = console or Console(stderr=True)
        self.errors = Console(stderr=True)
        self._clock = clock
        self._drawn_at = -float("inf")

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Begin to draw."""

    def close(self) -> None:
        """Stop drawing and restore the terminal; calling it twice is harmless."""

    def show(self, snapshot: Callable[[], Snapshot], *, force: bool = False) -> None:
        """Draw what ``snapshot`` returns if the last drawing is `period_s` ago, or now with ``force``."""
        now = self._clock()
        if force or now - self._drawn_at >= self.period_s:
            self._drawn_at = now
            self.draw(snapshot())

    def draw(self, snapshot: Snapshot) -> None:
        """Draw ``snapshot`` now."""

    def say(self, text: str) -> None:
        """Tell a fact about the run that a person may like to know."""

    def warn(self, text: str) -> None:
        """Tell what a person should know; never dropped."""
        self.errors.print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    def warn_at_once(self, text: str) -> None:
        """Warn from a signal handler: a bare write, since what the signal interrupted may hold locks and buffers."""
        _write_bare(2, f"warning: {text}\n")

    def abandon(self) -> None:
        """Give the terminal back from a signal handler, before the process ends at once."""


class PlainReporter(Reporter):
    """One line every few seconds, for files, pipes and CI logs."""

    period_s = 5.0

    def __init__(self, console: Console | None = None, *, clock: Clock = time.monotonic) -> None:
        super().__init__(console or Console(), clock=clock)

    def draw(self, snapshot: Snapshot) -> None:
        """Print the snapshot as one line."""
        self.say(line(snapshot))

    def say(self, text: str) -> None:
        """Print ``text`` and flush, so that a reader of the pipe sees it at once."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.console.file.flush()


class LiveReporter(Reporter):
    """A panel that is drawn over itself at most four times a second."""

    period_s = 0.25

    def __init__(self, console: Console | None = None, *, clock: Clock = time.monotonic) -> None:
        super().__init__(console or Console(), clock=clock)
        self.errors = self.console  # above the panel, not across it
        self._live: Live | None = None

    def open(self) -> None:
        """Hide the cursor; calling it twice is harmless."""
        if self._live is not None:
            return
        self._live = Live(console=self.console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def close(self) -> None:
        """Leave the last panel on the screen and give the cursor back."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def warn_at_once(self, text: str) -> None:
        """Write over the last line of the panel, where the cursor is; the next drawing replaces it."""
        _write_bare(self._descriptor(), f"\r\x1b[K{text}")

    def abandon(self) -> None:
        """Show the cursor."""
        if self._live is not None:
            _write_bare(self._descriptor(), "\x1b[?25h\n")

    def _descriptor(self) -> int:
        try:
            return self.console.file.fileno()
        except OSError:  # not a file, as in a notebook
            return 2

    def draw(self, snapshot: Snapshot) -> None:
        """Draw the panel."""
        if self._live is not None:
            self._live.update(Panel(snapshot), refresh=True)

    def say(self, text: str) -> None:
        """Print ``text`` above the panel."""
        self.console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def _write_bare(descriptor: int, text: str) -> None:
    with suppress(OSError):
        os.write(descriptor, text.encode())


def make_reporter(*, json: bool = False, console: Console | None = None) -> Reporter:
    """Return the reporter that fits: silent with ``json``, a panel in a terminal, lines elsewhere."""
    if json:
        return Reporter()
    console = console or Console()
    if console.is_terminal and not console.is_dumb_terminal and sys.stdout.isatty():
        return LiveReporter(console)
    return PlainReporter(console)
