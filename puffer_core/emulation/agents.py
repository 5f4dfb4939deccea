"""The agents of one environment in rows of one kind: what each sees and does, and the spaces that hold all of them.

Agents whose spaces differ share the arrays where nothing is lost by it: flat observations of floats are padded with
zeros to the widest, discrete actions to the largest number of choices, the surplus of which is masked. Everything else
is refused (docs/decisions/0007-agents-with-different-spaces.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from puffer_core.emulation.spaces import action_codec, observation_codec
from puffer_core.emulation.values import ActionReader, BoxWriter, CodecWriter
from puffer_core.env import Array, Space
from puffer_core.errors import EnvError, shortened

MASK = "action_mask"
"""Key of the legal actions, in an observation or an info."""


class Agent:
    """What one agent sees and does.

    Args:
        owner: What environment it is of, for errors.
        name: Its name there.
        observation, action: Its spaces there.

    Attributes:
        observation, action: Codecs between those and rows.
        heads: Choices of each column of its actions; empty where one is continuous.
        has_mask: Its observations are a Dict with the legal actions under `MASK`, which the rows leave out.
    """

    def __init__(self, owner: str, name: Any, observation: Space, action: Space) -> None:
        self.name = name
        self.owner = f"{owner}: agent `{name}`"
        try:
            self.action = action_codec(action)
            self.heads = choices(self.action.space)
            seen, self.has_mask = _without_mask(observation, sum(self.heads))
            self.observation = observation_codec(seen)
        except EnvError as error:
            raise EnvError(f"{self.owner}: {error}", hint=error.hint) from None
        self._reader = ActionReader(self.owner, self.action)
        self._only = "observation" if self.has_mask and seen is observation["observation"] else None  # type: ignore[index]

    def writer(self, row: Array) -> Callable[[Any], None]:
        """Return a function that writes its observation into a row, which stays where it is; it checks and converts."""
        codec = self.observation
        writer = BoxWriter(self.owner, codec.space) if codec.is_identity else CodecWriter(self.owner, codec)
        return writer.bind(row)

    def read(self, action: Array) -> Any:
        """Return the action in a row, (1, ...), as the environment takes it."""
        return self._reader(action)[0]

    def split(self, observation: Any) -> tuple[Any, Any]:
        """Return what an observation shows, and the action mask in it or None."""
        if not self.has_mask:
            return observation, None
        if not isinstance(observation, Mapping) or MASK not in observation:
            msg = f"{self.owner}: its observation is {type(observation).__name__} without `{MASK}`"
            raise EnvError(msg, hint="its observation space declares that key")
        if self._only is not None:
            return observation[self._only], observation[MASK]
        return {key: value for key, value in observation.items() if key != MASK}, observation[MASK]


class Agents:
    """All agents of an environment, in the order of their rows.

    Args:
        owner: What environment they are of, for errors.
        names: Of the agents.
        observation_space, action_space: Return those of an agent.

    Attributes:
        rows: Row of each agent.
        observation_space, action_space: Of a row.
        is_uneven: Some agent has fewer choices than a row.
        is_uniform: All agents have one action space.
        has_mask: The observations of some agent hold its legal actions.
    """

    def __init__(
        self,
        owner: str,
        names: Sequence[Any],
        observation_space: Callable[[Any], Space],
        action_space: Callable[[Any], Space],
    ) -> None:
        self._owner = owner
        self.rows = {name: row for row, name in enumerate(names)}
        if len(self.rows) < len(names):
            raise EnvError(f"{owner}: possible_agents is {list(names)}: needed are names, each once")
        self.list = [Agent(owner, name, observation_space(name), action_space(name)) for name in names]
        self.observation_space = _common_observation_space(self.list)
        self.action_space = _common_action_space(self.list)
        self.has_mask = any(agent.has_mask for agent in self.list)
        self._heads = choices(self.action_space)
        self.is_uneven = any(agent.heads != self._heads for agent in self.list)
        first = self.list[0].action
        self.is_uniform = all(agent.action.original == first.original for agent in self.list)
        self._reader = ActionReader(owner, first)

    def __iter__(self) -> Any:
        return iter(self.list)

    def row_of(self, name: Any) -> int:
        """Return the row of an agent.

        Raises:
            EnvError: If there is no such agent; the text names it.
        """
        if name not in self.rows:
            legal = shortened(", ".join(map(str, self.rows)))
            raise EnvError(f"{self._owner}: `{name}` is no agent: possible_agents are {legal}")
        return self.rows[name]

    def width(self, row: int) -> int | None:
        """Return how much of its row the observation of an agent takes, or None where it is all of it."""
        shape = self.list[row].observation.space.shape
        return None if shape == self.observation_space.shape else shape[0]

    def read_actions(self, actions: Array) -> list[Any]:
        """Return the actions of all agents as their environment takes them, where they have one action space."""
        return self._reader(actions)

    def read_action(self, row: int, actions: Array) -> Any:
        """Return the action of an agent as its environment takes it; a choice beyond its own becomes its last.

        Args:
            row: Of the agent.
            actions: (N, ...) of all of them.
        """
        agent, action = self.list[row], actions[row : row + 1]
        if agent.heads != self._heads:
            action = np.minimum(action, np.reshape(agent.heads, action.shape).astype(action.dtype) - 1)
        return agent.read(action)

    def legal(self, row: int) -> npt.NDArray[np.uint8]:
        """Return the action mask of an agent that may do all it can: its own choices, of those that a row has."""
        own = self.list[row].heads
        return np.concatenate([np.arange(n) < k for n, k in zip(self._heads, own, strict=True)]).astype(np.uint8)

    def first(self) -> npt.NDArray[np.uint8]:
        """Return the action mask that allows the first choice of each head only."""
        return np.concatenate([np.arange(n) < 1 for n in self._heads]).astype(np.uint8)

    def spread(self, row: int, mask: Any, out: npt.NDArray[np.uint8]) -> None:
        """Write an agent's own action mask into its row; a head with no legal choice gets its first.

        Raises:
            EnvError: If it is of the wrong size.
        """
        agent = self.list[row]
        given = np.asarray(mask).reshape(-1)
        if given.size != sum(agent.heads):
            msg = f"{agent.owner}: its {MASK} has {given.size} entries, its actions have {sum(agent.heads)} choices"
            raise EnvError(msg)
        out[:] = 0
        start = begin = 0
        for size, own in zip(self._heads, agent.heads, strict=True):
            head = out[start : start + own]
            head[:] = given[begin : begin + own] != 0
            if not head.any():
                head[0] = 1
            start, begin = start + size, begin + own


def choices(space: Space) -> tuple[int, ...]:
    """Return the number of choices of each head of an action space from 0; empty where it is continuous."""
    if isinstance(space, Discrete):
        return (int(space.n),)
    return tuple(int(n) for n in space.nvec) if isinstance(space, MultiDiscrete) else ()


def _without_mask(observation: Space, width: int) -> tuple[Space, bool]:
    """Return what is left of an observation space without the action mask, and whether it holds one."""
    if not width or not isinstance(observation, Dict) or len(observation.spaces) < 2:
        return observation, False
    mask = observation.spaces.get(MASK)
    if not isinstance(mask, Box | MultiBinary) or int(np.prod(mask.shape)) != width:
        return observation, False
    rest = {key: space for key, space in observation.spaces.items() if key != MASK}
    return rest["observation"] if list(rest) == ["observation"] else Dict(rest), True


def _common_observation_space(agents: Sequence[Agent]) -> Box:
    """Return the Box of every agent's observation rows."""
    first = agents[0].observation.space
    others = [agent for agent in agents if agent.observation.space != first]
    if not others:
        return first
    for agent in others:
        space = agent.observation.space
        is_plain = type(space) is Box and type(first) is Box and space.dtype == first.dtype
        if not is_plain or (space.shape != first.shape and not (_is_flat(space) and _is_flat(first))):
            raise _refusal("observation", agents[0], first, agent, space)
    width = max((agent.observation.space.shape for agent in agents), key=np.prod)
    low = np.min([_padded(agent.observation.space.low, width) for agent in agents], axis=0)
    high = np.max([_padded(agent.observation.space.high, width) for agent in agents], axis=0)
    assert first.dtype is not None
    return Box(low, high, dtype=first.dtype.type)


