"""A C environment seen as a `PufferEnv`: `NativeEnv` steps all instances of one vector in one foreign call.

The buffers are bound once; a step copies the actions in and calls ``vec_step`` with the interpreter lock released.
What the table says is read in `puffer_core.abi`; the functions that only read a capsule are offered here too.
"""

from __future__ import annotations

import ctypes as ct
import hashlib
import json
import struct
import weakref
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from puffer_core import abi
from puffer_core.abi import Param
from puffer_core.env import Array, PufferEnv, Space, Step, layout_of, put_actions, take_buffers
from puffer_core.errors import EnvError, OptionError, RenderError, UsageError, did_you_mean
from puffer_core.keys import Keys, packed

__all__ = ["NativeEnv", "Param", "spaces_of", "table_params", "validate_params"]

MAX_INSTANCES = 1 << 20
MAX_THREADS = 256
RENDER_MODES = ("human", "rgb_array", "ansi")
TEXT_LENGTH = 1 << 14
_MAGIC = b"PUFENV1\0"
_LENGTH = struct.Struct("<I")


def table_params(capsule: object) -> list[Param]:
    """Return the parameters of a C environment, in the order of its table."""
    return abi.params_of(abi.open_table(capsule))


def validate_params(capsule: object, params: Mapping[str, object]) -> dict[str, Any]:
    """Return all parameters, typed, defaults filled in.

    Raises:
        OptionError: For an unknown name, a wrong type, a value out of range, or a combination that is not allowed.
    """
    return abi.validate(abi.open_table(capsule), params)


def spaces_of(capsule: object, params: Mapping[str, object] | None = None) -> tuple[Space, Space, int, int]:
    """Return observation space, action space, agents per instance and width of the action mask (0: none)."""
    table = abi.open_table(capsule)
    return abi.spaces_of_table(table, abi.validate(table, params or {}))


