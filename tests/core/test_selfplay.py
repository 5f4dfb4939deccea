from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import run
from fakes_partial import PartialVector
from fakes_ranks import in_threads
from fakes_selfplay import Duel, NumberDuel, make_selfplay

from puffer_core.config import load
from puffer_core.config.plan import plan
from puffer_core.config.schema import SelfPlayConfig
from puffer_core.errors import EnvError, OptionError, RunError
from puffer_core.rl.pool import Pool, total
from puffer_core.rl.selfplay import LEARNER
from puffer_core.scores import points_of
from puffer_core.seats import first_seats, frozen_rows
from puffer_core.vector import make

ON = SelfPlayConfig(enabled=True, share=0.5, interval=2, opponents=2, concurrent=2)


def duel(num_envs: int = 16, kind: Any = Duel) -> Any:
    return make(kind, num_envs, "serial")


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])


def buffers(trainer: Any) -> list[Any]:
    rollout = trainer.rollout
    return [rollout.observations, rollout.values, rollout.final_values, rollout.logits, rollout.logprobs]


# -- who sits where ---------------------------------------------------------------------------------------------------


def test_the_first_side_has_each_seat_equally_often() -> None:
    assert np.flatnonzero(first_seats(8, 2)).tolist() == [0, 3, 4, 7]
    assert np.flatnonzero(first_seats(9, 3)).tolist() == [0, 4, 8]


def test_frozen_rows_are_all_but_one_of_a_share_of_the_environments() -> None:
    frozen = frozen_rows(SelfPlayConfig(enabled=True, share=0.5), 12, 3)
    assert frozen.reshape(4, 3).sum(1).tolist() == [0, 0, 2, 2]
    assert not frozen[first_seats(12, 3)].any()
    assert not frozen_rows(SelfPlayConfig(), 12, 3).any()
    assert frozen_rows(SelfPlayConfig(enabled=True, share=0.01), 12, 3).sum() == 2


def test_the_plan_counts_what_is_learnt_from() -> None:
    options = {"train.total_timesteps": "9600", "vec.num_envs": "8", "train.horizon": "16"}
    counts = {"train.minibatch_size": "64", "selfplay.enabled": "on", "selfplay.share": "0.5"}
    found = plan(load(None, options={**options, **counts}), 2, is_native=False)
    assert (found.num_agents, found.num_frozen, found.batch_size) == (16, 4, 12 * 16)
    assert (found.epochs, found.minibatches_per_epoch) == (50, 3)
    assert "12 agents x 16 steps" in found.summary


def test_an_environment_of_one_agent_is_refused() -> None:
    with pytest.raises(OptionError, match=r"selfplay\.enabled: each environment has one agent"):
        plan(load(None, options={"selfplay.enabled": "on"}), 1, is_native=False)


# -- nothing is learnt from frozen rows -------------------------------------------------------------------------------


def test_without_opponents_nothing_changes() -> None:
    plain, off = make_selfplay(duel()), make_selfplay(duel(), SelfPlayConfig(enabled=True, share=0.0))
    first, second = run(plain, 3), run(off, 3)
    assert torch.equal(weights(plain), weights(off))
    assert off.selfplay is None
    assert first[-1].keys() == second[-1].keys()


@pytest.mark.parametrize("filling", [np.nan, 1e3])
@pytest.mark.parametrize("prio", [True, False])
@pytest.mark.parametrize("core", ["mingru", "none"])
def test_a28_the_gradient_does_not_depend_on_frozen_rows(core: str, prio: bool, filling: float) -> None:
    options = {"policy_core": core, "prio": prio, "policy_normalize_observations": True}
    clean, dirty = (make_selfplay(duel(), ON, **options) for _ in range(2))
    for epoch in range(3):
        for trainer in (clean, dirty):
            trainer.evaluate()
        frozen = dirty.selfplay.is_frozen
        carried = dirty.rollout.observations[-1].clone()
        for buffer in buffers(dirty):
            buffer[:, frozen] = filling
        dirty.rollout.rewards[:, frozen] = filling
        dirty.rollout.snapshot[:, frozen] = filling
        dirty.rollout.terminals[1:-1, frozen] = True
        losses = [trainer.train() for trainer in (clean, dirty)]
        assert losses[0] == losses[1], epoch
        dirty.rollout.observations[-1] = carried
        dirty.rollout.rewards[-1] = clean.rollout.rewards[-1]
        assert torch.equal(weights(clean), weights(dirty))
    buffers_of = [dict(trainer.policy.named_buffers()) for trainer in (clean, dirty)]
    assert all(torch.equal(buffers_of[0][name], buffers_of[1][name]) for name in buffers_of[0])


