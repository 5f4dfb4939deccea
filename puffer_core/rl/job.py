"""The torch trainer as a plugin sees it: whether it can do a job, and how it is put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from puffer_core.errors import EnvError, OptionError, shortened
from puffer_core.place import place
from puffer_core.policies import ActionLayout, make_policy
from puffer_core.policies.choice import choose_encoder
from puffer_core.policies.module import adapt_to
from puffer_core.policies.typed import agent_types
from puffer_core.rl import ranks
from puffer_core.rl.network import COMPILERS, lacks_compiler
from puffer_core.rl.streams import generator
from puffer_core.rl.trainer import PuffeRL
from puffer_core.vector import open_vector
from puffer_core.vector.generators import seed_globals
from puffer_core.vector.native import cores

if TYPE_CHECKING:
    from puffer_core.config.plan import Plan
    from puffer_core.specs import Job


def supports(job: Job) -> str | None:
    """Return None if this trainer can do ``job``, else the reason why not."""
    train = job.config.train
    if reason := _lacks(job.device):
        return f"train.device={shortened(job.device)}: {reason}"
    if train.precision != "float32" and torch.device(job.device).type not in ("cpu", "cuda"):
        return f"train.precision={train.precision}: on {job.device} it computes in float32"
    if train.compile and (reason := _compiles_nothing(job)):
        return f"train.compile: {reason}"
    if job.policy is not None and job.config.policy.parameters != "shared":
        return f"policy.parameters={job.config.policy.parameters}: a network of your own is one for all agents"
    try:
        ActionLayout.from_space(job.action_space, job.config.policy.box)
    except (EnvError, OptionError) as error:
        return str(error)
    return None


def _compiles_nothing(job: Job) -> str | None:
    """Return why `torch.compile` would be of no use, or None."""
    if job.policy is None and choose_encoder(job.config.policy, job.observation_space).name == "mlp":
        return "the network `mlp` has nothing to compile, its passes are written by hand"
    if torch.device(job.device).type == "cpu" and lacks_compiler():
        return f"torch.compile needs a C++ compiler, and neither $CXX nor {', '.join(COMPILERS)} is on PATH"
    return None


def _lacks(name: str) -> str | None:
    """Return why torch can't compute on the device called ``name``, or None."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        return "torch knows no such device; use cpu, cuda or cuda:N"
    if device.type == "cuda":
        if not torch.cuda.is_available():
            return "torch finds no GPU here"
        count = torch.cuda.device_count()
        return None if (device.index or 0) < count else f"torch finds {count} GPUs here, counted from 0"
    return None if device.type in ("cpu", "mps") and _holds(device) else "torch can't compute on it here"


def _holds(device: torch.device) -> bool:
    try:
        torch.zeros(1, device=device).add_(1)
    except (RuntimeError, AssertionError):
        return False
    return True


def make(job: Job, plan: Plan) -> PuffeRL:
    """Open the vector, build the network and return the trainer."""
    config = job.config
    before = place().rank * plan.num_envs
    seed_globals(config.base.seed, before)  # for environments and policies that draw from them
    vector = open_vector(config, job.env, name=job.env_name, num_envs=plan.num_envs, first_index=before)
    try:
        options = config.options_of(choose_encoder(config.policy, job.observation_space).name)
        weights = generator(config.base.seed, "policy")
        policy: Any
        if job.policy is None:
            kinds = agent_types(config.policy.parameters, vector)
            policy = make_policy(config.policy, job.observation_space, job.action_space, weights, options, kinds)
        else:
            policy = adapt_to(vector, job.policy, config.policy, weights)
        threads = cores() if config.vec.num_threads == "auto" else config.vec.num_threads
        threads = max(1, threads // place().local_world_size)
        group = ranks.join(job.device)  # after workers were forked, which would keep its connections open
        return PuffeRL(config, vector, policy.to(job.device), plan, device=job.device, threads=threads, ranks=group)
    except BaseException:
        vector.close()
        raise
