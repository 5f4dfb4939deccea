"""What runs in a Ray actor: a `Serial` over its share of the environments, and the messages it answers with.

This module imports no Ray: an actor is an ordinary object, and its messages are plain arrays.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from puffer_core.env import Array
from puffer_core.errors import OptionError
from puffer_core.vector.base import Infos
from puffer_core.vector.faults import Fault
from puffer_core.vector.generators import seed_globals
from puffer_core.vector.pickling import pickled
from puffer_core.vector.rows import Rows
from puffer_core.vector.serial import Serial
from puffer_core.vector.source import Source

T = TypeVar("T")

WHOLE = ("observations", "rewards", "terminals", "truncations", "masks")
"""Arrays that every message holds for all rows; of `final_observations` and `log` only the rows that count are sent."""


@dataclass(frozen=True)
class Opened:
    """What an actor says of its environments once they are open."""

    rows: Rows
    num_envs: int
    name: str
    limits: tuple[str, ...]


@dataclass(frozen=True)
class Message:
    """The rows of one actor after a reset or a step.

    Attributes:
        arrays: Those of `WHOLE`, and ``action_mask`` where there is one.
        final_observations: Of the rows that ended, in order.
        logged: (rows,) bool; None where nothing was logged.
        log: The rows that were logged, in order.
        infos: Of all its environments.
        last: Those of ``infos`` that came with the end of an episode.
        is_step: Whether this is of a step, whose infos are averaged; not of a reset.
    """

    arrays: dict[str, Array]
    final_observations: Array | None
    logged: Array | None
    log: Array | None
    infos: Infos
    last: Infos
    is_step: bool


class Worker:
    """The object behind an actor. Every method answers with its result or a `Fault`, and raises nothing.

    Args:
        given: What `pickled_share` returned. It is unpickled in `open`, where what fails can be answered.
    """

    def __init__(self, given: bytes) -> None:
        self._given = given
        self._serial: Serial | None = None

    def open(self, first_index: int) -> Opened | Fault:
        """Open the environments; ``first_index`` instances come before them."""
        return _answer(lambda: self._open(first_index))

    def reset(self, seed: int | None) -> Message | Fault:
        """Start new episodes."""
        return _answer(lambda: self._reset(seed))

    def step(self, actions: Array) -> Message | Fault:
        """Step with one row of actions for each row of this actor."""
        return _answer(lambda: self._step(actions))

    def load(self, state: Mapping[str, bytes]) -> Message | Fault:
        """Restore what `Serial.save` returned; the message shows the restored observations, and nothing that ended."""
        return _answer(lambda: self._load(state))

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of the `Serial` does: ``save``, ``set_params``, ``render`` or ``close``."""
        return _answer(lambda: getattr(self.serial, name)(*args, **kwargs))

    @property
    def serial(self) -> Serial:
        """The environments, once they are open."""
        assert self._serial is not None
        return self._serial

    def _open(self, first_index: int) -> Opened:
        sources, arguments = pickle.loads(self._given)
        seed_globals(arguments["seed"], first_index)
        self._serial = serial = Serial(sources, first_index=first_index, **arguments)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        return Opened(serial.rows, serial.num_envs, serial.name, serial.limits)

    def _reset(self, seed: int | None) -> Message:
        self.serial.reset(seed)
        return message_of(self.serial, is_step=False)

    def _step(self, actions: Array) -> Message:
        self.serial.step(actions)
        return message_of(self.serial, is_step=True)

    def _load(self, state: Mapping[str, bytes]) -> Message:
        self.serial.load(state)
        arrays = message_of(self.serial, is_step=False).arrays
        return Message(arrays, None, None, None, [], [], is_step=False)


def pickled_share(sources: Sequence[Source], arguments: Mapping[str, Any]) -> bytes:
    """Return what a `Worker` is made from; lambdas, local functions and classes of a script are taken by value.

    Raises:
        OptionError: If an environment can't be sent to another process.
    """
    if any(source.instance is not None for source in sources):
        msg = f"{sources[0].name} is open already, which can't be sent to another process"
        raise OptionError(msg, hint="give its class or a factory")
    hint = "open what can't be pickled inside the factory, not around it"
    return pickled((list(sources), dict(arguments)), sources[0].name, hint)


def message_of(serial: Serial, *, is_step: bool) -> Message:
    """Return the rows that a `Serial` shows; the arrays are its own."""
    ended = serial.terminals | serial.truncations
    arrays = {name: getattr(serial, name) for name in WHOLE}
    if serial.action_mask is not None:
        arrays["action_mask"] = serial.action_mask
    has_log = bool(serial.logged.any())
    return Message(
        arrays,
        serial.final_observations[ended] if ended.any() else None,
        serial.logged if has_log else None,
        serial.log[serial.logged] if has_log else None,
        serial.infos,
        serial.last_infos,
        is_step,
    )


def put_message(message: Message, arrays: Mapping[str, Array], rows: slice) -> None:
    """Write a message into its rows of the vector's arrays."""
    for name, array in message.arrays.items():
        arrays[name][rows] = array
    if message.final_observations is not None:
        ended = arrays["terminals"][rows] | arrays["truncations"][rows]
        arrays["final_observations"][rows][ended] = message.final_observations
    arrays["logged"][rows] = False if message.logged is None else message.logged
    if message.log is not None:
        arrays["log"][rows][message.logged] = message.log


def _answer(work: Callable[[], T]) -> T | Fault:
    try:
        return work()
    except Exception as error:
        return Fault.of(error)
