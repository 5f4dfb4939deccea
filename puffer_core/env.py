"""The environment contract: `PufferEnv`, its arrays, and the rules for arrays that somebody else owns.

An environment holds ``num_agents`` rows. It reads `actions` and writes everything else in place, in arrays that a
vector may have passed in as ``buf``. Resets happen in the same step: rewards and flags belong to the step that ended,
observations already to the next episode, and the last observation of the ended one is in its row of
`final_observations`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from puffer_core.buffers import aligned, check_buffer
from puffer_core.errors import EnvError, OptionError, RenderError

Array: TypeAlias = npt.NDArray[Any]
Space: TypeAlias = gymnasium.Space[Any]
Layout: TypeAlias = dict[str, tuple[tuple[int, ...], npt.DTypeLike]]
Step: TypeAlias = tuple[Array, Array, Array, Array, list[dict[str, Any]]]

DECLARED = ("single_observation_space", "single_action_space", "num_agents")
REQUIRED = ("observations", "actions", "rewards", "terminals", "truncations")
OPTIONAL = ("masks", "final_observations", "action_mask", "log", "logged")
BUFFERS = REQUIRED + OPTIONAL
_INT32 = np.iinfo(np.int32)
_MUCH_MEMORY = 2**28
"""Bytes from which on the memory that is free is looked at before it is taken."""
_REPLACED = "without `strict` it is replaced and counted as illegal"


class PufferEnv:
    """The base of every environment.

    A subclass sets `single_observation_space` (a Box), `single_action_space` (Discrete, MultiDiscrete or Box) and
    `num_agents`, and calls ``super().__init__(buf)`` before or after that; it then implements `reset` and `step`.

    Attributes:
        observations: (N, ...) in the dtype of the observation space.
        actions: (N,) int32 for Discrete, (N, K) int32 for MultiDiscrete, (N, D) float32 for Box.
        rewards: (N,) float32.
        terminals, truncations: (N,) bool, of the step that was just taken; never both for one agent.
        masks: (N,) bool, whether an agent is there now.
        final_observations: Like `observations`; the row of an agent that ended holds its last observation.
        action_mask: (N, sum of head sizes) uint8, 1 where legal; None unless `has_action_mask`.
        log, logged: (N, F) float32 and (N,) bool: the values of the episode that ended in a row, and whether one did.
            None without `log_fields`.
        log_fields: Names of the F values.
        agent_types: Type of each agent, which ``policy.parameters = per-type`` gives weights of its own; may be empty.
        num_envs: Instances in this object: 1 unless it is a C environment.
    """

    single_observation_space: Space
    single_action_space: Space
    num_agents: int

    observations: Array
    actions: Array
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    masks: npt.NDArray[np.bool_]
    final_observations: Array
    action_mask: npt.NDArray[np.uint8] | None
    log: npt.NDArray[np.float32] | None
    logged: npt.NDArray[np.bool_] | None

    log_fields: tuple[str, ...] = ()
    has_action_mask: bool = False
    agent_types: tuple[int, ...] = ()
    num_envs: int = 1
    is_adapter: bool = False
    """Whether this is one of the core's adapters, which keep the contract: a vector does not watch what they write."""
    before_restart: Callable[[], None] | None = None
    """Where it is set, `step` may call it at an end, before the next episode begins: the last state is drawn then."""

    def __init__(self, buf: Mapping[str, Array] | None = None) -> None:
        self._given = buf
        if _has_spaces(self):
            self._bind()

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode for every agent; return observations and infos.

        Args:
            seed: Seeds the generators anew; None lets them go on.
            index: Instances before this object, over all workers and ranks: equal seeds must give unequal instances.
        """
        raise NotImplementedError

    def step(self, actions: Array) -> Step:
        """Advance every agent by one step; return observations, rewards, terminals, truncations and infos.

        The four arrays are the environment's own, written in place; infos is a list of dicts, empty on most steps.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free what the environment holds; calling it twice is allowed."""

    def render(self) -> Any:
        """Return a picture, (H, W, 3) uint8, or a text."""
        raise RenderError(f"{type(self).__name__} does not render")

    def set_params(self, **values: Any) -> None:
        """Change parameters while running; each instance adopts them at its next reset."""
        raise OptionError(f"{type(self).__name__} has no parameters that change while running: {', '.join(values)}")

    def save(self) -> bytes | None:
        """Return the whole state, or None where it can't be saved."""
        return None

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned and write its observations."""
        raise EnvError(f"{type(self).__name__} can't restore a state")

    @staticmethod
    def make_space(
        shape: Sequence[int],
        low: npt.ArrayLike | None = None,
        high: npt.ArrayLike | None = None,
        dtype: npt.DTypeLike = np.float32,
    ) -> Space:
        """Return a Box.

        Args:
            shape: Of one observation or action.
            low: A number, or an array of ``shape``; None: no bound, or the least number of an integer dtype.
            high: Likewise.
            dtype: Of its elements.
        """
        kind = np.dtype(dtype)
        least, most = (0, 1) if kind.kind == "b" else (-np.inf, np.inf)
        if kind.kind in "iu":
            least, most = np.iinfo(kind).min, np.iinfo(kind).max
        lows, highs = (
            np.broadcast_to(np.asarray(bound, kind if kind.kind == "f" else None), tuple(shape))
            for bound in (least if low is None else low, most if high is None else high)
        )
        space: Space = Box(lows, highs, dtype=kind.type)
        return space

    @staticmethod
    def make_discrete(n: int) -> Space:
        """Return the space of the integers from 0 to ``n - 1``."""
        return Discrete(n)

    @property
    def num_instances(self) -> int:
        """How many instances `index` of the next object has to count."""
        return self.num_envs

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        """Make the arrays, and the joint spaces, when they are first asked for and the spaces are known."""
        if name in BUFFERS and _has_spaces(self):
            self._bind()
            return self.__dict__[name]
        if name in ("observation_space", "action_space") and _has_spaces(self):
            return joint_space(getattr(self, f"single_{name}"), self.num_agents)
        msg = f"{type(self).__name__} has no attribute `{name}`"
        if name in BUFFERS:
            msg += ": set single_observation_space, single_action_space and num_agents before it is used"
        raise AttributeError(msg)

    def _bind(self, buf: Mapping[str, Array] | None = None) -> None:
        """Check the spaces and take the arrays given, or those of the constructor, or new ones."""
        check_spaces(self)
        buf = self.__dict__.get("_given") if buf is None else buf
        for name, array in take_buffers(layout_of(self), buf, type(self).__name__).items():
            setattr(self, name, array)


def check_spaces(env: PufferEnv) -> None:
    """Check what an environment declares; what a vector does when it first opens one.

    Raises:
        EnvError: The text names the class, the attribute and what is allowed.
    """
    kind = type(env).__name__
    for name in DECLARED:
        if not hasattr(env, name):
            raise EnvError(f"{kind} does not set `{name}`")
    if not isinstance(env.num_agents, int | np.integer) or env.num_agents < 1:
        raise EnvError(f"{kind}: num_agents={env.num_agents!r} is not an integer of at least 1")
    observation, action = env.single_observation_space, env.single_action_space
    if not isinstance(observation, Box):
        raise EnvError(
            f"{kind}: single_observation_space is {observation}, not a Box", hint="`emulate` flattens others"
        )
    legal = (
        (isinstance(action, Box) and len(action.shape) == 1)
        or (isinstance(action, Discrete) and action.start == 0)
        or (isinstance(action, MultiDiscrete) and action.nvec.ndim == 1 and not np.any(action.start))
    )
    if not legal:
        allowed = "a Discrete or MultiDiscrete from 0, or a Box of shape (D,)"
        raise EnvError(f"{kind}: single_action_space is {action}, not {allowed}")


def action_width(space: Space) -> int:
    """Return the bytes of one row of the action mask, the sum of the sizes of discrete heads; 0 for a Box."""
    if isinstance(space, Discrete):
        return int(space.n)
    if isinstance(space, MultiDiscrete):
        return int(space.nvec.sum())
    return sum(head.size for head in getattr(space, "action_layout", ()) if not head.is_continuous)


def joint_space(space: Space, agents: int) -> Space:
    """Return the space of all agents' rows together."""
    if isinstance(space, Discrete):
        return MultiDiscrete(np.full(agents, space.n))
    if isinstance(space, MultiDiscrete):
        return Box(0, np.tile(space.nvec - 1, (agents, 1)), dtype=np.int32)
    if isinstance(space, Box):
        low, high = (np.broadcast_to(bound, (agents, *space.shape)) for bound in (space.low, space.high))
        return Box(low, high, dtype=space.dtype.type)
    raise EnvError(f"there is no joint space of {space}")


