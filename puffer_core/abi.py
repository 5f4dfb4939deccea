"""The structs of ``puffer/env.h`` for ctypes, and what the table of a C environment says about it.

Everything here is read from a capsule ``puffer.env.v1``: parameters with their validation, spaces, names. Nothing is
allocated and nothing is stepped; that is `puffer_core.native`.
"""

from __future__ import annotations

import ctypes as ct
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from puffer_core.env import Space, action_width
from puffer_core.errors import EnvError, OptionError, PluginError, did_you_mean
from puffer_core.keys import KeysBlock

VERSION = 1
CAPSULE = b"puffer.env.v1"
LIVE = 1
MAX_HEADS = 32
SIZES = {"table": 304, "io": 128, "param": 72, "spaces": 184}
"""Bytes of the structs as version 1 began. Members are only ever added at the end, so that no writer has fewer."""
MAX_SIZE = 1 << 16
"""Bytes of a struct that this host knows how to skip: one that is larger than ours has members added at its end."""
ERROR_LENGTH = 512
KINDS = ("int", "float", "bool", "enum", "string")
DTYPES: dict[int, Any] = {1: np.uint8, 2: np.int8, 3: np.float32}
DISCRETE, MULTI, BOX = 1, 2, 3
IO_ARRAYS = (
    "observations",
    "actions",
    "rewards",
    "terminals",
    "truncations",
    "masks",  # `alive` in C
    "action_mask",
    "final_observations",
    "log",
    "logged",
)
"""The arrays of PufferIO, in its order, by the names that `PufferEnv` gives them."""


class Value(ct.Union):
    """PufferValue."""

    _fields_ = (("i", ct.c_int64), ("f", ct.c_double), ("s", ct.c_char_p))


class ParamRow(ct.Structure):
    """PufferParam."""

    _fields_ = (
        ("name", ct.c_char_p),
        ("kind", ct.c_int),
        ("init", Value),
        ("min", Value),
        ("max", Value),
        ("step", Value),
        ("choices", ct.POINTER(ct.c_char_p)),
        ("flags", ct.c_uint32),
        ("help", ct.c_char_p),
    )


class Spaces(ct.Structure):
    """PufferSpaces."""

    _fields_ = (
        ("obs_dtype", ct.c_int),
        ("obs_ndim", ct.c_int32),
        ("obs_shape", ct.c_int32 * 4),
        ("obs_low", ct.c_double),
        ("obs_high", ct.c_double),
        ("action_kind", ct.c_int),
        ("num_heads", ct.c_int32),
        ("head_size", ct.c_int32 * MAX_HEADS),
        ("agents", ct.c_int32),
        ("has_mask", ct.c_uint8),
        ("has_alive", ct.c_uint8),
    )


class IO(ct.Structure):
    """PufferIO."""

    _fields_ = (
        *((name, ct.c_void_p) for name in IO_ARRAYS),
        ("reserved", ct.c_void_p * 6),
    )


class Head(ct.Structure):
    """PufferHead."""

    _fields_ = (
        ("io", ct.c_void_p),
        ("row", ct.c_int64),
        ("rng", ct.c_uint32 * 4),
        ("fresh", ct.c_uint32),
        ("agents", ct.c_uint32),
    )


class Canvas(ct.Structure):
    """PufferCanvas."""

    _fields_ = (
        ("rgb", ct.c_void_p),
        ("width", ct.c_int32),
        ("height", ct.c_int32),
        ("fps", ct.c_float),
        ("zoom", ct.c_float),
        ("pan_x", ct.c_float),
        ("pan_y", ct.c_float),
        ("follow", ct.c_int32),
    )


_Values = ct.POINTER(Value)
_Error = ct.c_char_p


class Sizes(ct.Structure):
    """The beginning of PufferEnvTable, which says how much there is to read."""

    _fields_ = (
        ("abi_version", ct.c_uint32),
        ("table_size", ct.c_uint32),
        ("io_size", ct.c_uint32),
        ("param_size", ct.c_uint32),
        ("spaces_size", ct.c_uint32),
    )


