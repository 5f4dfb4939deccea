from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from fakes_pettingzoo import Duel
from gymnasium.spaces import Box, Discrete
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.rps import rps
from pettingzoo.classic.tictactoe import tictactoe

from puffer_core import vector
from puffer_core.emulation import PettingZooPufferEnv
from puffer_core.emulation.families import make_pettingzoo
from puffer_core.errors import EnvError


def opened(env: Any, seed: int = 7) -> PettingZooPufferEnv:
    adapted = PettingZooPufferEnv(env)
    adapted.reset(seed)
    return adapted


def mover_of(env: PettingZooPufferEnv) -> int:
    return env.possible_agents.index(env.env.agent_selection)


def raw_returns(env: Any, seed: int, episodes: int) -> tuple[list[Counter[str]], int]:
    """Play raw episodes with random legal moves; return what `last` gave each agent, and the number of moves."""
    rng, found, moves = np.random.default_rng(seed), [], 0
    for episode in range(episodes):
        env.reset(seed=seed if episode == 0 else None)
        total: Counter[str] = Counter()
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, _ = env.last()
            total[agent] += reward
            if terminated or truncated:
                env.step(None)
                continue
            mask = observation["action_mask"] if isinstance(observation, dict) else np.ones(env.action_space(agent).n)
            env.step(int(rng.choice(np.flatnonzero(mask))))
            moves += 1
        found.append(total)
    return found, moves


def emulated_returns(env: Any, seed: int, episodes: int) -> tuple[list[Counter[str]], int]:
    """The same through the adapter."""
    adapted = opened(env, seed)
    rng, found, moves = np.random.default_rng(seed), [], 0
    total: Counter[str] = Counter()
    while len(found) < episodes:
        row = mover_of(adapted)
        assert adapted.action_mask is not None
        adapted.actions[:] = 0
        adapted.actions[row] = rng.choice(np.flatnonzero(adapted.action_mask[row]))
        adapted.step(adapted.actions)
        moves += 1
        for agent, reward in zip(adapted.possible_agents, adapted.rewards, strict=True):
            total[agent] += float(reward)
        if (adapted.terminals | adapted.truncations).any() and adapted.masks.all():
            found.append(total)
            total = Counter()
    return found, moves


def test_one_step_is_one_move_and_everybody_watches() -> None:
    env = opened(Duel(kill_at=99))
    assert env.observations.tolist() == [[0, 0], [1, 0], [2, 0]]
    env.step(np.array([1, 2, 2], np.int32))
    env.step(np.array([2, 1, 2], np.int32))
    assert env.env.taken == [("a", 1), ("b", 1)]
    assert env.masks.all()
    assert env.observations.tolist() == [[0, 2], [1, 2], [2, 2]]


def test_only_the_mover_has_a_choice() -> None:
    env = opened(Duel(kill_at=99))
    assert env.action_mask is not None
    for mover in (0, 1, 2, 0):
        assert env.action_mask.tolist() == [[1, 1, 1] if row == mover else [1, 0, 0] for row in range(3)]
        env.step(np.zeros(3, np.int32))


def test_the_movers_own_mask_counts() -> None:
    env = opened(Duel(kill_at=99, masks=True))
    assert env.action_mask is not None
    assert env.single_observation_space == Box(0, 100, (2,), np.float32)
    assert env.action_mask.tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    env.step(np.ones(3, np.int32))
    assert env.action_mask.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_rewards_come_in_the_step_that_brings_them_whosever_move_it_is() -> None:
    env = opened(Duel(kill_at=99))
    rewards = []
    for _ in range(4):
        env.step(np.zeros(3, np.int32))
        rewards.append(env.rewards.tolist())
    assert rewards == [[1, 0, 0.5], [0.5, 1, 0], [0, 0.5, 1], [1, 0, 0.5]]


