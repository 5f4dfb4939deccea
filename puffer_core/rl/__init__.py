"""PuffeRL in torch: the trainer that works for any policy on any device, and the specification of the native one."""

from __future__ import annotations

from puffer_core.rl.agent import Agent, load
from puffer_core.rl.trainer import PuffeRL

__all__ = ["Agent", "PuffeRL", "load"]
