"""Options of the trackers, in a module that imports none of them: `puffer config show` reads them, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["online", "offline", "disabled"]


@dataclass(frozen=True)
class TensorBoardOptions:
    """Options of `tensorboard`."""

    directory: str = ""
    """Folder of the event files, in which each run gets one of its own; empty: ``tensorboard`` in the run directory."""


@dataclass(frozen=True)
class WandbOptions:
    """Options of `wandb`; the key of the account is read from ``WANDB_API_KEY``, or from `wandb login`."""

    project: str = "puffer"
    """Project that the run is listed in."""
    entity: str = ""
    """User or team that owns the project; empty: the account's own."""
    group: str = ""
    """Group of runs that this one belongs to."""
    name: str = ""
    """Name of the run; empty: its id."""
    tags: tuple[str, ...] = ()
    """Tags, separated by commas."""
    mode: Mode = "online"
    """``offline`` keeps everything in the run directory for `wandb sync`; ``disabled`` does nothing."""


@dataclass(frozen=True)
class NeptuneOptions:
    """Options of `neptune`; the key of the account is read from ``NEPTUNE_API_TOKEN``."""

    project: str = ""
    """Project as ``workspace/project``; empty: ``NEPTUNE_PROJECT``."""
    name: str = ""
    """Name of the run; empty: its id."""
    tags: tuple[str, ...] = ()
    """Tags, separated by commas."""
    mode: Mode = "online"
    """``offline`` keeps everything in ``.neptune`` for `neptune sync`; ``disabled`` does nothing."""
