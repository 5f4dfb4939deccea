"""What one environment object takes in the arrays of a vector: decided by the first that is opened, for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from puffer_core.env import Layout, PufferEnv, Space, layout_of
from puffer_core.errors import EnvError
from puffer_core.native import NativeEnv
from puffer_core.vector.logs import EPISODE_FIELDS
from puffer_core.vector.source import Source

_COMPARED = (
    "single_observation_space",
    "single_action_space",
    "num_agents",
    "has_action_mask",
    "log_fields",
    "agent_types",
)


@dataclass(frozen=True)
class Rows:
    """The shape of one environment object among others of its kind.

    Attributes:
        single_observation_space, single_action_space: Of one agent.
        num_agents: Rows of one object.
        num_instances: Instances in one object: 1 for Python, ``num_envs`` for an environment in C.
        has_action_mask: Whether it writes `action_mask`.
        log_fields: What it logs itself; empty where `EpisodeStats` keeps the log for it.
        agent_types: As in `PufferEnv`.
    """

    single_observation_space: Space
    single_action_space: Space
    num_agents: int
    num_instances: int
    has_action_mask: bool
    log_fields: tuple[str, ...]
    agent_types: tuple[int, ...] = ()

    @classmethod
    def of(cls, env: PufferEnv) -> Rows:
        """Return the rows of an environment that is open."""
        return cls(
            env.single_observation_space,
            env.single_action_space,
            int(env.num_agents),
            int(env.num_instances),
            bool(env.has_action_mask),
            tuple(env.log_fields),
            _agent_types(env),
        )

    @classmethod
    def of_source(cls, source: Source, timeout: float | None = None) -> Rows:
        """Return the rows of an environment, opened and closed for it unless it is open already.

        Args:
            source: The environment.
            timeout: Seconds that this may take; None is what the source has.

        Raises:
            WorkerError: If it takes longer.
        """
        source = source if timeout is None else replace(source, timeout=timeout)
        table, instances = source.table, source.instances
        env = source.open_to_look() if table is None else NativeEnv(table, source.params, num_envs=instances)
        rows = cls.of(env)
        source.close_opened(env)
        return rows

    @property
    def agents_per_env(self) -> int:
        """Rows of one instance."""
        return self.num_agents // self.num_instances

    @property
    def is_unlogged(self) -> bool:
        """Whether the vector keeps the log, since the environment has none."""
        return not self.log_fields

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the vector's log."""
        return self.log_fields or EPISODE_FIELDS

    def layout(self, objects: int) -> Layout:
        """Return shape and dtype of every array of a vector of that many objects, ``log`` and ``logged`` included."""
        rows = self.num_agents * objects
        layout = layout_of(self, rows)
        layout["log"] = ((rows, len(self.columns)), np.float32)
        layout["logged"] = ((rows,), np.bool_)
        return layout

    def require_same(self, env: PufferEnv | Rows, position: int, owner: str) -> None:
        """Refuse an environment that does not fit into arrays of this kind."""
        env = env if isinstance(env, Rows) else Rows.of(env)
        for name in _COMPARED:
            if getattr(env, name) != getattr(self, name):
                msg = f"environment {position} has {name} {getattr(env, name)}, the first has {getattr(self, name)}"
                raise EnvError(f"{owner}: {msg}")


def _agent_types(env: PufferEnv) -> tuple[int, ...]:
    """Return the types that an environment declares.

    Raises:
        EnvError: If they are not one integer of at least 0 for each agent.
    """
    types = tuple(getattr(env, "agent_types", ()))
    are_counts = all(isinstance(kind, int | np.integer) and kind >= 0 for kind in types)
    if types and not (are_counts and len(types) == env.num_agents):
        msg = f"{type(env).__name__}: agent_types={types} is not one integer of at least 0 for each of "
        raise EnvError(f"{msg}{env.num_agents} agents", hint="leave it empty where all are of one type")
    return tuple(int(kind) for kind in types)
