"""The torch trainer as a plugin sees it: whether it can do a job, and how it is put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from puffer_core.errors import EnvError
from puffer_core.policies import ActionLayout, make_policy
from puffer_core.rl.streams import generator
from puffer_core.rl.trainer import PuffeRL
from puffer_core.vector import open_vector
from puffer_core.vector.native import cores

if TYPE_CHECKING:
    from puffer_core.config.plan import Plan
    from puffer_core.specs import Job


def supports(job: Job) -> str | None:
    """Return None if this trainer can do ``job``, else the reason why not."""
    train = job.config.train
    if train.precision != "float32":
        return f"train.precision={train.precision}: it computes in float32"
    if train.compile:
        return "train.compile: the built-in networks have hand-written passes that torch.compile can't take"
    if job.device.startswith("cuda") and not torch.cuda.is_available():
        return f"train.device={job.device}: torch finds no GPU here"
    try:
        ActionLayout.from_space(job.action_space)
    except EnvError as error:
        return str(error)
    return None


def make(job: Job, plan: Plan) -> PuffeRL:
    """Open the vector, build the network and return the trainer."""
    config = job.config
    vector = open_vector(config, job.env, name=job.env_name, num_envs=plan.num_envs)
    try:
        options = config.options_of(config.policy.name)
        weights = generator(config.base.seed, "policy")
        policy = make_policy(config.policy, job.observation_space, job.action_space, weights, options)
        threads = cores() if config.vec.num_threads == "auto" else config.vec.num_threads
        return PuffeRL(config, vector, policy.to(job.device), plan, device=job.device, threads=threads)
    except BaseException:
        vector.close()
        raise
