"""The conformance suite for environments: subclass `EnvContract`, name the environment, and pytest collects the rest.

Example::

    class TestMaze(EnvContract):
        env_name = "maze/simple"

An environment that no plugin declares overrides `make` instead. Rewards and flags are cleared before each step, as a
vector does. The suite needs plain asserts only, so that it runs without pytest too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import gymnasium
import numpy as np

from puffer_core.env import Array, PufferEnv, Step, layout_of
from puffer_core.native import NativeEnv
from puffer_core.testing.rollouts import Digest, head_sizes, random_actions
from puffer_core.vector import source_of

_PATTERN = 0xA5
_BUFFERS = (
    "observations",
    "actions",
    "rewards",
    "terminals",
    "truncations",
    "masks",
    "final_observations",
    "action_mask",
)


class EnvContract:
    """What every environment promises: spaces, arrays, seeding, flags, same-step reset, given buffers, closing.

    Attributes:
        env_name: Name of the environment as a plugin declares it.
        params: Parameters of the one that is tested.
        steps: Steps of random play per test; enough for some episodes to end.
        is_random: Whether two seeds give two trajectories.
        limits: What its framework can't give (`EnvSpec.limits`); read from the spec where there is one.
    """

    env_name: str = ""
    params: Mapping[str, object] = {}
    steps: int = 400
    is_random: bool = True
    limits: tuple[str, ...] = ()

    def make(self, buf: Mapping[str, Array] | None = None) -> PufferEnv:
        """Return a new environment on the given buffers, or on its own; override it where no plugin declares one."""
        source = source_of(self.env_name, self.params)
        self.limits = source.limits
        if source.table is not None:
            return NativeEnv(source.table, source.params, buf=buf)
        return source.open(buf)

    @contextmanager
    def opened(self, buf: Mapping[str, Array] | None = None, seed: int | None = 1) -> Iterator[PufferEnv]:
        """Give an environment that has been reset with ``seed``, and close it; with ``seed=None`` it is not reset."""
        env = self.make(buf)
        try:
            if seed is not None:
                env.reset(seed=seed)
            yield env
        finally:
            env.close()

    def play(self, env: PufferEnv, seed: int = 1) -> Iterator[int]:
        """Step ``env`` with legal random actions and give the number of each step."""
        for step in range(self.steps):
            self.step(env, random_actions(env, seed, step, env.action_mask))
            yield step

    def step(self, env: PufferEnv, actions: Array) -> Step:
        """Clear the rewards and flags of the step before, as a vector does, and step."""
        for array in (env.rewards, env.terminals, env.truncations, env.logged):
            if array is not None:
                array.fill(0)
        env.actions[...] = actions
        return env.step(env.actions)

    def test_spaces_are_supported(self) -> None:
        """One Box to observe; Discrete, MultiDiscrete or a bounded Box to act; at least one agent."""
        with self.opened(seed=None) as env:
            space, actions = env.single_observation_space, env.single_action_space
            assert isinstance(space, gymnasium.spaces.Box), f"single_observation_space is {space}, not a Box"
            kinds = (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete, gymnasium.spaces.Box)
            assert isinstance(actions, kinds), f"single_action_space is {actions}"
            if isinstance(actions, gymnasium.spaces.Box):
                assert np.isfinite(actions.low).all(), "a Box action has no lower bound"
                assert np.isfinite(actions.high).all(), "a Box action has no upper bound"
            assert env.num_agents >= 1, f"num_agents is {env.num_agents}"

    def test_arrays_match_the_spaces(self) -> None:
        """Every array has the shape and dtype that the spaces imply."""
        with self.opened() as env:
            for name, (shape, dtype) in layout_of(env).items():
                array = getattr(env, name)
                assert array.shape == shape, f"`{name}` has shape {array.shape}, not {shape}"
                assert array.dtype == dtype, f"`{name}` has dtype {array.dtype}, not {np.dtype(dtype)}"
                assert array.flags.c_contiguous, f"`{name}` is not contiguous"

    def test_reset_and_step_return_the_environments_own_arrays(self) -> None:
        """Results are written in place; no array is ever replaced."""
        with self.opened(seed=None) as env:
            arrays = [getattr(env, name) for name in _BUFFERS]
            observations, infos = env.reset(seed=1)
            assert observations is env.observations, "reset returns an array that is not `observations`"
            assert isinstance(infos, list), f"reset returns infos {infos!r}, not a list"
            actions = random_actions(env, 1, 0, env.action_mask)
            *results, infos = self.step(env, actions)
            for name, result in zip(("observations", "rewards", "terminals", "truncations"), results, strict=True):
                assert result is getattr(env, name), f"step returns an array that is not `{name}`"
            assert isinstance(infos, list), f"step returns infos {infos!r}, not a list"
            for name, array in zip(_BUFFERS, arrays, strict=True):
                assert getattr(env, name) is array, f"`{name}` was replaced; write into it instead"

    def test_observations_and_rewards_stay_in_bounds(self) -> None:
        """Observations stay in their space and rewards are finite."""
        with self.opened() as env:
            space = env.single_observation_space
            assert isinstance(space, gymnasium.spaces.Box)
            for step in self.play(env):
                for name in ("observations", "final_observations"):
                    rows = getattr(env, name)
                    if name == "final_observations":
                        rows = rows[env.terminals | env.truncations]
                    assert (rows >= space.low).all(), f"step {step}: {name} below the space"
                    assert (rows <= space.high).all(), f"step {step}: {name} above the space"
                assert np.isfinite(env.rewards).all(), f"step {step}: rewards {env.rewards}"

    def test_one_seed_gives_one_trajectory(self) -> None:
        """Equal seeds and actions give equal results."""
        if "no-seed" not in self.limits:
            assert self._trajectory(seed=3) == self._trajectory(seed=3), "seed 3 gave two trajectories"

    def test_two_seeds_give_two_trajectories(self) -> None:
        """The seed is used."""
        if "no-seed" not in self.limits and self.is_random:
            assert self._trajectory(seed=3) != self._trajectory(seed=4), "seeds 3 and 4 gave one trajectory"

    def test_reset_with_a_seed_starts_over(self) -> None:
        """What was played before leaves nothing behind."""
        with self.opened(seed=3) as env:
            first = env.observations.copy()
            for _ in self.play(env):
                pass
            env.reset(seed=3)
            if "no-seed" not in self.limits:
                assert np.array_equal(env.observations, first), "reset(seed=3) gave another first observation"

    def test_an_end_has_one_flag_and_a_last_observation(self) -> None:
        """An agent's end is terminal or truncated, and its last observation is kept."""
        with self.opened() as env:
            for step in range(self.steps):
                env.final_observations.view(np.uint8)[...] = _PATTERN
                self.step(env, random_actions(env, 1, step, env.action_mask))
                both = env.terminals & env.truncations
                assert not both.any(), f"step {step}: terminal and truncated, agents {np.flatnonzero(both)}"
                ended = env.terminals | env.truncations
                missing = ended & _is_pattern(env.final_observations)
                if "no-final-observation" not in self.limits:
                    agents = np.flatnonzero(missing)
                    assert not missing.any(), f"step {step}: final_observations not written, agents {agents}"

    def test_absent_agents_have_blank_rows(self) -> None:
        """An absent agent observes zeros and is rewarded 0 after the step in which it left."""
        with self.opened() as env:
            assert env.masks.any(), "no agent is present"
            absent = ~env.masks
            for step in self.play(env):
                gone = ~env.masks
                assert not env.observations[gone].any(), f"step {step}: an absent agent observes something"
                assert not env.rewards[gone & absent].any(), f"step {step}: an absent agent is rewarded"
                absent = gone

    def test_action_mask_leaves_a_choice(self) -> None:
        """Every head of every agent has a legal action."""
        with self.opened() as env:
            for step in self.play(env):
                if env.action_mask is None:
                    return
                assert env.action_mask.max() <= 1, f"step {step}: action_mask holds {env.action_mask.max()}"
                for head in np.split(env.action_mask, np.cumsum(head_sizes(env.single_action_space))[:-1], axis=1):
                    assert head.any(axis=1).all(), f"step {step}: an agent has no legal action"

    def test_infos_are_dictionaries(self) -> None:
        """A step returns a list of dicts beside the arrays."""
        with self.opened() as env:
            for step in range(self.steps):
                infos = self.step(env, random_actions(env, 1, step, env.action_mask))[4]
                assert all(isinstance(info, dict) for info in infos), f"step {step}: {infos}"

    def test_given_buffers_are_used_and_give_the_same_results(self) -> None:
        """Arrays passed in are the arrays used."""
        with self.opened(seed=3) as env:
            buf = {name: np.zeros_like(array) for name, array in _buffers_of(env).items()}
        with self.opened(buf, seed=3) as given:
            for name, array in buf.items():
                assert getattr(given, name) is array, f"`{name}` was given and is not used"
            digest = self._digest(given)
        if "no-seed" not in self.limits:
            assert digest == self._trajectory(seed=3), "results depend on whose arrays they are written to"

    def test_wrong_buffers_are_refused(self) -> None:
        """An array of the wrong shape or dtype is refused by name."""
        with self.opened(seed=None) as env:
            buf = {name: np.zeros_like(array) for name, array in _buffers_of(env).items()}
        for name, array in buf.items():
            for wrong in (np.zeros((len(array) + 1, *array.shape[1:]), array.dtype), array.astype(np.float64)):
                what = f"`{name}` of shape {wrong.shape} and dtype {wrong.dtype}"
                refusal = self._refusal({**buf, name: wrong})
                assert refusal is not None, f"{what} was accepted"
                assert name in refusal, f"{what} was refused without its name: {refusal}"

    def test_close_can_be_called_twice(self) -> None:
        """Closing is idempotent."""
        env = self.make()
        env.reset(seed=1)
        env.close()
        env.close()

    def _refusal(self, buf: Mapping[str, Array]) -> str | None:
        """Return what the environment says against these buffers, or None."""
        try:
            self.make(buf).close()
        except ValueError as error:
            return str(error)
        return None

    def _trajectory(self, seed: int) -> str:
        with self.opened(seed=seed) as env:
            return self._digest(env)

    def _digest(self, env: PufferEnv) -> str:
        digest = Digest()
        digest.update(env)
        for _ in self.play(env):
            digest.update(env)
        return digest.hexdigest()


def _is_pattern(array: Array) -> Array:
    """Return which rows still hold the fill pattern."""
    return np.asarray((array.view(np.uint8).reshape(len(array), -1) == _PATTERN).all(axis=1))


def _buffers_of(env: PufferEnv) -> dict[str, Array]:
    return {name: getattr(env, name) for name in _BUFFERS if getattr(env, name) is not None}
