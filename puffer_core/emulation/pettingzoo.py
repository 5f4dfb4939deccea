"""PettingZoo environments, parallel and turn-based, as one `PufferEnv` with a row for every possible agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from puffer_core.emulation.agents import MASK, Agents
from puffer_core.emulation.games import Arrival, ParallelGame, TurnGame
from puffer_core.emulation.making import made
from puffer_core.emulation.rendering import render
from puffer_core.emulation.values import LARGEST, to_number
from puffer_core.env import Array, PufferEnv, Step, check_spaces, put_actions
from puffer_core.errors import EnvError, UsageError, shortened


class PettingZooPufferEnv(PufferEnv):
    """The agents of a PettingZoo environment, `ParallelEnv` or `AECEnv`, in the order of ``possible_agents``.

    An agent that is not there keeps its row: observation 0, reward 0, no flag, mask False. The step in which one leaves
    keeps its reward, its flag and, in `final_observations`, its last observation; one that leaves without a flag gets
    `terminals`. Who comes, or comes back, has mask True from its first observation. When nobody is left the next
    episode begins in the same step. Where both flags come, the end of the task counts.

    In a turn-based environment one step is one move. Whose turn it is not, watches: its row is live, gets its view of
    the game and its rewards, and its action does nothing; its `action_mask` leaves one choice, so that it learns
    nothing from that (docs/decisions/0008-turn-based-environments.md).

    Legal actions come from an ``action_mask`` in a Dict observation, which the rows then leave out, or in an info.

    Args:
        env: The environment.
        env_creator: What makes it, in place of ``env``.
        env_args, env_kwargs: Arguments of ``env_creator``.
        buf: Arrays to use, as in `PufferEnv`.
        seed: Of the first `reset` that is given none.

    Attributes:
        env: The environment.
        takes_seed: Whether its ``reset`` takes a seed.
        possible_agents: Names of the rows.
    """

    is_adapter = True

    def __init__(
        self,
        env: Any = None,
        env_creator: Callable[..., Any] | None = None,
        env_args: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        buf: Mapping[str, Array] | None = None,
        seed: int | None = None,
    ) -> None:
        self._seed = seed
        self.env = made(env, env_creator, env_args, env_kwargs)
        self._kind = type(getattr(self.env, "unwrapped", self.env)).__name__
        self._game = _game_of(self.env)
        self.takes_seed = self._game.takes_seed
        self.possible_agents = tuple(self._possible_agents())
        self._agents = Agents(self._kind, self.possible_agents, self.env.observation_space, self.env.action_space)
        self.single_observation_space = self._agents.observation_space
        self.single_action_space = self._agents.action_space
        self.num_agents = len(self.possible_agents)
        self.agent_types = _types_of(self.possible_agents)
        self.has_action_mask = bool(self._agents.list[0].heads) and self._needs_mask()
        check_spaces(self)
        super().__init__(buf)
        self._prepare()

    # -- opening ------------------------------------------------------------------------------------------------------

    def _possible_agents(self) -> Sequence[Any]:
        names = getattr(self.env, "possible_agents", None)
        if not names:
            raise EnvError(
                f"{self._kind} has no possible_agents", hint="list every agent that may ever be there: each is a row"
            )
        return names  # type: ignore[no-any-return]

    def _needs_mask(self) -> bool:
        """Return whether some row may have fewer choices than others; infos that tell so come with a reset only."""
        if self._agents.is_uneven or self._agents.has_mask or isinstance(self._game, TurnGame):
            return True
        return any(MASK in (info or {}) for info in self._game.reset(None).infos.values())

    def _prepare(self) -> None:
        """Bind what writes into the rows, which stay where they are."""
        self._present = [False] * self.num_agents
        self._has_begun = False
        self._observe = [self._writer(self.observations, row) for row in range(self.num_agents)]
        self._conclude = [self._writer(self.final_observations, row) for row in range(self.num_agents)]
        if self.action_mask is not None:
            self._legal = [self._agents.legal(row) for row in range(self.num_agents)]
            self._first = self._agents.first()

    def _writer(self, rows: Array, row: int) -> Callable[[Any], None]:
        """Return what writes an observation into its row, and zeros behind one that is narrower."""
        width = self._agents.width(row)
        write = self._agents.list[row].writer(rows[row, ..., :width])
        if width is None:
            return write
        rest = rows[row, width:]

        def write_padded(observation: Any) -> None:
            write(observation)
            rest[:] = 0

        return write_padded

    # -- stepping -----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode; the environment gets ``seed + index``."""
        seed, self._seed = self._seed if seed is None else seed, None
        arrival = self._begin(None if seed is None else seed + index)
        self._clear()
        self._has_begun = True
        return self.observations, self._infos(arrival)

    def step(self, actions: Any) -> Step:
        """Advance the agents that are there, and start the next episode where nobody is left.

        Args:
            actions: (N, ...) rows, or a mapping from the agents that move to actions of their own action spaces.
        """
        if not self._has_begun:
            raise UsageError(f"{self._kind}: reset before stepping")
        self._take(actions)
        arrival = self._game.step(self._moves())
        self._check(arrival, "step")
        self._clear()
        self.rewards[:] = [self._advance(row, arrival) for row in range(self.num_agents)]
        infos = self._infos(arrival)
        if not arrival.live:
            if self.before_restart is not None:
                self.before_restart()
            self._begin(None)
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _clear(self) -> None:
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False

    def _take(self, actions: Any) -> None:
        """Bring actions into the rows."""
        if not isinstance(actions, Mapping):
            put_actions(actions, self.actions, self._kind)
            return
        for name, action in actions.items():
            row = self._agents.row_of(name)
            self.actions[row] = self._agents.list[row].action.write(action)
        missing = [str(name) for name in self._game.movers if name not in actions]
        if missing:
            raise EnvError(f"{self._kind}: no action was given for {', '.join(missing)}")

    def _moves(self) -> dict[Any, Any]:
        """Return the actions of the agents that move, by name, as the environment takes them."""
        movers = self._game.movers
        if movers == self.possible_agents and self._agents.is_uniform:
            return dict(zip(movers, self._agents.read_actions(self.actions), strict=True))
        return {name: self._agents.read_action(self._agents.row_of(name), self.actions) for name in movers}

    def _begin(self, seed: int | None) -> Arrival:
        """Start an episode in every row."""
        arrival = self._game.reset(seed)
        self._check(arrival, "reset")
        if not arrival.live:
            raise EnvError(f"{self._kind}: no agent is there after reset")
        for row, agent in enumerate(self._agents):
            if agent.name in arrival.live:
                self._show(row, arrival)
            else:
                self._leave(row)
        return arrival

    def _advance(self, row: int, arrival: Arrival) -> float:
        """Bring what a step brought to one agent into its row; return its reward."""
        name = self.possible_agents[row]
        if name in arrival.live:
            self._show(row, arrival)
            return self._reward(name, arrival)
        if not self._present[row]:
            return 0.0
        is_cut = bool(arrival.truncations.get(name)) and not arrival.terminals.get(name)
        self.truncations[row], self.terminals[row] = is_cut, not is_cut
        # Of an agent that is gone and has no flag, not even False, dicts hold padding at most.
        has_flag = name in arrival.terminals or name in arrival.truncations
        if has_flag and name in arrival.observations:
            self._conclude[row](self._agents.list[row].split(arrival.observations[name])[0])
        else:
            self.final_observations[row] = self.observations[row]
        self._leave(row)
        return self._reward(name, arrival) if has_flag else 0.0

    def _reward(self, name: Any, arrival: Arrival) -> float:
        reward = arrival.rewards.get(name, 0.0)
        if type(reward) is float and -LARGEST <= reward <= LARGEST:
            return reward
        return to_number(self._kind, f"the reward of `{name}`", reward)

    def _show(self, row: int, arrival: Arrival) -> None:
        """Write the observation of an agent that is there, and its legal actions."""
        agent, mask = self._agents.list[row], None
        if agent.name not in arrival.observations:
            raise EnvError(f"{self._kind}: agent `{agent.name}` is in `agents`, and no observation of it came")
        observation = arrival.observations[agent.name]
        if agent.has_mask:
            observation, mask = agent.split(observation)
        self._observe[row](observation)
        if not self._present[row]:
            self._present[row] = self.masks[row] = True
        if self.action_mask is not None:
            self._allow(row, arrival, mask)
        elif MASK in (arrival.infos.get(agent.name) or {}):
            msg = f"{self._kind}: an {MASK} came in the info of `{agent.name}`, and none at its first reset"
            raise EnvError(msg, hint=f"give one in every info from reset on, or `{MASK}` in the observation space")

    def _allow(self, row: int, arrival: Arrival, mask: Any) -> None:
        """Write the legal actions of an agent that is there."""
        assert self.action_mask is not None
        name = self.possible_agents[row]
        if arrival.mover is not None and name != arrival.mover:
            self.action_mask[row] = self._first
            return
        mask = (arrival.infos.get(name) or {}).get(MASK) if mask is None else mask
        if mask is None:
            self.action_mask[row] = self._legal[row]
        else:
            self._agents.spread(row, mask, self.action_mask[row])

    def _leave(self, row: int) -> None:
        """Empty the row of an agent that is not there."""
        self.observations[row] = 0
        self._present[row] = self.masks[row] = False
        if self.action_mask is not None:
            self.action_mask[row] = 1

    def _check(self, arrival: Arrival, call: str) -> None:
        """Refuse agents that have no row."""
        known = self._agents.rows
        for what in ("agents", "observations", "rewards", "terminals", "truncations"):
            if not known.keys() >= set(getattr(arrival, what)):
                name = next(name for name in getattr(arrival, what) if name not in known)
                legal = shortened(", ".join(map(str, known)))
                msg = f"{self._kind}: {call} gave {what} of `{name}`, which is not in possible_agents: {legal}"
                raise EnvError(msg)

    def _infos(self, arrival: Arrival) -> list[dict[str, Any]]:
        """Return no infos, or one per row where an agent has something to say besides its legal actions."""
        if not any(arrival.infos.values()):
            return []
        infos = []
        for name in self.possible_agents:
            info = arrival.infos.get(name) or {}
            if not isinstance(info, Mapping):
                raise EnvError(f"{self._kind}: the info of `{name}` is {type(info).__name__}, not a dict")
            infos.append({key: value for key, value in info.items() if key != MASK})
        return infos if any(infos) else []

    # -- the rest -----------------------------------------------------------------------------------------------------

    def render(self, mode: str | None = None) -> Any:
        """Return a picture, (H, W, 3) uint8, or a text: ``rgb_array`` or ``ansi``."""
        return render(self.env, mode)

    def set_params(self, **values: Any) -> None:
        """Pass parameters on, where the environment takes them."""
        if not hasattr(self.env, "set_params"):
            super().set_params(**values)
        self.env.set_params(**values)

    def save(self) -> bytes | None:
        """Return the state and the rows, where the environment has ``save`` and ``load`` and that gives bytes."""
        blob = self.env.save() if hasattr(type(self.env), "save") and hasattr(type(self.env), "load") else None
        return b"".join(rows.tobytes() for rows in self._shown()) + blob if isinstance(blob, bytes) else None

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned."""
        size = sum(rows.nbytes for rows in self._shown())
        if not hasattr(type(self.env), "load") or len(blob) < size:
            super().load(blob)
        self.env.load(blob[size:])
        start = 0
        for rows in self._shown():
            rows.reshape(-1).view("u1")[:] = memoryview(blob)[start : start + rows.nbytes]
            start += rows.nbytes
        self._present = self.masks.tolist()
        self._game.go_on()

    def _shown(self) -> list[Array]:
        """Return the rows that the next step needs."""
        rows = [self.observations, self.masks]
        return rows if self.action_mask is None else [*rows, self.action_mask]

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _game_of(env: Any) -> ParallelGame | TurnGame:
    """Return the form of an environment: turn-based ones have `last`, and `observe` one agent."""
    is_turn_based = callable(getattr(env, "last", None)) and callable(getattr(env, "observe", None))
    return TurnGame(env) if is_turn_based else ParallelGame(env)


def _types_of(names: Sequence[Any]) -> tuple[int, ...]:
    """Return the type of each agent: the same where names differ by a number at their end only."""
    stems = [str(name).rstrip("0123456789_") for name in names]
    order = list(dict.fromkeys(stems))
    return tuple(order.index(stem) for stem in stems)
