"""A second opinion: advantages, weights, loss and all gradients, recomputed slowly from the algorithms page.

What stands here is written from the specification, one step and one row at a time, and differentiated by autograd. It
shares nothing with the product but the weights and the numbers of the rollout. In float64 both agree to 1e-9 of each
tensor's largest number, in float32 to 1e-4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatActions
from puffer_core.policies import make_policy
from puffer_core.rl.advantage import Estimator, fold
from puffer_core.rl.loss import Coefficients, Targets, ppo_loss
from puffer_core.rl.replay import importance, normalize, probabilities

COEFS = Coefficients(clip=0.2, vf_clip=0.3, vf=1.7, ent=0.02)
GAMMA, LAMBDA, RHO, C, ALPHA, BETA = 0.93, 0.8, 1.1, 0.9, 0.8, 0.4
HORIZON, ROWS, SHAPE, WIDTH = 6, 5, (4,), 3
BOX = spaces.Box(-2.0, 3.0, (2,))
SPACES: dict[str, Any] = {
    "discrete": spaces.Discrete(4),
    "multi": spaces.MultiDiscrete([3, 2]),
    "gaussian": BOX,
    "squashed": BOX,
    "mixed": FlatActions(spaces.Dict(a=spaces.Discrete(3), b=BOX, c=spaces.Discrete(2))),
}
HEADS = {"discrete": [4], "multi": [3, 2], "gaussian": [], "squashed": [], "mixed": [3, 2]}


@dataclass
class Data:
    """One rollout, in the layout of the buffers: (H + 1, N) or (H, N)."""

    observations: Tensor
    rewards: Tensor
    terminals: Tensor
    truncations: Tensor
    alive: Tensor
    resets: Tensor
    final_values: Tensor
    values: Tensor
    ratio: Tensor
    logprobs: Tensor
    actions: Tensor
    state: Tensor
    mask: Tensor | None
    rows: Tensor


def make_data(policy: Any, seed: int, kind: str, masked: bool, dtype: torch.dtype) -> Data:
    """Random numbers everywhere, with ends, truncations and absences; actions and probabilities near the policy's."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    def flags(chance: float) -> Tensor:
        return torch.rand(HORIZON + 1, ROWS, generator=g) < chance

    columns = HORIZON + 1, ROWS
    layout, choices = policy.layout, sum(HEADS[kind])
    terminals, alive = flags(0.15), ~flags(0.15)
    mask = None
    if masked and choices:
        mask = (torch.rand(HORIZON, ROWS, choices, generator=g) > 0.4).to(torch.uint8)
        first = 0
        for size in HEADS[kind]:
            mask[..., first] = 1
            first += size
    logits = 0.5 * normal(HORIZON * ROWS, layout.width)
    noise = layout.draw_noise((HORIZON * ROWS,), g).to(dtype)
    flat = None if mask is None else mask.flatten(0, 1)
    actions = layout.sample(logits, noise, flat, None if policy.logstd is None else policy.logstd.detach())
    state = policy.initial_state(ROWS)
    return Data(
        observations=normal(HORIZON, ROWS, *SHAPE),
        rewards=normal(*columns),
        terminals=terminals,
        truncations=flags(0.15) & ~terminals,
        alive=alive,
        resets=flags(0.3)[:HORIZON],
        final_values=normal(*columns),
        values=normal(*columns),
        ratio=(0.3 * normal(HORIZON, ROWS)).exp(),
        logprobs=-1.5 + 0.5 * normal(HORIZON, ROWS),
        actions=actions.view(HORIZON, ROWS, *layout.shape),
        state=normal(*state.shape).abs(),
        mask=mask,
        rows=torch.tensor([3, 0, 3, 1]),
    )


def product(policy: Any, data: Data) -> dict[str, Tensor]:
    """What the trainer computes, with its own functions in its own order."""
    folded = fold(data.rewards, data.terminals, data.truncations, data.final_values, data.alive, GAMMA, LAMBDA)
    # Rows of absent agents are finite, as the buffers have them; the estimator's result is kept by it.
    advantages = Estimator(HORIZON, ROWS, data.ratio).estimate(folded, data.values, data.ratio, RHO, C).clone()
    probability, rows = probabilities(advantages, ALPHA), data.rows
    weights = importance(probability, rows, BETA).to(advantages.dtype)
    live = None if data.alive[:-1].all() else data.alive[:-1][:, rows]
    chosen, old = advantages[:, rows], data.values[:-1][:, rows]
    scaled = normalize(chosen, live) * weights
    targets = Targets(
        actions=data.actions[:, rows].flatten(0, 1),
        logprobs=data.logprobs[:, rows].flatten(),
        values=old.flatten(),
        advantages=scaled.flatten(),
        returns=(chosen + old).flatten(),
        action_mask=None if data.mask is None else data.mask[:, rows].flatten(0, 1),
        live=None if live is None else live.flatten(),
        count=float(chosen.numel() if live is None else live.sum()),
    )
    logits, values = policy(data.observations[:, rows], data.state[:, rows], data.resets[:, rows])
    loss, _, _ = ppo_loss(logits, values, policy.logstd, policy.layout, targets, COEFS)
    gradients = torch.autograd.grad(loss, list(policy.parameters()))
    named = {name: gradient for (name, _), gradient in zip(policy.named_parameters(), gradients, strict=True)}
    return {"advantages": advantages, "weights": weights, "scaled": scaled, "loss": loss.detach()} | named


