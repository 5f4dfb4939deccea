"""What plugins hand to the core: plain data that names callables as ``"module:attribute"`` and imports nothing.

A spec checks its own fields when it is made, so a mistake surfaces in the hook that returns it. Any spec may name an
options dataclass (`options`, for an environment `params`): that is how a plugin's section enters the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from puffer_core.config import Config

TABLE = "table"
"""Value of `EnvSpec.params`: the legal parameters are those of the C table."""
OPEN = "open"
"""Value of `EnvSpec.params`: every ``--env.x`` goes to the constructor."""

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*")
_ENV = re.compile(r"[A-Za-z0-9][A-Za-z0-9.]*/(\*|[\w.:/-]+)|[A-Za-z0-9][\w.-]*")
_ALIAS = re.compile(r"[A-Za-z0-9][\w.:/-]*")


@dataclass(frozen=True)
class PluginInfo:
    """Who supplies a spec: the entry-point name and the version of the distribution."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True)
class Spec:
    """What all specs share: a name, and fields that name callables."""

    _targets: ClassVar[tuple[str, ...]] = ()

    name: str
    plugin: PluginInfo | None = field(default=None, kw_only=True, compare=False)
    """Filled in by the plugin manager when the spec is registered."""

    def __post_init__(self) -> None:
        _check_name(self, "name", self.name, _PLAIN)
        for label in self._targets:
            _check_target(self, label)
        if not isinstance(getattr(self, "priority", 0), int):
            raise ValueError(f"{type(self).__name__} {self.name!r}: priority is not an integer")


@dataclass(frozen=True)
class EnvSpec(Spec):
    """One environment, or with a name that ends in ``/*`` a whole family of them.

    Args:
        name: ``family/name``, or ``family/*``; a family has no ``-`` or ``_``, since a person may type one after it.
        make: The `PufferEnv` class or factory; a family's is called with the rest of the name first.
        table: The capsule ``puffer.env.v1`` of a C environment; exactly one of `make` and `table` is given.
        aliases: Other names, as ``breakout`` for ``ocean/breakout``.
        config: Ini file as ``"package:path/to.ini"``. The family's own ini is ``<family>.ini`` beside it.
        params: `TABLE`, `OPEN` or a dataclass; None means `TABLE` where there is a table, else `OPEN`.
        policy: Name of the encoder this environment proposes.
        list: For a family, a callable that returns the names in it, without ``family/``.
        limits: What its framework can't give: ``no-final-observation``, ``no-truncation``, ``no-seed``.
    """

    make: str | None = None
    table: str | None = None
    aliases: tuple[str, ...] = ()
    config: str | None = None
    params: str | None = None
    policy: str | None = None
    list: str | None = None
    limits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self, "name", self.name, _ENV)
        if (self.make is None) == (self.table is None):
            raise ValueError(f"EnvSpec {self.name!r}: give exactly one of `make` and `table`")
        for label in ("make", "table", "list"):
            _check_target(self, label)
        for label in ("aliases", "limits"):
            _check_strings(self, label)
        for alias in self.aliases:
            _check_name(self, "alias", alias, _ALIAS)
        if self.params is None:
            object.__setattr__(self, "params", TABLE if self.table else OPEN)
        elif self.params not in (TABLE, OPEN):
            _check_target(self, "params")
        if self.params == TABLE and self.table is None:
            raise ValueError(f"EnvSpec {self.name!r}: params={TABLE!r} needs a `table`")
        if self.is_family and (self.make is None or self.list is None):
            raise ValueError(f"EnvSpec {self.name!r}: a family needs `make` and `list`")
        if self.config is not None and not re.fullmatch(r"[\w.]+:[^:]+", self.config):
            raise ValueError(f"EnvSpec {self.name!r}: config={self.config!r} is not of the form 'package:path/to.ini'")

    @property
    def is_family(self) -> bool:
        """Whether the name ends in ``/*``."""
        return self.name.endswith("/*")

    @property
    def family(self) -> str:
        """The part of the name before the ``/``, empty where there is none."""
        return self.name.partition("/")[0] if "/" in self.name else ""


@dataclass(frozen=True)
class BackendSpec(Spec):
    """A way to run many environments: `make` opens a vector.

    ``supports(job)`` gets a `VectorJob` and answers None, or why it can't run that; ``auto`` takes the highest
    `priority` that can.
    """

    _targets = ("make", "supports")

    make: str
    priority: int = 0
    supports: str | None = None


@dataclass(frozen=True)
class PolicySpec(Spec):
    """An encoder, chosen with ``--policy.name``; recurrent cores and action heads are built by the core."""

    _targets = ("encoder", "options")

    encoder: str
    options: str | None = None


@dataclass(frozen=True)
class TrainerSpec(Spec):
    """A trainer: ``supports(job)`` answers None or why not, ``make(job, plan)`` opens the vector and builds it."""

    _targets = ("supports", "make", "options")

    priority: int
    supports: str
    make: str
    options: str | None = None


@dataclass(frozen=True)
class LoggerSpec(Spec):
    """A place metrics are mirrored to: ``make(run)`` gives an object with ``log(step, metrics)`` and ``close()``."""

    _targets = ("make", "options")

    make: str
    options: str | None = None


@dataclass(frozen=True)
class SweeperSpec(Spec):
    """A search: an object with ``suggest()`` and ``observe(params, score, cost, failed)``."""

    _targets = ("make", "options")

    make: str
    options: str | None = None


@dataclass(frozen=True)
class Job:
    """What a trainer is asked about, before any environment is made.

    Args:
        env: The spec.
        env_name: The canonical name; for a family's environment ``family/rest``.
        params: Validated environment parameters.
        observation_space: Of one agent, a Box.
        action_space: Of one agent.
        agents_per_env: Rows that one instance takes.
        table: The capsule, or None for a Python environment.
        config: The whole typed configuration.
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        policy: A network of the caller's own: a `torch.nn.Module`, or what is called with an environment and returns
            one; None for what ``config`` describes. A trainer that can't use it has to say so.
    """

    env: EnvSpec
    env_name: str
    params: Mapping[str, object]
    observation_space: Any
    action_space: Any
    agents_per_env: int
    table: object | None
    config: Config
    device: str
    policy: Any = None


@dataclass(frozen=True)
class VectorJob:
    """What a backend is asked about, before any environment is made.

    Args:
        env_name: Of the environment, for messages.
        params: Its parameters.
        table: The capsule, or None for an environment in Python.
        num_envs: Environment objects.
        num_workers: Processes among which they are divided, or ``auto``.
        batch_size: Environment objects in a batch, or ``auto``.
        zero_copy: Whether batches are contiguous blocks of workers.
    """

    env_name: str
    params: Mapping[str, object]
    table: object | None
    num_envs: int
    num_workers: int | str = "auto"
    batch_size: int | str = "auto"
    zero_copy: bool = True


def _check_name(spec: object, label: str, value: object, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{type(spec).__name__}: {label}={value!r} is not a legal name")


def _check_target(spec: Spec, label: str) -> None:
    value = getattr(spec, label)
    is_optional = spec.__dataclass_fields__[label].default is None
    if not (isinstance(value, str) and _TARGET.fullmatch(value)) and not (value is None and is_optional):
        raise ValueError(
            f"{type(spec).__name__} {spec.name!r}: {label}={value!r} is not of the form 'module:attribute'"
        )


def _check_strings(spec: Spec, label: str) -> None:
    value = getattr(spec, label)
    if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{type(spec).__name__} {spec.name!r}: {label}={value!r} is not a tuple of strings")