class Table(ct.Structure):
    """PufferEnvTable."""

    _fields_ = (
        *Sizes._fields_,
        ("name", ct.c_char_p),
        ("version", ct.c_uint32),
        ("params", ct.c_void_p),
        ("num_params", ct.c_int32),
        ("log_fields", ct.POINTER(ct.c_char_p)),
        ("num_log_fields", ct.c_int32),
        ("check", ct.CFUNCTYPE(ct.c_int, _Values, _Error, ct.c_size_t)),
        ("spaces", ct.CFUNCTYPE(None, _Values, ct.c_void_p)),
        ("state_size", ct.CFUNCTYPE(ct.c_size_t, _Values)),
        ("shared_new", ct.c_void_p),
        ("shared_free", ct.c_void_p),
        ("init", ct.c_void_p),
        ("set_params", ct.CFUNCTYPE(None, ct.c_void_p, _Values)),
        ("reset", ct.c_void_p),
        ("step", ct.c_void_p),
        ("observe", ct.CFUNCTYPE(None, ct.c_void_p, ct.c_int32, ct.c_void_p, ct.c_void_p)),
        ("draw", ct.CFUNCTYPE(None, ct.c_void_p, ct.POINTER(Canvas))),
        ("text", ct.CFUNCTYPE(ct.c_int, ct.c_void_p, ct.c_void_p, ct.c_size_t)),
        ("human", ct.CFUNCTYPE(ct.c_int, ct.c_void_p, ct.POINTER(KeysBlock), ct.c_void_p)),
        ("step_range", ct.c_void_p),
        (
            "vec_new",
            ct.CFUNCTYPE(
                ct.c_void_p,
                _Values,
                ct.c_int64,
                ct.c_uint64,
                ct.c_int64,
                ct.c_void_p,
                ct.c_int32,
                _Error,
                ct.c_size_t,
            ),
        ),
        ("vec_reset", ct.CFUNCTYPE(None, ct.c_void_p, ct.c_int, ct.c_uint64)),
        ("vec_step", ct.CFUNCTYPE(None, ct.c_void_p)),
        ("vec_base", ct.CFUNCTYPE(ct.c_void_p, ct.c_void_p, ct.POINTER(ct.c_size_t))),
        ("vec_log", ct.CFUNCTYPE(ct.c_int64, ct.c_void_p, ct.POINTER(ct.c_double))),
        ("vec_free", ct.CFUNCTYPE(None, ct.c_void_p)),
        ("device_source", ct.c_char_p),
        ("reserved", ct.c_void_p * 8),
    )


@dataclass(frozen=True)
class Param:
    """One row of a parameter table, in Python types."""

    name: str
    kind: str
    """``int``, ``float``, ``bool``, ``enum`` or ``string``."""
    default: Any
    min: Any
    max: Any
    step: float
    """Legal numbers are ``min + k * step``; 0 for any."""
    choices: tuple[str, ...]
    live: bool
    """Whether it may change while running."""
    help: str

    @property
    def legal(self) -> str:
        """What it accepts, in words."""
        if self.kind == "enum":
            return f"one of {', '.join(self.choices)}"
        if self.kind in ("bool", "string"):
            return {"bool": "true or false", "string": "a text"}[self.kind]
        if self.kind == "float":
            steps = f" in steps of {self.step:g}" if self.step > 0 else ""
            return f"a number from {self.min:g} to {self.max:g}{steps}"
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"an integer from {self.min} to {self.max}{steps}"


def open_table(capsule: object) -> Table:
    """Return the table in a capsule.

    Raises:
        PluginError: If it is no capsule ``puffer.env.v1``, or was built for an interface that this core doesn't know.
    """
    is_valid, get_pointer = ct.pythonapi.PyCapsule_IsValid, ct.pythonapi.PyCapsule_GetPointer
    is_valid.argtypes, is_valid.restype = [ct.py_object, ct.c_char_p], ct.c_int
    get_pointer.argtypes, get_pointer.restype = [ct.py_object, ct.c_char_p], ct.c_void_p
    if not is_valid(capsule, CAPSULE):
        raise PluginError(f"{capsule!r} is not a capsule `{CAPSULE.decode()}`")
    address = get_pointer(capsule, CAPSULE)
    found = Sizes.from_address(address)
    if found.abi_version != VERSION:
        msg = f"the environment was built for version {found.abi_version} of puffer/env.h, this core has {VERSION}"
        raise PluginError(msg, hint="install versions of the two that belong together")
    table = _read(Table, address, found.table_size)
    for name, least in SIZES.items():
        size = getattr(table, f"{name}_size")
        if not least <= size <= MAX_SIZE:
            raise PluginError(f"{_name(table)}: {name}_size is {size}, this core knows {least} to {MAX_SIZE}")
    return table


S = TypeVar("S", bound=ct.Structure)


def _read(cls: type[S], address: int, size: int) -> S:
    """Return a copy of a struct of which the writer knew ``size`` bytes; members that it did not know are zero."""
    struct = cls()
    ct.memmove(ct.byref(struct), address, min(size, ct.sizeof(cls)))
    return struct


def _name(table: Table) -> str:
    return str(table.name.decode())


def log_fields(table: Table) -> tuple[str, ...]:
    """Return the names of the values in a log row."""
    return tuple(table.log_fields[i].decode() for i in range(table.num_log_fields))


def params_of(table: Table) -> list[Param]:
    """Return the parameter table."""
    size = table.param_size
    rows = (_read(ParamRow, table.params + i * size, size) for i in range(table.num_params))
    return [_param(row) for row in rows]