def opinion(policy: Any, data: Data, kind: str, core: str) -> dict[str, Tensor]:
    """The same from the page, step by step, in float64."""
    p = {name: weight.detach().double().requires_grad_() for name, weight in policy.named_parameters()}
    advantages = slow_advantages(data)
    weights = slow_weights(advantages, data.rows)
    scaled = slow_normalized(advantages, data) * weights
    count, total = float(sum(bool(data.alive[t, i]) for t in range(HORIZON) for i in data.rows)), torch.zeros(())
    for column, row in enumerate(data.rows.tolist()):
        state = [layer[row].double() for layer in data.state]
        for t in range(HORIZON):
            if t > 0 and bool(data.resets[t, row]):
                state = [torch.zeros_like(layer) for layer in state]
            out, state = slow_network(p, data.observations[t, row].double(), state, core)
            if not bool(data.alive[t, row]):
                continue
            old, advantage = data.values[t, row].double(), advantages[t, row]
            step = slow_step(p, out, data, t, row, kind, scaled[t, column], old, advantage + old)
            total = total + step / count
    total.backward()
    gradients = {name: weight.grad for name, weight in p.items()}
    return {"advantages": advantages, "weights": weights, "scaled": scaled, "loss": total.detach()} | gradients  # type: ignore[return-value]


def slow_advantages(data: Data) -> Tensor:
    """Rollout page, section 3."""
    out = torch.zeros(HORIZON, ROWS, dtype=torch.float64)
    for i in range(ROWS):
        later = 0.0
        for t in reversed(range(HORIZON)):
            if not data.alive[t, i]:
                later = 0.0
                continue
            w, reward = float(data.ratio[t, i]), float(data.rewards[t + 1, i])
            is_end = bool(data.terminals[t + 1, i])
            is_cut = bool(data.truncations[t + 1, i]) and not is_end
            after = float(data.values[t + 1, i])
            if is_cut:
                after = float(data.final_values[t + 1, i])
            elif is_end or not data.alive[t + 1, i]:
                after = 0.0
            delta = min(w, RHO) * (reward + GAMMA * after - float(data.values[t, i]))
            if is_end or is_cut or not data.alive[t + 1, i]:
                later = 0.0
            later = delta + GAMMA * LAMBDA * min(w, C) * later
            out[t, i] = later
    return out


def slow_weights(advantages: Tensor, rows: Tensor) -> Tensor:
    """Section 3.1 with the R-normalised probabilities."""
    q = [sum(abs(float(a)) for a in advantages[:, i]) ** ALPHA for i in range(ROWS)]
    whole = sum(value + 1e-6 for value in q)
    return torch.tensor([(ROWS * (q[i] + 1e-6) / whole) ** -BETA for i in rows.tolist()], dtype=torch.float64)


def slow_normalized(advantages: Tensor, data: Data) -> Tensor:
    """Section 3.2 over live steps of the drawn rows."""
    chosen, live = advantages[:, data.rows], data.alive[:-1][:, data.rows]
    numbers = [float(a) for a in chosen[live]]
    mean = sum(numbers) / len(numbers)
    std = math.sqrt(sum((a - mean) ** 2 for a in numbers) / (len(numbers) - 1))
    return torch.where(live, (chosen - mean) / (std + 1e-8), 0.0)


def slow_network(p: dict[str, Tensor], seen: Tensor, state: list[Tensor], core: str) -> tuple[Tensor, list[Tensor]]:
    """Sections 6.1 and 6.2: encoder, core and decoder for one observation of one row."""
    x, after, layer = p["encoder.weight"] @ seen + p["encoder.bias"], [], 0
    if core == "none":
        x = torch.tanh(x)
    while f"layers.{layer}.weight" in p:
        weight = p[f"layers.{layer}.weight"]
        if core == "mingru":
            a, gate, highway = (weight @ x).chunk(3)
            z, s = 1 / (1 + torch.exp(-gate)), 1 / (1 + torch.exp(-highway))
            candidate = torch.where(a >= 0, a + 0.5, 1 / (1 + torch.exp(-a)))
            h = state[layer] + z * (candidate - state[layer])
            x = s * h + (1 - s) * x
            after.append(h)
        elif core == "lstm":
            h, c = state[layer].chunk(2)
            i, f, g, o = (weight @ torch.cat([x, h]) + p[f"layers.{layer}.bias"]).chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            x = torch.sigmoid(o) * torch.tanh(c)
            after.append(torch.cat([x, c]))
        else:
            x = torch.tanh(weight @ x + p[f"layers.{layer}.bias"])
        layer += 1
    return p["decoder.weight"] @ x + p["decoder.bias"], after


