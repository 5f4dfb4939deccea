"""The rollout of H + 1 columns: buffers, and the loop that fills them (rollout page, sections 1, 2 and 4).

Row t of every buffer belongs to arrival t: the observation, and the reward and flags that came with it, caused by
action t - 1. Column H is the carried arrival: it becomes column 0 of the next rollout, together with the recurrent
state *before* it, so that the next rollout consumes it with its own weights. Time-major: a step writes one whole row.

Sizes: H horizon, N rows (agents), A logits, K action heads, L layers, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from puffer_core.errors import EnvError, NonFiniteError, RunError
from puffer_core.policies import Policy
from puffer_core.rl.advantage import Folded, fold
from puffer_core.rl.clock import PhaseClock
from puffer_core.rl.threads import Threads

if TYPE_CHECKING:
    from puffer_core.rl.selfplay import SelfPlay
    from puffer_core.vector.base import Vector

At: TypeAlias = int | tuple[NDArray[np.int64], NDArray[np.int64]]
"""Where an arrival belongs in the buffers: a whole column, or a column for each of some rows, and those rows."""


@dataclass(frozen=True)
class Segments:
    """S rows of a rollout, (H, S, ...) time-major, as a minibatch reads them."""

    observations: Tensor
    actions: Tensor
    logprobs: Tensor
    resets: Tensor
    state: Tensor
    action_mask: Tensor | None
    agents: Mapping[str, Tensor]
    """``agents``, (S,) which agent of its environment each row is, where the policy asks for that."""


class Rollout:
    """Buffers of H + 1 columns for all rows of a vector, and the carried arrival.

    Args:
        vector: Environments; every receive brings all rows (`PartialRollout` takes others).
        policy: Acts, without gradient.
        horizon: Actions per row and rollout: H.
        generator: Source of the numbers that actions are drawn with, on the CPU; a rollout always takes equally many.
        device: Where the policy is.
        storage: Where observations are kept: ``device``, or the CPU to save its memory.
        reward_clip: Clip stored rewards to plus or minus this; 0 is off.
        reset_state: Start every rollout from state 0.
        threads: Splits the operations of acting.
        selfplay: Acts for the rows of opponents; None where the policy acts for all.

    Attributes:
        first_new: Column of the first arrival that the last rollout has received: 0 after a start, then 1, since
            column 0 is carried.
    """

    def __init__(
        self,
        vector: Vector,
        policy: Policy,
        horizon: int,
        generator: torch.Generator,
        *,
        device: torch.device,
        storage: torch.device,
        reward_clip: float = 0.0,
        reset_state: bool = False,
        clock: PhaseClock | None = None,
        threads: Threads | None = None,
        selfplay: SelfPlay | None = None,
    ) -> None:
        rows, layout, columns = vector.num_agents, policy.layout, (horizon + 1, vector.num_agents)
        self._vector, self._policy, self.generator = vector, policy, generator
        self._device, self._reward_clip, self._reset_state = device, reward_clip, reset_state
        self._clock, self._threads = clock or PhaseClock(), threads or Threads(1)
        self.horizon, self.rows, self._selfplay = horizon, rows, selfplay
        row = torch.from_numpy(vector.observations[:1])
        self.observations = torch.zeros(*columns, *row.shape[1:], dtype=row.dtype, device=storage)
        self.actions = torch.zeros(horizon, rows, *layout.shape, dtype=layout.dtype, device=device)
        self.logits = torch.zeros(horizon, rows, layout.width, device=device)
        self.values = torch.zeros(columns, device=device)
        self.final_values = torch.zeros(columns, device=device)
        self.logprobs = torch.zeros(horizon, rows, device=device)
        self.rewards: NDArray[np.float32] = np.zeros(columns, np.float32)
        self.terminals, self.truncations, self.resets = (np.zeros(columns, np.bool_) for _ in range(3))
        self.alive: NDArray[np.bool_] = np.ones(columns, np.bool_)
        self.action_masks: Tensor | None = None
        if vector.action_mask is not None:
            self.action_masks = torch.zeros(*columns, layout.mask_width, dtype=torch.uint8, device=device)
        needs_agents = getattr(policy, "needs_agents", False)
        self._agents = torch.arange(rows, device=device) % vector.agents_per_env if needs_agents else None
        self.state = policy.initial_state(rows)
        self.snapshot = torch.zeros_like(self.state)
        self.first_new, self._is_carried = 1, True

    def start(self, seed: int) -> None:
        """Reset the environments; the first observations wait in the last column, as if carried."""
        self._vector.async_reset(seed)
        if self._selfplay is not None:
            self._selfplay.start()
        self.state.zero_()
        self.alive[:] = True
        self._receive_first()
        for flags in (self.rewards, self.terminals, self.truncations, self.resets):
            flags[self.horizon] = 0
        self._is_carried = False

    def _receive_first(self) -> None:
        """Receive the first observations of all rows."""
        self._vector.recv()
        self._store(self.horizon, self.horizon - 1)

    @torch.no_grad()
    def collect(self) -> int:
        """Fill the buffers with H actions of every row; return the live steps among them.

        The numbers that actions are drawn with are taken beforehand: what happens on the way can't change how many.
        """
        self._clock.start()
        noise = self._policy.layout.draw_noise((self.horizon, self.rows), self.generator).to(self._device)
        self._clock.mark("sample")
        self._carry()
        self._step(noise)
        # The carried state stays the one before the last observation: the next rollout consumes it again.
        state = self._zeroed(self.state.clone(), self.horizon)
        observations = self.observations[-1].to(self._device)
        _, self.values[-1], _ = self._policy.forward_eval(observations, state, **self._agents_of(None))
        self._clock.mark("forward")
        mask = None if self.action_masks is None else self.action_masks[:-1].flatten(0, 1)
        logits, actions = self.logits.flatten(0, 1), self.actions.flatten(0, 1)
        logprobs = self._policy.layout.log_prob(logits, actions, mask, self._policy.logstd)
        self.logprobs.copy_(logprobs.view_as(self.logprobs))
        self._clock.mark("sample")
        learning = self.alive[:-1] if self._selfplay is None else self.alive[:-1, ~self._selfplay.is_frozen]
        return int(learning.sum())

    def _step(self, noise: Tensor) -> None:
        """Take H steps with every row, and fill the columns with what they bring."""
        for t in range(self.horizon):
            actions = self._act(t, noise)
            self._copy_actions(actions, self._vector.actions)
            try:
                self._vector.send(self._vector.actions)
                self._vector.recv()
            except EnvError as error:
                self._refuse_actions(actions, error)
                raise
            self._clock.mark("env")
            self._store(t + 1, t)
            self._clock.mark("copy")
            self._bootstrap_truncated(t + 1, t)
            self._change_opponents()

    def _refuse_actions(self, actions: Tensor, error: EnvError) -> None:
        """Raise the cause where an environment was refused actions that the policy diverged to."""
        finite = torch.isfinite(actions.view(len(actions), -1)).all(1)
        if not finite.all():
            row = int((~finite).int().argmax())
            msg = f"{self._vector.name}: the policy's output for agent {row} is not finite, its action is"
            hint = "has it diverged? lower the learning rate"
            raise NonFiniteError(f"{msg} {actions[row].tolist()}", hint=hint) from error

    def _carry(self) -> None:
        """Make the last arrival the first, and keep the state that enters it, zeroed where an episode began."""
        for array in self._flags().values():
            array[0] = array[-1]
        self.observations[0] = self.observations[-1]
        if self.action_masks is not None:
            self.action_masks[0] = self.action_masks[-1]
        if self._reset_state:
            self.state.zero_()
        self.final_values.zero_()
        self.snapshot.copy_(self._zeroed(self.state, 0))
        self.first_new, self._is_carried = int(self._is_carried), True

    def _act(self, at: At, noise: Tensor) -> Tensor:
        """Zero the state where an episode began, and draw actions for the observations there; return them."""
        rows = None if isinstance(at, int) else torch.from_numpy(at[1]).to(self._device)
        state = self._zeroed(self.state if rows is None else self.state.index_select(1, rows), at)
        with self._threads:
            observations = self.observations[at].to(self._device)
            if self._selfplay is None:
                agents = self._agents_of(rows)
                logits, self.values[at], state = self._policy.forward_eval(observations, state, **agents)
            else:
                logits, self.values[at], state = self._selfplay.forward_eval(observations, state, self._rows(at))
        self.state = state if rows is None else self.state.index_copy_(1, rows, state)
        self._clock.mark("forward")
        mask = None if self.action_masks is None else self.action_masks[at]
        if self._selfplay is None:
            actions = self._policy.layout.sample(logits, noise[at], mask, self._policy.logstd)
        else:
            actions = self._selfplay.sample(logits, noise[at], mask, self._rows(at))
        self.logits[at], self.actions[at] = logits, actions
        return actions

    def _agents_of(self, rows: Tensor | None) -> dict[str, Tensor]:
        """Return the argument ``agents`` for the given rows, None for all, where the policy takes it."""
        if self._agents is None:
            return {}
        return {"agents": self._agents if rows is None else self._agents.index_select(0, rows)}

    def _rows(self, at: At) -> NDArray[np.int64]:
        return np.arange(self.rows) if isinstance(at, int) else at[1]

    def _change_opponents(self) -> None:
        """Count the games that ended with the batch just stored; new opponents remember nothing."""
        if self._selfplay is not None:
            changed = torch.from_numpy(self._selfplay.arrived(self._vector.agent_ids))
            self.state.index_fill_(1, changed.to(self._device), 0.0)

    def _copy_actions(self, actions: Tensor, out: NDArray[np.generic]) -> None:
        """Write drawn actions as the environments take them."""
        torch.from_numpy(out).view(actions.shape).copy_(self._policy.layout.to_env(actions))
        self._clock.mark("sample")

    def _store(self, at: At, before: At) -> None:
        """Copy an arrival out of the vector's buffers; absent agents leave zeros, whatever the buffers hold there.

        Args:
            at: Where it belongs.
            before: The same one column earlier.
        """
        vector, was_alive = self._vector, self.alive[before]
        observations, rewards = torch.from_numpy(vector.observations), vector.rewards
        resets = vector.terminals | vector.truncations
        if not was_alive.all():
            resets |= ~was_alive
            rewards = np.where(was_alive, rewards, np.float32(0.0))
        if not vector.masks.all():
            # With `where`, since torch can't fill tensors of wide unsigned integers.
            present = torch.from_numpy(vector.masks.copy()).view(-1, *[1] * (observations.ndim - 1))
            observations = torch.where(present, observations, torch.zeros_like(observations))
        if self._reward_clip:
            # What is not finite stays as it is: `check` stops there.
            clipped = np.clip(rewards, -self._reward_clip, self._reward_clip)
            rewards = np.where(np.isfinite(rewards), clipped, rewards)
        self.observations[at] = observations.to(self.observations.device)
        self.rewards[at], self.resets[at], self.alive[at] = rewards, resets, vector.masks
        self.terminals[at], self.truncations[at] = vector.terminals, vector.truncations
        if self.action_masks is not None:
            self.action_masks[at] = torch.from_numpy(vector.action_mask).to(self._device)

    def _bootstrap_truncated(self, at: At, before: At) -> None:
        """Value the last observation of each truncated episode, with the state before its reset."""
        truncated = self.truncations[at]
        if not truncated.any():
            return
        cut = truncated & ~self.terminals[at] & self.alive[before]
        if self._selfplay is not None:
            cut &= ~self._selfplay.is_frozen[self._rows(at)]
        found = np.flatnonzero(cut)
        if not len(found):
            return
        column, rows = (at, found) if isinstance(at, int) else (at[0][found], at[1][found])
        indices = torch.from_numpy(rows).to(self._device)
        observations = torch.from_numpy(self._vector.final_observations[found]).to(self._device)
        state, agents = self.state.index_select(1, indices), self._agents_of(indices)
        _, values, _ = self._policy.forward_eval(observations, state, **agents)
        self.final_values[column, indices] = values
        self._clock.mark("forward")

    def _zeroed(self, state: Tensor, at: At) -> Tensor:
        """Zero, in place, the state of rows that begin anew at their observation there."""
        resets = self.resets[at]
        if resets.any():
            state.index_fill_(1, _indices(resets).to(self._device), 0.0)
        return state

    def carry(self) -> dict[str, Tensor]:
        """Return the last arrival and the state before it: all that the next rollout takes over."""
        arrays = {name: torch.from_numpy(array[-1]) for name, array in self._flags().items()}
        arrays |= {"observations": self.observations[-1], "state": self.state}
        if self._selfplay is not None:
            arrays["players"] = torch.from_numpy(self._selfplay.player)
        return arrays if self.action_masks is None else arrays | {"action_masks": self.action_masks[-1]}

    def set_carry(self, arrays: Mapping[str, Tensor]) -> None:
        """Take over what `carry` returned.

        Raises:
            RunError: As `require_fit`.
        """
        self.require_fit(arrays)
        for name, array in self.carry().items():
            array.copy_(arrays[name])
        self._is_carried = True

    def require_fit(self, arrays: Mapping[str, Tensor]) -> None:
        """Check that `set_carry` can take over these arrays.

        Raises:
            RunError: If arrays are missing or of another shape.
        """
        own = self.carry()
        if own.keys() != arrays.keys() or any(own[name].shape != arrays[name].shape for name in own):
            hint = "go on with the number of environments, the horizon and the network that the run had"
            raise RunError("the rows of the checkpoint are not those of these environments", hint=hint)

    def _flags(self) -> dict[str, NDArray[np.generic]]:
        names = ("rewards", "terminals", "truncations", "alive", "resets")
        return {name: getattr(self, name) for name in names}

    def host(self, array: NDArray[np.generic]) -> Tensor:
        """Return one of the host-side buffers on the device; on a CPU the same memory."""
        return torch.from_numpy(array).to(self._device)

    def gather(self, rows: Tensor) -> Segments:
        """Return the given rows as a minibatch."""
        stored, masks = self.observations[:-1], self.action_masks
        return Segments(
            observations=stored.index_select(1, rows.to(stored.device)).to(self._device),
            actions=self.actions.index_select(1, rows),
            logprobs=self.logprobs.index_select(1, rows),
            resets=self.host(self.resets[:-1]).index_select(1, rows),
            state=self.snapshot.index_select(1, rows),
            action_mask=None if masks is None else masks[:-1].index_select(1, rows),
            agents=self._agents_of(rows),
        )

    def live(self, rows: Tensor) -> Tensor | None:
        """Return (H, S) bool, an agent acted, for the given rows; None if one always did."""
        alive = self.alive[:-1]
        return None if alive.all() else self.host(alive).index_select(1, rows)

    def fold(self, gamma: float, gae_lambda: float) -> Folded:
        """Return what the advantages of this rollout are made of, besides values and ratios."""
        arrays = (self.rewards, self.terminals, self.truncations, self.alive)
        rewards, terminals, truncations, alive = (self.host(array) for array in arrays)
        return fold(rewards, terminals, truncations, self.final_values, alive, gamma, gae_lambda)

    def received(self) -> Tensor:
        """Return (n, *shape), the observations of live agents that this rollout has received, each once."""
        observations, alive = self.observations[self.first_new :], self.alive[self.first_new :]
        if self._selfplay is not None:
            alive = alive & ~self._selfplay.is_frozen
        if alive.all():
            return observations.flatten(0, 1)
        return observations[torch.from_numpy(alive).to(observations.device)]

    def check(self, step: int) -> None:
        """Stop at the first number that is not finite, or the first live agent without a legal action.

        Args:
            step: Agent-steps before this rollout.

        Raises:
            NonFiniteError: If an observation, reward, logit or value is not finite.
            EnvError: If a head of an action mask is all zero.
        """
        named = {
            "observation": self.observations,
            "reward": self.host(self.rewards),
            "value of the final observation": self.final_values,
            "logit": self.logits,
            "value": self.values,
        }
        for name, buffer in named.items():
            # One sum per rollout; it can only be finite where every number is.
            if buffer.is_floating_point() and not bool(buffer.sum().isfinite()):
                self._locate(name, ~buffer.isfinite(), step)
        if self.action_masks is not None:
            heads = torch.split(self.action_masks[:-1], list(self._policy.layout.sizes), -1)
            illegal = torch.stack([(head.amax(-1) == 0) for head in heads], -1) & self.host(self.alive[:-1])[..., None]
            if bool(illegal.any()):
                t, row = (int(i) for i in illegal.nonzero()[0, :2])
                raise EnvError(f"{self._place(t, row, step)}: the action mask allows no action")

    def _locate(self, name: str, is_bad: Tensor, step: int) -> None:
        found = is_bad.nonzero()
        if len(found):
            t, row = int(found[0, 0]), int(found[0, 1])
            raise NonFiniteError(f"{self._place(t, row, step)}: {name} is not finite")

    def _place(self, t: int, row: int, step: int) -> str:
        instance, agent = divmod(row, self._vector.agents_per_env)
        return f"environment {instance}, agent {agent}, step {step + int(self.alive[:t].sum()):,}"


def _indices(flags: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.flatnonzero(flags))
