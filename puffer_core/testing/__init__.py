"""What third parties test their own environments with: the conformance suite and the tools it is made of.

Subclass `EnvContract` in a test file, name the environment, and pytest does the rest.
"""

from puffer_core.testing.backends import BackendContract
from puffer_core.testing.contract import BreachError, ContractWarning
from puffer_core.testing.envs import EnvContract
from puffer_core.testing.isolated import Outcome, run_isolated
from puffer_core.testing.params import ParamCase, cross_cases, illegal_cases, is_small, legal_sets
from puffer_core.testing.rollouts import Digest, head_sizes, play, random_actions, random_bits

__all__ = [
    "BackendContract",
    "BreachError",
    "ContractWarning",
    "Digest",
    "EnvContract",
    "Outcome",
    "ParamCase",
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
