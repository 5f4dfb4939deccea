"""What all checks stand on: how the environment under test is made, seeded and played, and how a breach is told.

The checks need no pytest. A breach is an `AssertionError` that says what was found, where, at which step, and how to
mend it; what is allowed but will surprise is a `ContractWarning`.
"""

from __future__ import annotations

import hashlib
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import Any

import numpy as np

import puffer_core
from puffer_core.emulation.forms import accepts, is_pettingzoo, is_puffer, is_single
from puffer_core.env import Array, PufferEnv, Step
from puffer_core.errors import PufferError, UsageError, shortened, text_of
from puffer_core.native import NativeEnv
from puffer_core.testing.rollouts import random_actions
from puffer_core.vector import Source, source_of

PATTERN = 0xA5
"""Fills arrays before a call, so that rows that were not written are known."""
BUFFERS = (
    "observations",
    "actions",
    "rewards",
    "terminals",
    "truncations",
    "masks",
    "final_observations",
    "action_mask",
)
NATIVE, PUFFER, SINGLE, PARALLEL, TURNS, OTHER = "native", "puffer", "single", "parallel", "turns", "other"
_CORE = os.path.dirname(puffer_core.__file__)  # noqa: PTH120
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")

Trace = list[dict[str, bytes]]


class BreachError(AssertionError):
    """Raised when an environment or a backend breaks its contract.

    Args:
        message: What was found, where, at which step.
        hint: How to mend it.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message, self.hint = message, hint


class ContractWarning(UserWarning):
    """Given for what the contract allows and a person should know."""


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turn what is raised inside into a `BreachError` that says what was being done, and where the code stands."""
    try:
        yield
    except BreachError:
        raise
    except PufferError as error:
        raise BreachError(f"{what}: {error}", error.hint) from error
    except Exception as error:
        raise BreachError(f"{what} raised {described(error)}") from error


