"""The conformance suite that third parties run, over every environment of the table."""

from __future__ import annotations

from puffer_core.testing import EnvContract
from puffer_ocean.plugin import puffer_envs

for _spec in puffer_envs():
    _stem = "".join(part.capitalize() for part in _spec.name.partition("/")[2].split("_"))
    globals()[f"Test{_stem}"] = type(f"Test{_stem}", (EnvContract,), {"env_name": _spec.name})
