"""One agent: environments of Gymnasium, of Gym and its older forms, and plain classes, as a `PufferEnv`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, Tuple

from puffer_core.emulation import saving
from puffer_core.emulation.forms import accepts
from puffer_core.emulation.making import made
from puffer_core.emulation.rendering import render
from puffer_core.emulation.spaces import action_codec, observation_codec
from puffer_core.emulation.values import LARGEST, ActionReader, BoxWriter, CodecWriter, refusal, to_flag, to_number
from puffer_core.env import Array, PufferEnv, Space, Step, put_actions
from puffer_core.errors import EnvError, UsageError

Info: TypeAlias = dict[str, Any]

_NEW, _RUNNING, _CLOSED = range(3)
_MISTAKES = {_NEW: "reset before stepping", _CLOSED: "used after close"}


class GymnasiumPufferEnv(PufferEnv):
    """One agent around an environment that has `observation_space` and `action_space`.

    Its ``reset`` returns an observation or (observation, info), its ``step`` four values (observation, reward, done,
    info) or five (observation, reward, terminated, truncated, info): which, is told from what it returns. It never
    resets itself: that is done here, in the same step. Where both flags come, the end of the task counts. Of four
    values, an end is a truncation where the info says ``TimeLimit.truncated``, or else a ``discount`` of 1.

    Observations other than a Box become flat rows, actions are made of rows (`puffer_core.emulation.spaces`).
    Continuous actions are clipped to their bounds before the environment gets them.

    Args:
        env: The environment.
        env_creator: A class or factory of one instead, called with ``env_args`` and ``env_kwargs``.
        env_args: For ``env_creator``.
        env_kwargs: For ``env_creator``.
        buf: Arrays to use, as in `PufferEnv`.
        seed: Of the first `reset` that is given none.

    Attributes:
        env: The environment.
        kind: Its class, without wrappers.
        writer: Writes its observations.
        reader: Reads rows of actions.
        takes_seed: Whether a seed reaches it.

    Raises:
        OptionError: If not exactly one of ``env`` and ``env_creator`` is given, or ``env`` is none.
        EnvError: If a space is not supported.
    """

    is_adapter = True

    def __init__(
        self,
        env: Any = None,
        env_creator: Callable[..., Any] | None = None,
        env_args: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        buf: Mapping[str, Array] | None = None,
        seed: int | None = None,
    ) -> None:
        self.env = env = _single(made(env, env_creator, env_args, env_kwargs))
        self.kind = type(getattr(env, "unwrapped", env))
        self._name = self.kind.__name__
        self._seed, self._phase = seed, _NEW
        original, codec = self._translate("observation", observation_codec)
        self.single_observation_space = codec.space
        # Such an observation looks like (observation, info).
        self._looks_informed = isinstance(original, Tuple) and len(original) == 2 and original
        self.writer = BoxWriter(self._name, codec.space) if codec.is_identity else CodecWriter(self._name, codec)
        _, actions = self._translate("action", action_codec)
        self.single_action_space = actions.space
        self.reader = ActionReader(self._name, actions, _integer_of(env))
        self._seeding = _Seeding(env)
        self.num_agents = 1
        super().__init__(buf)

    def _translate(self, kind: str, make_codec: Callable[[Space], Any]) -> tuple[Space, Any]:
        """Return one of the environment's spaces and its codec."""
        space = getattr(self.env, f"{kind}_space")
        try:
            if not isinstance(space, gymnasium.Space):
                from puffer_core.emulation.gym import convert_space

                space = convert_space(space)
            return space, make_codec(space)
        except EnvError as error:
            raise EnvError(f"{self._name}: {kind}_space: {error}", hint=error.hint) from error

    def move(self, buf: Mapping[str, Array]) -> None:
        """Go on in other arrays, as in `PufferEnv`."""
        self._bind(buf)

    def _bind(self, buf: Mapping[str, Array] | None = None) -> None:
        super()._bind(buf)
        both = (rows[0:1].reshape(rows.shape[1:]) for rows in (self.observations, self.final_observations))
        self._put, self._put_final = (self.writer.bind(row) for row in both)

    @property
    def takes_seed(self) -> bool:
        """Whether a seed reaches the environment."""
        return self._seeding.way != ""

    # -- episodes -----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[Info]]:
        """Start a new episode; seed and index are added where the environment takes a seed."""
        if self._phase == _CLOSED:
            self._refuse()
        seed, self._seed = self._seed if seed is None else seed, None
        info = self._begin(self._seeding.reset(None if seed is None else seed + index))
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        self._phase = _RUNNING
        return self.observations, [info] if info else []

    def step(self, actions: Array) -> Step:
        """Advance the agent, and start the next episode where this one ended.

        Args:
            actions: One row; see `PufferEnv.actions`.
        """
        if self._phase != _RUNNING:
            self._refuse()
        if actions is not self.actions:
            put_actions(actions, self.actions, self._name)
        info = self.take(self.env.step(self.reader(self.actions)[0]))
        return self.observations, self.rewards, self.terminals, self.truncations, [info] if info else []

    def take(self, result: Any) -> Info:
        """Write what the environment's ``step`` returned, start the next episode at an end, and return the info.

        Raises:
            EnvError: If a value is of the wrong kind; the text names it.
        """
        if not isinstance(result, tuple | list) or len(result) not in (4, 5):
            found = f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__
            raise EnvError(f"{self._name}: step returned {found}, not 4 or 5 values")
        observation, reward, info = result[0], result[1], self.as_info(result[-1])
        if type(reward) is not float or not -LARGEST <= reward <= LARGEST:
            reward = to_number(self._name, "reward", reward)
        if len(result) == 5:
            terminal = to_flag(self._name, "terminated", result[2])
            truncated = to_flag(self._name, "truncated", result[3]) and not terminal
        else:
            done = to_flag(self._name, "done", result[2])
            truncated = done and _was_cut(info)
            terminal = done and not truncated
        self.rewards[0], self.terminals[0], self.truncations[0] = reward, terminal, truncated
        if terminal or truncated:
            self._put_final(observation)
            self.restart()
        else:
            self._put(observation)
        return info

    def restart(self) -> None:
        """Start the next episode after an end, and write its first observation."""
        if self.before_restart is not None:
            self.before_restart()
        self._begin(self.env.reset())

    def _begin(self, result: Any) -> Info:
        """Write what the environment's ``reset`` returned, and return the info."""
        is_pair = type(result) is tuple and len(result) == 2 and isinstance(result[1], dict)
        if is_pair and not (self._looks_informed and self._looks_informed.contains(result)):
            self._put(result[0])
            return dict(result[1])
        self._put(result)
        return {}

    def as_info(self, info: Any) -> Info:
        """Return an info as a dict.

        Raises:
            EnvError: If it is none.
        """
        if info is None:
            return {}
        if type(info) is dict:
            return info
        if not isinstance(info, Mapping):
            raise refusal(self._name, "info", info, "a dict")
        return dict(info)

    def _refuse(self) -> None:
        raise UsageError(f"{self._name}: {_MISTAKES[self._phase]}")

    # -- the rest -----------------------------------------------------------------------------------------------------

    def render(self, mode: str | None = None) -> Any:
        """Return a picture, (H, W, 3) uint8, or a text: ``rgb_array`` or ``ansi``."""
        return render(self.env, mode)

    def set_params(self, **values: Any) -> None:
        """Pass parameters on, where the environment takes them."""
        if not hasattr(self.env, "set_params"):
            super().set_params(**values)
        self.env.set_params(**values)

    def save(self) -> bytes | None:
        """Return the state and the observation, where the environment can be saved (`puffer_core.emulation.saving`)."""
        blob = saving.save(self.env)
        return None if blob is None else self.observations.tobytes() + blob

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned."""
        size = self.observations.nbytes
        if len(blob) < size or not saving.load(self.env, blob[size:]):
            super().load(blob)
        self.observations.reshape(-1).view("u1")[:] = memoryview(blob)[:size]
        self._phase = _RUNNING

    def close(self) -> None:
        """Close the environment, where it can be closed; calling it twice is allowed."""
        if self._phase != _CLOSED and hasattr(self.env, "close"):
            self.env.close()
        self._phase = _CLOSED


class _Seeding:
    """How a seed reaches an environment.

    Attributes:
        way: ``reset`` takes it, the method ``seed`` does, or (empty) nothing.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        inner = env
        # Wrappers take anything; what counts is whom they pass it to.
        while not accepts(inner.reset, "seed", in_kwargs=False) and accepts(inner.reset, "seed"):
            if not hasattr(inner, "env"):
                break
            inner = inner.env
        self.way = "reset" if accepts(inner.reset, "seed") else self._other_way()

    def _other_way(self) -> str:
        return "seed" if callable(getattr(self._env, "seed", None)) else ""

    def reset(self, seed: int | None) -> Any:
        """Call the environment's ``reset``, seeded where that is possible, and return what it returns."""
        if seed is not None and self.way == "reset":
            try:
                return self._env.reset(seed=seed)
            except TypeError as error:
                if "unexpected keyword argument 'seed'" not in str(error):
                    raise
                self.way = self._other_way()
                if not self.way:
                    warnings.warn(f"{type(self._env).__name__} takes no seed: its episodes differ", stacklevel=4)
        if seed is not None and self.way == "seed":
            self._env.seed(seed)
        return self._env.reset()


def _single(env: Any) -> Any:
    """Return an environment, which has all that one of one agent needs."""
    for name in ("observation_space", "action_space", "reset", "step"):
        if not hasattr(env, name):
            raise EnvError(f"{type(env).__name__} has no {name}: it is no environment of one agent")
    return env


def _integer_of(env: Any) -> Callable[[int], Any]:
    """Return the type of a discrete action: what sampling gives, for an environment of Gymnasium."""
    if isinstance(env, gymnasium.Env) and isinstance(env.action_space, Discrete):
        return np.dtype(env.action_space.dtype).type
    return int


def _was_cut(info: Info) -> bool:
    """Return whether an end that came in four values was one of time only."""
    if "TimeLimit.truncated" in info:
        return bool(info["TimeLimit.truncated"])
    return bool(info.get("discount") == 1)
