"""Everything here runs over the environments that the plugin declares; a new one is picked up by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from puffer_core.native import NativeEnv, spaces_of
from puffer_core.plugins import resolve
from puffer_core.specs import EnvSpec
from puffer_core.testing import legal_sets
from puffer_ocean.plugin import puffer_envs

ROW_BYTES = 64  # what a row costs besides its observation
SMALL_BYTES = 20_000  # a step that writes no more takes nearly the same time
FEWEST_STEPS = 20
SPECS: dict[str, EnvSpec] = {spec.name.partition("/")[2]: spec for spec in puffer_envs()}


@cache
def _sets_of(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return tuple(legal_sets(resolve(SPECS[name].table), count=20, seed=7))


@pytest.fixture(params=sorted(SPECS))
def name(request: pytest.FixtureRequest) -> str:
    """The environment's own name, without the family."""
    return request.param


@pytest.fixture
def spec(name: str) -> EnvSpec:
    return SPECS[name]


@pytest.fixture
def table(spec: EnvSpec) -> object:
    """The capsule."""
    return resolve(spec.table)


@pytest.fixture
def sets(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """(label, parameters): the defaults, minima, maxima and 20 random legal sets."""
    return _sets_of(name)


@pytest.fixture(params=["short", pytest.param("full", marks=pytest.mark.slow)])
def steps(request: pytest.FixtureRequest) -> Callable[..., int]:
    """``steps(env, short, full)``: how many steps a test takes, by default and as a slow one; no clock has a say.

    The short count is smaller where one step writes a lot: many agents, or large rows.
    """

    def count(env: NativeEnv, short: int, full: int) -> int:
        if request.param == "full":
            return full
        written = env.observations.nbytes + ROW_BYTES * env.num_agents
        return min(short, max(FEWEST_STEPS, short * SMALL_BYTES // written))

    return count


@pytest.fixture
def opened(table: object) -> Iterator[Callable[..., NativeEnv]]:
    """``opened(params, num_envs=..., ...)`` gives an environment that is closed when the test ends.

    With ``rows=64`` it has 64 instances of one agent, or as many of several that there are about 64 rows, at least 2.
    """
    environments: list[NativeEnv] = []

    def open_env(params: dict[str, Any] | None = None, *, rows: int | None = None, **kwargs: Any) -> NativeEnv:
        if rows is not None:
            kwargs["num_envs"] = max(2, rows // spaces_of(table, params)[2])
        environments.append(NativeEnv(table, params, **kwargs))
        return environments[-1]

    yield open_env
    for env in environments:
        env.close()
