"""The place that whoever starts several processes, as ``torchrun`` does, gives to each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from puffer_core.errors import OptionError

PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables that place a process."""
HERE = "LOCAL_WORLD_SIZE"
"""Variable with the number of processes on this machine, which share its cores; 1 where nobody says."""
PARENT = "PUFFER_PARENT"
"""Variable with the process that started the ranks: without it they end."""


@dataclass(frozen=True)
class Place:
    """Which of several processes this is: of all, and on this machine."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1


def place(variables: Mapping[str, str] = os.environ) -> Place:
    """Return the place of this process.

    Raises:
        OptionError: If the variables are no numbers, or do not fit together.
    """
    if any(name not in variables for name in PLACE):
        return Place()
    try:
        found = Place(*(int(variables.get(name, 1)) for name in (*PLACE[:3], HERE)))
    except ValueError as error:
        raise OptionError(f"{', '.join((*PLACE[:3], HERE))} must be integers: {error}") from None
    if not (0 <= found.rank < found.world_size and found.local_rank >= 0):
        raise OptionError(f"RANK={found.rank} is not below WORLD_SIZE={found.world_size}", hint="start with torchrun")
    if found.local_world_size < 1:
        raise OptionError(f"{HERE}={found.local_world_size} must be 1 or more", hint="start with torchrun")
    return found
