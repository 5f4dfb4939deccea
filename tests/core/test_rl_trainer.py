from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Guess, LeakyPolicy, ScriptedVector, make_trainer, run
from gymnasium import spaces

from puffer_core.errors import NonFiniteError, UsageError
from puffer_core.rl.clock import PHASES
from puffer_core.rl.loss import TERMS
from puffer_core.rl.trainer import PuffeRL
from puffer_core.vector import make

SPACES = {
    "discrete": spaces.Discrete(3),
    "multi": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-1, 1, (2,)),
}


def guessing(num_envs: int = 16, **params: Any) -> Any:
    return make(lambda buf=None: Guess(buf, **params), num_envs, "serial")


def noise(kind: str = "discrete", steps: int = 100, rows: int = 8, seed: int = 0, **scripts: Any) -> ScriptedVector:
    rng = np.random.default_rng(seed)
    shape = (steps + 1, rows)
    ends = rng.integers(0, 12, shape)
    given = {
        "rewards": rng.normal(size=shape),
        "terminals": ends == 0,
        "truncations": ends == 1,
        "final_observations": rng.normal(size=(*shape, 3)),
    }
    observations = rng.normal(size=(*shape, 3)).astype(np.float32)
    return ScriptedVector(**{"observations": observations, "action_space": SPACES[kind], **given, **scripts})


def weights(trainer: PuffeRL) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])


@pytest.mark.parametrize("optimizer", ["muon", "adam"])
@pytest.mark.parametrize("core", ["mingru", "none"])
def test_training_learns_a_small_game(optimizer: str, core: str) -> None:
    rate = {"muon": 0.02, "adam": 0.01}[optimizer]
    trainer = make_trainer(guessing(), epochs=25, optimizer=optimizer, learning_rate=rate, policy_core=core)
    rows = run(trainer, 25)
    assert rows[0]["env/score"] < 0.7
    assert rows[-1]["score"] == rows[-1]["env/score"] > 0.95


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("core", ["mingru", "none"])
def test_t05_ratio_is_one_before_any_update(kind: str, core: str) -> None:
    trainer = make_trainer(noise(kind), learning_rate=0.0, replay_ratio=2.0, policy_core=core)
    for _ in range(2):
        trainer.evaluate()
        losses = trainer.train()
        assert float((trainer._ratio - 1).abs().max()) < 1e-4
        assert losses["importance"] == pytest.approx(1.0, abs=1e-4)
        assert losses["clipfrac"] == 0.0


def test_t05_ratio_is_one_with_action_masks() -> None:
    masks = (np.random.default_rng(1).random((101, 8, 5)) > 0.5).astype(np.uint8)
    masks[..., [0, 3]] = 1
    trainer = make_trainer(noise("multi", action_mask=masks), learning_rate=0.0)
    trainer.evaluate()
    trainer.train()
    assert float((trainer._ratio - 1).abs().max()) < 1e-4


