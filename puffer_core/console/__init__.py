"""Everything that is drawn in a terminal. It owns no state: a `Panel` is the picture of a `Snapshot`."""

from __future__ import annotations

from puffer_core.console.reporter import LiveReporter, PlainReporter, Reporter, make_reporter
from puffer_core.console.view import Panel, Snapshot

__all__ = ["LiveReporter", "Panel", "PlainReporter", "Reporter", "Snapshot", "make_reporter"]
