"""Networks in torch: an encoder, a core (none, MinGRU, LSTM), and the heads that the action space asks for.

The names of this package are imported when they are first used: the options of encoders are read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puffer_core.policies.actions import ActionLayout as ActionLayout
    from puffer_core.policies.encoders import MLPEncoder as MLPEncoder
    from puffer_core.policies.init import layer_init as layer_init
    from puffer_core.policies.lstm import LSTMLayer as LSTMLayer
    from puffer_core.policies.mingru import MinGRULayer as MinGRULayer
    from puffer_core.policies.nativize import Nativizer as Nativizer
    from puffer_core.policies.policy import Policy as Policy
    from puffer_core.policies.policy import make_policy as make_policy

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

_LAZY = {
    "ActionLayout": "actions",
    "LSTMLayer": "lstm",
    "MLPEncoder": "encoders",
    "MinGRULayer": "mingru",
    "Nativizer": "nativize",
    "Policy": "policy",
    "layer_init": "init",
    "make_policy": "policy",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