def _common_action_space(agents: Sequence[Agent]) -> Space:
    """Return the space of every agent's action rows."""
    first = agents[0].action.space
    others = [agent for agent in agents if agent.action.space != first]
    for agent in others:
        is_alike = type(agent.action.space) is type(first) and len(agent.heads) == len(agents[0].heads)
        if not is_alike or not agent.heads:
            raise _refusal("action", agents[0], first, agent, agent.action.space)
    if not others:
        return first
    most = np.max([agent.heads for agent in agents], axis=0)
    return Discrete(int(most[0])) if isinstance(first, Discrete) else MultiDiscrete(most)


def _is_flat(space: Box) -> bool:
    return len(space.shape) == 1 and np.dtype(space.dtype).kind == "f"


def _padded(bound: Array, shape: tuple[int, ...]) -> Array:
    """Return a bound in the shape of the widest row, 0 where an agent's own row ends."""
    if bound.shape == shape:
        return bound
    padded = np.zeros(shape, bound.dtype)
    padded[: len(bound)] = bound
    return padded


def _refusal(kind: str, one: Agent, first: Space, other: Agent, space: Space) -> EnvError:
    msg = f"{one.owner} and agent `{other.name}` have different {kind} spaces: {first} and {space}"
    allowed = "flat Boxes of one float dtype" if kind == "observation" else "Discrete, or MultiDiscrete of equal length"
    return EnvError(msg, hint=f"make them equal, or {allowed}: those are padded")
