"""Numbers as a person reads them: ``7.3M``, ``4 m 12 s``, ``0.0132``."""

from __future__ import annotations

import math
from itertools import pairwise

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(value: float) -> str:
    """Return a count in at most five characters, as ``950``, ``12.3k`` or ``7.30M``."""
    if not math.isfinite(value):
        return "–"
    for size, unit in _UNITS:
        if abs(value) >= size * 0.9995:
            scaled = value / size
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f}{unit}"
    return f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """Return a time span in its two largest units, as ``9.4 s``, ``4 m 12 s`` or ``2 h 05 m``."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def number(value: float | None) -> str:
    """Return a measurement with four significant digits, in at most nine characters."""
    if value is None or not math.isfinite(value):
        return "–"
    magnitude = abs(value)
    if magnitude >= 1e5:
        return count(value)
    if value == 0:
        return "0"
    if magnitude < 1e-3:
        return f"{value:.1e}"
    digits = 4 if magnitude < 1 else 3 if magnitude < 10 else 2 if magnitude < 100 else 1
    return f"{value:.{digits}f}"


def bar(fraction: float, width: int) -> str:
    """Return a bar of ``width`` columns, filled to ``fraction`` in steps of an eighth of a column."""
    whole, eighths = divmod(round(8 * width * fraction), 8)
    return ("█" * whole + " ▏▎▍▌▋▊▉"[eighths].strip()).ljust(width)


def sparkline(values: tuple[float, ...], width: int) -> str:
    """Return one line of bars for ``values``, averaged into at most ``width`` bins; empty for fewer than two."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2 or width < 2:
        return ""
    bins = min(width, len(finite))
    edges = [index * len(finite) // bins for index in range(bins + 1)]
    means = [sum(finite[low:high]) / (high - low) for low, high in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (mean - low) / span)] for mean in means)
