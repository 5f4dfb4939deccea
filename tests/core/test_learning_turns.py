"""Whether turn-based games are learnt: Tic-Tac-Toe by self-play, against a player that draws its moves at random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import puffer_core
from puffer_core.emulation import PettingZooPufferEnv
from puffer_core.emulation.families import make_pettingzoo
from puffer_core.training import train

pytestmark = pytest.mark.slow

GAMES = 300
RANDOM = (0.30, -0.30)
"""Mean result of a random player, first and second, against another."""


def mean_result(run: str, player: int) -> float:
    """Play against a random opponent; return the mean of 1 for a win, 0 for a draw and -1 for a loss."""
    agent = puffer_core.load(run)
    env = PettingZooPufferEnv(make_pettingzoo("tictactoe"))
    env.reset(0)
    rng, results, state = np.random.default_rng(0), [], None
    while len(results) < GAMES:
        assert env.action_mask is not None
        actions, state = agent.act(env.observations, state, action_mask=env.action_mask)
        actions = np.array(actions, np.int32)
        actions[1 - player] = rng.choice(np.flatnonzero(env.action_mask[1 - player]))
        env.step(actions)
        if env.terminals.any():
            results.append(float(env.rewards[player]))
            state = None
    return float(np.mean(results))


@pytest.mark.parametrize("seed", ["4", "5", "6"])
def test_tictactoe_is_learnt_by_self_play(tmp_path: Path, seed: str) -> None:
    options = {
        "seed": seed,
        "runs_dir": str(tmp_path),
        "vec.num_envs": "32",
        "vec.backend": "serial",
        "policy.core": "none",
        "train.device": "cpu",
        "train.total_timesteps": "150000",
        "train.horizon": "32",
        "train.minibatch_size": "512",
        "train.replay_ratio": "3",
        "train.optimizer": "adam",
        "train.learning_rate": "0.002",
        "train.gamma": "0.98",
        "train.gae_lambda": "0.9",
        "train.ent_coef": "0.02",
    }
    run = train("pettingzoo/tictactoe", options=options)["run_dir"]
    assert mean_result(run, 0) > RANDOM[0] + 0.35
    assert mean_result(run, 1) > RANDOM[1] + 0.35
