"""The conformance suite for vector backends: subclass `BackendContract`, name the backend, and pytest does the rest.

Example::

    class TestMyBackend(BackendContract):
        backend = MyVector                      # or its name, as a plugin declares it
        options = {"num_workers": 2}
        partial = ({"batch_size": 2},)

What every backend has to give is what `Serial` gives: environments are stepped through both, and compared.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

import puffer_core.vector
from puffer_core.env import Array
from puffer_core.errors import OptionError, UsageError
from puffer_core.testing.contract import BreachError
from puffer_core.testing.counters import COUNTERS, Counter, CounterRaises
from puffer_core.testing.rollouts import head_sizes, random_bits
from puffer_core.vector import Vector
from puffer_core.vector.serial import Serial

_PATIENCE_S = 20.0
_ARRAYS = ("observations", "rewards", "terminals", "truncations", "masks", "logged", "action_mask")
_SIZES = ("num_envs", "num_agents", "agents_per_env", "log_fields", "single_observation_space", "single_action_space")


class BackendContract:
    """What every backend promises: the order of calls, the arrays of `Serial`, seeds, logs, parameters, errors.

    Attributes:
        backend: Its name or class.
        options: Keywords of every vector, as ``num_workers``.
        partial: Keywords that make its batches partial, one mapping for each mode; none where it has no such mode.
        envs: Environments that it can step; deterministic by seed.
        num_envs: How many of them.
        steps: Steps of each comparison; enough for a few episodes.
    """

    backend: Any = "serial"
    options: Mapping[str, Any] = {}
    partial: tuple[Mapping[str, Any], ...] = ()
    envs: tuple[Any, ...] = COUNTERS
    num_envs: int = 4
    steps: int = 50

    def make(self, env: Any, **options: Any) -> Vector:
        """Return a vector of the backend; override it where `puffer_core.vector.make` can't open one."""
        return puffer_core.vector.make(env, self.num_envs, self.backend, **{**self.options, **options})

    def reference(self, env: Any, **options: Any) -> Vector:
        """Return what it is compared with."""
        return Serial(env, self.num_envs, **options)

    # -- the order of calls -------------------------------------------------------------------------------------------

    def test_legal_calls_work(self) -> None:
        """Reset and step, or async_reset, recv and send; a reset at any time; closing twice."""
        vector = self.make(self.envs[0])
        actions = actions_of(vector, np.arange(vector.num_agents), np.zeros(vector.num_agents, np.int64))
        vector.reset(seed=1)
        vector.step(actions)
        vector.async_reset(seed=1)
        _require(len(vector.recv()) == 7, "recv does not give seven values")
        vector.send(actions)
        vector.async_reset(seed=2)
        vector.recv()
        vector.reset()
        vector.step(actions)
        vector.close()
        vector.close()
        with self.make(self.envs[0]) as opened:
            opened.reset()
        _require_refused(lambda: opened.reset(), "reset after close")

    def test_illegal_calls_are_refused(self) -> None:
        """Each call out of order is a `UsageError` at once, and the vector can be used on."""
        with self.make(self.envs[0]) as vector:
            actions = actions_of(vector, np.arange(vector.num_agents), np.zeros(vector.num_agents, np.int64))
            _require_refused(vector.recv, "recv before reset")
            _require_refused(lambda: vector.send(actions), "send before reset")
            vector.reset(seed=1)
            _require_refused(vector.recv, "recv twice")
            vector.send(actions)
            _require_refused(lambda: vector.send(actions), "send twice")
            vector.recv()
        calls: dict[str, Callable[[], Any]] = {
            "reset": vector.reset,
            "recv": vector.recv,
            "send": lambda: vector.send(actions),
            "drain_log": vector.drain_log,
            "save": vector.save,
            "set_params": lambda: vector.set_params(pay=1.0),
            "render": vector.render,
        }
        for name, call in calls.items():
            _require_refused(call, f"{name} after close")

    def test_illegal_counts_are_refused(self) -> None:
        """No environments, or less than none, is an `OptionError`."""
        for number in (0, -1, 1.5):
            try:
                puffer_core.vector.make(self.envs[0], number, self.backend, **self.options)  # type: ignore[arg-type]
            except OptionError:
                continue
            raise BreachError(f"num_envs={number} was accepted")

    def test_actions_of_another_shape_are_refused(self) -> None:
        """The wrong number of rows is a `ValueError`, and the vector can be used on."""
        with self.make(self.envs[0]) as vector:
            vector.reset(seed=1)
            actions = actions_of(vector, np.arange(vector.num_agents), np.zeros(vector.num_agents, np.int64))
            try:
                vector.send(actions[:-1])
            except ValueError:
                vector.step(actions)
                return
            raise BreachError(f"{len(actions) - 1} actions were accepted for {len(actions)} agents")

    # -- the arrays ---------------------------------------------------------------------------------------------------

    def test_arrays_are_those_of_serial(self) -> None:
        """Arrays, infos, log rows and their means are equal, at every step, for every kind of environment."""
        for env in self.envs:
            with self.make(env, seed=5) as vector, self.reference(env, seed=5) as expected:
                for name in _SIZES:
                    _require_equal(getattr(vector, name), getattr(expected, name), f"{_name(env)}: {name}")
                vector.reset()
                expected.reset()
                _compare(vector, expected, f"{_name(env)} after reset")
                ids = np.arange(expected.num_agents)
                for step in range(self.steps):
                    actions = actions_of(expected, ids, np.full(len(ids), step))
                    vector.step(actions)
                    expected.step(actions)
                    _compare(vector, expected, f"{_name(env)}, step {step}")
                _compare_log(vector.drain_log(), expected.drain_log(), _name(env))
                _require(vector.drain_log() is None, f"{_name(env)}: drain_log gives the same values twice")

    def test_seeds_are_those_of_serial(self) -> None:
        """A seed starts over, `first_index` counts the instances before these, and no seed goes on."""
        for env in self.envs:
            with (
                self.make(env, seed=5, first_index=3) as vector,
                self.reference(env, seed=5, first_index=3) as expected,
            ):
                ids = np.arange(expected.num_agents)
                for seeding in ({}, {}, {"seed": 6}, {"seed": 6}):
                    vector.reset(**seeding)
                    expected.reset(**seeding)
                    _compare(vector, expected, f"{_name(env)}, first_index=3, reset({seeding})")
                    for step in range(self.steps // 4):
                        actions = actions_of(expected, ids, np.full(len(ids), step))
                        vector.step(actions)
                        expected.step(actions)
                        _compare(vector, expected, f"{_name(env)}, first_index=3, reset({seeding}), step {step}")

    def test_arrays_stay_valid_until_the_next_send(self) -> None:
        """What was received does not change while it is looked at."""
        with self.make(self.envs[0]) as vector:
            vector.reset(seed=1)
            for step in range(10):
                kept = vector.observations.copy()
                vector.drain_log()
                _require_equal(vector.observations, kept, f"step {step}: observations before the next send")
                vector.step(actions_of(vector, vector.agent_ids, np.full(vector.num_agents, step)))

    def test_save_gives_none_or_what_load_restores(self) -> None:
        """A state that can be saved goes on as it would have."""
        with self.make(self.envs[0]) as vector:
            vector.reset(seed=1)
            state = vector.save()
            if state is None:
                return
            rows = []
            for _ in range(2):
                for step in range(10):
                    vector.step(actions_of(vector, vector.agent_ids, np.full(vector.num_agents, step)))
                rows.append(vector.observations.copy())
                vector.load(state)
            _require_equal(rows[1], rows[0], "observations ten steps after load")

    # -- partial batches ----------------------------------------------------------------------------------------------

    def test_partial_batches_lose_and_mix_up_nothing(self) -> None:
        """Whatever the order in which batches come, each agent's trajectory is that of `Serial`, and each one comes."""
        for options in self.partial:
            for env in self.envs:
                expected = self._trajectories(env)
                with self.make(env, seed=5, **options) as vector:
                    _require(vector.agents_per_batch < vector.num_agents, f"{options}: batches are not partial")
                    found = self._received(vector)
                for agent, rows in found.items():
                    common = min(len(rows), len(expected[agent]))
                    _require_equal(rows[:common], expected[agent][:common], f"{options}, {_name(env)}: agent {agent}")
                _require(len(found) == len(expected), f"{options}: agents {sorted(expected.keys() - found)} never came")

    def _received(self, vector: Vector) -> dict[int, list[bytes]]:
        """Return what came for each agent, in the order in which it came; all of them get some time to come."""
        found: dict[int, list[bytes]] = defaultdict(list)
        vector.async_reset()
        batches, end = self.steps * vector.num_agents // vector.agents_per_batch, time.monotonic() + _PATIENCE_S
        while batches > 0 or (len(found) < vector.num_agents and time.monotonic() < end):
            batches -= 1
            vector.recv()
            ids = vector.agent_ids.copy()
            _require(len(ids) == len(vector.observations), "agent_ids and observations have other numbers of rows")
            for row, agent in enumerate(ids):
                found[int(agent)].append(_row(vector, row))
            vector.send(actions_of(vector, ids, np.array([len(found[int(agent)]) - 1 for agent in ids])))
        return found

    def _trajectories(self, env: Any) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = defaultdict(list)
        with self.reference(env, seed=5) as vector:
            vector.reset()
            ids = np.arange(vector.num_agents)
            for step in range(2 * self.steps):
                for agent in ids:
                    found[int(agent)].append(_row(vector, agent))
                vector.step(actions_of(vector, ids, np.full(len(ids), step)))
        return found

    # -- parameters and errors ----------------------------------------------------------------------------------------

    def test_parameters_reach_every_environment(self) -> None:
        """`set_params` holds from the next episode, everywhere; an unknown one is refused."""
        if Counter not in self.envs:
            return
        with self.make(Counter) as vector:
            vector.reset(seed=1)
            vector.set_params(pay=5.0)
            vector.reset(seed=1)
            vector.step(np.zeros(vector.num_agents, np.int32))
            _require_equal(
                vector.rewards, np.full(vector.num_agents, 5.0, np.float32), "rewards after set_params(pay=5)"
            )
            try:
                vector.set_params(no_such_parameter=1)
            except OptionError:
                return
            raise BreachError("set_params(no_such_parameter=1) was accepted")

    def test_an_error_of_an_environment_surfaces(self) -> None:
        """What an environment raises comes out of step or recv with its text, and the vector can be closed."""
        if Counter not in self.envs:
            return
        vector = self.make(CounterRaises)
        vector.reset(seed=1)
        try:
            for _ in range(10):
                vector.step(np.zeros(vector.num_agents, np.int32))
        except Exception as error:
            _require("the fifth step went wrong" in str(error), f"the text of the environment's error is lost: {error}")
            return
        finally:
            vector.close()
        raise BreachError("an environment raised, and no error came out")


def actions_of(vector: Vector, ids: Array, counts: Array) -> Array:
    """Return legal actions that depend on each agent's id and how many it was given before, and on nothing else."""
    space = vector.single_action_space
    width = int(np.prod(space.shape or (1,)))
    bits = np.stack([random_bits(int(agent), int(count), width) for agent, count in zip(ids, counts, strict=True)])
    if isinstance(space, gymnasium.spaces.Box):
        unit = (bits >> np.uint64(40)).astype(np.float64) * 2.0**-24
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        return np.asarray(low + unit * (high - low), np.float32)
    choices = ((bits >> np.uint64(33)).astype(np.int64) % np.array(head_sizes(space))).astype(np.int32)
    return np.asarray(choices if space.shape else choices[:, 0])


def _row(vector: Vector, row: int) -> bytes:
    """Return everything that one agent was given, as bytes."""
    arrays = [vector.observations, vector.rewards, vector.terminals, vector.truncations, vector.masks]
    if vector.action_mask is not None:
        arrays.append(vector.action_mask)
    if vector.terminals[row] or vector.truncations[row]:
        arrays.append(vector.final_observations)
    return b"".join(np.ascontiguousarray(array[row]).tobytes() for array in arrays)


def _compare(vector: Vector, expected: Vector, where: str) -> None:
    for name in _ARRAYS:
        _require_equal(getattr(vector, name), getattr(expected, name), f"{where}: {name}")
    ended, logged = expected.terminals | expected.truncations, expected.logged
    _require_equal(vector.final_observations[ended], expected.final_observations[ended], f"{where}: final_observations")
    _require_equal(vector.log[logged], expected.log[logged], f"{where}: log")
    _require_equal(vector.agent_ids, expected.agent_ids, f"{where}: agent_ids")
    _require_equal(vector.infos, expected.infos, f"{where}: infos")


def _compare_log(found: Mapping[str, float] | None, expected: Mapping[str, float] | None, where: str) -> None:
    if found is None or expected is None:
        _require(found is expected, f"{where}: drain_log gives {found}, not {expected}")
        return
    _require_equal(sorted(found), sorted(expected), f"{where}: names of drain_log")
    for name, value in expected.items():
        _require(bool(np.isclose(found[name], value)), f"{where}: drain_log {name} is {found[name]}, not {value}")


def _require(is_kept: bool, message: str) -> None:
    if not is_kept:
        raise BreachError(message)


def _require_equal(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, np.ndarray):
        is_equal = np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f")
    else:
        is_equal = bool(found == expected)
    if not is_equal:
        raise BreachError(f"{what} differ: {found}, by Serial {expected}")


def _require_refused(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except UsageError:
        return
    except Exception as error:
        raise BreachError(f"{what} raised {type(error).__name__}, not UsageError: {error}") from error
    raise BreachError(f"{what} was accepted")


def _name(env: Any) -> str:
    return str(getattr(env, "__name__", env))