class NativeEnv(PufferEnv):
    """All instances of a C environment in one vector.

    Args:
        table: Capsule ``puffer.env.v1``.
        params: Values of its parameters; the rest have their defaults.
        num_envs: Instances.
        seed: Of the first `reset`, where that gives none.
        first_index: Instances before these over all workers and ranks.
        num_threads: Threads that step them; no result depends on it.
        strict: Refuse an action outside the action space instead of replacing it.
        buf: Arrays to use instead of new ones.
        render_mode: What `render` does where it is not told.

    Raises:
        OptionError: If an argument or a parameter is illegal; the text gives its legal range.
        EnvError: If an array of ``buf`` can't be used.
    """

    def __init__(
        self,
        table: object,
        params: Mapping[str, object] | None = None,
        num_envs: int = 1,
        seed: int = 0,
        first_index: int = 0,
        num_threads: int = 1,
        strict: bool = False,
        buf: Mapping[str, Array] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._capsule = table
        self._table = abi.open_table(table)
        self.name = self._table.name.decode()
        self.version = int(self._table.version)
        self.num_envs = _integer("num_envs", num_envs, 1, MAX_INSTANCES)
        self.seed = _integer("seed", seed, 0, 2**63 - 1)
        self.first_index = _integer("first_index", first_index, 0, 2**62)
        self.num_threads = _integer("num_threads", num_threads, 1, MAX_THREADS)
        if not isinstance(strict, bool | np.bool_):
            raise OptionError(f"strict={strict!r} is not true or false")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise OptionError(f"render_mode={render_mode!r} is not one of {', '.join(RENDER_MODES)}")
        self.strict, self.render_mode = bool(strict), render_mode
        self.params = abi.validate(self._table, params or {})
        observation, action, self.agents_per_env, mask_width = abi.spaces_of_table(self._table, self.params)
        self.single_observation_space, self.single_action_space = observation, action
        self.num_agents = self.num_envs * self.agents_per_env
        self.has_action_mask = mask_width > 0
        self.log_fields = abi.log_fields(self._table)
        super().__init__(buf)
        self._io_block = ct.create_string_buffer(max(self._table.io_size, ct.sizeof(abi.IO)))
        self._bind_io()
        self._open(self.seed, self.first_index)

    # -- life ---------------------------------------------------------------------------------------------------------

    def _open(self, seed: int, first_index: int) -> None:
        """Make the vector; nothing is written to the arrays before the first reset."""
        table, error = self._table, ct.create_string_buffer(abi.ERROR_LENGTH)
        self._values = abi.pack(table, self.params)
        vec = table.vec_new(
            self._values,
            self.num_envs,
            seed,
            first_index,
            ct.addressof(self._io_block),
            self.num_threads,
            error,
            abi.ERROR_LENGTH,
        )
        if not vec:
            raise EnvError(f"{self.name}: {error.value.decode() or 'the vector could not be made'}")
        # The finaliser keeps alive what the vector reads until it is freed.
        self._texts: list[ct.Array[abi.Value]] = []
        free, alive = table.vec_free, (self._capsule, self._values, self._io_block, self._texts)
        self._finalizer = weakref.finalize(self, lambda: (free(vec), alive))
        self._vec: int = vec
        stride = ct.c_size_t()
        self._base: int = table.vec_base(vec, ct.byref(stride))
        self.state_bytes = stride.value
        self._index = first_index
        self._sums = (ct.c_double * max(1, len(self.log_fields)))()
        self._vec_step: Callable[[int], None] = self._refuse_step

    def _bind_io(self) -> None:
        io = abi.IO.from_buffer(self._io_block)
        for name in abi.IO_ARRAYS:
            array = getattr(self, name)
            setattr(io, name, None if array is None else array.ctypes.data)

    def _refuse_step(self, _vec: int) -> NoReturn:
        raise UsageError(f"{self.name}: reset before stepping")

    def _refuse_closed(self, *_: object) -> NoReturn:
        raise UsageError(f"{self.name}: used after close")

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            self._refuse_closed()

    def close(self) -> None:
        """Free the vector; the arrays stay readable."""
        if "_finalizer" in self.__dict__:
            self._finalizer()
            self._vec_step = self._refuse_closed

    # -- reset and step -----------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, index: int | None = None) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode in every instance; without a seed the generators go on.

        An ``index`` takes the place of ``first_index``.
        """
        self._check_open()
        first_index = self._index if index is None else _integer("index", index, 0, 2**62)
        is_new = self._vec_step == self._refuse_step
        if seed is not None:
            seed = _integer("seed", seed, 0, 2**63 - 1)
        if first_index != self._index and (seed is not None or is_new):
            self._finalizer()
            self._open(self.seed if seed is None else seed, first_index)
        self._table.vec_reset(self._vec, seed is not None, seed or 0)
        self._start()
        return self.observations, []

    def _start(self) -> None:
        self._vec_step = self._table.vec_step

    def step(self, actions: Array) -> Step:
        """Advance every agent by one step; the arrays returned are the environment's own."""
        put_actions(actions, self.actions, self.name, self.single_action_space if self.strict else None)
        self._vec_step(self._vec)
        return self.observations, self.rewards, self.terminals, self.truncations, []

    # -- what ended ---------------------------------------------------------------------------------------------------

    def drain_log(self) -> dict[str, float] | None:
        """Return the means over everything logged since the last call, and their number ``n``; None without any."""
        self._check_open()
        rows = self._table.vec_log(self._vec, self._sums)
        if rows == 0:
            return None
        means = {field: self._sums[i] / rows for i, field in enumerate(self.log_fields)}
        return {**means, "n": float(rows)}

    # -- parameters ---------------------------------------------------------------------------------------------------

    def set_params(self, **values: Any) -> None:
        """Set LIVE parameters; each instance adopts them at its next reset."""
        self._check_open()
        rows = {param.name: param for param in abi.params_of(self._table)}
        live = [name for name, param in rows.items() if param.live and self._table.set_params]
        for name in values:
            hint = f"these can change while running: {', '.join(live) or 'none'}"
            if name not in rows:
                near = did_you_mean(name, live)
                raise OptionError(f"{self.name} has no parameter `{name}`", hint=f"{near} {hint}" if near else hint)
            if name not in live:
                raise OptionError(f"{self.name}: `{name}` can't change while running", hint=hint)
        self.params = abi.validate(self._table, {**self.params, **values})
        packed = abi.pack(self._table, self.params)
        if any(param.kind == "string" for param in rows.values()):
            self._texts.append(packed)  # strings live as long as the vector
        for instance in range(self.num_envs):
            self._table.set_params(self._base + instance * self.state_bytes, packed)

    # -- state --------------------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Return the state of all instances."""
        return self._save(0, self.num_envs)

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned, from a vector with as many instances and the same parameters."""
        self._load(0, self.num_envs, blob)

    def save_instance(self, instance: int) -> bytes:
        """Return the state of one instance; it can be restored into any instance of the same environment."""
        return self._save(self._check_instance(instance), 1)

    def load_instance(self, instance: int, blob: bytes) -> None:
        """Restore one instance and write its observations.

        Raises:
            EnvError: If the blob is damaged, or of another environment, version or set of parameters.
        """
        self._load(self._check_instance(instance), 1, blob)

    def _check_instance(self, instance: int) -> int:
        return _integer("instance", instance, 0, self.num_envs - 1)

    def _states(self, first: int, count: int) -> Array:
        """Return a view of (count, state_bytes) on the instances themselves."""
        block = (ct.c_uint8 * (count * self.state_bytes)).from_address(self._base + first * self.state_bytes)
        return np.frombuffer(memoryview(block), np.uint8).reshape(count, self.state_bytes)

    def _describe(self, count: int) -> dict[str, object]:
        """Return what a blob must agree in. LIVE parameters are left out: the state holds its own values of them."""
        live = self._live()
        fixed = json.dumps({name: value for name, value in self.params.items() if name not in live}, sort_keys=True)
        return {
            "environment": self.name,
            "version": self.version,
            "parameters": hashlib.sha256(fixed.encode()).hexdigest()[:16],
            "instances": count,
            "state_bytes": self.state_bytes,
        }

    def _live(self) -> dict[str, Any]:
        return {param.name: self.params[param.name] for param in abi.params_of(self._table) if param.live}

    def _save(self, first: int, count: int) -> bytes:
        self._check_open()
        states = self._states(first, count).copy()
        states[:, : abi.Head.rng.offset] = 0  # the host's pointer and row
        rows = slice(first * self.agents_per_env, (first + count) * self.agents_per_env)
        header = json.dumps({**self._describe(count), "live": self._live()}).encode()
        body = b"".join((_LENGTH.pack(len(header)), header, states.tobytes(), self.masks[rows].tobytes()))
        return _MAGIC + _LENGTH.pack(zlib.crc32(body)) + body

    def _load(self, first: int, count: int, blob: bytes) -> None:
        self._check_open()
        saved, payload = self._open_blob(count, blob)
        if count == self.num_envs:
            self.params = abi.validate(self._table, {**self.params, **saved})
        size = count * self.state_bytes
        states, heads = self._states(first, count), abi.Head.rng.offset
        new = np.frombuffer(payload, np.uint8, size).reshape(count, self.state_bytes)
        states[:, heads:] = new[:, heads:]
        rows = slice(first * self.agents_per_env, (first + count) * self.agents_per_env)
        self.masks[rows] = np.frombuffer(payload, np.bool_, offset=size)
        self._observe(rows)
        self._start()

    def _open_blob(self, count: int, blob: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the LIVE parameters, and states and masks, of a blob that belongs here."""
        start = len(_MAGIC) + _LENGTH.size
        is_whole = len(blob) > start + _LENGTH.size and blob.startswith(_MAGIC)
        if not is_whole or _LENGTH.unpack_from(blob, len(_MAGIC))[0] != zlib.crc32(blob[start:]):
            raise EnvError(f"{self.name}: this is no saved state, or it is damaged")
        header_end = start + _LENGTH.size + _LENGTH.unpack_from(blob, start)[0]
        saved = json.loads(blob[start + _LENGTH.size : header_end])
        for key, value in self._describe(count).items():
            if saved.get(key) != value:
                raise EnvError(f"{self.name}: the saved state is of {key} {saved.get(key)}, not {value}")
        return {name: value for name, value in saved.get("live", {}).items() if name in self._live()}, blob[header_end:]

    def _observe(self, rows: slice) -> None:
        """Rewrite observations and action masks, for rows that may hold anything."""
        table, mask = self._table, self.action_mask
        width = 0 if mask is None else mask.shape[1]
        mask_at = 0 if mask is None else mask.ctypes.data
        row_bytes = self.observations[0].nbytes
        for row in range(rows.start, rows.stop):
            instance, agent = divmod(row, self.agents_per_env)
            state = self._base + instance * self.state_bytes
            mask_row = mask_at + row * width if mask_at else None
            table.observe(state, agent, self.observations.ctypes.data + row * row_bytes, mask_row)

    def rebind(self, buf: Mapping[str, Array]) -> None:
        """Go on in other arrays: everything in the old ones is carried over or written anew."""
        self._check_open()
        # Copies, because arrays that stay are filled anew before they are taken.
        arrays = {name: getattr(self, name) for name in abi.IO_ARRAYS if name not in ("observations", "action_mask")}
        old = {name: array.copy() for name, array in arrays.items() if array is not None}
        for name, array in take_buffers(layout_of(self), buf, self.name).items():
            if array is not None and name in old:
                array[...] = old[name]
            setattr(self, name, array)
        self._bind_io()
        if self._vec_step != self._refuse_step:
            self._observe(slice(0, self.num_agents))

    # -- pictures -----------------------------------------------------------------------------------------------------

    def render(self, index: int = 0, mode: str | None = None) -> Any:
        """Return a picture of one instance, (H, W, 3) uint8 for ``rgb_array``, a text for ``ansi``.

        Raises:
            RenderError: If the environment or this machine can't show that.
        """
        self._check_open()
        mode = self.render_mode if mode is None else mode
        if mode not in RENDER_MODES:
            raise OptionError(f"render mode {mode!r} is not one of {', '.join(RENDER_MODES)}")
        state = self._base + _integer("index", index, 0, self.num_envs - 1) * self.state_bytes
        if mode == "ansi":
            return self._text(state)
        if mode == "human":
            msg = f"{self.name}: render mode human needs a window, which `puffer eval` and `puffer play` open"
            raise RenderError(msg, hint="use rgb_array or ansi")
        return self._picture(state)

    def human(self, keys: Keys, agent: int = 0, index: int = 0) -> tuple[Array, int]:
        """Return the row of actions that keys stand for now, and 1, 0 or -1.

        1: a key gave it; 0: none did, and it stands for that; -1: none did, and the game waits for one.

        Raises:
            OptionError: If the environment does not say what keys do.
        """
        self._check_open()
        if not self._table.human:
            raise OptionError(f"{self.name} does not say what keys do")
        action = np.zeros(self.actions.shape[1:], self.actions.dtype)
        agent = _integer("agent", agent, 0, min(self.agents_per_env, 1 << 16) - 1)
        state = self._base + _integer("index", index, 0, self.num_envs - 1) * self.state_bytes
        return action, int(self._table.human(state, ct.byref(packed(keys, agent)), action.ctypes.data))

    def _picture(self, state: int) -> Array:
        if not self._table.draw:
            raise RenderError(f"{self.name} does not draw: no rgb_array")
        canvas = abi.Canvas(zoom=1.0)
        self._table.draw(state, ct.byref(canvas))
        picture = np.zeros((canvas.height, canvas.width, 3), np.uint8)
        canvas.rgb = picture.ctypes.data
        self._table.draw(state, ct.byref(canvas))
        self.frames_per_second = float(canvas.fps)
        return picture

    def _text(self, state: int) -> str:
        if not self._table.text:
            raise RenderError(f"{self.name} has no ansi view", hint="use rgb_array")
        length = TEXT_LENGTH
        while True:
            block = ct.create_string_buffer(length)
            needed = self._table.text(state, block, length)
            if needed < length:
                return block.value.decode(errors="replace")
            length = needed + 1


def _integer(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise OptionError(f"{name}={value!r} is not an integer from {low} to {high}")
    return int(value)
