"""Wrappers of single environments, for what depends on the ends and resets of one: they are put around each object.

They take environments in Python; those in C have parameters of their own for it, and step without Python.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar

import numpy as np

from puffer_core.emulation.forms import call_with
from puffer_core.env import BUFFERS, DECLARED, Array, PufferEnv, Step
from puffer_core.errors import EnvError, OptionError
from puffer_core.vector.infos import as_infos, is_number
from puffer_core.vector.seeds import Seeding

Info = dict[str, Any]
_FIXED = (*DECLARED, "log_fields", "has_action_mask", "num_envs", "agent_types", "is_adapter")
_LAST = ("score", "perf")
"""What infos say of the episode so far: the last value is that of the episode."""


class EnvWrapper(PufferEnv):
    """Another environment, in its own arrays.

    An episode of the environment ends where every agent that was still there ends.

    Args:
        env: The environment inside.
    """

    key: ClassVar[str]
    """Its key in ``[wrap]``."""

    def __init__(self, env: PufferEnv) -> None:
        # The arrays are those of the environment inside, so the constructor that makes some is left out.
        self.env = env
        for name in (*_FIXED, *BUFFERS):
            setattr(self, name, getattr(env, name, None))
        self._seeding = Seeding(env)
        self.takes_seed = self._seeding.takes_seed
        self._before: Array | None = None

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[Info]]:
        """Start a new episode, seeded as the environment inside takes it."""
        self._begin()
        result: Any = self.env.reset(**self._seeding.arguments(seed, index))
        infos = result[1] if isinstance(result, tuple) and len(result) == 2 else []
        return self.observations, as_infos(infos, self.env, "reset")

    def _begin(self) -> None:
        """Forget the last episode."""

    def _clear(self) -> None:
        """Rewards and flags are of one step: what a vector does before each."""
        for array in (self.rewards, self.terminals, self.truncations, self.logged):
            if array is not None:
                array.fill(0)

    @property
    def unwrapped(self) -> PufferEnv:
        """The environment without wrappers."""
        return self.env.unwrapped if isinstance(self.env, EnvWrapper) else self.env

    def watch(self, before: Array) -> None:
        """Keep ``before`` at the observations before the last step of the environment, where more than one is taken."""
        self._before = before
        if isinstance(self.env, EnvWrapper):
            self.env.watch(before)

    def close(self) -> None:
        """Close the environment inside."""
        self.env.close()

    def render(self, mode: str | None = None, index: int = 0) -> Any:
        """Return what the environment inside renders."""
        return call_with(self.env.render, mode=mode, index=index)

    def set_params(self, **values: Any) -> None:
        """Change parameters of the environment inside."""
        self.env.set_params(**values)

    def _pack(self) -> bytes:
        """Return the wrapper's own state; always of one size."""
        return b""

    def _unpack(self, state: bytes) -> None:
        """Restore what `_pack` returned."""

    def save(self) -> bytes | None:
        """Return the state of the wrapper and of the environment inside, or None where that can't be saved."""
        blob = self.env.save()
        return None if blob is None else self._pack() + blob

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned."""
        size = len(self._pack())
        if len(blob) < size:
            raise EnvError(f"the saved state has {len(blob)} bytes, and the wrapper {self.key} alone has {size}")
        self.env.load(blob[size:])
        self._unpack(blob[:size])


def refusal(wrapper: EnvWrapper, found: str, hint: str) -> OptionError:
    """Return the error for an environment that a wrapper can't go around."""
    kind = type(wrapper.unwrapped).__name__
    return OptionError(f"wrap.{wrapper.key} can't be applied to {kind}: {found}", hint=hint)


def require_one_instance(wrapper: EnvWrapper) -> None:
    """Refuse an environment object that is several instances.

    Raises:
        OptionError: With the way out.
    """
    if wrapper.num_instances > 1:
        found = f"its {wrapper.num_instances} instances end by themselves"
        raise refusal(wrapper, found, "put the wrapper around each of them, before they are one object")


class ActionRepeat(EnvWrapper):
    """Every action is taken ``count`` times; rewards are summed, the last observation and infos are shown.

    As soon as an agent ends, comes, goes or is logged, the rest of the step is left out, for all agents.

    Args:
        env: The environment inside.
        count: How often.

    Raises:
        OptionError: If the environment is several instances: an end of one would cut the step of all.
    """

    key: ClassVar[str] = "action_repeat"

    def __init__(self, env: PufferEnv, count: int) -> None:
        super().__init__(env)
        require_one_instance(self)
        self._count = count
        self._total = np.zeros_like(self.rewards)

    def step(self, actions: Array) -> Step:
        """Advance every agent by up to ``count`` steps of the environment inside."""
        there = self.masks.copy()
        self._total.fill(0)
        for i in range(self._count):
            if i:
                self._clear()
                if self._before is not None:
                    self._before[...] = self.observations
            result = self.env.step(actions)
            self._total += self.rewards
            if self._is_cut(there):
                break
        self.rewards[:] = self._total
        return result

    def _is_cut(self, there: Array) -> bool:
        ended = bool((self.terminals | self.truncations | (self.masks != there)).any())
        return ended or (self.logged is not None and bool(self.logged.any()))