class Declares(Protocol):
    """What the arrays of an environment are laid out from."""

    @property
    def single_observation_space(self) -> Space:
        """Of one agent, a Box."""

    @property
    def single_action_space(self) -> Space:
        """Of one agent."""

    @property
    def num_agents(self) -> int:
        """Rows."""

    @property
    def has_action_mask(self) -> bool:
        """Whether there is an array `action_mask`."""

    @property
    def log_fields(self) -> tuple[str, ...]:
        """Columns of `log`."""


def layout_of(env: Declares, rows: int | None = None) -> Layout:
    """Return the shape and dtype of each array of ``env``, or of as many rows of its kind as given."""
    observation, action = env.single_observation_space, env.single_action_space
    assert observation.shape is not None
    assert observation.dtype is not None
    rows = int(env.num_agents) if rows is None else rows
    observations = (rows, *observation.shape), observation.dtype
    layout: Layout = {
        "observations": observations,
        "actions": ((rows, *(action.shape or ())), np.float32 if isinstance(action, Box) else np.int32),
        "rewards": ((rows,), np.float32),
        "terminals": ((rows,), np.bool_),
        "truncations": ((rows,), np.bool_),
        "masks": ((rows,), np.bool_),
        "final_observations": observations,
    }
    if env.has_action_mask:
        layout["action_mask"] = ((rows, action_width(action)), np.uint8)
    if env.log_fields:
        layout["log"] = ((rows, len(env.log_fields)), np.float32)
        layout["logged"] = ((rows,), np.bool_)
    return layout


