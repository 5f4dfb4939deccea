"""One acting step of a policy as a plain function of tensors, with everything inside that acting needs."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import OptionError
from puffer_core.policies.actions import ActionLayout
from puffer_core.policies.lstm import LSTMLayer
from puffer_core.policies.typed import TypedPolicy
from puffer_core.rl.agent import Agent


@dataclass(frozen=True)
class Port:
    """An input or output of the exported network; axis ``axis`` of it is the rows."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def axis(self) -> int:
        """The axis of the rows."""
        return self.shape.index("rows")


class ActingStep(nn.Module):
    """Observations, state, resets and mask to logits, greedy action, value and new state.

    Args:
        agent: Its policy is copied.

    Attributes:
        inputs, outputs: In the order of `forward`; what the policy does not have (a state, a mask) is left out.

    Raises:
        OptionError: If the observations are the bytes of nested ones, which only torch takes apart.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        space = agent.observation_space
        if isinstance(space, FlatBox) and space.is_struct:
            msg = f"a network that reads nested observations of several types, {space.original}, can't be exported"
            raise OptionError(msg, hint="use puffer_core.load(RUN).act, or observations of one type")
        self.policy = copy.deepcopy(agent.policy).cpu().eval()
        for layer in self.policy.modules():
            if isinstance(layer, LSTMLayer):
                layer.step = _LSTMStep(layer)  # type: ignore[method-assign]  # its own looks at the number of rows
        layout: ActionLayout = self.policy.layout
        self.needs_agents = bool(getattr(self.policy, "needs_agents", False))
        layers, _, width = self.policy.initial_state(1).shape
        kinds = {torch.int64: "int64", torch.float32: "float32"}
        self.inputs = [Port("observations", str(space.dtype), ("rows", *space.shape))]
        self.outputs = [
            Port("logits", "float32", ("rows", layout.width)),
            Port("actions", kinds[layout.dtype], ("rows", *layout.shape)),
            Port("values", "float32", ("rows",)),
        ]
        if layers:
            self.inputs += [Port("state", "float32", (layers, "rows", width)), Port("resets", "bool", ("rows",))]
            self.outputs.append(Port("new_state", "float32", (layers, "rows", width)))
        if layout.mask_width:
            self.inputs.append(Port("action_mask", "uint8", ("rows", layout.mask_width)))
        if self.needs_agents:
            self.inputs.append(Port("agents", "int64", ("rows",)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Act once, as `inputs` and `outputs` say."""
        given = dict(zip((port.name for port in self.inputs), inputs, strict=True))
        observations, layout = given["observations"], self.policy.layout
        if "state" in given:
            state = torch.where(given["resets"][None, :, None], torch.zeros(()), given["state"])
        else:
            state = self.policy.initial_state(1)
        extra: dict[str, Any] = {"agents": given["agents"]} if self.needs_agents else {}
        act = self.policy.forward_every if isinstance(self.policy, TypedPolicy) else self.policy.forward_eval
        logits, values, after = act(observations, state, **extra)
        mask = given.get("action_mask")
        actions = _greedy(layout, logits, mask)
        results = (_masked(layout, logits, mask), actions, values)
        return (*results, after) if "state" in given else results

    def example(self, rows: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return random inputs of that many rows, every mask with a legal choice in each head."""
        return tuple(self._random(port, rows, generator) for port in self.inputs)

    def _random(self, port: Port, rows: int, generator: torch.Generator) -> Tensor:
        shape = tuple(rows if size == "rows" else int(size) for size in port.shape)
        if port.name == "action_mask":
            mask = torch.randint(0, 2, shape, generator=generator, dtype=torch.uint8)
            mask[:, [sum(self.policy.layout.sizes[:k]) for k in range(len(self.policy.layout.sizes))]] = 1
            return mask
        if port.dtype.startswith("float"):
            return torch.randn(shape, generator=generator).to(getattr(torch, port.dtype))
        most = {"bool": 2, "uint8": 256, "int8": 128}.get(port.dtype, 16)
        most = len(self.policy.agent_types) if port.name == "agents" else most
        return torch.randint(0, most, shape, generator=generator).to(getattr(torch, port.dtype))


def _greedy(layout: ActionLayout, logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return the greedy actions as the environment takes them, recorded for any number of rows."""
    if not layout.continuous:
        return layout.to_env(layout.greedy(logits, mask))
    numbers = layout.means(logits)
    numbers = layout._squash(numbers) if layout.is_squashed else numbers
    choices = (head.argmax(0).to(logits.dtype) for head in layout.heads(logits, mask))
    columns = iter(numbers.unbind(1))
    mixed = [next(columns) if k in layout.continuous else next(choices) for k in range(layout.shape[0])]
    return torch.clamp(torch.stack(mixed, 1), torch.tensor(layout.low), torch.tensor(layout.high))


def _masked(layout: ActionLayout, logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return (n, A) logits, those of illegal choices at -10,000."""
    if not layout.mask_width:
        return logits
    return torch.cat([*(head.t() for head in layout.heads(logits, mask)), logits[:, layout.mask_width :]], 1)


class _LSTMStep:
    """`LSTMLayer.step` in one form for any number of rows."""

    def __init__(self, layer: LSTMLayer) -> None:
        self._layer = layer

    def __call__(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        width = x.shape[1]
        h, c = state[:, :width], state[:, width:]
        gates = nn.functional.linear(torch.cat([x, h], 1), self._layer.weight, self._layer.bias)
        i, f, g, o = (gates[:, k * width : (k + 1) * width] for k in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, torch.cat([h, c], 1)