def test_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    first, second, other = (weights_after(seed) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def weights_after(seed: int) -> torch.Tensor:
    trainer = make_trainer(guessing(), seed=seed)
    run(trainer, 5)
    return weights(trainer)


def test_t12_steps_epochs_and_gradient_steps_are_exact() -> None:
    masks = np.random.default_rng(2).random((101, 8)) > 0.3
    masks[0] = True
    trainer = make_trainer(noise(masks=masks), replay_ratio=1.5)
    run(trainer, 3)
    assert trainer.global_step == masks[:24].sum()
    assert (trainer.epoch, trainer.gradient_steps, trainer.skipped_updates) == (3, 9, 0)


def test_a26_absent_agents_change_nothing_whatever_their_rows_hold() -> None:
    found = []
    for extra in (0, 3):
        rng = np.random.default_rng(7)
        shape = (30, 4)
        scripts = {
            "observations": rng.normal(size=(*shape, 3)).astype(np.float32),
            "rewards": rng.normal(size=shape),
            "terminals": rng.random(shape) < 0.1,
            "masks": np.ones(shape, bool),
        }
        fill = {"observations": np.nan, "rewards": np.nan, "terminals": False, "masks": False}
        padded = {
            name: np.concatenate([s, np.full((30, extra, *s.shape[2:]), fill[name], s.dtype)], 1)
            for name, s in scripts.items()
        }
        # Each row once per pass, unshuffled actions: what remains of the noise belongs to the live rows.
        trainer = make_trainer(ScriptedVector(**padded), prio=False, minibatch_size=8 * (4 + extra), learning_rate=0.01)
        trainer.evaluate()
        rollout = trainer.rollout
        rollout.actions[:, :4] = torch.arange(8)[:, None] % 2
        rollout.logprobs[:, :4] = -0.7
        losses = trainer.train()
        found.append((trainer.global_step, losses, weights(trainer)))
    assert found[0][0] == found[1][0] == 32
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4, abs=1e-6)
    assert torch.allclose(found[0][2], found[1][2], atol=2e-4)


def test_minibatch_without_a_live_step_is_skipped() -> None:
    masks = np.ones((101, 8), bool)
    masks[1:] = False
    trainer = make_trainer(noise(masks=masks))
    run(trainer, 1)
    row = run(trainer, 1)[0]
    assert (trainer.gradient_steps, trainer.skipped_updates, row["train/skipped_updates"]) == (2, 2, 2)


def test_parts_of_a_large_minibatch_make_the_same_update() -> None:
    found = []
    for limit in (64, 16):
        trainer = make_trainer(noise(), minibatch_size=64, max_minibatch_size=limit)
        trainer.evaluate()
        found.append((trainer.train(), weights(trainer)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4, abs=1e-6)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-4)


def test_write_back_leaves_the_bootstrap_column() -> None:
    trainer = make_trainer(noise(), replay_ratio=3.0)
    trainer.evaluate()
    before = trainer.rollout.values.clone()
    trainer.train()
    assert torch.equal(trainer.rollout.values[-1], before[-1])
    assert not torch.equal(trainer.rollout.values[:-1], before[:-1])
    assert float((trainer._ratio - 1).abs().max()) > 1e-4


def test_vtrace_off_takes_every_ratio_as_one() -> None:
    trainer = make_trainer(noise(), replay_ratio=3.0, vtrace=False)
    run(trainer, 1)
    assert torch.equal(trainer._ratio, torch.ones(8, 8))


@pytest.mark.parametrize("options", [{"prio": False}, {"normalize_advantages": False}, {"reset_state": True}])
def test_every_switch_trains(options: dict[str, Any]) -> None:
    trainer = make_trainer(noise(), **options)
    assert all(math.isfinite(value) for value in run(trainer, 2)[-1].values())


def test_t08_one_sample_and_equal_advantages_stay_finite() -> None:
    still = ScriptedVector(np.ones((50, 1, 3), np.float32), rewards=np.ones((50, 1)))
    trainer = make_trainer(still, horizon=1, minibatch_size=1)
    run(trainer, 10)
    assert bool(weights(trainer).isfinite().all())


def test_t01_value_of_a_time_limit_is_that_of_going_on() -> None:
    values = {}
    for how in ("truncations", "terminals"):
        steps = 4000
        t = np.arange(steps + 1)[:, None]
        script = {
            "observations": np.ones((steps + 1, 4, 1), np.float32),
            "final_observations": np.ones((steps + 1, 4, 1), np.float32),
            "rewards": np.ones((steps + 1, 4)),
            how: np.broadcast_to((t > 0) & (t % 10 == 0), (steps + 1, 4)),
        }
        policy = LeakyPolicy(decay=0.0, value_scale=0.0, value_bias=0.0)
        trainer = make_trainer(
            ScriptedVector(**script), policy=policy, epochs=400, gamma=0.9, vf_clip_coef=math.inf, ent_coef=0.0,
            optimizer="adam", learning_rate=0.1, max_grad_norm=math.inf, prio=False,
        )  # fmt: skip
        run(trainer, 400)
        values[how] = float(trainer.rollout.values.mean())
    assert values["truncations"] == pytest.approx(10.0, abs=0.2)
    assert values["terminals"] < 8.0


