"""What this plugin supplies: its environments, named here without loading the compiled module."""

from __future__ import annotations

from collections.abc import Iterable

from puffer_core.hookspecs import hookimpl
from puffer_core.specs import EnvSpec

puffer_api = 1

NAMES = (
    "memory",
    "squared",
    "continuous",
    "breakout",
    "snake",
    "connect4",
    "cartpole",
    "target",
)
"""The rows of ``csrc/env_table.h``, in its order; a test compares them."""


@hookimpl
def puffer_envs() -> Iterable[EnvSpec]:
    """One spec per environment; its table is loaded when it is first used."""
    return [
        EnvSpec(
            f"ocean/{name}",
            table=f"puffer_ocean._native:{name}",
            aliases=(name, f"puffer_{name}"),
            config=f"puffer_ocean:config/{name}.ini",
        )
        for name in NAMES
    ]