def test_agent_that_is_killed_before_its_turn_leaves_at_once() -> None:
    env = opened(Duel(kill_at=1))
    for _ in range(3):
        env.step(np.zeros(3, np.int32))
    env.step(np.zeros(3, np.int32))  # the second move of a kills c, whose turn would come after b's
    assert env.terminals.tolist() == [False, False, True]
    assert env.rewards.tolist() == [1, 0, -4.5]
    assert env.final_observations[2].tolist() == [2, 4]
    assert env.masks.tolist() == [True, True, False]
    assert env.observations[2].tolist() == [0, 0]
    for mover in ("b", "a", "b"):
        assert env.env.agent_selection == mover
        env.step(np.zeros(3, np.int32))
    assert env.truncations.tolist() == [True, True, False]
    assert not env.terminals.any()
    assert env.masks.all()
    assert env.observations.tolist() == [[0, 0], [1, 0], [2, 0]]
    assert [agent for agent, _ in env.env.taken] == ["a", "b", "c", "a", "b", "a", "b"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Duel(rounds=4, kill_at=1),
        lambda: Duel(rounds=4, kill_at=99),
        connect_four.env,
        tictactoe.env,
        rps.env,
    ],
    ids=["death", "no-death", "connect-four", "tictactoe", "rps"],
)
def test_sum_of_rewards_of_each_agent_is_that_of_the_raw_loop(make: Any) -> None:
    raw, moves = raw_returns(make(), 3, 8)
    found, steps = emulated_returns(make(), 3, 8)
    assert [dict(total) for total in found] == [pytest.approx(dict(total)) for total in raw]
    assert steps == moves


@pytest.mark.parametrize(("name", "make"), [("connect-four", connect_four.env), ("tictactoe", tictactoe.env)])
def test_game_of_the_family_is_that_of_the_raw_loop(name: str, make: Any) -> None:
    raw, _ = raw_returns(make(), 5, 6)
    found, _ = emulated_returns(make_pettingzoo(name), 5, 6)
    assert [dict(total) for total in found] == [dict(total) for total in raw]


def test_connect_four_shows_each_player_the_board_from_its_side() -> None:
    env = opened(connect_four.env())
    assert env.single_observation_space.shape == (6, 7, 2)
    env.step(np.array([3, 0], np.int32))
    first, second = env.observations
    assert first[5, 3].tolist() == [1, 0]
    assert second[5, 3].tolist() == [0, 1]
    assert np.array_equal(first, second[..., ::-1])


def test_game_that_is_over_starts_anew_in_the_same_step() -> None:
    env = opened(tictactoe.env())
    for move in (0, 3, 1, 4):
        env.step(np.full(2, move, np.int32))
        assert not env.terminals.any()
    env.step(np.full(2, 2, np.int32))
    assert env.terminals.tolist() == [True, True]
    assert env.rewards.tolist() == [1, -1]
    assert env.final_observations[0].sum() == 5
    assert env.observations.sum() == 0
    assert env.masks.all()
    assert mover_of(env) == 0


def test_illegal_move_ends_the_game_as_its_own_wrapper_says() -> None:
    env = opened(tictactoe.env())
    env.step(np.zeros(2, np.int32))
    env.step(np.zeros(2, np.int32))  # the field is taken: TerminateIllegalWrapper gives the offender -1
    assert env.rewards.tolist() == [0, -1]
    assert env.terminals.all()


def test_continuous_actions_need_no_mask() -> None:
    env = opened(Duel(actions=Box(-1, 1, (1,), np.float32), kill_at=99))
    assert env.action_mask is None
    env.step(np.array([[0.5], [9], [9]], np.float32))
    assert env.env.taken[0][1].tolist() == [0.5]


def test_selection_that_stays_on_an_agent_at_its_end_is_refused() -> None:
    class Stuck(Duel):
        def _was_dead_step(self, action: Any) -> None:
            self.agent_selection = "c"

        def _after(self, agent: str) -> str:
            return "c" if self.terminations["c"] else super()._after(agent)

    env = opened(Stuck(kill_at=0))
    with pytest.raises(EnvError, match="Stuck: agent_selection stays `c`, which does not go on"):
        env.step(np.zeros(3, np.int32))


def test_vector_of_games_keeps_them_apart() -> None:
    with vector.make(tictactoe.env, num_envs=2, backend="serial") as envs:
        envs.reset(1)
        assert (envs.num_agents, envs.agents_per_env, envs.single_action_space) == (4, 2, Discrete(9))
        envs.step(np.array([4, 0, 8, 0], np.int32))
        assert envs.observations[0, 1, 1].tolist() == [1, 0]
        assert envs.observations[2, 2, 2].tolist() == [1, 0]
        assert envs.action_mask is not None
        assert envs.action_mask[:, 4].tolist() == [0, 0, 0, 1]
