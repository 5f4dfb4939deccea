"""What a checkpoint of `PuffeRL` holds, and how a trainer goes on from one.

With the environments restored, everything that follows is bit-equal to a run that was never stopped: weights,
optimiser, generators, the carried arrival with the recurrent state, and metrics not yet reported are all here.
Schedules are functions of the epoch. What a checkpoint lacks is told by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from puffer_core.config.schema import PolicyConfig
from puffer_core.errors import EnvError, RunError
from puffer_core.policies.choice import choose_encoder
from puffer_core.policies.module import module_name
from puffer_core.rl import checkpoint, global_random, rank_state
from puffer_core.rl.checkpoint import Checkpoint
from puffer_core.rl.means import Means
from puffer_core.rl.pool import Pool
from puffer_core.rl.streams import derive, environment_seed, generator

if TYPE_CHECKING:
    from puffer_core.rl.trainer import PuffeRL

ENVIRONMENTS = "the environments: their state can't be saved, and they begin anew"
COUNTERS = ("global_step", "epoch", "gradient_steps", "skipped_updates", "episodes", "is_started")


def save(trainer: PuffeRL, path: Path) -> None:
    """Write the whole state of ``trainer`` to the folder ``path``."""
    content = capture(trainer)
    others = rank_state.gather(trainer.ranks, content)
    if trainer.ranks.is_first:
        checkpoint.write(path, content, others)


def capture(trainer: PuffeRL) -> Checkpoint:
    """Return the whole state of ``trainer``."""
    saved = trainer.vector.save() if trainer.is_started else None
    arrays = {f"optimizer.{name}": array for name, array in trainer.optimizer.state_dict().items()}
    arrays |= {f"carry.{name}": array for name, array in trainer.rollout.carry().items()}
    arrays |= {f"generator.{name}": source.get_state() for name, source in _generators(trainer).items()}
    arrays |= {f"global.{name}": array for name, array in global_random.capture(trainer.rollout.values.device).items()}
    arrays |= {f"env.{name}": _tensor(blob) for name, blob in (saved or {}).items()}
    pool = None if trainer.selfplay is None else trainer.selfplay.pool
    arrays |= {} if pool is None else {f"pool.{name}": tensor for name, tensor in pool.weights().items()}
    state = {
        **{name: getattr(trainer, name) for name in COUNTERS},
        **_layout(trainer),
        "total_epochs": trainer.total_epochs,
        "world_size": trainer.ranks.world_size,
        "seed": trainer.config.base.seed,
        "optimizer": {"name": trainer.config.train.optimizer, "steps": trainer.optimizer.steps},
        "has_environments": saved is not None,
        "means": {"environment": trainer.environment.state(), "losses": trainer.losses.state()},
        **({} if pool is None else {"selfplay": pool.state()}),
    }
    return Checkpoint(checkpoint.plain(trainer.policy).state_dict(), arrays, state)


def load(trainer: PuffeRL, path: Path) -> tuple[str, ...]:
    """Make ``trainer`` go on from the folder ``path``; return what could not be restored, by name.

    Raises:
        RunError: If the checkpoint is damaged, or the network, the optimiser or the rows differ; what was learnt by
            ``trainer`` is then untouched.
    """
    content, lost = _read(trainer, path)
    state = content.state
    environment, losses = _require_fit(trainer, content, path)
    pool = _pool(trainer, content, path)
    lost += _restore_environments(trainer, content) if state["is_started"] else []
    checkpoint.load_model(trainer.policy, content.model, path)
    if trainer.selfplay is not None and pool is not None:
        trainer.selfplay.pool = pool
    trainer.optimizer.load_state_dict(content.section("optimizer"), state["optimizer"]["steps"])
    for name, source in _generators(trainer).items():
        source.set_state(content.section("generator")[name])
    for name in COUNTERS:
        setattr(trainer, name, state[name])
    trainer.environment, trainer.losses = environment, losses
    if unknown := global_random.restore(content.section("global"), trainer.rollout.values.device):
        lost.append(f"the global random generators of {', '.join(unknown)}: they go on from where they are")
    return tuple(lost)


def _read(trainer: PuffeRL, path: Path) -> tuple[Checkpoint, list[str]]:
    """Return a checkpoint as this rank goes on from it, and what it lacks."""
    content, ranks = checkpoint.read(path), trainer.ranks
    there = content.state.get("world_size", 1)
    if there == ranks.world_size:
        return rank_state.read(ranks, content, path), []
    state = rank_state.rescaled(content.state, ranks.world_size, trainer.total_epochs)
    # Those of rank 0 are of no other rank, and rank 0 is to go on with new environments, too.
    arrays = {name: array for name, array in content.arrays.items() if not name.startswith("global.")}
    anew = derive(trainer.config.base.seed, "restart", state["epoch"])
    arrays |= {f"generator.{name}": generator(anew, name, ranks.rank).get_state() for name in _generators(trainer)}
    lost = [f"the environments: {there} processes saved it, {ranks.world_size} go on"]
    return Checkpoint(content.model, arrays, state), lost


def _layout(trainer: PuffeRL) -> dict[str, Any]:
    """Return what a checkpoint and the trainer that goes on from it must have in common."""
    config = trainer.config
    policy = choose_encoder(config.policy, trainer.vector.single_observation_space)
    plain = checkpoint.plain(trainer.policy)
    module, types = module_name(plain), getattr(plain, "agent_types", ())
    named = {"module": module, "agent_types": list(types)}
    return {
        "horizon": trainer.rollout.horizon,
        "policy": asdict(policy) | {key: value for key, value in named.items() if value},
        "policy_options": checkpoint.describe_options(config.options_of(policy.name)),
        "observation_space": checkpoint.describe_space(trainer.vector.single_observation_space),
        "action_space": checkpoint.describe_space(trainer.vector.single_action_space),
    }


def _require_fit(trainer: PuffeRL, content: Checkpoint, path: Path) -> tuple[Means, Means]:
    """Check everything that can be checked before anything is changed; return the metrics not yet reported."""
    state, wanted = content.state, trainer.config.train.optimizer
    if state["optimizer"]["name"] != wanted:
        msg = f"{path} was trained with {state['optimizer']['name']}, not with train.optimizer={wanted}"
        raise RunError(msg, hint=f"train.optimizer={state['optimizer']['name']}, or start a new run")
    own, here = state["policy"].get("module"), module_name(checkpoint.plain(trainer.policy))
    if own and own != here:
        msg = f"{path} was trained with a policy of its own, the class `{own}`, not with {here or 'a built-in network'}"
        raise RunError(msg, hint=f"go on from Python: puffer_core.train(env, resume=RUN, policy={own})")
    checkpoint.require_fit(trainer.policy, content.model, path)
    trainer.optimizer.require_fit(content.section("optimizer"))
    _require_length(trainer, state, path)
    for key, here in _layout(trainer).items():
        # A key of the network that is newer than the checkpoint had its default.
        there = {**asdict(PolicyConfig()), **state[key]} if key == "policy" else state[key]
        if json.dumps(there, sort_keys=True) != json.dumps(here, sort_keys=True):
            msg = f"{path} does not fit this run: `{key}` is {there} there, {here} here"
            raise RunError(msg, hint="was config.ini of the run, or its environment, changed since it was started?")
    if state["has_environments"]:
        trainer.rollout.require_fit(content.section("carry"))
    environment, losses = Means(), Means()
    try:
        environment.restore(state["means"]["environment"])
        losses.restore(state["means"]["losses"])
        for name in _generators(trainer):
            torch.Generator().set_state(content.section("generator")[name])
        global_random.check(content.section("global"))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunError(f"the checkpoint {path} is damaged: {error}") from error
    return environment, losses


def _pool(trainer: PuffeRL, content: Checkpoint, path: Path) -> Pool | None:
    """Return the opponents that a checkpoint holds; None without self-play."""
    if trainer.selfplay is None:
        return None
    try:
        state, weights = content.state["selfplay"], content.section("pool")
        return trainer.selfplay.pool.restored(state, weights, checkpoint.plain(trainer.policy), path)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"the checkpoint {path} is damaged: {error!r} of the pool of self-play") from error


def _require_length(trainer: PuffeRL, state: Mapping[str, Any], path: Path) -> None:
    """Check that the run has as many epochs as when it was saved, unless somebody has decided about its schedules."""
    there, here = state["total_epochs"], trainer.total_epochs
    if there != here and not trainer.config.train.schedule_timesteps:
        msg = f"{path} does not fit this run: `total_epochs` is {there} there, {here} here"
        raise RunError(msg, hint="--train.total-timesteps with --resume-schedule stretch or keep changes it")
    if state["epoch"] > here:
        msg = f"{path} is at epoch {state['epoch']:,}, behind the end of this run: {here:,} epochs"
        raise RunError(msg, hint="give a larger --train.total-timesteps, or resume from an older checkpoint")


def _restore_environments(trainer: PuffeRL, content: Checkpoint) -> list[str]:
    """Put the environments and the carried arrival back; where that fails, begin with episodes not seen before."""
    seed = trainer.config.base.seed
    lost = [] if content.state["has_environments"] else [ENVIRONMENTS]
    if not lost:
        trainer.rollout.start(environment_seed(seed))
        blobs = {name: array.numpy().tobytes() for name, array in content.section("env").items()}
        try:
            trainer.vector.load(blobs)
        except EnvError as error:  # as of a state that another version of the environment has saved
            lost = [f"the environments: {error}; they begin anew"]
    if lost:
        trainer.rollout.start(environment_seed(derive(seed, "restart", content.state["epoch"])))
    else:
        trainer.rollout.set_carry(content.section("carry"))
    return lost


def _generators(trainer: PuffeRL) -> dict[str, torch.Generator]:
    own = {"actions": trainer.rollout.generator, "replay": trainer.replay.generator}
    return own if trainer.selfplay is None else {**own, "opponents": trainer.selfplay.generator}


def _tensor(blob: bytes) -> Tensor:
    array: Any = np.frombuffer(blob, np.uint8).copy()
    return torch.from_numpy(array)
