from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Guess, ScriptedVector, make_trainer, run
from fakes_partial import PartialVector
from gymnasium import spaces

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import OptionError
from puffer_core.policies import make_policy, normalizer
from puffer_core.policies.choice import choose_encoder
from puffer_core.policies.normalizer import Normalizer, make_normalizer
from puffer_core.rl.agent import load
from puffer_core.vector import make

ON = {"policy_normalize_observations": True}


def drawn(steps: int = 60, rows: int = 6, **scripts: Any) -> ScriptedVector:
    observations = np.random.default_rng(0).normal([100.0, -3.0, 0.0], [5.0, 0.1, 2.0], (steps, rows, 3))
    return ScriptedVector(observations.astype(np.float32), **scripts)


def moments(rows: Any) -> tuple[Any, Any, float]:
    exact = np.asarray(rows, np.float64).reshape(-1, 3)
    return exact.mean(0), exact.var(0), float(len(exact))


def assert_counted(found: Normalizer, rows: Any) -> None:
    mean, var, count = moments(rows)
    assert found.count.item() == count
    assert found.mean.numpy() == pytest.approx(mean, rel=1e-12)
    assert found.var.numpy() == pytest.approx(var, rel=1e-10)


@pytest.mark.parametrize("chunk", [4, 2**22])
def test_any_division_into_updates_gives_the_moments_of_all(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalizer, "CHUNK", chunk)
    rows = torch.from_numpy(np.random.default_rng(1).normal(1e4, [1.0, 5.0, 0.01], (500, 3)).astype(np.float32))
    for parts in ([500], [1, 499], [3, 0, 97, 400]):
        found = Normalizer((3,))
        for part in rows.split(parts):
            found.update(part)
        assert_counted(found, rows)
    out = found(rows)
    assert out.dtype == torch.float32
    assert out.mean(0).tolist() == pytest.approx([0, 0, 0], abs=0.2)  # float32 next to 10,000 knows 3 digits of 0.01
    assert out.std(0).tolist() == pytest.approx([1, 1, 1], abs=0.1)


def test_outliers_are_clipped_constants_become_zero_and_nan_stays() -> None:
    found = Normalizer((2,))
    found.update(torch.tensor([[5.0, 0.0], [5.0, 2.0]]))
    assert found(torch.tensor([[5.0, 1e9], [6.0, -1e9], [torch.nan, 1.0]])).tolist()[:2] == [[0, 10], [10, -10]]
    assert found(torch.tensor([[torch.nan, 1.0]])).isnan().tolist() == [[True, False]]


def test_each_arrival_of_a_live_agent_is_counted_once() -> None:
    masks = np.random.default_rng(2).random((60, 6)) > 0.3
    masks[0] = True
    vector = drawn(masks=masks)
    trainer = make_trainer(vector, minibatch_size=24, **ON)
    for epoch in range(1, 4):
        run(trainer, 1)
        arrived = slice(0, 8 * epoch + 1)
        assert_counted(trainer.policy.normalizer, vector.scripts["observations"][arrived][masks[arrived]])


def test_what_was_counted_takes_effect_after_training() -> None:
    trainer = make_trainer(drawn(), minibatch_size=24, learning_rate=0.0, replay_ratio=2.0, **ON)
    for _ in range(3):
        trainer.evaluate()
        before = trainer.policy.normalizer.count.item()
        losses = trainer.train()
        assert float((trainer._ratio - 1).abs().max()) < 1e-4
        assert losses["importance"] == pytest.approx(1.0, abs=1e-5)
        assert trainer.policy.normalizer.count.item() > before


def test_rollouts_of_a_policy_without_it_are_as_before() -> None:
    assert make_trainer(drawn(), minibatch_size=24).policy.normalizer is None


def test_observations_of_any_scale_are_learnt_from() -> None:
    class Far(Guess):
        def _show(self, shown: Any) -> None:
            super()._show(shown)
            self.observations[:, 0] = 1000.0 + 0.01 * shown

    for on, least, most in ((True, 0.95, 1.0), (False, 0.0, 0.7)):
        vector = make(lambda buf=None: Far(buf), 16, "serial")
        rows = run(make_trainer(vector, epochs=25, policy_normalize_observations=on), 25)
        assert least <= rows[-1]["score"] <= most


def test_whole_and_partial_batches_count_the_same() -> None:
    vectors = make(lambda buf=None: Guess(buf), 8, "serial"), PartialVector(Guess, 4, 2, batch=1, order=1)
    one, other = (make_trainer(vector, **ON) for vector in vectors)
    run(one, 3), run(other, 3)
    assert one.policy.normalizer.count == other.policy.normalizer.count == 8 * 25
    assert torch.allclose(one.policy.normalizer.mean, other.policy.normalizer.mean)


def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    first, second = (make_trainer(make(lambda buf=None: Guess(buf), 8, "serial"), **ON) for _ in range(2))
    run(first, 2)
    first.save(tmp_path / "c")
    assert second.load(tmp_path / "c") == ()
    run(first, 3), run(second, 3)
    for name, tensor in first.policy.state_dict().items():
        assert torch.equal(tensor, second.policy.state_dict()[name]), name


def test_first_arrivals_of_environments_that_begin_anew_are_counted(tmp_path: Path) -> None:
    first, second = (make_trainer(PartialVector(Guess, 8), **ON) for _ in range(2))
    run(first, 2)
    first.save(tmp_path / "c")
    assert any("the environments" in lost for lost in second.load(tmp_path / "c"))
    run(first, 1), run(second, 1)
    assert first.policy.normalizer.count == 8 * 25
    assert second.policy.normalizer.count == 8 * 26


def test_an_agent_in_another_process_sees_what_training_saw_and_counts_nothing(tmp_path: Path) -> None:
    trainer = make_trainer(drawn(), minibatch_size=24, **ON)
    run(trainer, 3)
    trainer.save(tmp_path / "c")
    agent = load(tmp_path / "c")
    rows = trainer.rollout.observations[3]
    expected, _, _ = trainer.policy.forward_eval(rows, trainer.policy.initial_state(6))
    found, _, _ = agent.policy.forward_eval(rows, agent.initial_state(6))
    assert torch.equal(expected, found)
    agent.act(rows.numpy())
    assert agent.policy.normalizer is not None
    assert agent.policy.normalizer.count == trainer.policy.normalizer.count == 6 * 25


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_integers_are_refused(dtype: Any) -> None:
    box = spaces.Box(0, 255, (84, 84), dtype)
    config = PolicyConfig(hidden_size=8, normalize_observations=True)
    with pytest.raises(OptionError, match=f"needs observations in floating point, these are {box.dtype}") as caught:
        make_policy(config, box, spaces.Discrete(2), torch.Generator())
    assert "leave it off" in str(caught.value.hint)
    assert make_normalizer(spaces.Box(0, 1, (2, 3), np.float64)).mean.shape == (2, 3)


@pytest.mark.parametrize(
    ("space", "name", "is_on"),
    [
        (spaces.Box(-1, 1, (3,)), "auto", True),
        (spaces.Box(0, 255, (84, 84, 4), np.uint8), "auto", False),
        (FlatBox(spaces.Discrete(4)), "auto", False),
        (spaces.Box(-1, 1, (4, 3)), "attention", False),
    ],
)
def test_auto_normalizes_floats(space: spaces.Box, name: str, is_on: bool) -> None:
    config = choose_encoder(PolicyConfig(name=name, normalize_observations="auto"), space)
    assert config.normalize_observations is is_on
