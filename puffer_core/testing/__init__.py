"""What third parties test their own environments with: the conformance suite and the tools it is made of.

Subclass `EnvContract` in a test file, name the environment, and pytest does the rest; or call `check`, which needs no
pytest and gives a `Report`.
"""

from typing import TYPE_CHECKING, Any

from puffer_core.testing.backends import BackendContract
from puffer_core.testing.contract import BreachError, ContractWarning
from puffer_core.testing.envs import EnvContract
from puffer_core.testing.isolated import Outcome, run_isolated
from puffer_core.testing.params import ParamCase, cross_cases, illegal_cases, is_small, legal_sets
from puffer_core.testing.rollouts import Digest, head_sizes, play, random_actions, random_bits

if TYPE_CHECKING:
    from puffer_core.check import Finding as Finding
    from puffer_core.check import Report as Report
    from puffer_core.check import check as check

__all__ = [
    "BackendContract",
    "BreachError",
    "ContractWarning",
    "Digest",
    "EnvContract",
    "Finding",
    "Outcome",
    "ParamCase",
    "Report",
    "check",
    "cross_cases",
    "head_sizes",
    "illegal_cases",
    "is_small",
    "legal_sets",
    "play",
    "random_actions",
    "random_bits",
    "run_isolated",
]


def __getattr__(name: str) -> Any:
    """Import what stands on this package when it is asked for."""
    if name not in ("Finding", "Report", "check"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from puffer_core import check

    return getattr(check, name)
