"""Checks of what happens in episodes: values, ends, the reset in the same step, agents that leave, masks of actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from puffer_core.env import Array, PufferEnv, Space
from puffer_core.testing.contract import (
    OTHER,
    PARALLEL,
    PATTERN,
    SINGLE,
    TURNS,
    BreachError,
    Contract,
    for_framework,
    is_pattern,
    raw_of,
    remark,
)
from puffer_core.testing.rollouts import head_sizes, random_actions

_FRAMEWORKS = (SINGLE, PARALLEL, TURNS, OTHER)
_LAST_HINT = "write `self.final_observations[ended] = self.observations[ended]` before starting the next episode"


class EpisodeChecks(Contract):
    """Values, ends, masks."""

    def test_observations_and_rewards_stay_in_bounds(self) -> None:
        """Observations are finite and stay in their space, rewards are finite.

        Frameworks declare bounds that their own environments leave: of those, it is remarked.
        """
        with self.opened() as env:
            told = ""
            for name, rows, where in self._played_rows(env):
                if problem := _out_of_bounds(env.single_observation_space, rows):
                    problem = f"{where}: {name} {problem}"
                    if self.framework not in _FRAMEWORKS or "not finite" in problem:
                        raise BreachError(problem, "widen the space, or clip what is written")
                    told = told or problem
            if told:
                remark(told)

    def _played_rows(self, env: PufferEnv) -> Iterator[tuple[str, Array, str]]:
        """Play; give what was observed, and where. Rewards are looked at here."""
        yield "observations", env.observations, "after reset"
        for step in self.play(env):
            yield "observations", env.observations, f"step {step}"
            ended = env.terminals | env.truncations
            if not self.lacks("no-final-observation"):
                yield "final_observations", env.final_observations[ended], f"step {step}"
            if not np.isfinite(env.rewards).all():
                agents = np.flatnonzero(~np.isfinite(env.rewards))
                raise BreachError(f"step {step}: rewards of agents {agents} are {env.rewards[agents]}, not finite")

    def test_an_end_has_one_flag_and_a_last_observation(self) -> None:
        """An agent's end is terminal or truncated, and its last observation is kept."""
        with self.opened() as env:
            for step in range(self.steps):
                env.final_observations.view(np.uint8)[...] = PATTERN
                self.step(env, random_actions(env, 1, step, env.action_mask), step)
                both = env.terminals & env.truncations
                if both.any():
                    hint = "an end has one flag: terminal where both hold"
                    raise BreachError(f"step {step}: terminal and truncated, agents {np.flatnonzero(both)}", hint)
                missing = (env.terminals | env.truncations) & is_pattern(env.final_observations)
                if missing.any() and not self.lacks("no-final-observation"):
                    agents = np.flatnonzero(missing)
                    raise BreachError(f"step {step}: final_observations not written, agents {agents}", _LAST_HINT)

    def test_the_next_episode_begins_in_the_same_step(self) -> None:
        """At an end the observation is already the next episode's, and the last one is kept beside it."""
        with self.opened() as env:
            starts = {row.tobytes() for row in env.observations}
            seen, ends = set(starts), []
            for _ in self.play(env):
                ended = env.terminals | env.truncations
                seen |= {row.tobytes() for row in env.observations[~ended]}
                for row in np.flatnonzero(ended & env.masks):
                    ends.append((env.observations[row].tobytes(), env.final_observations[row].tobytes()))
            if len(ends) < 2 or len(seen) < 3 or any(first != last for first, last in ends):
                return
            for seed in range(2, 10):
                self.reset(env, seed)
                starts |= {row.tobytes() for row in env.observations}
            if len({first for first, _ in ends}) > 1 or not any(first in starts for first, _ in ends):
                msg = f"at all {len(ends)} ends the observation is the one in final_observations"
                raise BreachError(
                    f"{msg}: the next episode begins a step late, or the last observation is lost", _LAST_HINT
                )

    def test_absent_agents_have_blank_rows(self) -> None:
        """An absent agent observes zeros and is rewarded 0 after the step in which it left."""
        with self.opened() as env:
            if not env.masks.any():
                raise BreachError("no agent is present after reset")
            absent = ~env.masks
            _require_blank(env, absent, "after reset")
            for step in self.play(env):
                gone = ~env.masks
                _require_blank(env, gone, f"step {step}")
                paid = np.flatnonzero(gone & absent & (env.rewards != 0))
                if paid.size:
                    raise BreachError(f"step {step}: absent agents {paid} are rewarded {env.rewards[paid]}")
                ended = np.flatnonzero(gone & absent & (env.terminals | env.truncations))
                if ended.size:
                    raise BreachError(f"step {step}: absent agents {ended} end once more")
                absent = gone

    def test_agents_that_left_come_back(self) -> None:
        """An agent is present again in the next episode: no row is lost for good."""
        with self.opened() as env:
            was_present, ends_since = env.masks.copy(), np.zeros(env.num_agents, np.int64)
            for step in self.play(env):
                was_present |= env.masks
                gone = was_present & ~env.masks
                if gone.all():
                    raise BreachError(f"step {step}: no agent is present", "restore masks where an episode begins")
                ends = (env.terminals | env.truncations).sum()
                ends_since = np.where(gone, ends_since + ends, 0)
                lost = np.flatnonzero(ends_since >= 4 * env.num_agents)
                if lost.size:
                    msg = f"step {step}: agents {lost} left and have not come back while others ended again and again"
                    raise BreachError(msg, "restore masks where an episode begins")

    def test_action_mask_leaves_a_choice(self) -> None:
        """Every head of every agent has a legal action."""
        with self.opened() as env:
            for step in self.play(env):
                if env.action_mask is None:
                    return
                if env.action_mask.max() > 1:
                    raise BreachError(f"step {step}: action_mask holds {env.action_mask.max()}, not 0 and 1")
                for head in np.split(env.action_mask, np.cumsum(head_sizes(env.single_action_space))[:-1], axis=1):
                    stuck = np.flatnonzero(~head.any(axis=1))
                    if stuck.size:
                        raise BreachError(f"step {step}: an agent has no legal action, agents {stuck}")

    def test_actions_outside_a_box_do_no_harm(self) -> None:
        """Actions beyond a Box are clipped, or refused with a `ValueError`; they reach no simulation."""
        with self.opened() as env:
            if type(env.single_action_space) is not gymnasium.spaces.Box:
                return
            for step in range(min(self.steps, 20)):
                try:
                    self.step(env, _beyond(env, step), step)
                except BreachError as breach:
                    if isinstance(breach.__cause__, ValueError):
                        return
                    raise
                ended = env.terminals | env.truncations
                for rows in (env.observations[~ended], env.final_observations[ended]):
                    problem = _out_of_bounds(env.single_observation_space, rows)
                    if problem and self.framework not in _FRAMEWORKS:
                        what = f"step {step} with an action outside {env.single_action_space}"
                        raise BreachError(f"{what}: observations {problem}", "clip the actions")

    @for_framework(SINGLE)
    def test_single_actions_are_clipped_to_their_box(self) -> None:
        """The environment itself never sees an action outside its Box."""
        with self.opened() as env:
            raw, received = raw_of(env), []
            if raw is None or type(env.single_action_space) is not gymnasium.spaces.Box:
                return
            space, its_step = raw.action_space, raw.step

            def step_and_keep(action: Any) -> Any:
                received.append(np.array(action))
                return its_step(action)

            raw.step = step_and_keep
            with suppress(BreachError):
                for step in range(min(self.steps, 20)):
                    self.step(env, _beyond(env, step), step)
            for step, action in enumerate(received):
                if np.any(action < space.low) or np.any(action > space.high):
                    raise BreachError(f"step {step}: the environment was given {action}, which is not in {space}")

    def test_agents_do_not_all_observe_the_same(self) -> None:
        """Rows that are equal all the time are remarked: they are often one row written to all."""
        with self.opened() as env:
            if env.num_agents < 2:
                return
            is_same = _are_equal(env.observations)
            for _ in self.play(env):
                is_same = is_same and _are_equal(env.observations)
                if not is_same:
                    return
            remark(
                f"all {env.num_agents} agents observe the same in all {self.steps} steps: is one row written to all?"
            )


