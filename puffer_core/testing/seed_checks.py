"""Checks of seeds: one seed is one trajectory, whoever else is playing; another instance is another one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from puffer_core.testing.contract import BUFFERS, BreachError, Contract, first_difference, remark, unless_limited
from puffer_core.testing.rollouts import random_actions
from puffer_core.vector.serial import Serial

_SEED_HINT = "draw everything from one generator made in reset, `np.random.default_rng([seed, index])`"
_CONSTANT_HINT = "use the seed; where nothing is drawn at random, say is_random = False"


class SeedChecks(Contract):
    """Seeds, indices, and what instances share."""

    @unless_limited("no-seed")
    def test_one_seed_gives_one_trajectory(self) -> None:
        """Equal seeds and actions give equal results."""
        if where := first_difference(self.trace_of(seed=3), self.trace_of(seed=3)):
            raise BreachError(f"seed 3 gave two trajectories: {where}", _SEED_HINT)

    @unless_limited("no-seed")
    def test_two_seeds_give_two_trajectories(self) -> None:
        """The seed is used."""
        if self.is_random is False or self.trace_of(seed=3) != self.trace_of(seed=4):
            return
        if self.is_random is None and not self._differs_without_seed():
            remark("no seed makes a difference: nothing in it is drawn at random, or it is seeded with a constant")
            return
        raise BreachError("seeds 3 and 4 gave one trajectory", _CONSTANT_HINT)

    def _differs_without_seed(self) -> bool:
        """Return whether episodes that begin without a seed differ from each other: something is drawn at random."""
        with self.opened(seed=None) as env:
            traces = []
            for _ in range(3):
                env.reset()
                traces.append(self.trace(env))
        return any(first_difference(traces[0][1:], other[1:]) for other in traces[1:])

    @unless_limited("no-seed")
    def test_two_instances_with_one_seed_differ(self) -> None:
        """The index reaches the generator: copies of an environment do not all play the same game."""
        if self.is_random is False:
            return
        one = self.trace_of(seed=3)
        if one == self.trace_of(seed=3, index=1) and one != self.trace_of(seed=4):
            hint = "seed the generator with both: `np.random.default_rng([seed, index])`"
            raise BreachError("reset(seed=3, index=0) and reset(seed=3, index=1) gave one trajectory", hint)

    @unless_limited("no-seed")
    def test_reset_with_a_seed_starts_over(self) -> None:
        """What was played before leaves nothing behind."""
        with self.opened(seed=3) as env:
            first = self.trace(env)
            self.reset(env, 3)
            for array in (env.rewards, env.terminals, env.truncations):
                array.fill(0)
            if where := first_difference(first[:1], self.trace(env)[:1]):
                raise BreachError(
                    f"reset(seed=3) after {self.steps} steps gave another first observation: {where}", _SEED_HINT
                )
            self.reset(env, 3)
            for array in (env.rewards, env.terminals, env.truncations):
                array.fill(0)
            if where := first_difference(first, self.trace(env)):
                raise BreachError(f"reset(seed=3) after {self.steps} steps did not start over: {where}", _SEED_HINT)

    @unless_limited("no-seed")
    def test_instances_share_nothing(self) -> None:
        """Neither another instance nor anyone who draws from the global generators changes a trajectory."""
        alone = self.trace_of(seed=3)
        with _global_generators_kept(), self.opened(seed=None) as env, self.opened(seed=4) as other:

            def disturb(step: int) -> None:
                np.random.random()
                random.random()
                self.step(other, random_actions(other, 2, step, other.action_mask), step)

            self.reset(env, 3)
            found = self.trace(env, disturb)
        if where := first_difference(alone, found):
            hint = "no global generator, no state in class attributes or modules"
            raise BreachError(f"another instance beside it changed the trajectory of seed 3: {where}", hint)

    @unless_limited("no-seed")
    def test_a_vector_keeps_rows_apart(self) -> None:
        """Three in a vector write what each writes alone, each in its own rows."""
        if self.is_overridden or self.source is None or self.source.table is not None:
            return
        count = 3
        with Serial(self.source, count, seed=3) as vector:
            vector.reset(seed=3)
            alone = [self.make() for _ in range(count)]
            for index, env in enumerate(alone):
                self.reset(env, 3, index)
            for step in range(min(self.steps, 60)):
                actions = [random_actions(env, index, step, env.action_mask) for index, env in enumerate(alone)]
                for index, env in enumerate(alone):
                    self.step(env, actions[index], step)
                vector.step(np.concatenate(actions))
                for index, env in enumerate(alone):
                    rows = slice(index * env.num_agents, (index + 1) * env.num_agents)
                    for name in BUFFERS[2:6] + BUFFERS[:1]:
                        if not np.array_equal(getattr(vector, name)[rows], getattr(env, name), equal_nan=True):
                            where = f"step {step}: in a vector, `{name}` of environment {index}"
                            raise BreachError(
                                f"{where} differs from what it writes alone", "use the arrays given as `buf`"
                            )
            for env in alone:
                env.close()


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """Put the global generators back as they were."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
