"""Mixed actions: discrete choices and numbers in one float32 row, from the network to the environment and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import make_trainer, run
from fakes_spaces import Sentry, boxes, discretes, nested, same
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Normal

from puffer_core import vector
from puffer_core.emulation.spaces import FlatActions, FlatBox, action_codec
from puffer_core.env import PufferEnv
from puffer_core.errors import EnvError, OptionError, RunError, ShapeError
from puffer_core.policies import ActionLayout
from puffer_core.rl import agent, checkpoint
from puffer_core.rl.loss import Coefficients, Targets, ppo_loss

SPACE = FlatActions(Tuple([Discrete(3), Box(-1, 2, (2,)), MultiDiscrete([2, 4]), Box(0, 5, (1,))]))
LAYOUT = ActionLayout.from_space(SPACE)
COEFS = Coefficients(clip=0.2, vf_clip=0.2, vf=2.0, ent=0.01)
ROWS = 64


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(seed: int = 0) -> tuple[Tensor, Tensor]:
    """(n, A) outputs and (1, D) log-deviations, in float64."""
    g = seeded(seed)
    logits = torch.randn(ROWS, LAYOUT.width, generator=g, dtype=torch.float64)
    return logits.requires_grad_(), torch.tensor([[-0.5, 0.3, 0.1]], dtype=torch.float64, requires_grad=True)


def mask_of(seed: int = 0) -> Tensor:
    mask = torch.rand(ROWS, LAYOUT.mask_width, generator=seeded(seed)) < 0.6
    mask[:, [0, 3, 5]] = True  # one legal choice in each head
    return mask.to(torch.uint8)


def reference(logits: Tensor, logstd: Tensor, mask: Tensor | None) -> tuple[list[Categorical], list[Normal]]:
    """Distributions of the heads (3, 2, 4) and of the three numbers."""
    choices = logits[:, :9] if mask is None else logits[:, :9].masked_fill(mask == 0, -1e4)
    heads = [Categorical(logits=part) for part in torch.split(choices, [3, 2, 4], 1)]
    return heads, [Normal(logits[:, 9 + i], logstd[0, i].exp()) for i in range(3)]


def columns(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows[:, [0, 3, 4]].long(), rows[:, [1, 2, 5]]


# -- layout -----------------------------------------------------------------------------------------------------------


def test_layout_follows_the_leaves() -> None:
    assert (LAYOUT.sizes, LAYOUT.continuous, LAYOUT.shape) == ((3, 2, 4), (1, 2, 5), (6,))
    assert (LAYOUT.width, LAYOUT.mask_width, LAYOUT.deviations, LAYOUT.dtype) == (12, 9, 3, torch.float32)
    assert LAYOUT.low == (0, -1, -1, 0, 0, 0)
    assert LAYOUT.high == (2, 2, 2, 1, 3, 5)


def test_other_layouts_have_the_widths_of_before() -> None:
    for space, expected in [
        (Discrete(3), (3, 3, 0)),
        (MultiDiscrete([2, 3]), (5, 5, 0)),
        (Box(-1, 1, (2,)), (2, 0, 2)),
    ]:
        layout = ActionLayout.from_space(space)
        assert (layout.width, layout.mask_width, layout.deviations) == expected


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(nested(st.one_of(boxes(("float32",)), discretes())), st.integers(0, 2**31))
def test_drawn_rows_are_actions_of_any_nested_space(space: Any, seed: int) -> None:
    codec = action_codec(space)
    layout = ActionLayout.from_space(codec.space)
    logits = torch.randn(4, layout.width, generator=seeded(seed))
    logstd = torch.zeros(1, layout.deviations) if layout.deviations else None
    for rows in (
        layout.sample(logits, layout.draw_noise((4,), seeded(seed)), None, logstd),
        layout.greedy(logits, None),
    ):
        for row in layout.to_env(rows).numpy():
            assert space.contains(codec.read(row))


# -- drawing ----------------------------------------------------------------------------------------------------------


def test_noise_is_uniform_for_choices_and_normal_for_numbers() -> None:
    noise = LAYOUT.draw_noise((50, 40), seeded())
    assert noise.shape == (50, 40, 6)
    assert (noise[..., :3].min() >= 0) & (noise[..., :3].max() < 1)
    assert noise[..., 3:].std().item() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(noise, LAYOUT.draw_noise((50, 40), seeded()))


def test_rows_are_drawn_as_their_parts_are() -> None:
    logits, logstd = (part.detach().float() for part in network())
    noise = LAYOUT.draw_noise((ROWS,), seeded(1))
    rows = LAYOUT.sample(logits, noise, None, logstd)
    choices, numbers = columns(rows)
    discrete = ActionLayout.from_space(MultiDiscrete([3, 2, 4]))
    assert rows.dtype == torch.float32
    assert torch.equal(choices, discrete.sample(logits[:, :9], noise[:, :3], None, None))
    box = ActionLayout.from_space(Box(-1, 1, (3,)))
    assert torch.equal(numbers, box.sample(logits[:, 9:], noise[:, 3:], None, logstd))
    assert all(torch.equal(a, b) for a, b in zip(LAYOUT.split(rows), (choices, numbers), strict=True))


def test_draws_follow_the_distributions() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5, -1.0, 3.0]]).expand(20000, -1)
    logstd = torch.tensor([[-0.5, 0.3, 0.1]])
    choices, numbers = columns(LAYOUT.sample(logits, LAYOUT.draw_noise((20000,), seeded()), None, logstd))
    heads, normals = reference(logits[:1], logstd, None)
    for head, drawn in zip(heads, choices.t(), strict=True):
        shares = torch.bincount(drawn, minlength=head.probs.shape[1]) / 20000
        assert torch.allclose(shares, head.probs[0], atol=0.015)
    for normal, drawn in zip(normals, numbers.t(), strict=True):
        assert drawn.mean().item() == pytest.approx(normal.mean.item(), abs=0.03)
        assert drawn.std().item() == pytest.approx(normal.stddev.item(), rel=0.03)


def test_masked_choice_is_never_drawn_nor_the_greedy_one() -> None:
    logits, logstd = (part.detach().float() for part in network())
    mask = mask_of()
    for seed in range(20):
        choices, _ = columns(LAYOUT.sample(logits, LAYOUT.draw_noise((ROWS,), seeded(seed)), mask, logstd))
        legal = [m.gather(1, c[:, None]) for m, c in zip(torch.split(mask, [3, 2, 4], 1), choices.t(), strict=True)]
        assert torch.cat(legal).all()
    best, numbers = columns(LAYOUT.greedy(logits, mask))
    assert torch.equal(best[:, 2], logits[:, 5:9].masked_fill(mask[:, 5:] == 0, -1e4).argmax(1))
    assert torch.equal(numbers, logits[:, 9:])


def test_only_numbers_are_clipped() -> None:
    rows = torch.tensor([[2.0, -5.0, 5.0, 1.0, 3.0, 9.0], [0.0, 0.5, 0.5, 0.0, 0.0, -1.0]])
    assert LAYOUT.to_env(rows).tolist() == [[2, -1, 2, 1, 3, 5], [0, 0.5, 0.5, 0, 0, 0]]


# -- likelihood and loss ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_log_prob_is_that_of_torch_distributions(masked: bool) -> None:
    logits, logstd = network()
    mask = mask_of() if masked else None
    rows = LAYOUT.sample(logits.detach(), LAYOUT.draw_noise((ROWS,), seeded(2)).double(), mask, logstd.detach())
    choices, numbers = columns(rows)
    heads, normals = reference(logits, logstd, mask)
    expected = sum(head.log_prob(a) for head, a in zip(heads, choices.t(), strict=True))
    expected = expected + sum(normal.log_prob(x) for normal, x in zip(normals, numbers.t(), strict=True))
    assert torch.allclose(LAYOUT.log_prob(logits, rows, mask, logstd), expected, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("absent", [False, True])
def test_loss_and_gradients_are_those_of_autograd(masked: bool, absent: bool) -> None:
    logits, logstd = network()
    g, mask = seeded(3), mask_of() if masked else None
    rows = LAYOUT.sample(logits.detach(), LAYOUT.draw_noise((ROWS,), g).double(), mask, logstd.detach())
    values, advantages, returns, old = (torch.randn(ROWS, generator=g, dtype=torch.float64) for _ in range(4))
    values.requires_grad_()
    live = torch.rand(ROWS, generator=g) < 0.7 if absent else None
    before = LAYOUT.log_prob(logits, rows, mask, logstd).detach()
    before += 0.3 * torch.randn(ROWS, generator=g, dtype=torch.float64)
    count = float(ROWS if live is None else live.sum())
    batch = Targets(rows, before, old, advantages, returns, mask, live, count)

    loss, terms, ratio = ppo_loss(logits, values, logstd, LAYOUT, batch, COEFS)
    found = torch.autograd.grad(loss, (logits, values, logstd))
    expected, entropy = by_autograd(logits, values, logstd, batch)
    gradients = torch.autograd.grad(expected, (logits, values, logstd))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    assert terms[2].item() == pytest.approx(entropy.item(), abs=1e-12)
    assert ratio.shape == (ROWS,)
    for mine, theirs in zip(found, gradients, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-12)


def by_autograd(logits: Tensor, values: Tensor, logstd: Tensor, batch: Targets) -> tuple[Tensor, Tensor]:
    """The loss as the page writes it, and the mean entropy."""
    heads, normals = reference(logits, logstd, batch.action_mask)
    choices, numbers = columns(batch.actions)
    logprob: Any = sum(head.log_prob(a) for head, a in zip(heads, choices.t(), strict=True))
    logprob = logprob + sum(normal.log_prob(x) for normal, x in zip(normals, numbers.t(), strict=True))
    ratio = (logprob - batch.logprobs).exp()
    policy = torch.maximum(-batch.advantages * ratio, -batch.advantages * ratio.clamp(1 - COEFS.clip, 1 + COEFS.clip))
    clipped = batch.values + (values - batch.values).clamp(-COEFS.vf_clip, COEFS.vf_clip)
    value = 0.5 * torch.maximum((values - batch.returns).square(), (clipped - batch.returns).square())
    entropy: Any = sum(head.entropy() for head in heads)
    entropy = entropy + sum(normal.entropy() for normal in normals)
    weight = torch.ones(ROWS) if batch.live is None else batch.live
    mean_entropy = (entropy * weight).sum() / batch.count
    loss = ((policy + COEFS.vf * value) * weight).sum() / batch.count - COEFS.ent * mean_entropy
    return loss, mean_entropy


# -- training ---------------------------------------------------------------------------------------------------------


def sentries(num_envs: int = 8) -> Any:
    return vector.make(Sentry, num_envs, "serial")


class Bounded:
    """Refuses actions outside its space; leaves of every kind on both sides."""

    observation_space = Dict(
        {
            "bits": MultiBinary(3),
            "big": Box(-1, 1, (2,), np.float64),
            "on": Box(0, 1, (1,), np.bool_),
            "at": Discrete(7),
        }
    )
    action_space = Dict({"move": Discrete(4), "aim": Box(-1, 1, (2,)), "far": Box(0, 0.1, (), np.float64)})

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), float(action["aim"][0]), False, False, {}


def test_mixed_actions_train_ten_epochs_and_stay_inside_their_bounds() -> None:
    trainer = make_trainer(vector.make(Bounded, 4, "serial"), policy_name="auto")
    with torch.no_grad():
        trainer.policy.logstd.fill_(2.0)
    rows = run(trainer, 10)
    assert all(np.isfinite(row["loss/total"]) for row in rows)
    assert trainer.rollout.actions.dtype == torch.float32
    assert trainer.rollout.actions.abs().max() > 2  # the learner keeps what was drawn
    assert trainer.gradient_steps == 10


def test_training_with_mixed_actions_is_reproducible() -> None:
    first, second = (run(make_trainer(sentries(), policy_name="auto"), 5)[-1]["loss/total"] for _ in range(2))
    assert first == second


def test_ratio_is_one_before_any_update() -> None:
    trainer = make_trainer(sentries(), learning_rate=0.0, policy_name="auto", replay_ratio=2.0)
    trainer.evaluate()
    losses = trainer.train()
    assert losses["importance"] == pytest.approx(1.0, abs=1e-5)
    assert losses["clipfrac"] == 0.0


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.float16, np.float64])
def test_plain_observations_of_any_number_type_train(dtype: Any) -> None:
    class Env(Bounded):
        observation_space = Box(0, 1, (3,), dtype)  # type: ignore[assignment]

    trainer = make_trainer(vector.make(Env, 4, "serial"), policy_name="auto")
    assert np.isfinite(run(trainer, 2)[-1]["loss/total"])


class Masked(PufferEnv):
    """Allows one choice of each discrete head and ends with an error if another comes."""

    single_observation_space = Box(0, 1, (1,))
    single_action_space = FlatActions(Dict({"a": Discrete(3), "b": Box(-1, 1, (1,)), "c": Discrete(2)}))
    num_agents = 2
    has_action_mask = True

    def reset(self, seed: int | None = None, index: int = 0) -> Any:
        self.action_mask[:] = [0, 1, 0, 1, 0]  # type: ignore[index]
        return self.observations, []

    def step(self, actions: Any) -> Any:
        assert (actions[:, [0, 2]] == [1, 0]).all()
        self.action_mask[:] = [0, 1, 0, 1, 0]  # type: ignore[index]
        return self.observations, self.rewards, self.terminals, self.truncations, []


def test_action_masks_reach_the_discrete_heads() -> None:
    trainer = make_trainer(vector.make(Masked, 4, "serial"))
    rows = run(trainer, 3)
    assert trainer.rollout.action_masks is not None
    assert trainer.rollout.action_masks.shape[-1] == 5
    assert all(np.isfinite(row["loss/total"]) for row in rows)


# -- checkpoints and agents -------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(nested(st.one_of(boxes(), discretes())))
def test_any_emulated_space_survives_a_checkpoint(space: Any) -> None:
    for emulated in (FlatBox(space), action_codec(space).space):
        text = json.dumps(checkpoint.describe_space(emulated), sort_keys=True)
        restored = checkpoint.restore_space(json.loads(text))
        assert restored == emulated
        assert type(restored) is type(emulated)


def test_space_of_no_known_kind_is_refused() -> None:
    with pytest.raises(RunError, match=r"a checkpoint can't hold the space Text"):
        checkpoint.describe_space(Text(3))


def test_agent_acts_on_flat_rows_and_on_nested_samples(tmp_path: Path) -> None:
    envs = sentries()
    trainer = make_trainer(envs, policy_name="auto")
    run(trainer, 2)
    trainer.save(tmp_path / "last")
    assert json.loads((tmp_path / "last" / "state.json").read_text())["policy"]["name"] == "multi-input"
    loaded = agent.load(tmp_path / "last")
    assert loaded.action_space == envs.single_action_space
    assert loaded.observation_space == envs.single_observation_space
    rows = envs.observations.copy()
    actions, _ = loaded.act(rows, greedy=True)
    assert (actions.shape, actions.dtype) == ((8, 3), np.float32)
    assert all(envs.single_action_space.contains(row) for row in actions)
    batch = loaded.observation_space.unflatten(rows)  # type: ignore[attr-defined]
    again, _ = loaded.act(batch, greedy=True)
    assert np.array_equal(again, actions)
    first = {key: part[:1].tolist() for key, part in batch.items()}
    assert np.allclose(loaded.act(first, greedy=True)[0], actions[:1], atol=1e-5)
    assert same(action_codec(Sentry.action_space).read(actions[0])["move"], int(actions[0, 2]))


def test_agent_refuses_what_is_no_observation(tmp_path: Path) -> None:
    trainer = make_trainer(sentries(), policy_name="auto")
    trainer.save(tmp_path / "last")
    loaded = agent.load(tmp_path / "last")
    with pytest.raises(EnvError, match=r"observation\['side'\] is missing, or is no array of one value for each row"):
        loaded.act({"wind": np.zeros((1, 2)), "flip": np.zeros((1, 1))})
    with pytest.raises(EnvError, match=r"observation\['flip'\] is missing"):
        loaded.act({"side": 1, "wind": np.zeros(2), "flip": 0})
    with pytest.raises(ShapeError, match=r"observation\['wind'\] has shape \(1, 2\), declared is \(2, 2\)"):
        loaded.act({"side": [1, 2], "wind": np.zeros((1, 2)), "flip": [[0], [0]]})
    with pytest.raises(ShapeError, match=r"rows are torch.float32 \(1, 16\), needed are torch.uint8"):
        loaded.act(np.zeros((1, 16), np.float32))


def test_resuming_needs_the_same_spaces(tmp_path: Path) -> None:
    trainer = make_trainer(sentries(), policy_name="auto")
    trainer.save(tmp_path / "last")

    class Other(Sentry):
        action_space = Dict({"move": Discrete(4), "aim": Box(-2, 2, (2,))})

    other = make_trainer(vector.make(Other, 8, "serial"), policy_name="auto")
    with pytest.raises(RunError, match="does not fit this run: `action_space` is"):
        other.load(tmp_path / "last")
    same_again = make_trainer(sentries(), policy_name="auto")
    same_again.load(tmp_path / "last")


# -- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_heads_and_every_leaf_are_learnt(seed: int) -> None:
    """6.4 of 8 needs all of them: without ``flip`` 5.8 is the most, without ``wind`` 6, without ``side`` 4.8."""
    trainer = make_trainer(
        sentries(64),
        epochs=150,
        seed=seed,
        policy_name="auto",
        policy_hidden_size=64,
        horizon=16,
        minibatch_size=512,
        learning_rate=0.015,
        replay_ratio=2.0,
    )
    rows = run(trainer, 150)
    assert rows[0]["env/episode_return"] < 2.5
    assert np.mean([row["env/episode_return"] for row in rows[-10:]]) > 6.4


def test_t06_squashed_and_gaussian_numbers_keep_what_was_drawn() -> None:
    space = Box(-1.0, 1.0, (1,), np.float32)
    mean, logstd, noise = torch.zeros(1, 1), torch.zeros(1, 1), torch.full((1, 1), 1.7)
    for box, shown in (("gaussian", 1.0), ("squashed", math.tanh(1.7))):
        layout = ActionLayout.from_space(space, box)
        stored = layout.sample(mean, noise, None, logstd)
        assert stored.item() == pytest.approx(1.7)
        assert layout.to_env(stored).item() == pytest.approx(shown)
        assert layout.log_prob(mean, stored, None, logstd).item() == pytest.approx(-2.3639, abs=5e-5)


def test_squashed_numbers_reach_their_bounds_and_greedy_is_the_mean() -> None:
    low, high = (np.array(bound, np.float32) for bound in ((-2, 0), (3, 10)))
    layout = ActionLayout.from_space(Box(low, high), "squashed")
    assert layout.to_env(torch.tensor([[-50.0, 50.0], [0.0, 0.0]])).tolist() == [[-2.0, 10.0], [0.5, 5.0]]
    mean = torch.tensor([[0.3, -0.4]])
    assert torch.equal(layout.greedy(mean, None), mean)


def test_squashed_numbers_need_bounds() -> None:
    with pytest.raises(OptionError, match=r"policy\.box=squashed needs bounds.*high=\[inf\]"):
        ActionLayout.from_space(Box(-np.inf, np.inf, (1,)), "squashed")
    assert not ActionLayout.from_space(Discrete(3), "squashed").is_squashed


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.5), (-3e38, 3e38), (0.0, 1.5e38)])
def test_squashed_numbers_need_bounds_that_can_be_computed_with(low: float, high: float) -> None:
    space = Box(np.float32([-1, low]), np.float32([1, high]))
    with pytest.raises(OptionError, match=r"policy\.box=squashed needs bounds with 0 < high - low <= 8\.5e\+37, not "):
        ActionLayout.from_space(space, "squashed")
    assert not ActionLayout.from_space(space).is_squashed


def test_squashed_numbers_of_the_widest_bounds_are_finite() -> None:
    layout = ActionLayout.from_space(Box(0.0, 8e37, (1,)), "squashed")
    numbers = torch.tensor([[-30.0], [0.0], [30.0]])
    assert torch.allclose(layout.to_env(numbers), torch.tensor([[0.0], [4e37], [8e37]]))
    assert layout.log_stretch(numbers).isfinite().all()


def test_only_the_numbers_of_mixed_actions_are_squashed() -> None:
    space = FlatActions(Dict(a=Discrete(3), b=Box(-2.0, 4.0, (1,), np.float32)))
    layout = ActionLayout.from_space(space, "squashed")
    assert layout.to_env(torch.tensor([[2.0, 0.0], [1.0, 90.0]])).tolist() == [[2.0, 1.0], [1.0, 4.0]]


def test_log_stretch_is_the_logarithm_of_the_slope() -> None:
    layout = ActionLayout.from_space(Box(-2.0, 4.0, (1,), np.float32), "squashed")
    u = torch.tensor([[-1.5], [0.0], [2.5]], dtype=torch.float64)
    slope = 3.0 * (1.0 - torch.tanh(u).square())
    assert torch.allclose(layout.log_stretch(u), slope.log().sum(1))
    assert layout.log_stretch(torch.tensor([[40.0]])).isfinite().all()