def slow_step(
    p: dict[str, Tensor], out: Tensor, data: Data, t: int, row: int, kind: str, scaled: Tensor, old: Tensor, target: Any
) -> Tensor:
    """Section 4.1 for one step: its share of the loss, times n."""
    logprob, entropy = slow_distribution(p, out, data, t, row, kind)
    ratio, value = torch.exp(logprob - data.logprobs[t, row].double()), out[-1]
    bound = 1.0 + math.copysign(COEFS.clip, ratio.item() - 1.0)
    clipped = ratio if abs(ratio.item() - 1.0) <= COEFS.clip else torch.tensor(bound, dtype=torch.float64)
    surrogate = torch.maximum(-scaled * ratio, -scaled * clipped)
    plain, change = (value - target) ** 2, value - old
    if abs(change.item()) > COEFS.vf_clip:
        moved = (old + math.copysign(COEFS.vf_clip, change.item()) - target) ** 2
        plain = moved if moved.item() > plain.item() else plain
    return surrogate + COEFS.vf * 0.5 * plain - COEFS.ent * entropy


def slow_distribution(
    p: dict[str, Tensor], out: Tensor, data: Data, t: int, row: int, kind: str
) -> tuple[Tensor, Tensor]:
    """Section 4.2: log-probability of the action, and the entropy, of one step."""
    logprob = entropy = torch.zeros(())
    choices, numbers = data.actions[t, row].reshape(-1), None
    if kind in ("gaussian", "squashed"):
        choices, numbers = choices[:0], choices.double()
    elif kind == "mixed":  # the columns of the space, by key: a, b, b, c
        choices, numbers = choices[[0, 3]], choices[[1, 2]].double()
    first = 0
    for size, choice in zip(HEADS[kind], choices.tolist(), strict=True):
        z = out[first : first + size]
        legal = [True] * size if data.mask is None else [bool(m) for m in data.mask[t, row, first : first + size]]
        whole = torch.log(sum(torch.exp(z[j]) for j in range(size) if legal[j]))  # type: ignore[arg-type]
        logprob = logprob + z[int(choice)] - whole
        for j in range(size):
            if legal[j]:
                entropy = entropy - torch.exp(z[j] - whole) * (z[j] - whole)
        first += size
    for d in range(0 if numbers is None else 2):
        mean, log_std, u = out[first + d], p["decoder.logstd"][0, d], numbers[d]  # type: ignore[index]
        logprob = logprob - 0.5 * ((u - mean) / torch.exp(log_std)) ** 2 - 0.5 * math.log(2 * math.pi) - log_std
        entropy = entropy + 0.5 * math.log(2 * math.pi * math.e) + log_std
        if kind == "squashed":
            # SAC, appendix C: the density of the squashed action; u moves with mean and deviation at its own noise.
            noise = ((u - mean) / torch.exp(log_std)).detach()
            moving = mean + torch.exp(log_std) * noise
            entropy = entropy + torch.log(1 - torch.tanh(moving) ** 2) + math.log(2.5)
    return logprob, entropy


def build(kind: str, core: str, dtype: torch.dtype, seed: int) -> Any:
    g = torch.Generator().manual_seed(seed)
    box = "squashed" if kind == "squashed" else "gaussian"
    config = PolicyConfig(name="mlp", core=core, hidden_size=WIDTH, num_layers=2, activation="tanh", box=box)  # type: ignore[arg-type]
    policy = make_policy(config, spaces.Box(-1, 1, SHAPE), SPACES[kind], g)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=g))
    return policy.to(dtype)


CASES = [(kind, masked) for kind in SPACES for masked in (False, True) if HEADS[kind] or not masked]


@pytest.mark.parametrize(("kind", "masked"), CASES)
@pytest.mark.parametrize("core", ["mingru", "lstm", "none"])
def test_second_opinion_agrees_on_loss_and_all_gradients(kind: str, core: str, masked: bool) -> None:
    for seed in range(2):
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
            policy = build(kind, core, dtype, seed)
            data = make_data(policy, seed, kind, masked, dtype)
            found, wanted = product(policy, data), opinion(policy, data, kind, core)
            assert found.keys() == wanted.keys()
            for name, right in wanted.items():
                error = float((found[name].double() - right).abs().max())
                assert error <= tolerance * float(right.abs().max()), (name, seed, dtype)


def test_data_of_the_second_opinion_has_every_event() -> None:
    policy = build("discrete", "mingru", torch.float64, 0)
    every = [make_data(policy, seed, "discrete", False, torch.float64) for seed in range(3)]
    for name in ("terminals", "truncations", "resets"):
        assert any(bool(getattr(data, name).any()) for data in every)
    assert any(not bool(data.alive.all()) for data in every)
