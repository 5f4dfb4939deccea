"""What a program that acts with an exported network must know besides the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from puffer_core.export.network import ActingStep
from puffer_core.rl.agent import Agent


def describe(agent: Agent, step: ActingStep, network: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data: the steps of training, the network, and the layout of the actions.

    ``network`` holds ``policy``, the section of the configuration, and ``policy_options``, those of the encoder.

    ``actions`` holds the ``sizes`` of the discrete heads in the order of the logits, the ``shape`` of an action, the
    columns of it that are ``continuous``, their ``logstd`` (the log of the deviation that sampling adds to the means),
    and the bounds ``low`` and ``high`` of all columns, null where there are none. Where ``is_squashed``, numbers are
    drawn before tanh and its scaling into the bounds; where ``deviates_by_state``, the last logits are the ``logstd``.
    """
    layout, policy = agent.policy.layout, agent.policy
    columns = list(range(layout.deviations)) if layout.is_continuous else list(layout.continuous)
    return {
        "step": agent.step,
        **network,
        "inputs": [asdict(port) for port in step.inputs],
        "outputs": [asdict(port) for port in step.outputs],
        "actions": {
            "shape": list(layout.shape),
            "sizes": [] if layout.is_continuous else list(layout.sizes),
            "continuous": columns,
            "logstd": None if policy.logstd is None else policy.logstd.detach().flatten().tolist(),
            "is_squashed": layout.is_squashed,
            "deviates_by_state": layout.deviates_by_state,
            "low": _finite(layout.low),
            "high": _finite(layout.high),
        },
    }


def _finite(bounds: tuple[float, ...] | None) -> list[float | None] | None:
    """Return bounds as JSON holds them: null where there is none."""
    return None if bounds is None else [bound if abs(bound) < float("inf") else None for bound in bounds]
