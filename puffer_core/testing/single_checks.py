"""Checks of an environment of Gymnasium, Gym, or a plain class before it is adapted: texts speak of its own calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from puffer_core.emulation.forms import accepts
from puffer_core.errors import shortened
from puffer_core.testing.contract import SINGLE, BreachError, Contract, blamed, for_framework, remark
from puffer_core.testing.samples import misfits


@dataclass(frozen=True)
class Moment:
    """What one call returned. After a reset there is an observation and an info only."""

    where: str
    observation: Any
    info: Any
    reward: Any = 0.0
    flags: tuple[Any, ...] = ()


class SingleChecks(Contract):
    """What ``reset`` and ``step`` of a single-agent environment return."""

    def played(self, raw: Any) -> Iterator[Moment]:
        """Play with actions of the declared space; reset where an episode ends."""
        raw.action_space.seed(1)
        yield self._reset(raw, "reset", {"seed": 1} if accepts(raw.reset, "seed") else {})
        for step in range(self.steps):
            action = raw.action_space.sample()
            with blamed(f"step {step} with action {shortened(repr(action))} of {raw.action_space}"):
                result = raw.step(action)
            if not isinstance(result, tuple) or len(result) not in (4, 5):
                found = f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__
                hint = "return observation, reward, terminated, truncated, info"
                raise BreachError(f"step {step} returned {found}, not 5 or 4", hint)
            yield Moment(f"step {step}", result[0], result[-1], result[1], result[2:-1])
            if any(np.any(flag) for flag in result[2:-1]):
                yield self._reset(raw, f"reset after step {step}", {})

    def _reset(self, raw: Any, where: str, arguments: dict[str, int]) -> Moment:
        with blamed(where):
            result = raw.reset(**arguments)
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return Moment(where, result[0], result[1])
        if _is_gymnasium(raw):
            hint = "return observation, info"
            raise BreachError(f"{where} returned {shortened(repr(result))}, not an observation and a dict", hint)
        return Moment(where, result, {})

    @for_framework(SINGLE)
    def test_single_observations_fit_the_declared_space(self) -> None:
        """Every observation has the keys, shapes and dtypes that are declared; bounds that are left are remarked."""
        with self.opened_raw() as raw:
            has_remarked = False
            for moment in self.played(raw):
                for misfit in misfits(raw.observation_space, moment.observation):
                    if not misfit.is_bound:
                        raise BreachError(f"{moment.where}: {misfit}", "declare what is returned, or convert it")
                    if not has_remarked:
                        remark(f"{moment.where}: {misfit}")
                        has_remarked = True

    @for_framework(SINGLE)
    def test_single_step_returns_five_values(self) -> None:
        """Terminated and truncated are told apart."""
        with self.opened_raw() as raw:
            for moment in self.played(raw):
                if len(moment.flags) == 1 and _is_gymnasium(raw):
                    hint = "return observation, reward, terminated, truncated, info"
                    raise BreachError(f"{moment.where} returned 4 values: this is the step of old Gym", hint)
                if len(moment.flags) == 1:
                    remark(
                        "step returns 4 values: an end counts as terminated unless info['TimeLimit.truncated'] is true"
                    )
                    return

    @for_framework(SINGLE)
    def test_single_rewards_are_finite_numbers(self) -> None:
        """A reward is one real number."""
        with self.opened_raw() as raw:
            for moment in self.played(raw):
                require_number(moment.reward, f"{moment.where}: reward")

    @for_framework(SINGLE)
    def test_single_flags_are_booleans(self) -> None:
        """Terminated and truncated are one boolean each."""
        with self.opened_raw() as raw:
            for moment in self.played(raw):
                for name, flag in zip(("terminated", "truncated"), moment.flags, strict=False):
                    if not isinstance(flag, bool | np.bool_) and not (isinstance(flag, int) and flag in (0, 1)):
                        raise BreachError(f"{moment.where}: {name} is {shortened(repr(flag))}, not a bool")

    @for_framework(SINGLE)
    def test_single_infos_are_dictionaries(self) -> None:
        """An info is a dict."""
        with self.opened_raw() as raw:
            for moment in self.played(raw):
                if not isinstance(moment.info, dict):
                    raise BreachError(f"{moment.where}: info is {shortened(repr(moment.info))}, not a dict")

    @for_framework(SINGLE)
    def test_single_spaces_stay_as_declared(self) -> None:
        """Spaces are the same after resets and steps."""
        with self.opened_raw() as raw:
            declared = raw.observation_space, raw.action_space
            for moment in self.played(raw):
                for name, space in zip(("observation_space", "action_space"), declared, strict=True):
                    if (found := getattr(raw, name)) != space:
                        hint = "declare it in the constructor, wide enough for every episode"
                        raise BreachError(f"{moment.where}: {name} is {found}, declared was {space}", hint)


def _is_gymnasium(raw: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "gymnasium" for kind in type(raw).__mro__)


def require_number(value: Any, what: str) -> None:
    """Refuse what is not one real and finite number."""
    is_scalar = isinstance(value, Real | np.generic) or (isinstance(value, np.ndarray) and value.shape == ())
    if not is_scalar or np.asarray(value).dtype.kind not in "biuf":
        raise BreachError(f"{what} is {shortened(repr(value))}, not one real number", "return a float")
    if not np.isfinite(value):
        raise BreachError(f"{what} is {value}, not finite")
