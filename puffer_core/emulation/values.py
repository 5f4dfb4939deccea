"""What environments return and take, brought into the form of the contract; what can't be is refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from operator import attrgetter
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from puffer_core.emulation.leaves import exact_cast
from puffer_core.emulation.spaces import ActionCodec, ObservationCodec
from puffer_core.env import Array, refuse_illegal
from puffer_core.errors import EnvError, shortened

LARGEST = float(np.finfo(np.float32).max)
"""The largest finite reward."""
_SMALL = 1024
"""Bytes of an observation up to which joining bytes is faster than what numpy does."""
_DTYPE_OF = attrgetter("dtype")
_FEW = 2**16
"""Discrete actions of which each is kept ready."""


def to_number(owner: str, key: str, value: Any, wanted: str = "one real number") -> float:
    """Return a real number, or an array of one, as a float that a float32 can hold.

    Args:
        owner: Whose it is, for errors.
        key: What it is, for errors.
        value: Of any type.
        wanted: What is allowed, for errors.

    Raises:
        EnvError: If it is something else, or finite and too large.
    """
    number = value
    if not isinstance(value, Real | np.bool_):
        array = to_array(owner, key, value)
        if array.dtype.kind not in "biuf" or array.size != 1:
            raise refusal(owner, key, value, wanted)
        number = array.item()
    try:
        number = float(number)
    except OverflowError:
        raise refusal(owner, key, value, "a number that float32 can hold") from None
    if LARGEST < abs(number) < float("inf"):
        raise refusal(owner, key, value, "a number that float32 can hold")
    return float(number)


def to_flag(owner: str, key: str, value: Any) -> bool:
    """Return a boolean, or a number or an array of one that stands for one."""
    return value if type(value) is bool else bool(to_number(owner, key, value, "one boolean"))


def to_array(owner: str, key: str, value: Any) -> Array:
    """Return an array of what can be one."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        raise refusal(owner, key, value, "an array of numbers") from None


def refusal(owner: str, key: str, value: Any, wanted: str) -> EnvError:
    """Return the error for a value of the wrong kind."""
    return EnvError(f"{owner} gave {key}={shortened(repr(value))}, which is not {wanted}")


class BoxWriter:
    """Writes observations of a Box into rows.

    Those of the declared dtype and shape are copied. Others are converted where nothing is lost but digits of a float
    or axes of length 1, with one warning; the rest is refused.

    Args:
        owner: Whose observations they are, for errors.
        space: The Box.
    """

    def __init__(self, owner: str, space: Box) -> None:
        self._owner = owner
        self._dtype, self._shape = np.dtype(space.dtype), space.shape
        self._has_warned = False

    def bind(self, row: Array) -> Callable[[Any], None]:
        """Return `write` for one row that stays where it is."""
        return partial(self.write, row)

    def write(self, row: Array, observation: Any) -> None:
        """Write one observation into its row.

        Raises:
            EnvError: If it can't be converted.
        """
        if type(observation) is np.ndarray and observation.dtype == self._dtype and observation.shape == self._shape:
            row[...] = observation
        else:
            row[...] = self._convert(observation)

    def bind_all(self, rows: Array) -> Callable[[Sequence[Any]], bool]:
        """Return a function that writes one observation into each of the rows, which stay where they are.

        The function returns False where an observation needs `write`: the rows then hold anything. It may also raise
        what numpy does.
        """
        if not self._shape:
            return lambda observations: False
        length, dtype = self._shape[0], self._dtype
        is_flat = len(self._shape) == 1 and rows[0].nbytes <= _SMALL
        out, flat = rows.reshape(-1).view(np.uint8).data, rows.reshape(len(rows) * length, *self._shape[1:])

        def write(observations: Sequence[Any]) -> bool:
            count = len(observations)
            if [*map(len, observations)].count(length) < count:
                return False
            if self._has_warned:
                return self._convert_all(flat, observations)
            if not is_flat:
                np.concatenate(observations, out=flat, casting="equiv")
            elif [*map(_DTYPE_OF, observations)].count(dtype) < count:
                return False
            else:
                out[:] = b"".join(observations)
            return True

        return write

    def _convert_all(self, flat: Array, observations: Sequence[Any]) -> bool:
        """Write observations of which some had to be converted before."""
        array = np.concatenate(observations)
        if array.dtype.kind not in "biuf" or _without_ones(array.shape) != _without_ones(flat.shape):
            return False
        flat[...] = self._cast(array.reshape(flat.shape))
        return True

    def _convert(self, observation: Any) -> Array:
        array = to_array(self._owner, "observation", observation)
        if array.dtype != self._dtype and array.dtype.kind not in "biuf":
            raise refusal(self._owner, "observation", observation, f"an array of {self._dtype}")
        if array.shape != self._shape and _without_ones(array.shape) != _without_ones(self._shape):
            raise EnvError(
                f"{self._owner} gave an observation of shape {array.shape}, declared is {self._shape}",
                hint="declare the shape that the environment returns",
            )
        row = self._cast(array.reshape(self._shape))
        if not self._has_warned:
            self._has_warned = True
            kind = "" if isinstance(observation, np.ndarray) else f"{type(observation).__name__}, as "
            msg = f"{self._owner} gives observations as {kind}{array.dtype} {array.shape}, declared is "
            msg += f"{self._dtype} {self._shape}: each of them is converted, which takes time"
            warnings.warn(msg, stacklevel=2)
        return row

    def _cast(self, array: Array) -> Array:
        """Return an observation in the declared dtype; it may be rounded to a float, but nothing else may be lost."""
        if array.dtype == self._dtype:
            return array
        cast = exact_cast(array, self._dtype)
        if cast is None:
            wanted = f"what {self._dtype}, the dtype of the observation space, can hold"
            raise refusal(self._owner, "observation", array, wanted)
        return cast


