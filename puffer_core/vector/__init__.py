"""Vectors of environments: `make` opens one from anything that is an environment, `open_vector` from a configuration.

A backend is a class that is called as `Serial` is: (env, num_envs, params=, num_workers=, batch_size=, num_threads=,
zero_copy=, seed=, first_index=, strict=) and gives a `Vector`. One that takes `start_method`, `timeout` or `sync_traj`
is given those too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from puffer_core.emulation.forms import accepts, argument_names
from puffer_core.env import Space
from puffer_core.errors import OptionError, shortened
from puffer_core.specs import VectorJob
from puffer_core.vector.base import Vector
from puffer_core.vector.choice import choose, second_thoughts
from puffer_core.vector.counts import check_counts, check_index, check_seconds, check_seed
from puffer_core.vector.multiprocessing import Multiprocessing
from puffer_core.vector.multiprocessing import supports as multiprocessing_supports
from puffer_core.vector.native import Native
from puffer_core.vector.native import supports as native_supports
from puffer_core.vector.processes import start_method as check_start_method
from puffer_core.vector.ray import Ray
from puffer_core.vector.ray import supports as ray_supports
from puffer_core.vector.serial import Serial
from puffer_core.vector.serial import supports as serial_supports
from puffer_core.vector.source import Source, source_of, with_timeout
from puffer_core.vector.wrap import checked, wrap_sources, wrap_vector, wrapped_spaces

if TYPE_CHECKING:
    from puffer_core.config import Config
    from puffer_core.specs import EnvSpec

__all__ = [
    "Multiprocessing",
    "Native",
    "Ray",
    "Serial",
    "Source",
    "Vector",
    "check_counts",
    "describe",
    "make",
    "multiprocessing_supports",
    "native_supports",
    "open_vector",
    "ray_supports",
    "serial_supports",
    "source_of",
]


def make(
    env: Any,
    num_envs: int = 1,
    backend: str | Callable[..., Vector] = "auto",
    *,
    params: Any = None,
    num_workers: int | str = "auto",
    batch_size: int | str | None = "auto",
    num_threads: int | str = "auto",
    zero_copy: bool = True,
    seed: int = 0,
    first_index: int = 0,
    strict: bool = False,
    start_method: str = "auto",
    timeout: float | None = None,
    sync_traj: bool | None = None,
    env_kwargs: Any = None,
    wrap: Mapping[str, object] | None = None,
    **kwargs: object,
) -> Vector:
    """Open a vector of ``num_envs`` environments.

    Args:
        env: A name, an `EnvSpec`, a `PufferEnv` class or factory, a plain class, or a capsule; for environments in
            Python also a sequence of them.
        num_envs: How many environments; those in C all in one vector.
        backend: ``auto``, a name, or a class such as `Serial`.
        params: Parameters of the environment; for those in Python also a sequence, one mapping for each.
        num_workers: Processes of a backend that has them; environments are divided evenly.
        batch_size: Environments per batch of such a backend.
        num_threads: Threads for environments in C.
        zero_copy: Whether batches are contiguous blocks of workers.
        seed: Of the first reset, an integer from 0.
        first_index: Instances before these, over all workers and ranks.
        strict: Refuse actions outside the action space instead of replacing them.
        start_method: How worker processes are started, as in `Multiprocessing`.
        timeout: Seconds that a step or a reset may take in a worker.
        sync_traj: Whether partial batches come in a fixed order.
        env_kwargs: Another name of ``params``.
        wrap: Wrappers in the order in which they are applied, as in ``{"frame_stack": 4}``: the keys of ``[wrap]``.
        **kwargs: More parameters of the environment.

    Raises:
        OptionError: If a number or a parameter is illegal, or the backend can't do it.
        UnknownNameError: If there is no such environment or backend.
        EnvError: If the environment breaks the contract.
    """
    if env_kwargs is not None:
        if params is not None:
            raise OptionError("params and env_kwargs were given", hint="they are two names of one thing: give one")
        params = env_kwargs
    if kwargs:
        for one in env if isinstance(env, list | tuple) else [env]:
            source_of(one).check_params(kwargs, also=argument_names(make))
        params = (
            [{**one, **kwargs} for one in params] if isinstance(params, list | tuple) else {**(params or {}), **kwargs}
        )
    batch_size = "auto" if batch_size is None else batch_size
    check_counts(num_envs, num_workers, batch_size, zero_copy)
    num_envs = int(num_envs)  # numpy's integers are no seeds for Gymnasium
    seed, first_index = check_seed(seed), check_index(first_index)
    options = _worker_options(start_method, timeout, sync_traj)
    wrap = checked(wrap)
    env = with_timeout(env, timeout)
    if wrap:
        env = wrap_sources(env, params, wrap)
    if not isinstance(backend, str) and not callable(backend):
        raise OptionError(f"backend={shortened(repr(backend))} is not `auto`, the name of a backend or its class")
    if isinstance(backend, str):
        job, source = _job(env, num_envs, params, (num_workers, batch_size, zero_copy))
        make_vector, backend_name, note = choose(backend, job, source)
    else:
        make_vector, backend_name, note = backend, "", ""
    taken = _taken(options, make_vector, backend)
    vector: Vector = make_vector(
        env,
        num_envs,
        params=params,
        num_workers=num_workers,
        batch_size=batch_size,
        num_threads=num_threads,
        zero_copy=zero_copy,
        seed=seed,
        first_index=first_index,
        strict=strict,
        **taken,
    )
    vector.backend = backend_name or vector.backend
    vector.backend_note += note
    left = ", ".join(name for name in options if name not in taken)
    if left:
        vector.backend_note += f"; without workers, {left} changes nothing"
    return wrap_vector(vector, wrap)


def open_vector(
    config: Config, spec: EnvSpec, *, num_envs: int, name: str | None = None, first_index: int = 0
) -> Vector:
    """Open the vector that a configuration asks for; its note says where another backend would be faster.

    Args:
        config: Sections ``env``, ``vec`` and the seed are used.
        spec: The environment.
        num_envs: Instances (Python: environments), as planned. Those in C are put into objects of ``env.num_envs``
            where that divides them, else all into one.
        name: Its full name, for one of a family.
        first_index: Instances before these, over all ranks.
    """
    params = dict(config.env)
    objects = num_envs
    if spec.table:
        inner = params.get("num_envs", "auto")
        inner = inner if isinstance(inner, int) and num_envs % inner == 0 else num_envs
        params["num_envs"], objects = inner, num_envs // inner
    vec, source = config.vec, source_of(spec, params, name)
    vector = make(
        source,
        objects,
        vec.backend,
        num_workers=vec.num_workers,
        batch_size=vec.batch_size,
        num_threads=vec.num_threads,
        zero_copy=vec.zero_copy,
        seed=config.base.seed,
        first_index=first_index,
        strict=vec.strict,
        start_method=vec.start_method,
        timeout=vec.timeout or None,
        wrap=config.wrap,
    )
    job, _ = _job(source, objects, None, (vec.num_workers, vec.batch_size, vec.zero_copy))
    vector.backend_note += second_thoughts(vector.backend, job, source)
    return vector


def describe(
    env: Any,
    params: Mapping[str, object] | None = None,
    wrap: Mapping[str, object] | None = None,
    timeout: float | None = None,
) -> tuple[Space, Space, int, object | None]:
    """Return observation space, action space, agents per environment, and the capsule of an environment in C.

    An environment in Python is opened and closed for it, which may take ``timeout`` seconds each. The spaces are those
    behind the wrappers in ``wrap``.

    Raises:
        OptionError: If a wrapper can't be applied.
        WorkerError: If opening takes longer.
    """
    source, wrap = with_timeout(source_of(env, params), timeout), checked(wrap)
    if wrap:
        source = wrap_sources(source, None, wrap)
    observation, action, agents = source.spaces
    return *wrapped_spaces(wrap, observation, action), agents, source.table


def _worker_options(start_method: str, timeout: object, sync_traj: object) -> dict[str, Any]:
    """Return what was asked for of the options of workers, checked whichever backend it will be."""
    if start_method != "auto":
        check_start_method(start_method)
    if timeout is not None:
        check_seconds("timeout", timeout)
    if sync_traj is not None and not isinstance(sync_traj, bool | np.bool_):
        raise OptionError(f"sync_traj={shortened(repr(sync_traj))} is not True, False or None")
    options = {"start_method": start_method, "timeout": timeout, "sync_traj": sync_traj}
    return {name: value for name, value in options.items() if value is not None and value != "auto"}


def _taken(given: dict[str, Any], make_vector: Callable[..., Vector], backend: object) -> dict[str, Any]:
    """Return the options that a backend takes, of those that were given.

    Raises:
        OptionError: If the backend was asked for by itself and does not take one.
    """
    taken = {name: value for name, value in given.items() if accepts(make_vector, name)}
    if backend != "auto" and len(taken) < len(given):
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))
        left = ", ".join(name for name in given if name not in taken)
        raise OptionError(f"backend {name} takes no {left}", hint="multiprocessing does")
    return taken


def _job(env: Any, num_envs: int, params: Any, split: tuple[Any, Any, bool]) -> tuple[VectorJob, Source | None]:
    """Describe for a backend what it is asked to open; a sequence of environments has no name, table or source."""
    source = Source("these environments")
    if not isinstance(env, list | tuple):
        source = source_of(env, None if isinstance(params, list | tuple) else params)
    is_one = not isinstance(env, list | tuple) and not isinstance(params, list | tuple)
    job = VectorJob(source.name, source.params, source.table, num_envs, *split)
    return job, source if is_one else None