def described(error: BaseException) -> str:
    """Return class, text and place of an exception: the last line that is not the core's, where there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_CORE)]
    text = f"{type(error).__name__}: {text_of(error)}".rstrip(": ")
    if not frames:
        return text
    frame = (own or frames)[-1]
    return f"{text} ({os.path.basename(frame.filename)}:{frame.lineno}, in {frame.name})"  # noqa: PTH119


def for_framework(*frameworks: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Return a decorator for a check of environments of these frameworks; others pass it unlooked at."""

    def decorate(check: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(check)
        def wrapped(self: Contract) -> None:
            if self.framework in frameworks:
                check(self)

        wrapped.frameworks = frameworks  # type: ignore[attr-defined]
        return wrapped

    return decorate


def unless_limited(limit: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Return a decorator for a check of what environments with this limit can't give; they pass it unlooked at."""

    def decorate(check: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(check)
        def wrapped(self: Contract) -> None:
            if not self.lacks(limit):
                check(self)

        wrapped.limit = limit  # type: ignore[attr-defined]
        return wrapped

    return decorate


def raw_of(made: Any) -> Any | None:
    """Return the environment of another framework that ``made`` is or wraps; None for a `PufferEnv`."""
    while type(made).__module__.startswith("puffer_core.emulation"):
        made = made.env
    return None if is_puffer(made) else made


def framework_of(raw: Any) -> str:
    """Return what kind of environment of another framework this is."""
    if is_pettingzoo(raw):
        return TURNS if hasattr(raw, "agent_selection") or hasattr(raw, "agent_iter") else PARALLEL
    return SINGLE if is_single(raw) and not hasattr(raw, "single_observation_space") else OTHER


class Contract:
    """The environment under test.

    Attributes:
        env_name: Name of the environment as a plugin declares it.
        env: What to test instead of a name: a class or a factory of it, a spec, a capsule.
        params: Parameters of the one that is tested.
        steps: Steps of random play per test; enough for some episodes to end.
        resets: Resets over which memory may not grow.
        is_random: Whether two seeds give two trajectories; None: where episodes without a seed differ.
        limits: What its framework can't give (`EnvSpec.limits`), on top of what its spec says.
    """

    env_name: str = ""
    env: Any = None
    params: Mapping[str, object] = {}
    steps: int = 400
    resets: int = 1000
    is_random: bool | None = True
    limits: tuple[str, ...] = ()

    # -- making -------------------------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> Source | None:
        """What is named; None where nothing is, so that `make` has to be overridden."""
        env = self.env_name if self.env is None else self.env
        return None if env == "" else source_of(env, self.params)

    @property
    def is_overridden(self) -> bool:
        """Whether a subclass makes the environment in its own way."""
        return type(self).make is not Contract.make

    def make(self, buf: Mapping[str, Array] | None = None) -> PufferEnv:
        """Return a new environment on the given buffers, or on its own; override it where no plugin declares one."""
        source = self.source
        if source is None:
            raise UsageError(
                f"{type(self).__name__} names no environment", hint="set env_name or env, or override make"
            )
        if source.table is not None:
            return NativeEnv(source.table, source.params, num_envs=source.instances, buf=buf)
        return source.open(buf)

    def make_raw(self) -> Any | None:
        """Return a new environment as its own framework made it; None for a `PufferEnv` and for one in C."""
        if self.is_overridden or self.source is None:
            return raw_of(self.make())
        if self.source.make is None:
            return None
        made = self.source.make(**self.source.params)
        if (raw := raw_of(made)) is None:
            made.close()
        return raw

    @cached_property
    def framework(self) -> str:
        """``native``, ``puffer``, ``single``, ``parallel``, ``turns``, or ``other``: a vector of another framework."""
        if self.source is not None and self.source.table is not None:
            return NATIVE
        raw = self.make_raw()
        if raw is None:
            return PUFFER
        self._close_raw(raw)
        return framework_of(raw)

    @cached_property
    def all_limits(self) -> tuple[str, ...]:
        """What the environment can't give, by its spec, by `limits`, or because its ``reset`` takes no seed."""
        limits = {*self.limits, *(self.source.limits if self.source else ())}
        env = self.make()
        if not _takes(env, "seed"):
            limits.add("no-seed")
        env.close()
        return tuple(sorted(limits))

    def lacks(self, limit: str) -> bool:
        """Return whether a limit is declared, or told by the environment's form."""
        return limit in self.limits or limit in self.all_limits

    @contextmanager
    def opened(self, buf: Mapping[str, Array] | None = None, seed: int | None = 1) -> Iterator[PufferEnv]:
        """Give an environment that has been reset with ``seed``, and close it; with ``seed=None`` it is not reset."""
        with blamed("opening it"):
            env = self.make(buf)
        try:
            if seed is not None:
                self.reset(env, seed)
            yield env
        finally:
            with blamed("close"):
                env.close()

    @contextmanager
    def opened_raw(self) -> Iterator[Any]:
        """Give an environment as its own framework made it, and close it."""
        with blamed("opening it"):
            raw = self.make_raw()
        try:
            yield raw
        finally:
            self._close_raw(raw)

    def _close_raw(self, raw: Any) -> None:
        if hasattr(raw, "close"):
            raw.close()

    # -- playing ------------------------------------------------------------------------------------------------------

    def reset(self, env: PufferEnv, seed: int, index: int = 0) -> Any:
        """Reset with a seed and an index, or with what the environment takes of them."""
        arguments = {"seed": seed, "index": index}
        if not _takes(env, "index"):
            arguments = {"seed": seed + index} if _takes(env, "seed") else {}
        with blamed(f"reset(seed={seed})"):
            return env.reset(**arguments)

    def play(self, env: PufferEnv, seed: int = 1) -> Iterator[int]:
        """Step ``env`` with legal random actions and give the number of each step."""
        for step in range(self.steps):
            self.step(env, random_actions(env, seed, step, env.action_mask), step)
            yield step

    def step(self, env: PufferEnv, actions: Array, number: int = 0) -> Step:
        """Clear the rewards and flags of the step before, as a vector does, and step."""
        for array in (env.rewards, env.terminals, env.truncations, env.logged):
            if array is not None:
                array.fill(0)
        env.actions[...] = actions
        try:
            return env.step(env.actions)
        except Exception:
            with blamed(f"step {number} with actions {shortened(actions.tolist())}"):
                raise
        raise AssertionError("unreachable")

    def trace(self, env: PufferEnv, disturb: Callable[[int], None] | None = None) -> Trace:
        """Play, and return hashes of everything ``env`` wrote, one entry for the reset and one for each step.

        Args:
            env: Already reset.
            disturb: Called before each step, with its number.
        """
        entries = [_hashes(env)]
        for step in range(self.steps):
            if disturb is not None:
                disturb(step)
            self.step(env, random_actions(env, 1, step, env.action_mask), step)
            entries.append(_hashes(env))
        return entries

    def trace_of(self, seed: int, index: int = 0) -> Trace:
        """Return the trace of a new environment."""
        with self.opened(seed=None) as env:
            self.reset(env, seed, index)
            return self.trace(env)


def first_difference(one: Trace, other: Trace) -> str | None:
    """Return in words where two traces part, or None."""
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        names = [f"`{name}`" for name in a if a[name] != b[name]]
        if names:
            verb = "differs" if len(names) == 1 else "differ"
            return f"{' and '.join(names)} {verb} first {'after reset' if number == 0 else f'at step {number - 1}'}"
    return None


def remark(message: str) -> None:
    """Warn of what the contract allows and a person should know."""
    warnings.warn(message, ContractWarning, stacklevel=2)


def is_pattern(array: Array) -> Array:
    """Return which rows still hold the fill pattern."""
    return np.asarray((array.view(np.uint8).reshape(len(array), -1) == PATTERN).all(axis=1))


def buffers_of(env: PufferEnv) -> dict[str, Array]:
    """Return the arrays an environment has, as new zeros by name."""
    found = {name: getattr(env, name) for name in BUFFERS}
    return {name: np.zeros_like(array) for name, array in found.items() if array is not None}


@contextmanager
def without_display() -> Iterator[None]:
    """Hide the display from what is opened inside."""
    hidden = {name: os.environ.pop(name) for name in _DISPLAYS if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _takes(env: PufferEnv, argument: str) -> bool:
    """Return whether a seed, or an index with it, reaches the environment."""
    if hasattr(env, "takes_seed"):
        return bool(env.takes_seed) or argument == "index"
    return accepts(env.reset, "seed") and accepts(env.reset, argument)


def _hashes(env: PufferEnv) -> dict[str, bytes]:
    ended = env.terminals | env.truncations
    arrays = {name: getattr(env, name) for name in BUFFERS if name not in ("actions", "final_observations")}
    arrays["final_observations"] = env.final_observations[ended]
    return {name: _hash(array) for name, array in arrays.items() if array is not None}


def _hash(array: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=8).digest()
