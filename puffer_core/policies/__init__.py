"""Networks in torch: an encoder, a core (none or MinGRU), and the action heads that follow from the action space."""

from __future__ import annotations

from puffer_core.policies.actions import ActionLayout
from puffer_core.policies.encoders import MLPEncoder
from puffer_core.policies.mingru import MinGRULayer
from puffer_core.policies.nativize import Nativizer
from puffer_core.policies.policy import Policy, make_policy

__all__ = ["ActionLayout", "MLPEncoder", "MinGRULayer", "Nativizer", "Policy", "make_policy"]
