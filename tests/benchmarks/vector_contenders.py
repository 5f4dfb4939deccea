"""One contender of `bench_vector.py`, in a process of its own: opens a workload and steps it whenever it is told to.

It is started by the interpreter that has the contender's packages, so it imports nothing but these. It reads one JSON
object a line, {"open": ...}, {"measure": seconds} or {"idle": seconds}, and answers with one; the end of its input ends
it.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

BATCHES = 16
WORKLOADS: dict[str, tuple[float, str]] = {
    "cartpole": (0.0, "cartpole"),
    "0us-16B": (0.0, "small"),
    "100us-16B": (100e-6, "small"),
    "1ms-16B": (1e-3, "small"),
    "0us-28kB": (0.0, "pixels"),
    "100us-28kB": (100e-6, "pixels"),
    "1ms-28kB": (1e-3, "pixels"),
    "spread": (0.0, "spread"),
}
"""Name: seconds that a step is busy, and what it observes. 28 kB are 84 x 84 x 4 bytes."""
SPREAD_AGENTS = 3
NAMES = {"cartpole": "gym/CartPole-v1", "spread": "pettingzoo/simple-spread"}
"""What a person types for ours. A family leaves out wrappers that only check the caller, which adapters do, too."""


class Synthetic(gymnasium.Env):
    """Busy for some seconds in each step; episodes never end, and it always shows the same."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float, kind: str) -> None:
        if kind == "small":
            self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        else:
            self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self._seconds = seconds
        self._observation = np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        if self._seconds:
            end = time.perf_counter() + self._seconds
            while time.perf_counter() < end:
                pass
        return self._observation, 0.0, False, False, {}


def make_env(workload: str) -> Any:
    """Return one environment of a workload, as its own framework makes it."""
    seconds, kind = WORKLOADS[workload]
    if kind == "cartpole":
        return gymnasium.make("CartPole-v1")
    if kind == "spread":
        try:
            from mpe2 import simple_spread_v3
        except ImportError:
            from pettingzoo.mpe import simple_spread_v3
        return simple_spread_v3.parallel_env()
    return Synthetic(seconds, kind)


# -- contenders: each returns a function that steps once with a batch of actions, and one that closes -----------------

Opened = tuple[Callable[[Any], object], Callable[[], object]]


def open_puffer(backend: str, workload: str, num_envs: int, workers: int) -> Opened:
    from puffer_core.vector import make

    env = NAMES.get(workload) or functools.partial(make_env, workload)
    vector = make(env, num_envs, backend, num_workers=workers)
    vector.reset(0)
    return vector.step, vector.close


def open_pufferlib(backend: str, workload: str, num_envs: int, workers: int) -> Opened:
    import pufferlib.emulation
    import pufferlib.vector

    is_spread = workload == "spread"
    wrapper = pufferlib.emulation.PettingZooPufferEnv if is_spread else pufferlib.emulation.GymnasiumPufferEnv

    def creator(buf: Any = None, seed: int = 0) -> Any:
        return wrapper(env_creator=functools.partial(make_env, workload), buf=buf, seed=seed)

    kind = getattr(pufferlib.vector, backend)
    options = {} if backend == "Serial" else {"num_workers": workers, "batch_size": num_envs, "overwork": True}
    vector = pufferlib.vector.make(creator, num_envs=num_envs, backend=kind, **options)
    vector.async_reset(0)
    vector.recv()

    def step(actions: Any) -> None:
        vector.send(actions)
        vector.recv()

    return step, vector.close


def open_gymnasium(backend: str, workload: str, num_envs: int, workers: int) -> Opened:
    kind = getattr(gymnasium.vector, backend)
    vector = kind([functools.partial(make_env, workload) for _ in range(num_envs)])
    vector.reset(seed=0)
    return vector.step, vector.close


def open_sb3(backend: str, workload: str, num_envs: int, workers: int) -> Opened:
    from stable_baselines3.common import vec_env

    kind = getattr(vec_env, backend)
    options = {"start_method": "fork"} if backend == "SubprocVecEnv" else {}
    vector = kind([functools.partial(make_env, workload) for _ in range(num_envs)], **options)
    vector.reset()
    return vector.step, vector.close


def open_loop(backend: str, workload: str, num_envs: int, workers: int) -> Opened:
    """A bare Python loop that resets what ends and keeps nothing."""
    envs = [make_env(workload) for _ in range(num_envs)]
    for env in envs:
        env.reset(seed=0)
    if workload == "spread":
        return functools.partial(_loop_parallel, envs), lambda: None
    return functools.partial(_loop_single, envs), lambda: None


def _loop_single(envs: list[Any], actions: Any) -> None:
    for env, action in zip(envs, actions, strict=True):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def _loop_parallel(envs: list[Any], actions: Any) -> None:
    for env, own in zip(envs, actions.reshape(len(envs), -1), strict=True):
        env.step(dict(zip(env.agents, own, strict=True)))
        if not env.agents:
            env.reset()


CONTENDERS: dict[str, tuple[Callable[..., Opened], str]] = {
    "loop": (open_loop, ""),
    "pufferlib-loop": (open_loop, ""),
    "puffer-serial": (open_puffer, "serial"),
    "puffer-workers": (open_puffer, "multiprocessing"),
    "gymnasium-sync": (open_gymnasium, "SyncVectorEnv"),
    "gymnasium-async": (open_gymnasium, "AsyncVectorEnv"),
    "sb3-dummy": (open_sb3, "DummyVecEnv"),
    "sb3-subproc": (open_sb3, "SubprocVecEnv"),
    "pufferlib-serial": (open_pufferlib, "Serial"),
    "pufferlib-workers": (open_pufferlib, "Multiprocessing"),
}


class Contender:
    """What answers the requests.

    Args:
        name: One of `CONTENDERS`.
        workload: One of `WORKLOADS`.
        num_envs, workers: Of the vector.
    """

    def __init__(self, name: str, workload: str, num_envs: int, workers: int) -> None:
        opener, backend = CONTENDERS[name]
        agents = SPREAD_AGENTS if workload == "spread" else 1
        actions = 5 if workload == "spread" else 2
        self._rows = num_envs * agents
        self._step, self.close = opener(backend, workload, num_envs, workers)
        rng = np.random.default_rng(0)
        batches = [rng.integers(0, actions, self._rows).astype(np.int32) for _ in range(BATCHES)]
        self._batches = itertools.cycle(batches)

    def measure(self, seconds: float) -> float:
        """Return the agent-steps per second of at least so many seconds."""
        step, steps, began = self._step, 0, time.perf_counter()
        for batch in self._batches:
            step(batch)
            steps += 1
            elapsed = time.perf_counter() - began
            if elapsed >= seconds:
                break
        return steps * self._rows / elapsed

    def idle(self, seconds: float) -> float:
        """Return which share of one core this process and its children use while nobody steps them."""
        import psutil

        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        before = sum(sum(process.cpu_times()[:2]) for process in processes)
        time.sleep(seconds)
        return (sum(sum(process.cpu_times()[:2]) for process in processes) - before) / seconds


def serve() -> None:
    """Answer requests until there are no more; what a contender prints goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    contender: Contender | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "open" in request:
                contender, answer = Contender(**request["open"]), None
            else:
                assert contender is not None
                ((name, seconds),) = request.items()
                answer = getattr(contender, name)(seconds)
            reply = {"answer": answer}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(reply), file=answers, flush=True)
    if contender is not None:
        contender.close()


if __name__ == "__main__":
    serve()
