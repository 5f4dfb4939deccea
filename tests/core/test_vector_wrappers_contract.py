"""A wrapped vector keeps the contract of every vector, whatever is inside."""

from __future__ import annotations

from typing import Any, ClassVar

from puffer_core.testing import BackendContract
from puffer_core.testing.counters import COUNTERS, Counter
from puffer_core.vector import Serial, Vector
from puffer_core.vector.wrap import FrameStack, RewardNormalize, RewardScale

KEYS = {"frame_stack": 2, "reward_scale": 0.5}
ENVS = tuple(env for env in COUNTERS if env is not Counter)  # with it, what is tested is which reward it gives


class Wrapped(BackendContract):
    options: ClassVar[dict[str, Any]] = {"wrap": KEYS}
    envs = ENVS

    def reference(self, env: Any, **options: Any) -> Vector:
        return RewardScale(FrameStack(Serial(env, self.num_envs, **options), 2), 0.5)


class TestWrappedSerial(Wrapped):
    backend = "serial"


class TestWrappedNative(Wrapped):
    backend = "native"
    envs = ("ocean/squared", "ocean/cartpole")


class TestWrappedMultiprocessing(Wrapped):
    backend = "multiprocessing"
    options: ClassVar[dict[str, Any]] = {"num_workers": 2, "wrap": KEYS}
    partial = ({"batch_size": 2}, {"batch_size": 2, "zero_copy": False})
    steps = 30


class TestNormalized(BackendContract):
    """In whole batches, since the order in which partial ones come changes what is divided by."""

    envs = ENVS
    options: ClassVar[dict[str, Any]] = {"wrap": {"reward_normalize": True}}

    def reference(self, env: Any, **options: Any) -> Vector:
        return RewardNormalize(Serial(env, self.num_envs, **options))
