"""Vectors of environments: `make` opens one from anything that is an environment, `open_vector` from a configuration.

A backend is a class that is called as `Serial` is: (env, num_envs, params=, num_workers=, batch_size=, num_threads=,
zero_copy=, seed=, first_index=, strict=) and gives a `Vector`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from puffer_core.env import Space
from puffer_core.errors import OptionError
from puffer_core.vector.base import Vector
from puffer_core.vector.native import Native
from puffer_core.vector.native import supports as native_supports
from puffer_core.vector.serial import Serial
from puffer_core.vector.source import Source, source_of

if TYPE_CHECKING:
    from puffer_core.config import Config
    from puffer_core.specs import EnvSpec, Job

__all__ = ["Native", "Serial", "Source", "Vector", "describe", "make", "native_supports", "open_vector", "source_of"]

AUTO_AGENTS_NATIVE = 4096
"""Rows that ``env.num_envs = auto`` asks for."""
AUTO_AGENTS_PYTHON = 64
"""Rows that ``vec.num_envs = auto`` asks for where the environment is written in Python."""


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
    **kwargs: object,
) -> Vector:
    """Open a vector of ``num_envs`` environments.

    Args:
        env: A name, an `EnvSpec`, a `PufferEnv` class or factory, a plain class, or a capsule; for `serial` also a
            sequence of them.
        num_envs: How many environments; those in C all in one vector.
        backend: ``auto``, a name, or a class such as `Serial`.
        params: Parameters of the environment; for `serial` also a sequence, one mapping for each.
        num_workers: Processes of a backend that has them; environments are divided evenly.
        batch_size: Environments per batch of such a backend.
        num_threads: Threads for environments in C.
        zero_copy: Whether batches are contiguous blocks of workers.
        seed: Of the first reset.
        first_index: Instances before these, over all workers and ranks.
        strict: Refuse actions outside the action space instead of replacing them.
        **kwargs: More parameters of the environment.

    Raises:
        OptionError: If a number or a parameter is illegal, or the backend can't do it.
        UnknownNameError: If there is no such environment or backend.
        EnvError: If the environment breaks the contract.
    """
    if kwargs:
        params = (
            [{**one, **kwargs} for one in params] if isinstance(params, list | tuple) else {**(params or {}), **kwargs}
        )
    batch_size = "auto" if batch_size is None else batch_size
    check_counts(num_envs, num_workers, batch_size, zero_copy)
    if isinstance(backend, str):
        is_many = isinstance(env, list | tuple)
        source = None if is_many else source_of(env, None if isinstance(params, list | tuple) else params)
        make_vector, note = _choose(backend, source, num_workers, batch_size)
    else:
        make_vector, note = backend, ""
    vector = make_vector(
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
    )
    vector.backend_note += note
    return vector


def open_vector(
    config: Config, spec: EnvSpec, *, name: str | None = None, first_index: int = 0, num_envs: int | None = None
) -> Vector:
    """Open the vector that a configuration asks for.

    Args:
        config: Sections ``env``, ``vec`` and the seed are used.
        spec: The environment.
        name: Its full name, for one of a family.
        first_index: Instances before these, over all ranks.
        num_envs: Instances (Python: environments) in place of the configured number.
    """
    params = {key: value for key, value in config.env.items() if not (spec.table and key == "num_envs")}
    source = source_of(name if name is not None and spec.is_family else spec, params)
    vec = config.vec
    return make(
        source,
        _count(config, source) if num_envs is None else num_envs,
        vec.backend,
        num_workers=vec.num_workers,
        batch_size=vec.batch_size if num_envs is None else "auto",
        num_threads=vec.num_threads,
        zero_copy=vec.zero_copy,
        seed=config.base.seed,
        first_index=first_index,
        strict=vec.strict,
    )


def describe(env: Any, params: Mapping[str, object] | None = None) -> tuple[Space, Space, int, object | None]:
    """Return observation space, action space, agents per environment, and the capsule of an environment in C.

    An environment in Python is opened and closed for it.
    """
    source = source_of(env, params)
    return *source.spaces, source.table


def check_counts(num_envs: object, num_workers: object, batch_size: object, zero_copy: bool) -> None:
    """Check that environments divide into workers and workers into batches.

    Raises:
        OptionError: The text names the numbers, the hint the nearest legal ones.
    """
    for name, value in (("num_envs", num_envs), ("num_workers", num_workers), ("batch_size", batch_size)):
        if value == "auto" and name != "num_envs":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionError(f"{name}={value!r} is not an integer of at least 1")
    envs = cast(int, num_envs)
    workers = envs if num_workers == "auto" else cast(int, num_workers)
    batch = envs if batch_size == "auto" else cast(int, batch_size)
    if envs % workers:
        msg = f"num_envs={envs} can't be divided among num_workers={workers}"
        raise OptionError(msg, hint=f"num_workers can be {_nearest(workers, envs)}")
    share = envs // workers
    if num_workers != "auto" and (batch % share or batch > envs):
        legal = sorted({min(envs, max(share, batch // share * share)), min(envs, (batch // share + 1) * share)})
        msg = f"batch_size={batch} is no whole number of workers with {share} of num_envs={envs} each"
        raise OptionError(msg, hint=f"batch_size can be {' or '.join(map(str, legal))}")
    if zero_copy and envs % batch:
        msg = f"num_envs={envs} is no multiple of batch_size={batch}, which zero_copy needs"
        raise OptionError(msg, hint=f"batch_size can be {_nearest(batch, envs)}")


def _nearest(value: int, total: int) -> str:
    """Return the divisors of ``total`` beside ``value``, in words."""
    divisors = [i for i in range(1, total + 1) if total % i == 0]
    below, above = [i for i in divisors if i < value], [i for i in divisors if i > value]
    return " or ".join(str(i) for i in below[-1:] + above[:1])


def _choose(
    backend: str, source: Source | None, num_workers: object, batch_size: object
) -> tuple[Callable[..., Vector], str]:
    """Return the backend of that name; for ``auto`` the one of highest priority that can run the environment."""
    from puffer_core.plugins import manager, resolve

    registry = manager().backends
    if backend != "auto":
        spec = registry.get(backend)
        reason = _reason(spec.supports, source, num_workers, batch_size)
        if reason:
            raise OptionError(f"backend {backend}: {reason}")
        return resolve(spec.make), ""
    specs = sorted((registry.get(name) for name in registry.names()), key=lambda spec: -spec.priority)
    for spec in specs:
        if not _reason(spec.supports, source, num_workers, batch_size):
            return resolve(spec.make), " (auto)"
    raise OptionError(f"no backend can run {source.name if source else 'these environments'}")


def _reason(supports: str | None, source: Source | None, num_workers: object, batch_size: object) -> str | None:
    """Ask a backend whether it can run an environment."""
    if supports is None:
        return None
    from puffer_core.plugins import resolve

    return cast("str | None", resolve(supports)(_job(source, num_workers, batch_size)))


def _job(source: Source | None, num_workers: object, batch_size: object) -> Job:
    """Describe the environment for a backend; what only a spec or a whole configuration knows is left empty."""
    from puffer_core.config.schema import Config, VecConfig
    from puffer_core.specs import Job

    is_native = source is not None and source.table is not None
    spaces = source.spaces if source is not None and is_native else (None, None, 1)
    vec = VecConfig(num_workers=cast(Any, num_workers), batch_size=cast(Any, batch_size))
    return Job(
        env=cast(Any, None),
        env_name=source.name if source else "",
        params=dict(source.params) if source else {},
        observation_space=spaces[0],
        action_space=spaces[1],
        agents_per_env=spaces[2],
        table=source.table if source else None,
        config=Config(vec=vec),
        device="cpu",
    )


def _count(config: Config, source: Source) -> int:
    """Return how many environments a configuration means."""
    count = config.vec.num_envs
    if source.table is None:
        return max(1, AUTO_AGENTS_PYTHON // source.agents) if count == "auto" else int(count)
    inner = config.env.get("num_envs", "auto")
    instances = max(1, AUTO_AGENTS_NATIVE // source.agents) if inner == "auto" else int(cast(int, inner))
    return instances * (1 if count == "auto" else int(count))