@pytest.mark.parametrize("prio", [True, False])
def test_frozen_rows_are_never_drawn(prio: bool) -> None:
    trainer = make_selfplay(duel(), ON, prio=prio)
    drawn: list[int] = []
    update = trainer._update
    trainer._update = lambda rows, *rest: (drawn.extend(rows.tolist()), update(rows, *rest))[1]  # type: ignore[method-assign]
    run(trainer, 6)
    assert set(drawn) <= set(np.flatnonzero(~trainer.selfplay.is_frozen))
    assert len(set(drawn)) > 12


def test_steps_and_metrics_are_the_learners() -> None:
    trainer = make_selfplay(duel(), ON)
    logged = []
    drain = trainer.vector.drain_log
    trainer.vector.drain_log = lambda: (logged.append(drain()), logged[-1])[1]
    row = run(trainer, 1)[0]
    assert trainer.global_step == 8 * 24
    # Every game is logged by both sides; 8 of 16 environments have two learners, 8 have one.
    assert row["env/n"] < logged[0]["n"]
    assert row["selfplay/opponents"] == 1
    assert 0.0 < row["env/perf"] < 1.0


# -- who acts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", ["mingru", "lstm", "none"])
def test_each_row_acts_with_the_weights_of_who_plays_it(core: str) -> None:
    trainer = make_selfplay(duel(), SelfPlayConfig(enabled=True, interval=100, concurrent=1), policy_core=core)
    run(trainer, 3)
    learner = {name: tensor.clone() for name, tensor in trainer.policy.state_dict().items()}
    trainer.evaluate()
    frozen, rollout = trainer.selfplay.is_frozen, trainer.rollout
    untrained = trainer.selfplay.pool.policy(0)
    trainer.policy.load_state_dict(learner)
    for policy, rows in ((trainer.policy, ~frozen), (untrained, frozen)):
        with torch.no_grad():
            logits, _, _ = policy.forward_eval(rollout.observations[0, rows], rollout.snapshot[:, rows])
        assert torch.allclose(rollout.logits[0, rows], logits, atol=1e-6)
    assert not rollout.values[:-1, frozen].any()


def test_opponents_of_numbers_draw_with_their_own_deviations() -> None:
    trainer = make_selfplay(duel(kind=NumberDuel), SelfPlayConfig(enabled=True, interval=100, concurrent=1))
    with torch.no_grad():
        trainer.selfplay.pool.policy(0).logstd.fill_(-20.0)
    trainer.evaluate()
    frozen, rollout = trainer.selfplay.is_frozen, trainer.rollout
    spread = (rollout.actions - rollout.logits).abs()
    assert float(spread[:, frozen].max()) < 1e-4
    assert float(spread[:, ~frozen].mean()) > 0.3


