"""Configuration: a typed schema, ini files, options, and where every value came from."""

from __future__ import annotations

from puffer_core.config.load import fixed, flatten, load
from puffer_core.config.saved import from_run, to_dict, with_origins, write
from puffer_core.config.schema import (
    BaseConfig,
    CommandConfig,
    Config,
    Origin,
    PolicyConfig,
    SelfPlayConfig,
    SweepConfig,
    SweepRange,
    TrainConfig,
    VecConfig,
)

__all__ = [
    "BaseConfig",
    "CommandConfig",
    "Config",
    "Origin",
    "PolicyConfig",
    "SelfPlayConfig",
    "SweepConfig",
    "SweepRange",
    "TrainConfig",
    "VecConfig",
    "fixed",
    "flatten",
    "from_run",
    "load",
    "to_dict",
    "with_origins",
    "write",
]
