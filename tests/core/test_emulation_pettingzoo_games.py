"""Environments of PettingZoo and MPE2 themselves, beside a raw loop over the same seeds and actions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_pettingzoo import Poisoned, Schedule
from mpe2 import simple_spread_v3
from pettingzoo.butterfly.knights_archers_zombies import knights_archers_zombies as kaz
from pettingzoo.classic.rps import rps

import puffer_core
from puffer_core import vector
from puffer_core.emulation import PettingZooPufferEnv
from puffer_core.emulation.families import make_pettingzoo
from puffer_core.training import train


class Raw:
    """A parallel environment stepped by hand, which starts anew when nobody is left."""

    def __init__(self, env: Any, seed: int) -> None:
        self.env = env
        self.seen = env.reset(seed=seed)[0]
        self.returns: Counter[str] = Counter()

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        last, rewards, terminals, truncations, _ = self.env.step(actions)
        self.returns.update(rewards)
        self.seen = {agent: last[agent] for agent in self.env.agents}
        if not self.env.agents:
            self.seen = self.env.reset()[0]
        return last, rewards, terminals, truncations


def compare(name: str, raw_env: Any, steps: int, seed: int = 3, **kwargs: Any) -> tuple[PettingZooPufferEnv, int]:
    """Step both with the same actions; return the adapted one and how often an agent left while others stayed."""
    raw = Raw(raw_env(**kwargs), seed)
    env = PettingZooPufferEnv(make_pettingzoo(name, **kwargs))
    env.reset(seed)
    rng, returns, deaths = np.random.default_rng(seed), Counter(), 0
    for _ in range(steps):
        for row, agent in enumerate(env.possible_agents):
            assert env.masks[row] == (agent in raw.seen)
            if agent in raw.seen:
                np.testing.assert_array_equal(env.observations[row], raw.seen[agent])
            else:
                assert not env.observations[row].any()
        present = set(raw.env.agents)
        actions = {agent: int(rng.integers(env.single_action_space.n)) for agent in env.possible_agents}  # type: ignore[attr-defined]
        env.step(np.array(list(actions.values()), np.int32))
        last, rewards, terminals, truncations = raw.step({agent: actions[agent] for agent in present})
        deaths += 0 < len(set(raw.env.agents) & present) < len(present)
        for row, agent in enumerate(env.possible_agents):
            returns[agent] += env.rewards[row]
            if agent not in present:
                assert (env.rewards[row], env.terminals[row], env.truncations[row]) == (0, False, False)
                continue
            assert env.rewards[row] == np.float32(rewards[agent])
            assert (env.terminals[row] or env.truncations[row]) == (terminals[agent] or truncations[agent])
            if terminals[agent] or truncations[agent]:
                np.testing.assert_array_equal(env.final_observations[row], last[agent])
    assert dict(returns) == pytest.approx(dict(raw.returns), abs=1e-3)
    env.close()
    return env, deaths


def test_simple_spread_is_that_of_a_raw_loop() -> None:
    env, deaths = compare("simple-spread", simple_spread_v3.parallel_env, 80, max_cycles=12)
    assert (env.num_agents, env.single_observation_space.shape, deaths) == (3, (18,), 0)


def test_knights_archers_zombies_loses_agents_as_a_raw_loop_does() -> None:
    env, deaths = compare("knights-archers-zombies", kaz.parallel_env, 800, seed=2, spawn_delay=3, max_cycles=300)
    assert (env.num_agents, env.single_observation_space.shape) == (4, (27, 5))
    assert deaths > 2


def test_rock_paper_scissors_in_its_parallel_form_is_that_of_a_raw_loop() -> None:
    raw = Raw(rps.parallel_env(), 1)
    with vector.make("pettingzoo/rps", backend="serial") as envs:
        envs.reset(1)
        rng = np.random.default_rng(0)
        for _ in range(40):
            assert envs.observations[:, 0].tolist() == list(raw.seen.values())
            actions = rng.integers(0, 3, 2)
            envs.step(actions)
            rewards = raw.step(dict(zip(("player_0", "player_1"), actions.tolist(), strict=True)))[1]
            assert envs.rewards.tolist() == list(rewards.values())


@pytest.mark.parametrize("name", ["simple-tag", "simple-speaker-listener", "simple-adversary", "simple-crypto"])
def test_agents_with_different_spaces_share_rows(name: str) -> None:
    with vector.make(f"pettingzoo/{name}", num_envs=2, backend="serial") as envs:
        envs.reset(1)
        env = make_pettingzoo(name)
        widths = [env.observation_space(agent).shape[0] for agent in env.possible_agents]
        choices = [env.action_space(agent).n for agent in env.possible_agents]
        assert envs.single_observation_space.shape == (max(widths),)
        if len(set(choices)) > 1:
            assert envs.action_mask is not None
            assert envs.action_mask.sum(axis=1).tolist() == choices * 2
        for _ in range(30):
            envs.step(np.zeros(envs.num_agents, np.int32))
            for row, width in enumerate(widths * 2):
                assert not envs.observations[row, width:].any()


def test_pistonball_is_many_agents_with_pictures_and_continuous_actions() -> None:
    with puffer_core.make("pettingzoo/pistonball", n_pistons=4, max_cycles=3, backend="serial") as envs:
        envs.reset(1)
        assert (envs.num_agents, envs.single_observation_space.shape) == (4, (457, 120, 3))
        for _ in range(3):
            envs.step(np.full((4, 1), 2, np.float32))
        assert envs.truncations.all()
        assert envs.final_observations.any(axis=(1, 2, 3)).all()


def pair() -> Any:
    return Schedule({2: {"agent_1": "terminate"}, 9: {"agent_0": "truncate"}}, agents=2)


def padded_pair() -> Any:
    """The same two agents beside two that are never there, of whom it gives NaN."""
    events = {2: {"agent_1": "terminate"}, 9: {"agent_0": "truncate"}}
    return Schedule(events, agents=4, absent=("agent_2", "agent_3"), poison=True)


def metrics_of(env: Any, tmp_path: Path, rows: int, epochs: int, **changes: str) -> list[dict[str, Any]]:
    """Train with one minibatch per rollout of ``rows`` x 16; return the rows of the metrics."""
    options = {
        "train.total_timesteps": str(rows * 16 * epochs),
        "train.device": "cpu",
        "train.horizon": "16",
        "train.minibatch_size": str(rows * 16),
        "train.replay_ratio": "1",
        "train.prio": "off",
        "train.optimizer": "adam",
        "vec.num_envs": "1",
        "vec.backend": "serial",
        "policy.hidden_size": "8",
        "policy.num_layers": "1",
        "runs_dir": str(tmp_path),
    }
    result = train(env, options=options | {key.replace("__", "."): text for key, text in changes.items()})
    return [json.loads(line) for line in (Path(result["run_dir"]) / "metrics.jsonl").read_text().splitlines()]


def test_training_on_agents_that_come_and_go_stays_finite(tmp_path: Path) -> None:
    rows = metrics_of(Poisoned, tmp_path, rows=10, epochs=16, vec__num_envs="2")
    losses = [value for row in rows for key, value in row.items() if key.startswith("loss/")]
    assert len(losses) > 10
    assert np.isfinite(losses).all()
    assert rows[-1]["env/episode_length"] == pytest.approx((2 + 5 + 5 + 9) / 4, abs=0.5)


def test_rows_of_agents_that_are_never_there_change_no_loss_and_no_count(tmp_path: Path) -> None:
    found = metrics_of(padded_pair, tmp_path, rows=4, epochs=2)
    expected = metrics_of(pair, tmp_path, rows=2, epochs=2)
    assert len(found) == len(expected) == 2
    assert found[0]["loss/entropy"] == pytest.approx(expected[0]["loss/entropy"], rel=1e-5)
    for padded, plain in zip(found, expected, strict=True):
        assert padded["step"] == plain["step"]
        # Rewards and observations do not depend on actions here, which are drawn anew for other numbers of rows.
        same = [key for key in plain if key.startswith("env/") or key in ("loss/value", "loss/explained_variance")]
        assert {key: padded[key] for key in same} == pytest.approx({key: plain[key] for key in same}, rel=1e-4)