def test_an_opponent_changes_only_between_games_and_remembers_nothing() -> None:
    trainer = make_selfplay(duel(), SelfPlayConfig(enabled=True, share=1.0, interval=1, opponents=4))
    selfplay, vector = trainer.selfplay, trainer.vector
    changes = 0
    arrived = selfplay.arrived

    def watched(rows: Any) -> Any:
        nonlocal changes
        before = selfplay.player.copy()
        changed = arrived(rows)
        assert np.array_equal(np.flatnonzero(selfplay.player != before), changed)
        assert vector.terminals[changed].all()
        changes += len(changed)
        return changed

    selfplay.arrived = watched  # type: ignore[method-assign]
    run(trainer, 8)
    assert changes > 20
    rows = torch.from_numpy(np.flatnonzero(selfplay.is_frozen))
    trainer.rollout.state.fill_(1.0)
    selfplay.arrived = lambda _: rows[:3].numpy()  # type: ignore[method-assign]
    trainer.rollout._change_opponents()
    assert not trainer.rollout.state[:, rows[:3]].any()
    assert trainer.rollout.state[:, rows[3:]].all()


def test_every_seat_meets_every_drawn_opponent() -> None:
    trainer = make_selfplay(duel(32), SelfPlayConfig(enabled=True, share=1.0, interval=1, concurrent=2))
    run(trainer, 8)
    selfplay = trainer.selfplay
    selfplay.start()
    selfplay._drawn = np.array([1, 2])
    selfplay._assign(selfplay.is_frozen)
    seats = np.flatnonzero(selfplay.is_frozen) % 2
    assert {(int(s), int(p)) for s, p in zip(seats, selfplay.player[selfplay.is_frozen], strict=True)} == {
        (seat, opponent) for seat in (0, 1) for opponent in (1, 2)
    }


def test_partial_batches_meet_the_same_opponents() -> None:
    whole = make_selfplay(duel(8), ON)
    partial = make_selfplay(PartialVector(Duel, 4, 2, 2, order=1), ON)
    for trainer in (whole, partial):
        run(trainer, 5)
    assert np.array_equal(whole.selfplay.player, partial.selfplay.player)
    assert torch.equal(whole.rollout.actions, partial.rollout.actions)
    assert whole.selfplay.pool.rating == pytest.approx(partial.selfplay.pool.rating, abs=1e-6)


def test_an_environment_that_tells_no_result_is_refused() -> None:
    vector = duel()
    vector.log_fields = ("points", "turns", "episode_length")
    with pytest.raises(EnvError, match="logs no `perf` or `score`, so nobody knows who has won"):
        run(make_selfplay(vector, ON), 2)


def test_points_are_perf_or_the_sign_of_the_score() -> None:
    log = np.array([[2.0, 0.25], [-3.0, 1.5], [0.0, 0.5]], np.float32)
    assert points_of(log, ("score", "perf")).tolist() == [0.25, 1.0, 0.5]
    assert points_of(log, ("score", "length")).tolist() == [1.0, 0.0, 0.5]
    assert points_of(log, ("length", "turns")) is None


# -- the pool ---------------------------------------------------------------------------------------------------------


def filled(sampling: str = "uniform", size: int = 4) -> Pool:
    pool = Pool(SelfPlayConfig(enabled=True, opponents=4, concurrent=1000, sampling=sampling))  # type: ignore[arg-type]
    for step in range(size):
        pool.add(torch.nn.Linear(1, 1), step)
    return pool


def share_of_draws(pool: Pool) -> list[float]:
    drawn = [step for seed in range(20) for step in pool.draw(torch.Generator().manual_seed(seed))]
    return [drawn.count(opponent.step) / len(drawn) for opponent in pool.opponents]


def test_copies_are_frozen_and_the_pool_spans_the_run() -> None:
    pool = filled(size=6)
    assert [opponent.step for opponent in pool.opponents] == [0, 2, 4, 5]
    assert [opponent.step for opponent in pool.leaving] == [1, 3]
    pool.forget_but([1, 5])
    assert [opponent.step for opponent in pool.leaving] == [1]
    assert not any(p.requires_grad for p in pool.policy(1).parameters())
    gaps = np.diff([opponent.step for opponent in filled(size=400).opponents])
    assert gaps.max() <= 4 * gaps[:-1].min()


def test_a_pool_of_one_holds_the_newest() -> None:
    pool = Pool(SelfPlayConfig(enabled=True, opponents=1))
    for step in range(3):
        pool.add(torch.nn.Linear(1, 1), step)
    assert [opponent.step for opponent in pool.opponents] == [2]


