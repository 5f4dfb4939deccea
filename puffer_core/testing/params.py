"""Legal and illegal parameter sets of a C environment, made from its table alone."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from puffer_core import abi
from puffer_core.abi import Param
from puffer_core.errors import OptionError
from puffer_core.native import NativeEnv, table_params, validate_params
from puffer_core.plugins import resolve
from puffer_core.testing.rollouts import play

Values = dict[str, Any]


@dataclass(frozen=True)
class ParamCase:
    """One parameter set to try, in words a failing test can show."""

    table: str
    """``"module:attribute"`` of the capsule, so that a child process can find it."""
    label: str
    values: Values
    legal: bool | None
    """True or False where the table decides, None where only the environment's own cross rules can."""


def legal_sets(
    table: object, *, count: int = 20, seed: int = 0, fits: Callable[[Values], bool] | None = None
) -> list[tuple[str, Values]]:
    """Return labelled legal parameter sets: the defaults, minima, maxima and ``count`` random ones.

    A value that the cross rules refuse, or that makes a vector which does not fit, leaves the parameter as it was.

    Args:
        table: The capsule.
        count: How many random sets.
        seed: Chooses them.
        fits: Bounds the cost of a set; `is_small` with its defaults where not given.
    """
    params = table_params(table)
    accept = fits or (lambda values: is_small(table, values))
    rng = random.Random(seed)
    sets = [("defaults", Values())]
    for label, pick in (("minima", _lowest), ("maxima", _highest)):
        sets.append((label, _grow(table, params, pick, accept)))
    for index in range(count):
        chosen = rng.sample(params, k=rng.randint(1, len(params))) if params else []
        sets.append((f"random-{index}", _grow(table, chosen, lambda param: random_value(param, rng), accept)))
    return sets


def _grow(table: object, params: list[Param], pick: Callable[[Param], Any], accept: Callable[[Values], bool]) -> Values:
    """Return the set reached by setting one parameter after another, keeping what is legal and fits."""
    values: Values = {}
    for param in [*params, *params]:  # twice: the cross rules may allow late what they refused early
        if param.name in values:
            continue
        candidate = {**values, param.name: pick(param)}
        try:
            validate_params(table, candidate)
        except OptionError:
            continue
        if accept(candidate):
            values = candidate
    return values


def is_small(table: object, values: Values, *, max_row_bytes: int = 1 << 17, max_state_bytes: int = 1 << 21) -> bool:
    """Return whether one instance keeps within the given sizes of observations and state."""
    opened = abi.open_table(table)
    checked = abi.validate(opened, values)
    space, _, agents, _ = abi.spaces_of_table(opened, checked)
    row_bytes = agents * math.prod(space.shape or ()) * np.dtype(space.dtype).itemsize
    return row_bytes <= max_row_bytes and opened.state_size(abi.pack(opened, checked)) <= max_state_bytes


def random_value(param: Param, rng: random.Random) -> Any:
    """Return a random legal value of one parameter, its bounds now and then; wide ranges are sampled by magnitude."""
    if (corner := rng.random()) < 0.2:
        return _lowest(param) if corner < 0.1 else _highest(param)
    if param.kind == "enum":
        return rng.choice(param.choices)
    if param.kind == "bool":
        return rng.random() < 0.5
    if param.kind == "string":
        return param.default
    low, high = param.min, param.max
    if high - low <= 64:
        value = low + rng.random() * (high - low)
    else:
        span = rng.choice([high - param.default, param.default - low])
        offset = math.expm1(rng.random() * math.log1p(span))
        value = param.default + offset if span == high - param.default else param.default - offset
    if param.kind == "float":
        return min(max(float(value), low), high)
    step = int(param.step) or 1
    return min(int(low) + round((value - low) / step) * step, _highest(param))


def _lowest(param: Param) -> Any:
    """Return the smallest legal value."""
    if param.kind == "enum":
        return param.choices[0]
    return {"bool": False, "string": param.default}.get(param.kind, param.min)


def _highest(param: Param) -> Any:
    """Return the largest legal value."""
    if param.kind == "enum":
        return param.choices[-1]
    if param.kind == "int" and param.step:
        return param.min + (param.max - param.min) // param.step * param.step
    return {"bool": True, "string": param.default}.get(param.kind, param.max)


def illegal_cases(table: str) -> list[ParamCase]:
    """Return one case for every way to break one parameter: each bound, step, type, choice, and an unknown name."""
    cases = [ParamCase(table, "unknown name", {"no_such_parameter": 1}, legal=False)]
    for param in table_params(resolve(table)):
        for what, value in _illegal_values(param):
            cases.append(ParamCase(table, f"{param.name} {what}: {value!r}", {param.name: value}, legal=False))
    return cases


def _illegal_values(param: Param) -> list[tuple[str, Any]]:
    """Return what this parameter must refuse, with the reason."""
    wrong: list[tuple[str, Any]] = [("wrong type", None), ("wrong type", []), ("wrong type", b"1")]
    if param.kind == "string":
        return [*wrong, ("wrong type", 3)]
    if param.kind == "enum":
        return [*wrong, ("no such choice", "no_such_choice"), ("no such choice", len(param.choices))]
    if param.kind == "bool":
        return [*wrong, ("not a flag", 2), ("not a flag", -1), ("not a flag", "perhaps")]
    wrong += [("wrong type", "many"), ("not finite", math.nan), ("not finite", math.inf), ("not finite", -math.inf)]
    if param.kind == "float":
        return [
            *wrong,
            ("below its minimum", math.nextafter(param.min, -math.inf)),
            ("above its maximum", math.nextafter(param.max, math.inf)),
        ]
    wrong += [("below its minimum", param.min - 1), ("above its maximum", param.max + 1)]
    wrong += [("beyond 64 bits", 2**64), ("beyond 64 bits", -(2**63) - 1), ("not whole", param.min + 0.5)]
    return [*wrong, ("off its step", param.min + 1)] if param.step and param.step > 1 else wrong


def cross_cases(table: str, *, count: int = 40, seed: int = 0) -> list[ParamCase]:
    """Return sets of which every value is in its range and all together may or may not be allowed.

    They are all pairs of lowest and highest values, the rest at its default, and ``count`` random sets.
    """
    params = table_params(resolve(table))
    rng = random.Random(seed)
    ends: list[Callable[[Param], Any]] = [_lowest, _highest]
    sets = []
    for one, other in itertools.combinations(params, 2):
        sets += [{one.name: a(one), other.name: b(other)} for a, b in itertools.product(ends, ends)]
    corners: list[Callable[[Param], Any]] = [*ends, lambda param: random_value(param, rng)]
    for _ in range(count if params else 0):
        chosen = rng.sample(params, k=rng.randint(1, len(params)))
        sets.append({param.name: rng.choice(corners)(param) for param in chosen})
    return [ParamCase(table, f"together: {values}", values, legal=None) for values in sets]


def try_case(case: ParamCase) -> str:
    """Open, reset, step, show and close the environment with a case's values; what `run_isolated` calls in the child.

    A set that is legal but huge is only validated.
    """
    table = resolve(case.table)
    validate_params(table, case.values)
    if not is_small(table, case.values):
        return "legal, not stepped"
    with NativeEnv(table, case.values, num_envs=2, seed=3) as env:
        env.reset(seed=4)
        play(env, 20, seconds=0.02)
        if abi.open_table(table).text and not env.render(1, "ansi").strip():
            raise AssertionError("the ansi view is blank")
    return "legal"
