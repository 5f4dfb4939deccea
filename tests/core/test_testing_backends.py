"""Every backend of the core keeps the contract that third parties test theirs with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from puffer_core.testing import BackendContract, BreachError, EnvContract
from puffer_core.testing.counters import COUNTERS, Counter, CounterCrowd, CounterGym
from puffer_core.vector.serial import Serial


class TestSerial(BackendContract):
    backend = "serial"


class TestNative(BackendContract):
    backend = "native"
    envs = ("ocean/squared", "ocean/cartpole", "ocean/snake")


class TestMultiprocessing(BackendContract):
    backend = "multiprocessing"
    options: ClassVar[dict[str, Any]] = {"num_workers": 2}
    partial = ({"batch_size": 2}, {"batch_size": 2, "zero_copy": False})
    steps = 30


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
class TestRay(BackendContract):
    backend = "ray"
    options: ClassVar[dict[str, Any]] = {"num_workers": 2}
    partial = ({"batch_size": 2, "zero_copy": False},)
    envs = (Counter, CounterCrowd, CounterGym)
    steps = 12


@pytest.mark.parametrize("env", COUNTERS, ids=lambda env: env.__name__)
def test_environments_of_the_suite_keep_their_own_contract(env: type) -> None:
    contract = EnvContract()
    contract.env, contract.steps, contract.resets = env, 100, 50
    for name in dir(contract):
        if name.startswith("test_"):
            getattr(contract, name)()


class Broken(Serial):
    """A right backend; those below are wrong in one thing each."""


class LosesLast(Broken):
    def _send(self, actions: Any) -> None:
        super()._send(actions)
        self.final_observations[:] = self.observations


class SwapsRows(Broken):
    def _send(self, actions: Any) -> None:
        super()._send(actions[::-1].copy())


class ForgetsInfos(Broken):
    def _send(self, actions: Any) -> None:
        super()._send(actions)
        self.infos = []


class ForgetsIndex(Broken):
    def _async_reset(self, seed: int | None) -> None:
        self._first_index = 0
        super()._async_reset(seed)


class SeedsEachReset(Broken):
    def _async_reset(self, seed: int | None) -> None:
        super()._async_reset(5 if seed is None else seed)


class NoOrder(Broken):
    def send(self, actions: Any, hold: Any = None) -> None:
        self._send(actions)
        self._phase = "recv"


class DrainsTwice(Broken):
    def drain_log(self) -> Any:
        self._kept = super().drain_log() or getattr(self, "_kept", None)
        return self._kept


class SomeParameters(Broken):
    def set_params(self, **values: Any) -> None:
        self.members[0].env.set_params(**values)


class SwallowsErrors(Broken):
    def _send(self, actions: Any) -> None:
        try:
            super()._send(actions)
        except ArithmeticError:
            return


class TakesAnyShape(Broken):
    def _send(self, actions: Any) -> None:
        super()._send(np.resize(actions, self.actions.shape).astype(self.actions.dtype))


class ChangesWhileLookedAt(Broken):
    def drain_log(self) -> Any:
        self.observations += 1
        return super().drain_log()


class OtherIds(Broken):
    def _recv(self) -> None:
        self.agent_ids = self.agent_ids[::-1].copy()


@pytest.mark.parametrize(
    ("backend", "test", "words"),
    [
        (LosesLast, "arrays_are_those_of_serial", "final_observations differ"),
        (SwapsRows, "arrays_are_those_of_serial", "Counter, step 0: observations differ"),
        (ForgetsInfos, "arrays_are_those_of_serial", "infos differ"),
        (OtherIds, "arrays_are_those_of_serial", "agent_ids differ"),
        (DrainsTwice, "arrays_are_those_of_serial", "drain_log gives the same values twice"),
        (ForgetsIndex, "seeds_are_those_of_serial", "observations differ"),
        (SeedsEachReset, "seeds_are_those_of_serial", "observations differ"),
        (NoOrder, "illegal_calls_are_refused", "send before reset was accepted"),
        (SomeParameters, "parameters_reach_every_environment", "rewards after set_params"),
        (SwallowsErrors, "an_error_of_an_environment_surfaces", "no error came out"),
        (TakesAnyShape, "actions_of_another_shape_are_refused", "3 actions were accepted for 4 agents"),
        (ChangesWhileLookedAt, "arrays_stay_valid_until_the_next_send", "before the next send differ"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_contract_names_what_a_backend_breaks(backend: type[Serial], test: str, words: str) -> None:
    suite = BackendContract()
    suite.backend = backend
    with pytest.raises(BreachError, match=words):
        getattr(suite, f"test_{test}")()


def test_counters_tell_actions_and_agents_apart() -> None:
    with Serial(CounterCrowd, 2, seed=1) as vector:
        vector.reset()
        vector.step(np.array([[0, 0], [1, 0], [2, 0], [2, 1], [0, 1], [1, 1]], np.int32))
        assert vector.observations[:, 2].tolist() == [0, 1, 2, 3, 1, 2]
