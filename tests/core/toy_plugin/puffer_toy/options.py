"""The options of the policy `toy-net`, in a module that imports no torch: `puffer config show` reads them, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetOptions:
    inner: int = 4
    """Width between the two layers."""
    names: tuple[str, ...] = ()
    """Nothing; a value that JSON does not have."""
