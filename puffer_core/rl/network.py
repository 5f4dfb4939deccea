"""How the policy is run while it trains: in which type, compiled or not.

The policy itself stays as it is, so that names and weights of checkpoints are plain float32 ones. Logits, values and
state leave the network in float32; losses and log-probabilities are never computed in less.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch
from torch import Tensor, nn

from puffer_core.config.schema import TrainConfig
from puffer_core.policies.actions import full_precision

COMPILERS = ("g++", "c++", "clang++")


def network(policy: nn.Module, train: TrainConfig, device: torch.device) -> Any:
    """Return what acting and learning call: ``policy``, or it in reduced precision; compiled first if that is asked."""
    if train.compile:
        policy.compile()
    return Reduced(policy, device, torch.bfloat16) if train.precision == "bfloat16" else policy


class Reduced:
    """A policy whose products are computed in fewer bits; everything but calls is the policy's.

    Args:
        policy: Float32.
        device: Where it is.
        half: The type.
    """

    def __init__(self, policy: nn.Module, device: torch.device, half: torch.dtype) -> None:
        self._policy: Any = policy
        self._device, self._half = device.type, half

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def forward_eval(self, observations: Tensor, state: Tensor, **others: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the policy's `forward_eval` returns, in float32."""
        with torch.autocast(self._device, self._half):
            logits, values, state = self._policy.forward_eval(observations, state, **others)
        return full_precision(logits), full_precision(values), full_precision(state)

    def __call__(self, observations: Tensor, state: Tensor, resets: Tensor, **others: Any) -> tuple[Tensor, Tensor]:
        """Return what the policy's `forward` returns, in float32."""
        with torch.autocast(self._device, self._half):
            logits, values = self._policy(observations, state, resets, **others)
        return full_precision(logits), full_precision(values)


def lacks_compiler() -> bool:
    """Whether torch.compile would find no C++ compiler for a CPU."""
    return not any(shutil.which(name) for name in (os.environ.get("CXX", ""), *COMPILERS) if name)
