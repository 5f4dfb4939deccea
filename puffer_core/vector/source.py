"""What to open: a name, a spec, a class, a factory or a capsule, brought into one form."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from puffer_core.abi import open_table
from puffer_core.emulation import adapt
from puffer_core.emulation.forms import accepts, argument_names, is_environment, not_taken
from puffer_core.env import PufferEnv, Space
from puffer_core.errors import EnvError, OptionError, PufferError, WorkerError, did_you_mean, shortened
from puffer_core.native import spaces_of
from puffer_core.specs import EnvSpec
from puffer_core.vector.bounded import within
from puffer_core.vector.counts import check_count, is_auto

CLOSE_S = 10.0
"""How long closing an environment that was only looked at may take where no timeout was given."""
_MANY, _LEAST_BYTES = 2**20, 2**10
"""From how many environments on their memory is looked at, and bytes that each takes at least."""
_REFUSALS = (ValueError, TypeError, AssertionError, AttributeError, LookupError, ArithmeticError)
"""With which a constructor may refuse the value of a parameter."""


@dataclass(frozen=True)
class Source:
    """One kind of environment and its parameters, not opened yet.

    Args:
        name: For messages.
        table: Capsule of an environment in C, or None.
        make: Class or factory of one in Python, or None.
        params: Of the table, or arguments of ``make``.
        instances: The parameter ``num_envs`` of an environment in C: instances in each object.
        limits: As in `EnvSpec`.
        wraps: What goes around each environment in Python, the innermost first (`puffer_core.vector.wrap`).
        target: Where the capsule is found, ``"module:attribute"``: with it, the source can be sent to another process.
        instance: An environment in Python that is there already, or None.
        timeout: Seconds that opening one to look at it may take, and closing it again; None is any time to open.
    """

    name: str
    table: object | None = None
    make: Callable[..., Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    instances: int = 1
    limits: tuple[str, ...] = ()
    wraps: tuple[Callable[[PufferEnv], PufferEnv], ...] = ()
    target: str | None = None
    instance: Any = None
    timeout: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to another process: a capsule is found again there.

        Raises:
            OptionError: If it is not known where.
        """
        if self.table is not None and self.target is None:
            msg = f"{self.name} was given as a capsule, which can't be sent to another process"
            raise OptionError(msg, hint="give the environment's name or its EnvSpec")
        return {name: value for name, value in self.__dict__.items() if name not in ("table", "spaces")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was sent."""
        from puffer_core.plugins import resolve

        table = None if state["target"] is None else resolve(state["target"])
        self.__dict__.update(state, table=table)

    @cached_property
    def spaces(self) -> tuple[Space, Space, int]:
        """Observation space, action space and agents per instance; a Python environment is opened for it once."""
        if self.table is not None:
            observation, action, agents, _ = spaces_of(self.table, self.params)
            return observation, action, agents
        env = self.open_to_look()
        spaces = env.single_observation_space, env.single_action_space, int(env.num_agents)
        self.close_opened(env)
        return spaces

    def open_to_look(self) -> PufferEnv:
        """Return one Python environment that is not going to be stepped, within `timeout`.

        Raises:
            WorkerError: If it takes longer.
        """
        try:
            return within(self.timeout, self.open)
        except TimeoutError:
            msg = f"{self.name}: the environment has not opened within {self.timeout} s"
            raise WorkerError(msg, hint="a `timeout` that is longer gives it more time") from None

    def close_opened(self, env: PufferEnv) -> None:
        """Close an environment that was opened to look at it; one that can't be closed is still good for that."""
        if self.instance is not None:
            return
        limit_s = CLOSE_S if self.timeout is None else self.timeout
        try:
            within(limit_s, env.close)
        except TimeoutError:
            warnings.warn(f"{self.name}: close has not returned within {limit_s} s", stacklevel=2)
        except Exception as error:
            warnings.warn(f"{self.name}: close raised {type(error).__name__}: {error}", stacklevel=2)

    @property
    def agents(self) -> int:
        """Rows of one instance."""
        return self.spaces[2]

    @property
    def takes_buffers(self) -> bool:
        """Whether `open` can be given arrays that the environment then writes in: ``make`` names them ``buf``."""
        return self.make is not None and accepts(self.make, "buf", in_kwargs=False)

    def check_params(self, names: Iterable[str], also: Iterable[str] = ()) -> None:
        """Check that an environment in Python takes parameters of these names; one in C says so when it is opened.

        Args:
            names: Of the parameters.
            also: Other names that may have been meant.

        Raises:
            OptionError: The hint has the names that are close.
        """
        unknown = [] if self.make is None else not_taken(self.make, names)
        if self.make is not None and unknown:
            legal = [name for name in argument_names(self.make) if name not in ("buf", "self")]
            msg = f"{self.name} takes no parameter `{unknown[0]}`: it has {', '.join(legal) or 'none'}"
            raise OptionError(msg, hint=did_you_mean(unknown[0], [*legal, *also]))

    def open(self, buf: Mapping[str, Any] | None = None) -> PufferEnv:
        """Return one Python environment, checked; those of other frameworks are adapted.

        Raises:
            EnvError: If it is no environment, or its spaces are not allowed.
            OptionError: If it takes no parameter of one of the names given.
        """
        if self.instance is not None:
            return self._adapted(self.instance, buf)
        assert self.make is not None
        self.check_params(self.params)
        given = {} if buf is None or not self.takes_buffers else {"buf": buf}
        made = self._made(given)
        try:
            return self._adapted(made, buf)
        except (EnvError, OptionError):
            if hasattr(made, "close"):
                made.close()
            raise

    def _made(self, given: Mapping[str, Any]) -> Any:
        """Return what ``make`` makes.

        Raises:
            OptionError: If it refuses a parameter: it raises with it, and not without it.
        """
        assert self.make is not None
        try:
            return self.make(**self.params, **given)
        except _REFUSALS as error:
            refused = [] if isinstance(error, PufferError) else [key for key in self.params if self._opens_without(key)]
            if not refused:
                raise
            values = ", ".join(f"{key}={shortened(repr(self.params[key]))}" for key in refused)
            reason = traceback.format_exception_only(error)[-1].strip()
            raise OptionError(f"{self.name} can't be made with {values}: {reason}") from error

    def _opens_without(self, key: str) -> bool:
        """Return whether an environment can be made when a parameter is left out."""
        assert self.make is not None
        try:
            made = self.make(**{name: value for name, value in self.params.items() if name != key})
        except Exception:
            return False
        if hasattr(made, "close"):
            with suppress(Exception):
                made.close()
        return True

    def _adapted(self, made: Any, buf: Mapping[str, Any] | None) -> PufferEnv:
        env = adapt(made, buf)
        for wrap in self.wraps:
            env = wrap(env)
        return env


def with_timeout(env: Any, timeout: float | None) -> Any:
    """Return what `make` is given as environments, as sources that are opened to be looked at within ``timeout``."""
    if timeout is None:
        return env
    sources = [replace(source_of(one), timeout=timeout) for one in (env if isinstance(env, list | tuple) else [env])]
    return sources if isinstance(env, list | tuple) else sources[0]


def source_of(env: Any, params: Mapping[str, object] | None = None, name: str | None = None) -> Source:
    """Return the source that a name, spec, class, factory, capsule or source means.

    Args:
        env: As in `puffer_core.vector.make`.
        params: Parameters on top of the source's own.
        name: Full name of the environment, where the spec is that of a family.
    """
    params = dict(params or {})
    if isinstance(env, Source):
        source = env
    elif isinstance(env, str):
        from puffer_core.plugins import find_env

        source = _source_of_spec(*find_env(env))
    elif isinstance(env, EnvSpec):
        source = _source_of_spec(env, name if name is not None and env.is_family else env.name)
    elif type(env).__name__ == "PyCapsule":
        source = Source(open_table(env).name.decode(), table=env)
    elif is_environment(env):
        if params:
            raise OptionError(f"parameters were given for an environment that is there already: {', '.join(params)}")
        source = Source(type(getattr(env, "unwrapped", env)).__name__, instance=env)
    elif callable(env):
        source = Source(getattr(env, "__name__", type(env).__name__), make=env)
    else:
        raise OptionError(
            f"{env!r} is no environment: give a name, a spec, a class, a factory, a capsule or an instance"
        )
    if source.table is not None and "num_envs" in params:
        source = replace(source, instances=_instances(params.pop("num_envs")))
    return replace(source, params={**source.params, **params})


def sources_of(
    env: Any, num_envs: int, params: Mapping[str, object] | Sequence[Mapping[str, object]] | None
) -> list[Source]:
    """Return one source for each environment object: the same one where environment and parameters are.

    Args:
        env: As in `source_of`, for all of them or a list with one for each.
        num_envs: Objects.
        params: Likewise.

    Raises:
        OptionError: If a list has another length, or one instance would be several environments.
    """
    check_count("num_envs", num_envs)
    _require_room(num_envs)
    envs = list(env) if isinstance(env, list | tuple) else [env] * num_envs
    each: list[Any] = list(params) if isinstance(params, list | tuple) else [params] * num_envs
    for what, items in (("environments", envs), ("parameter sets", each)):
        if len(items) != num_envs:
            raise OptionError(f"{len(items)} {what} were given for num_envs={num_envs}")
    if all(item is envs[0] for item in envs) and all(item is each[0] for item in each):
        sources = [source_of(envs[0], each[0])] * num_envs
    else:
        sources = [source_of(one, given) for one, given in zip(envs, each, strict=True)]
    instances = [id(source.instance) for source in sources if source.instance is not None]
    if len(set(instances)) < len(instances):
        msg = f"one instance of {sources[0].name} can't be several of num_envs={num_envs} environments"
        raise OptionError(msg, hint="give its class or a factory, which makes one for each")
    return sources


def _require_room(num_envs: int) -> None:
    """Refuse so many environment objects that there is no memory for them, whatever they are."""
    needed = num_envs * _LEAST_BYTES
    if num_envs >= _MANY:
        import psutil

        if needed > (available := psutil.virtual_memory().available):
            msg = f"num_envs={num_envs} environments need more than {needed:,} bytes, available are {available:,}"
            raise OptionError(msg, hint="use fewer environments")


def _source_of_spec(spec: EnvSpec, name: str) -> Source:
    from puffer_core.plugins import resolve

    if spec.table is not None:
        return Source(name, table=resolve(spec.table), limits=spec.limits, target=spec.table)
    make = resolve(str(spec.make))
    if not spec.is_family:
        return Source(name, make=make, limits=spec.limits)
    if name == spec.name:
        msg = f"`{name}` is a family of environments, not one of them"
        raise OptionError(msg, hint=f"`puffer envs {spec.family}/` lists it; give the name of one")
    return Source(name, make=partial(make, name.partition("/")[2]), limits=spec.limits)


def _instances(value: object) -> int:
    return 1 if is_auto(value) else check_count("num_envs", value)