def _out_of_bounds(space: Space, rows: Array) -> str | None:
    """Return what is wrong with rows of observations, or None."""
    assert isinstance(space, gymnasium.spaces.Box)
    if rows.dtype.kind == "f" and (wrong := ~np.isfinite(rows)).any():
        return f"are not finite: {rows[wrong][0]} at {_place(wrong)}"
    for word, wrong, bound in (("below", rows < space.low, space.low), ("above", rows > space.high, space.high)):
        if wrong.any():
            limit = np.broadcast_to(bound, rows.shape)[wrong][0]
            return f"{word} the space: {rows[wrong][0]} at {_place(wrong)}, where the bound is {limit}"
    return None


def _place(wrong: Array) -> str:
    agent, *rest = (int(i) for i in np.argwhere(wrong)[0])
    return f"agent {agent}, index {tuple(rest)}"


def _require_blank(env: PufferEnv, gone: Array, where: str) -> None:
    seeing = np.flatnonzero(gone & env.observations.reshape(env.num_agents, -1).any(axis=1))
    if seeing.size:
        raise BreachError(
            f"{where}: an absent agent observes something: agents {seeing}", "fill the rows of absent agents with 0"
        )


def _are_equal(rows: Array) -> bool:
    return bool((rows == rows[:1]).all())


def _beyond(env: PufferEnv, step: int) -> Array:
    """Return actions far outside the Box, on both sides, where it has bounds."""
    space = env.single_action_space
    assert isinstance(space, gymnasium.spaces.Box)
    low, high = np.nan_to_num(space.low, neginf=-1.0), np.nan_to_num(space.high, posinf=1.0)
    away = 10 * (high - low + 1) * np.where(np.arange(env.num_agents) % 2 == step % 2, -1, 1)[:, None]
    return np.asarray((low + high) / 2 + away, np.float32)
