"""What a checkpoint of `PuffeRL` holds, and how a trainer goes on from one.

With the environments restored, everything that follows is bit-equal to a run that was never stopped: weights,
optimiser, generators, the carried arrival with the recurrent state, and metrics not yet reported are all here.
Schedules are functions of the epoch.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from puffer_core.errors import RunError
from puffer_core.rl import checkpoint
from puffer_core.rl.checkpoint import Checkpoint
from puffer_core.rl.streams import derive

if TYPE_CHECKING:
    from puffer_core.config.schema import Config
    from puffer_core.rl.trainer import PuffeRL

COUNTERS = ("global_step", "epoch", "gradient_steps", "skipped_updates", "episodes", "is_started")


def save(trainer: PuffeRL, path: Path) -> None:
    """Write the whole state of ``trainer`` to the folder ``path``."""
    checkpoint.write(path, capture(trainer))


def capture(trainer: PuffeRL) -> Checkpoint:
    """Return the whole state of ``trainer``."""
    saved = trainer.vector.save() if trainer.is_started else None
    arrays = {f"optimizer.{name}": array for name, array in trainer.optimizer.state_dict().items()}
    arrays |= {f"carry.{name}": array for name, array in trainer.rollout.carry().items()}
    arrays |= {f"generator.{name}": source.get_state() for name, source in _generators(trainer).items()}
    arrays |= {f"env.{name}": _tensor(blob) for name, blob in (saved or {}).items()}
    state = {
        **{name: getattr(trainer, name) for name in COUNTERS},
        "total_epochs": trainer.total_epochs,
        "seed": trainer.config.base.seed,
        "config_hash": config_hash(trainer.config),
        "optimizer": {"name": trainer.config.train.optimizer, "steps": trainer.optimizer.steps},
        "policy": asdict(trainer.config.policy),
        "observation_space": checkpoint.describe_space(trainer.vector.single_observation_space),
        "action_space": checkpoint.describe_space(trainer.vector.single_action_space),
        "has_environments": saved is not None,
        "means": {"environment": trainer.environment.state(), "losses": trainer.losses.state()},
    }
    return Checkpoint(checkpoint.plain(trainer.policy).state_dict(), arrays, state)


def load(trainer: PuffeRL, path: Path) -> bool:
    """Make ``trainer`` go on from the folder ``path``; return whether its environments could be restored.

    Raises:
        RunError: If the checkpoint is damaged, or the network, the optimiser or the rows differ.
    """
    content = checkpoint.read(path)
    state = content.state
    wanted = trainer.config.train.optimizer
    if state["optimizer"]["name"] != wanted:
        raise RunError(f"{path} was trained with {state['optimizer']['name']}, not with train.optimizer={wanted}")
    checkpoint.load_model(trainer.policy, content.model, path)
    trainer.optimizer.load_state_dict(content.section("optimizer"), state["optimizer"]["steps"])
    for name, source in _generators(trainer).items():
        source.set_state(content.section("generator")[name])
    for name in COUNTERS:
        setattr(trainer, name, state[name])
    trainer.environment.restore(state["means"]["environment"])
    trainer.losses.restore(state["means"]["losses"])
    if not state["is_started"]:
        return True
    return _restore_environments(trainer, content)


def _restore_environments(trainer: PuffeRL, content: Checkpoint) -> bool:
    """Put the environments and the carried arrival back, or start anew with episodes not seen before."""
    if not content.state["has_environments"]:
        trainer.rollout.start(derive(trainer.config.base.seed, "restart", trainer.epoch))
        return False
    trainer.rollout.start(trainer.config.base.seed)
    blobs = {name: array.numpy().tobytes() for name, array in content.section("env").items()}
    trainer.vector.load(blobs)
    trainer.rollout.set_carry(content.section("carry"))
    return True


def config_hash(config: Config) -> str:
    """Return a short hash of what shapes learning: environment, network and training options."""
    parts = (sorted(config.env.items()), config.policy, config.train)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _generators(trainer: PuffeRL) -> dict[str, torch.Generator]:
    return {"actions": trainer.rollout.generator, "replay": trainer.replay.generator}


def _tensor(blob: bytes) -> Tensor:
    array: Any = np.frombuffer(blob, np.uint8).copy()
    return torch.from_numpy(array)