def allocate(layout: Layout) -> dict[str, Array]:
    """Return new arrays, zeroed and aligned to cache lines; every agent present, every action legal.

    Raises:
        OptionError: If there is not as much memory; the text gives the bytes needed and the bytes available.
    """
    _require_memory(layout)
    arrays = {name: aligned(shape, np.dtype(dtype)) for name, (shape, dtype) in layout.items()}
    for name in ("masks", "action_mask"):
        if name in arrays:
            arrays[name].fill(1)
    return arrays


def _require_memory(layout: Layout) -> None:
    needed = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in layout.values())
    if needed >= _MUCH_MEMORY:
        import psutil

        if needed > (available := psutil.virtual_memory().available):
            msg = f"the arrays of all environments need {needed:,} bytes, available are {available:,}"
            raise OptionError(msg, hint="use fewer environments")


def take_buffers(layout: Layout, buf: Mapping[str, Array] | None, owner: str) -> dict[str, Array | None]:
    """Return the arrays to use: those given, checked, and new ones for optional ones that are not.

    Raises:
        EnvError: If one is missing, unknown, or has the wrong dtype, shape, strides or alignment, or is read-only.
    """
    buf = {} if buf is None else buf
    for name in buf:
        if name not in layout:
            raise EnvError(f"{owner} has no buffer `{name}`: it uses {', '.join(layout)}")
    missing = [name for name in REQUIRED if buf and name not in buf]
    if missing:
        raise EnvError(f"{owner}: buf lacks {', '.join(missing)}; required are {', '.join(REQUIRED)}")
    arrays: dict[str, Array | None] = dict.fromkeys(BUFFERS)
    arrays |= allocate({name: entry for name, entry in layout.items() if name not in buf})
    for name, array in buf.items():
        shape, dtype = layout[name]
        check_buffer(f"{owner}: buf[{name!r}]", array, shape, np.dtype(dtype))
        arrays[name] = array
    for name in ("masks", "action_mask"):
        if name in buf:
            buf[name].fill(1)
    return arrays


def put_actions(actions: object, own: Array, owner: str, strict: Space | None = None) -> None:
    """Copy a batch of actions into an environment's own array, which is never replaced.

    Args:
        actions: An array of the shape of ``own``, or what makes one; wider numbers that don't fit stay illegal.
        own: (N, ...) int32 or float32.
        owner: Who is named in errors.
        strict: The action space, where actions outside it are refused; nothing has changed then.

    Raises:
        EnvError: If shape or kind differ, or an action is refused.
    """
    if type(actions) is not np.ndarray or actions.shape != own.shape or actions.dtype != own.dtype:
        actions = _convert_actions(actions, own, owner)
    if strict is not None:
        refuse_illegal(actions, strict, owner)
    if actions is not own:
        own[...] = actions


def _convert_actions(actions: object, own: Array, owner: str) -> Array:
    array = np.asarray(actions)
    if array.dtype.kind not in ("biu" if own.dtype == np.int32 else "fiu") or array.shape != own.shape:
        raise EnvError(f"{owner}: actions are {array.dtype} {array.shape}, needed are {own.dtype} {own.shape}")
    if own.dtype == np.int32 and array.dtype.kind in "iu":
        return _narrow(array)
    with np.errstate(over="ignore"):
        return np.asarray(array.astype(own.dtype))


def _narrow(array: Array) -> Array:
    """Return integers as int32; those that do not fit become the nearest that does, which is no legal action."""
    narrow = array.astype(np.int32)
    if np.count_nonzero(narrow != array):
        narrow = np.clip(array, _INT32.min, _INT32.max).astype(np.int32)
    return narrow


def refuse_illegal(actions: Array, space: Space, owner: str, hint: str | None = _REPLACED) -> None:
    """Raise an `EnvError` that names the first action outside its space, where there is one."""
    rows = actions.reshape(len(actions), -1)
    if isinstance(space, Box):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
    else:
        sizes = space.nvec if isinstance(space, MultiDiscrete) else np.array([action_width(space)])
        low, high = np.zeros_like(sizes), sizes - 1
    legal = (rows >= low) & (rows <= high)
    choices = [i for i, head in enumerate(getattr(space, "action_layout", ())) if not head.is_continuous]
    if choices:
        legal[:, choices] &= rows[:, choices] == np.floor(rows[:, choices])
    if legal.all():
        return
    agent, head = (int(i) for i in np.argwhere(~legal)[0])
    allowed = f"{'a whole number ' if head in choices else ''}from {low[head]:g} to {high[head]:g}"
    value = rows[agent, head]
    msg = f"{owner}: agent {agent}, head {head}: action {value} is not {allowed}"
    if rows.dtype == np.int32 and value in (_INT32.min, _INT32.max):
        msg += " (what was given may lie beyond 32 bits)"
    raise EnvError(msg, hint=hint)


def _has_spaces(env: PufferEnv) -> bool:
    """Return whether the three attributes are set, by the class or the instance."""
    return all(name in env.__dict__ or hasattr(type(env), name) for name in DECLARED)
