"""Everything that is drawn in a terminal. It owns no state: `render` turns a `Snapshot` into a picture."""

from __future__ import annotations

from puffer_core.console.reporter import LiveReporter, PlainReporter, Reporter, make_reporter
from puffer_core.console.view import Snapshot, render

__all__ = ["LiveReporter", "PlainReporter", "Reporter", "Snapshot", "make_reporter", "render"]