class CodecWriter:
    """Writes observations of any other space into rows, as its codec does.

    Args:
        owner: Whose observations they are, for errors.
        codec: Of the observation space.
    """

    def __init__(self, owner: str, codec: ObservationCodec) -> None:
        self._owner, self._codec = owner, codec

    def bind(self, row: Array) -> Callable[[Any], None]:
        """Return a function that writes an observation into a row, which stays where it is.

        The function raises an `EnvError` that names owner and path where the observation does not fit.
        """
        put, owner = self._codec.bind(row), self._owner

        def write(observation: Any) -> None:
            try:
                put(observation)
            except EnvError as error:
                raise EnvError(f"{owner}: {error}", hint=error.hint) from error

        return write

    def bind_all(self, rows: Array) -> Callable[[Sequence[Any]], bool]:
        """Return a function that writes one observation into each of the rows, which stay where they are.

        The function returns True, or raises an `EnvError` where an observation does not fit.
        """
        puts = [self._codec.bind(row) for row in rows]

        def write(observations: Sequence[Any]) -> bool:
            for put, observation in zip(puts, observations, strict=True):
                put(observation)
            return True

        return write


class ActionReader:
    """Turns rows of actions into what environments take: never anything outside their action space.

    Continuous actions are clipped to their bounds. Others can't be put right without guessing what was meant.

    Args:
        owner: Whose actions they are, for errors.
        codec: Of the action space.
        integer: Type of a discrete action. Gymnasium's own checks are slow for Python's.
    """

    def __init__(self, owner: str, codec: ActionCodec, integer: Callable[[int], Any] = int) -> None:
        self._owner, self._space = owner, codec.space
        self._read = None if codec.is_identity else codec.read
        self._choices: dict[int, Any] = {}
        if isinstance(codec.original, Discrete) and codec.original.n <= _FEW:
            start = int(codec.original.start)
            self._choices = {i: integer(start + i) for i in range(int(codec.original.n))}
        elif isinstance(codec.original, Discrete):
            self._read = lambda row: integer(codec.read(row))
        if isinstance(self._space, Box):
            dtype = np.dtype(self._space.dtype)
            self._dtype = dtype if codec.is_identity else np.dtype(np.float32)
            self._low, self._high = (bound.astype(self._dtype) for bound in (self._space.low, self._space.high))
            heads = getattr(self._space, "action_layout", ())
            self._discrete = [i for i, head in enumerate(heads) if not head.is_continuous]

    def __call__(self, actions: Array) -> list[Any]:
        """Return the action of each row.

        Args:
            actions: (N,) int32 for Discrete, (N, K) int32 for MultiDiscrete, (N, D) float32 for a Box.

        Raises:
            EnvError: If an action is not a number, or a discrete one is out of range; the text names the row.
        """
        if (choices := self.choose(actions)) is not None:
            return choices
        if isinstance(self._space, Box):
            actions = self._clip(actions)
        else:
            self._check(actions)
        if self._read is not None:
            return [self._read(row) for row in actions]
        return list(actions if isinstance(self._space, Box) else actions.astype(self._space.dtype))

    def choose(self, actions: Array) -> list[Any] | None:
        """Return the action of each row where all are legal and from a few, else None.

        Args:
            actions: (N,) integers.
        """
        if not self._choices:
            return None
        try:
            return [*map(self._choices.__getitem__, actions.tolist())]
        except KeyError:
            return None

    def _clip(self, actions: Array) -> Array:
        values = actions.astype(self._dtype)
        if np.count_nonzero(values != values):
            row = int(np.argwhere(np.isnan(values))[0][0])
            msg = f"{self._owner}: agent {row}: action {actions[row]} is not a number"
            raise EnvError(msg, hint="has the policy diverged? lower the learning rate")
        if self._discrete:
            self._check_mixed(values)
        np.minimum(np.maximum(values, self._low, out=values), self._high, out=values)
        return values

    def _check_mixed(self, actions: Array) -> None:
        """Refuse rows whose discrete columns hold anything but a choice."""
        chosen, low, high = actions[:, self._discrete], self._low[self._discrete], self._high[self._discrete]
        if not ((chosen >= low) & (chosen <= high) & (chosen == np.floor(chosen))).all():
            clipped = np.clip(actions, self._low, self._high)
            clipped[:, self._discrete] = chosen  # what is continuous may be out of bounds
            refuse_illegal(clipped, self._space, self._owner, hint=None)

    def _check(self, actions: Array) -> None:
        sizes = self._space.nvec if isinstance(self._space, MultiDiscrete) else self._space.n  # type: ignore[attr-defined]
        # As unsigned numbers, negative ones are too large as well.
        if np.count_nonzero(actions.view(np.uint32) >= sizes):
            refuse_illegal(actions, self._space, self._owner, hint=None)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
