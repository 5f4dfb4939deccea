"""The same for one agent behind an adapter: wrappers of the environment itself, which leave `Serial` its fast loop."""

from __future__ import annotations

import struct
from typing import Any

from puffer_core.emulation.gymnasium import GymnasiumPufferEnv
from puffer_core.emulation.values import to_flag, to_number
from puffer_core.errors import EnvError

_ARRAYS = ("observations", "actions", "rewards", "terminals", "truncations", "masks", "final_observations")
_STEPS = struct.Struct("<q")


class SingleWrapper:
    """An environment of one agent around another, whose attributes it shows.

    Args:
        env: The environment inside.
        value: What the wrapper's key in ``[wrap]`` is set to.
    """

    def __init__(self, env: Any, value: int) -> None:
        self.env, self._value = env, value
        self._name = type(self.unwrapped).__name__

    def __getattr__(self, name: str) -> Any:
        # A copy is made before it has `env`, and asks for special methods, which must not be those of the one inside.
        if name == "env" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no attribute `{name}`")
        return getattr(self.env, name)

    @property
    def unwrapped(self) -> Any:
        """The environment without wrappers."""
        return getattr(self.env, "unwrapped", self.env)

    def _flags(self, result: Any) -> tuple[bool, ...]:
        """Return the flags of what ``step`` returned; none where the adapter will refuse it."""
        if not isinstance(result, tuple | list) or len(result) not in (4, 5):
            return ()
        keys = ("done",) if len(result) == 4 else ("terminated", "truncated")
        return tuple(to_flag(self._name, key, flag) for key, flag in zip(keys, result[2:-1], strict=True))


class SingleRepeat(SingleWrapper):
    """As `ActionRepeat`."""

    def step(self, action: Any) -> Any:
        """Take an action several times, until the episode ends; return what the last step did, rewards added up."""
        total = 0.0
        for _ in range(self._value):
            result = self.env.step(action)
            flags = self._flags(result)
            if not flags:
                return result
            total += to_number(self._name, "reward", result[1])
            if any(flags):
                break
        return (result[0], total, *result[2:])


class SingleLimit(SingleWrapper):
    """As `TimeLimit`."""

    def __init__(self, env: Any, value: int) -> None:
        super().__init__(env, value)
        self._steps = 0

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return {"save": self._save, "load": self._load}[name] if name in ("save", "load") else found

    def reset(self, **arguments: Any) -> Any:
        """Start a new episode."""
        self._steps = 0
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        """Advance by one step, and cut the episode that gets too long."""
        result = self.env.step(action)
        self._steps += 1
        return result if self._steps < self._value else self._cut(result)

    def _cut(self, result: Any) -> Any:
        flags = self._flags(result)
        if any(flags) or not flags:
            return result
        if len(flags) == 2:
            return (*result[:3], True, result[4])
        return (*result[:2], True, {**(result[3] or {}), "TimeLimit.truncated": True})

    def _save(self) -> Any:
        blob = self.env.save()
        return _STEPS.pack(self._steps) + blob if isinstance(blob, bytes) else blob

    def _load(self, blob: bytes) -> None:
        if len(blob) < _STEPS.size:
            raise EnvError(f"the saved state has {len(blob)} bytes, and the wrapper time_limit alone has {_STEPS.size}")
        self.env.load(blob[_STEPS.size :])
        (self._steps,) = _STEPS.unpack(blob[: _STEPS.size])


SINGLE: dict[str, type[SingleWrapper]] = {"action_repeat": SingleRepeat, "time_limit": SingleLimit}


def around_adapter(key: str, value: int, adapter: GymnasiumPufferEnv) -> GymnasiumPufferEnv:
    """Return an adapter around the wrapped environment, in the arrays of the adapter that was around it."""
    arrays = {name: getattr(adapter, name) for name in _ARRAYS}
    return GymnasiumPufferEnv(env=SINGLE[key](adapter.env, value), buf=arrays)
