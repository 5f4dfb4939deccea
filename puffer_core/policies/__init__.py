"""Networks in torch: an encoder, a core (none, MinGRU, LSTM), and the heads that the action space asks for."""

from __future__ import annotations

from puffer_core.policies.actions import ActionLayout
from puffer_core.policies.encoders import MLPEncoder
from puffer_core.policies.init import layer_init
from puffer_core.policies.lstm import LSTMLayer
from puffer_core.policies.mingru import MinGRULayer
from puffer_core.policies.nativize import Nativizer
from puffer_core.policies.policy import Policy, make_policy

__all__ = [
    "ActionLayout",
    "LSTMLayer",
    "MLPEncoder",
    "MinGRULayer",
    "Nativizer",
    "Policy",
    "layer_init",
    "make_policy",
]