class EpisodeEnvWrapper(EnvWrapper):
    """A wrapper that counts by episode of the whole environment: all of its agents begin one together.

    An agent may leave before the others, and come in later. Where one ends, is still there and so begins the next
    episode while others go on, there is no episode to count by.

    Raises:
        OptionError: If the environment is several instances; in ``step``, if its agents begin episodes by themselves.
    """

    def __init__(self, env: PufferEnv) -> None:
        super().__init__(env)
        require_one_instance(self)

    def _goes_on(self, there: Array) -> Array:
        """Return (N,) bool: agents that were ``there`` before the step and whose episode goes on behind it."""
        ended = self.terminals | self.truncations
        going: Array = there & ~ended
        if self.num_agents > 1 and going.any() and (ended & there & self.masks).any():
            row = int(np.argmax(ended & there & self.masks))
            raise refusal(
                self,
                f"agent {row} ended and began an episode while others went on",
                "let agents that end be absent (masks) until all have, or leave the wrapper out",
            )
        return going


class TimeLimit(EpisodeEnvWrapper):
    """Episodes are truncated after ``limit`` steps: all agents that are there then, and the environment is reset.

    Args:
        env: The environment inside; the vector keeps its log, since only the environment could log an episode cut.
        limit: Steps.

    Raises:
        OptionError: If the environment has log fields of its own, or as in `EpisodeEnvWrapper`.
    """

    key: ClassVar[str] = "time_limit"

    def __init__(self, env: PufferEnv, limit: int) -> None:
        super().__init__(env)
        if self.log_fields:
            kind = type(env).__name__
            msg = f"wrap.time_limit={limit} can't be applied to {kind}: it logs {', '.join(self.log_fields)} itself"
            raise OptionError(msg, hint="give the environment a parameter for it, so that it can log what is cut")
        self._limit, self._steps = limit, 0

    def _begin(self) -> None:
        self._steps = 0

    def step(self, actions: Array) -> Step:
        """Advance every agent by one step, and cut the episode that gets too long."""
        there = self.masks.copy()
        result = self.env.step(actions)
        self._steps += 1
        going = self._goes_on(there)
        if not going.any():
            self._steps = 0
        elif self._steps >= self._limit:
            self._cut(going & self.masks)
        return result

    def _cut(self, rows: Array) -> None:
        """Truncate the agents of these rows and begin the next episode."""
        self.final_observations[rows] = self.observations[rows]
        kept = [(array, array.copy()) for array in (self.final_observations, self.rewards, self.terminals)]
        truncations = self.truncations | rows
        if self.before_restart is not None:
            self.before_restart()
        self.reset()
        for array, values in kept:
            array[...] = values
        self.truncations[:] = truncations

    def _pack(self) -> bytes:
        return struct.pack("<q", self._steps)

    def _unpack(self, state: bytes) -> None:
        (self._steps,) = struct.unpack("<q", state)


class EpisodeStats(EpisodeEnvWrapper):
    """Infos of episodes in place of infos of steps: empty but where an episode of the environment ends.

    That info holds ``episode_return`` (the mean over agents), ``episode_length`` (steps), and of every key that infos
    had in the episode the sum, if it is a number, else the last value; of ``score`` and ``perf`` the last as well.

    Args:
        env: The environment inside.
    """

    key: ClassVar[str] = "episode_stats"

    def __init__(self, env: PufferEnv, value: bool = True) -> None:
        super().__init__(env)
        self._begin()

    def _begin(self) -> None:
        self._return, self._length, self._info = 0.0, 0, dict[str, Any]()

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[Info]]:
        """Start a new episode; the infos of a reset are left out."""
        return super().reset(seed, index)[0], []

    def step(self, actions: Array) -> Step:
        """Advance every agent by one step."""
        there = self.masks.copy()
        *arrays, infos = self.env.step(actions)
        self._return += float(self.rewards.sum(dtype=np.float64)) / self.num_agents
        self._length += 1
        for info in as_infos(infos, self.env, "step"):
            self._add(info)
        told: list[Info] = []
        if not self._goes_on(there).any():
            told = [{**self._info, "episode_return": self._return, "episode_length": self._length}]
            self._begin()
        observations, rewards, terminals, truncations = arrays
        return observations, rewards, terminals, truncations, told

    def _add(self, info: Info) -> None:
        for key, value in info.items():
            is_summed = key not in _LAST and is_number(value)
            self._info[key] = self._info.get(key, 0.0) + float(value) if is_summed else value

    def save(self) -> None:
        """Return None: infos may hold anything."""