def test_a_loss_that_is_not_finite_stops_before_the_weights_move() -> None:
    trainer = make_trainer(noise())
    trainer.evaluate()
    trainer.rollout.logprobs[3, :] = float("nan")
    before = weights(trainer)
    with pytest.raises(NonFiniteError, match=r"the policy loss is not finite at step 64, epoch 0, .*environment \d"):
        trainer.train()
    assert torch.equal(weights(trainer), before)


def test_a_gradient_whose_squares_overflow_is_clipped_and_training_goes_on() -> None:
    trainer = make_trainer(noise(), max_grad_norm=1.5)
    trainer.evaluate()
    gradient_of = trainer.optimizer.gradient_of
    trainer.optimizer.gradient_of = lambda loss: gradient_of(loss) * 1e25  # type: ignore[method-assign]
    assert all(math.isfinite(loss) for loss in trainer.train().values())
    assert float(trainer.optimizer.gradient.norm()) == pytest.approx(1.5, rel=1e-5)


def test_a_gradient_that_is_not_finite_names_the_parameter() -> None:
    trainer = make_trainer(noise())
    trainer.evaluate()
    trainer.optimizer.gradient_of = lambda loss: trainer.optimizer.gradient * math.nan  # type: ignore[method-assign]
    with pytest.raises(NonFiniteError, match=r"gradient of `encoder\.weight` is not finite"):
        trainer.train()


def test_train_needs_a_new_rollout_each_time() -> None:
    trainer = make_trainer(noise())
    with pytest.raises(UsageError, match="without a new rollout"):
        trainer.train()
    run(trainer, 1)
    with pytest.raises(UsageError, match="without a new rollout"):
        trainer.train()


def test_metrics_have_the_documented_names() -> None:
    trainer = make_trainer(guessing())
    first, second = run(trainer, 2)
    losses = {f"loss/{name}" for name in (*TERMS, "total", "explained_variance")}
    perf = {f"perf/{phase}" for phase in PHASES}
    rates = {
        f"train/{name}" for name in ("learning_rate", "ent_coef", "prio_beta", "gradient_steps", "skipped_updates")
    }
    environment = {"env/score", "env/episode_length", "env/n", "score"}
    assert set(first) == {"step", "epoch", "seconds", "steps_per_second"} | losses | perf | rates | environment
    assert (first["step"], second["step"], second["epoch"]) == (128, 256, 2)
    assert first["env/n"] == 16 * (8 // 5)
    assert sum(trainer.profile.values()) <= second["seconds"]


def test_metrics_since_the_last_call_are_means_over_all_rollouts() -> None:
    trainer = make_trainer(guessing())
    episodes = 0.0
    for _ in range(5):
        trainer.evaluate()
        trainer.train()
    row = trainer.mean_and_log()
    episodes = row["env/n"]
    assert episodes == 16 * (40 // 5)
    assert row["env/episode_length"] == 5.0
    assert "env/n" not in trainer.mean_and_log()


def test_schedules_reach_the_update() -> None:
    trainer = make_trainer(noise(), epochs=4)
    seen: list[float] = []
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda rate: (seen.append(rate), step(rate))[1]  # type: ignore[method-assign]
    rows = run(trainer, 4)
    assert [row["train/learning_rate"] for row in rows] == seen[1::2]
    assert seen[::2] == pytest.approx([0.02 * (1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)])


def test_dashboard_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer(noise())
    run(trainer, 1)
    trainer.print_dashboard()
    assert capsys.readouterr().out.startswith("epoch 1/10  step 64  ")
