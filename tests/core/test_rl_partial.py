from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Guess, make_trainer, run
from fakes_partial import PartialVector
from gymnasium import spaces

from puffer_core.env import PufferEnv
from puffer_core.errors import UsageError
from puffer_core.rl.partial import PartialRollout
from puffer_core.rl.resume import ENVIRONMENTS
from puffer_core.rl.rollout import Rollout
from puffer_core.vector import Multiprocessing, Serial

WORKERS, ENVS = 6, 2
SPLITS = {
    "ring of blocks": {"batch": 2},
    "ring of single workers": {"batch": 1},
    "first ready, one": {"batch": 1, "order": 3},
    "first ready, two": {"batch": 2, "order": 4},
    "first ready, four of six": {"batch": 4, "order": 5},
}


class Rough(PufferEnv):
    """Everything a rollout has to handle: ends of both kinds, absent agents, action masks, and a history of actions.

    What an agent sees depends on all its actions, so that one that differs is seen for ever after.
    """

    has_action_mask = True

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = spaces.MultiDiscrete([2, 3])
        self.num_agents = 2
        super().__init__(buf)

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng((seed, index))
            self.history = np.zeros(self.num_agents)
        self._show()
        return self.observations, []

    def _show(self) -> None:
        self.observations[:] = self.rng.normal(size=(2, 3))
        self.observations[:, 0] = self.history
        self.action_mask[:] = self.rng.random((2, 5)) > 0.3
        self.action_mask[:, [1, 4]] = 1

    def step(self, actions: Any) -> Any:
        self.history = np.tanh(0.9 * self.history + actions @ [0.5, -0.3] + 0.1)
        acted = self.masks.copy()
        kind = self.rng.integers(0, 8, 2)
        self.terminals[:], self.truncations[:] = (kind == 0) & acted, (kind == 1) & acted
        self.masks[:] = self.rng.random(2) > 0.2
        self.rewards[:] = np.where(acted, self.history, np.nan)
        self.final_observations[:] = self.rng.normal(size=(2, 3))
        self._show()
        return self.observations, self.rewards, self.terminals, self.truncations, []


def whole(make: Any = Rough) -> Serial:
    return Serial(make, WORKERS * ENVS)


def partial(make: Any = Rough, **split: Any) -> PartialVector:
    return PartialVector(make, WORKERS, ENVS, **split)


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])


BUFFERS = (
    "observations", "actions", "logits", "values", "final_values", "logprobs", "rewards", "terminals", "truncations",
    "resets", "alive", "action_masks", "state", "snapshot",
)  # fmt: skip


@pytest.mark.parametrize("core", ["mingru", "none"])
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS.keys())
def test_partial_batches_give_the_rollouts_and_weights_of_whole_ones(split: dict[str, Any], core: str) -> None:
    sizes = {"horizon": 7, "minibatch_size": 28, "replay_ratio": 2.0}
    options = {**sizes, "policy_core": core, "reward_clip": 0.8, "learning_rate": 0.005}
    one, other = make_trainer(whole(), **options), make_trainer(partial(**split), **options)
    assert type(one.rollout) is Rollout
    assert type(other.rollout) is PartialRollout
    for _ in range(5):
        one.evaluate(), other.evaluate()
        for name in BUFFERS:
            expected, found = (torch.as_tensor(getattr(trainer.rollout, name)) for trainer in (one, other))
            assert torch.allclose(expected, found, atol=2e-5), name
        assert one.train() == pytest.approx(other.train(), rel=1e-3, abs=1e-4)
    assert one.global_step == other.global_step
    assert torch.allclose(weights(one), weights(other), atol=1e-4)
    assert float(one.rollout.truncations.sum()) > 10


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS.keys())
def test_every_row_takes_exactly_the_steps_of_the_horizon(split: dict[str, Any]) -> None:
    vector = partial(lambda buf=None: Guess(buf), **split)
    steps = np.zeros(WORKERS, int)
    inner = vector._step
    vector._step = lambda i, actions: (np.add.at(steps, i, 1), inner(i, actions))  # type: ignore[method-assign,func-returns-value]
    trainer = make_trainer(vector)
    for epoch in range(1, 4):
        trainer.evaluate()
        assert (steps == epoch * 8).all()
        trainer.train()
    sizes = {len(batch) for batch in vector.batches}
    assert max(sizes) == split["batch"]


def test_batches_that_mix_full_rows_with_others_occur_and_lose_nothing() -> None:
    vector = partial(**SPLITS["first ready, four of six"])
    trainer = make_trainer(vector)
    mixed = []
    inner = vector._send_but
    vector._send_but = lambda actions, hold: (mixed.append(hold.any() and not hold.all()), inner(actions, hold))  # type: ignore[method-assign,func-returns-value]
    run(trainer, 3)
    assert any(mixed)
    assert not np.isnan(trainer.rollout.rewards).any()


@pytest.mark.parametrize("split", ["ring of blocks", "first ready, four of six"])
def test_training_on_partial_batches_learns(split: str) -> None:
    rows = run(make_trainer(partial(lambda buf=None: Guess(buf), **SPLITS[split]), epochs=25), 25)
    assert rows[0]["env/score"] < 0.7
    assert rows[-1]["score"] > 0.9


def test_a_run_on_partial_batches_goes_on_with_environments_that_begin_anew(tmp_path: Path) -> None:
    first, second = (make_trainer(partial(lambda buf=None: Guess(buf), batch=2)) for _ in range(2))
    run(first, 2)
    first.save(tmp_path / "c")
    assert second.load(tmp_path / "c") == (ENVIRONMENTS,)
    assert torch.equal(weights(first), weights(second))
    run(second, 2)
    assert second.epoch == 4


def test_a_horizon_of_one_step() -> None:
    one, other = (make_trainer(vector, horizon=1, minibatch_size=12) for vector in (whole(), partial(batch=1)))
    run(one, 8), run(other, 8)
    assert torch.allclose(weights(one), weights(other), atol=1e-4)


def test_a_vector_that_can_not_hold_agents_says_so() -> None:
    vector = partial(batch=2)
    vector._send_but = lambda *_: super(PartialVector, vector)._send_but(*_)  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="backend partial can't hold agents") as caught:
        make_trainer(vector).evaluate()
    assert caught.value.hint == "use whole batches"


def test_held_agents_are_neither_received_nor_answered_twice() -> None:
    vector = partial(batch=2)
    vector.reset(0)
    with pytest.raises(UsageError, match="no agent is held"):
        vector.send_held(vector.actions)
    for first in range(3):
        vector.send(vector.actions, hold=np.ones(8, bool))
        if first < 2:
            vector.recv()
    with pytest.raises(UsageError, match="every agent is held: send_held first"):
        vector.recv()
    vector.send_held(np.zeros((24, 2), np.int32))
    vector.recv()
    vector.async_reset(0)
    with pytest.raises(UsageError, match="no agent is held"):
        vector.send_held(vector.actions)


@pytest.mark.parametrize("zero_copy", [True, False], ids=["ring", "first ready"])
def test_worker_processes_give_the_weights_of_a_loop_in_this_process(zero_copy: bool) -> None:
    other = Multiprocessing(Rough, 4, num_workers=4, batch_size=2, zero_copy=zero_copy)
    found = []
    for vector in (Serial(Rough, 4), other):
        with vector:
            trainer = make_trainer(vector, learning_rate=0.005)
            run(trainer, 5)
            found.append((trainer.global_step, weights(trainer)))
    assert type(trainer.rollout) is PartialRollout
    assert found[0][0] == found[1][0]
    assert torch.allclose(found[0][1], found[1][1], atol=1e-4)