def test_recent_opponents_are_drawn_twice_as_often_as_the_next_older() -> None:
    assert share_of_draws(filled()) == pytest.approx([0.25] * 4, abs=0.02)
    assert share_of_draws(filled("recent")) == pytest.approx([1 / 15, 2 / 15, 4 / 15, 8 / 15], abs=0.02)


def test_prioritised_opponents_are_those_that_take_points() -> None:
    pool = filled("prioritised")
    pool.count({0: (100, 100.0), 1: (100, 0.0), 2: (10, 5.0)})
    expected = np.array([0.05, 1.05, 0.55, 0.55])
    assert share_of_draws(pool) == pytest.approx((expected / expected.sum()).tolist(), abs=0.02)


def test_win_rates_forget_and_the_rating_moves() -> None:
    pool = filled()
    pool.count({0: (10, 10.0)})
    pool.count({0: (10, 5.0), 3: (4, 1.0)})
    found = pool.metrics()
    assert found["selfplay/win_rate_0"] == pytest.approx((9 + 5) / (9 + 10))
    assert found["selfplay/win_rate_3"] == 0.25
    assert "selfplay/win_rate_1" not in found
    assert found["selfplay/win_rate"] == pytest.approx((9 + 5 + 1) / (9 + 10 + 4))
    assert found["selfplay/elo"] != 0.0
    pool.add(torch.nn.Linear(1, 1), 9)
    assert pool.opponents[-1].rating == found["selfplay/elo"]


def test_games_of_all_ranks_are_added_up() -> None:
    assert total([{1: (2, 1.5)}, {}, {1: (1, 0.0), 7: (3, 3.0)}]) == {1: (3, 1.5), 7: (3, 3.0)}


def test_two_ranks_share_a_pool() -> None:
    def work(ranks: Any) -> Any:
        trainer = make_selfplay(duel(8), ON, ranks=ranks, seed=7)
        rows = run(trainer, 5)
        pool = trainer.selfplay.pool
        named = [opponent.step for opponent in pool.opponents], [opponent.step for opponent in pool.leaving]
        return weights(trainer), pool.metrics(), named, {n: t.clone() for n, t in pool.weights().items()}, rows

    first, second = in_threads(2, work)
    assert torch.equal(first[0], second[0])
    assert first[1:3] == second[1:3]
    assert all(torch.equal(first[3][name], second[3][name]) for name in first[3])


# -- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("core", ["mingru", "none"])
def test_a_resumed_run_goes_on_bit_for_bit(core: str, tmp_path: Path) -> None:
    config = SelfPlayConfig(enabled=True, interval=1, opponents=2, sampling="prioritised")
    straight, before, after = (make_selfplay(duel(), config, policy_core=core) for _ in range(3))
    rows = run(straight, 8)
    run(before, 4)
    before.save(tmp_path / "4")
    assert after.load(tmp_path / "4") == ()
    assert np.array_equal(before.selfplay.player, after.selfplay.player)
    again = run(after, 4)
    assert torch.equal(weights(straight), weights(after))
    for name in rows[-1]:
        if name.startswith(("selfplay/", "loss/", "env/")):
            assert rows[-1][name] == again[-1][name], name


def test_a_pool_that_is_damaged_is_refused(tmp_path: Path) -> None:
    trainer = make_selfplay(duel(), ON)
    run(trainer, 2)
    trainer.save(tmp_path / "2")
    state = json.loads((tmp_path / "2" / "state.json").read_text())
    del state["selfplay"]
    (tmp_path / "2" / "state.json").write_text(json.dumps(state))
    with pytest.raises(RunError, match=r"is damaged: .*selfplay.* of the pool of self-play"):
        make_selfplay(duel(), ON).load(tmp_path / "2")


def test_rows_without_opponents_are_the_learners() -> None:
    selfplay = make_selfplay(duel(), ON).selfplay
    assert (selfplay.player[~selfplay.is_frozen] == LEARNER).all()