def _param(row: ParamRow) -> Param:
    kind = KINDS[row.kind]
    choices: list[str] = []
    while kind == "enum" and row.choices[len(choices)]:
        choices.append(row.choices[len(choices)].decode())
    member = {"float": "f", "string": "s"}.get(kind, "i")
    init, low, high = (getattr(value, member) for value in (row.init, row.min, row.max))
    if kind == "string":
        init, low, high = (init or b"").decode(), None, None
    elif kind == "enum":
        init, low, high = choices[init], None, None
    elif kind == "bool":
        init, low, high = bool(init), False, True
    step: float = {"int": int(row.step.i), "float": float(row.step.f)}.get(kind, 0)
    return Param(
        row.name.decode(), kind, init, low, high, step, tuple(choices), bool(row.flags & LIVE), _text(row.help)
    )


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def check_value(env: str, param: Param, value: object) -> Any:
    """Return ``value`` in the parameter's own type.

    Raises:
        OptionError: The text names parameter, value and legal range.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    typed = _convert(param, plain)
    if typed is None:
        raise OptionError(f"{env}: {param.name}={value!r} is not legal: {param.legal}")
    return typed


def _convert(param: Param, value: object) -> Any:
    """Return the typed value, or None where it is illegal."""
    if param.kind == "string":
        return value if isinstance(value, str) and "\0" not in value else None
    if param.kind == "enum":
        return value if isinstance(value, str) and value in param.choices else None
    if param.kind == "bool":
        return bool(value) if isinstance(value, int) and value in (0, 1) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if param.kind == "int" and value != int(value):
        return None
    if not param.min <= value <= param.max:
        return None
    if param.kind == "float":
        steps = (value - param.min) / param.step if param.step > 0 else 0.0
        return float(value) if math.isclose(steps, round(steps), rel_tol=1e-9, abs_tol=1e-9) else None
    return None if param.step > 1 and (int(value) - param.min) % param.step else int(value)


def validate(table: Table, params: Mapping[str, object]) -> dict[str, Any]:
    """Return every parameter with its value, defaults filled in.

    Raises:
        OptionError: If a name is unknown, a value illegal, or the environment's own rules refuse the combination.
    """
    rows, env = params_of(table), _name(table)
    names = [param.name for param in rows]
    for name in params:
        if name not in names:
            hint = did_you_mean(str(name), names) or f"it has {', '.join(names) or 'none'}"
            raise OptionError(f"{env} has no parameter `{name}`", hint=hint)
    values = {param.name: param.default for param in rows}
    values |= {param.name: check_value(env, param, params[param.name]) for param in rows if param.name in params}
    if table.check:
        error = ct.create_string_buffer(ERROR_LENGTH)
        if table.check(pack(table, values), error, ERROR_LENGTH):
            raise OptionError(f"{env}: {error.value.decode() or 'these parameters do not go together'}")
    return values


def pack(table: Table, values: Mapping[str, Any]) -> ct.Array[Value]:
    """Return validated values as C reads them; the array keeps their strings alive."""
    rows = params_of(table)
    packed = (Value * max(1, len(rows)))()
    for slot, param in zip(packed, rows, strict=False):
        value = values[param.name]
        if param.kind == "float":
            slot.f = value
        elif param.kind == "string":
            slot.s = value.encode()
        else:
            slot.i = param.choices.index(value) if param.kind == "enum" else int(value)
    return packed


def spaces_of_table(table: Table, values: Mapping[str, Any]) -> tuple[Space, Space, int, int]:
    """Return observation space, action space, agents per instance and width of the action mask (0: none).

    Raises:
        EnvError: If the environment declares something that the interface does not allow.
    """
    block = ct.create_string_buffer(max(table.spaces_size, ct.sizeof(Spaces)))
    table.spaces(pack(table, values), ct.cast(block, ct.c_void_p))
    spaces, env = Spaces.from_buffer(block), _name(table)
    if spaces.obs_dtype not in DTYPES or not 1 <= spaces.obs_ndim <= 4 or spaces.agents < 1:
        dtype, ndim, agents = spaces.obs_dtype, spaces.obs_ndim, spaces.agents
        raise EnvError(f"{env} declares obs_dtype={dtype}, obs_ndim={ndim}, agents={agents}")
    if not 1 <= spaces.num_heads <= MAX_HEADS:
        raise EnvError(f"{env} declares {spaces.num_heads} action heads, not 1 to {MAX_HEADS}")
    heads = list(spaces.head_size[: spaces.num_heads])
    shape = tuple(spaces.obs_shape[: spaces.obs_ndim])
    is_box = spaces.action_kind == BOX
    if min(shape) < 1 or (not is_box and min(heads) < 1):
        raise EnvError(f"{env} declares obs_shape={shape}, action heads {heads}")
    observation = Box(spaces.obs_low, spaces.obs_high, shape, DTYPES[spaces.obs_dtype])
    action: Space
    if is_box:
        action = Box(-1.0, 1.0, (len(heads),), np.float32)
    elif spaces.action_kind == MULTI:
        action = MultiDiscrete(heads)
    elif spaces.action_kind == DISCRETE and len(heads) == 1:
        action = Discrete(heads[0])
    else:
        raise EnvError(f"{env} declares action_kind={spaces.action_kind} with {len(heads)} heads")
    return observation, action, int(spaces.agents), action_width(action) if spaces.has_mask else 0
