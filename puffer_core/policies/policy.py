"""A policy: encoder, core, and a fused decoder for logits and value.

Tensor names, shared with the native trainer's checkpoints: ``encoder.weight`` (D, O), ``layers.{l}.weight``,
``decoder.weight`` (A + 1, D) whose last row is the value, ``decoder.logstd`` (1, K) for K continuous columns of an
action, and biases; where observations are normalised, ``normalizer.mean``, ``.var`` and ``.count``. Sizes: D width of
the trunk, O flat observation, A logits, L layers, W width of the state: D for MinGRU, 2D for LSTM.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.config.schema import PolicyConfig
from puffer_core.plugins import manager, resolve
from puffer_core.policies.actions import ActionLayout, full_precision
from puffer_core.policies.choice import choose_encoder
from puffer_core.policies.init import uniform
from puffer_core.policies.lstm import LSTMLayer
from puffer_core.policies.mingru import MinGRULayer
from puffer_core.policies.normalizer import Normalizer, make_normalizer
from puffer_core.policies.precision import linear, multiply
from puffer_core.policies.typed import TypedPolicy

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": nn.functional.gelu}
STATE_WIDTHS = {"mingru": 1, "lstm": 2}
"""Widths of the trunk that the state of one layer takes, for each recurrent core."""


class Policy(nn.Module):
    """The built-in network; `make_policy` makes one.

    Acting goes row by row with an explicit state, training over whole segments with the resets of acting time; both
    compute the same numbers up to rounding.

    Attributes:
        normalizer: What observations pass first, or None; the trainer updates it.
    """

    def __init__(
        self,
        encoder: nn.Module,
        layout: ActionLayout,
        config: PolicyConfig,
        generator: torch.Generator,
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__()
        self.layout = layout
        self.width = config.hidden_size
        self.core = config.core
        self.is_recurrent = self.core in STATE_WIDTHS
        self.activation = ACTIVATIONS[config.activation]
        self.normalizer = normalizer
        self.encoder = encoder
        self.layers = nn.ModuleList(_layer(config, generator) for _ in range(config.num_layers))
        self.decoder = Decoder(self.width, layout, config.bias, generator)

    @property
    def logstd(self) -> Tensor | None:
        """(1, K) log-deviations of continuous columns, shared over states; None where all heads are discrete."""
        return self.decoder.logstd

    def initial_state(self, rows: int) -> Tensor:
        """Return the (L, rows, W) state before the first observation; L is 0 without a recurrent core."""
        layers = len(self.layers) if self.is_recurrent else 0
        return self.decoder.weight.new_zeros(layers, rows, STATE_WIDTHS.get(self.core, 1) * self.width)

    def forward_eval(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (logits (n, A), values (n,), new state) for one observation of each row; ``state`` stays as it is."""
        x = self._encode(observations)
        if not self.is_recurrent:
            return (*self.decoder(self._feed_forward(x)), state)
        after = []
        for layer, before in zip(self.layers, state, strict=True):
            x, new = layer.step(x, before)  # type: ignore[operator]
            after.append(new)
        return (*self.decoder(x), torch.stack(after) if len(after) > 1 else after[0][None])

    def forward(self, observations: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits (H*S, A), values (H*S,)) of whole segments, time-major, for training.

        Args:
            observations: (H, S, *shape).
            state: (L, S, W), the state that entered the first step.
            resets: (H, S) bool, the state was zeroed before that step; row 0 is in ``state`` already.
        """
        horizon, segments = observations.shape[:2]
        x = self._encode(observations.flatten(0, 1))
        if not self.is_recurrent:
            return self.decoder(self._feed_forward(x))  # type: ignore[no-any-return]
        indices = resets[1:].flatten().nonzero().squeeze(1) + segments
        x = x.view(horizon, segments, self.width)
        for layer, entering in zip(self.layers, state, strict=True):
            x = layer(x, entering, indices)
        return self.decoder(x.view(horizon * segments, self.width))  # type: ignore[no-any-return]

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have `torch.compile` take the encoder; the other passes are written by hand. Names of weights stay."""
        self.encoder.compile(*args, **kwargs)

    def _encode(self, observations: Tensor) -> Tensor:
        x: Tensor = self.encoder(observations if self.normalizer is None else self.normalizer(observations))
        return full_precision(x)

    def _feed_forward(self, x: Tensor) -> Tensor:
        x = self.activation(x)
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


def _layer(config: PolicyConfig, generator: torch.Generator) -> nn.Module:
    """Return one layer of the core that ``config`` names."""
    if config.core == "mingru":
        return MinGRULayer(config.hidden_size, generator)
    kind = LSTMLayer if config.core == "lstm" else Linear
    return kind(config.hidden_size, config.bias, generator)


class Linear(nn.Module):
    """A square layer of the feed-forward core."""

    def __init__(self, width: int, bias: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = uniform(width, width, math.sqrt(2.0 / width), generator)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return W x + b for each row."""
        return linear(x, self.weight, self.bias)


class Decoder(nn.Module):
    """Logits, means and value from one matrix, and the log-deviations of continuous columns."""

    def __init__(self, width: int, layout: ActionLayout, bias: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = uniform(layout.width + 1, width, 1.0 / math.sqrt(width), generator)
        self.bias = nn.Parameter(torch.zeros(layout.width + 1)) if bias else None
        self.logstd = nn.Parameter(torch.zeros(1, layout.deviations)) if layout.deviations else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits (n, A), values (n,)) for (n, D)."""
        if not torch.is_grad_enabled():
            return _decode(x, self.weight, self.bias)
        logits, values = _Decode.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return logits, values


def _few_rows_times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return their product, with the same bits however many threads compute it.

    Up to a dozen rows that are no multiple of four go another way in MKL on one thread than on two; zeros fill them up.
    """
    count = len(rows)
    if 4 < count < 12 and count != 8:
        return multiply(nn.functional.pad(rows, (0, 0, 0, -count % 4)), matrix)[:count]
    return multiply(rows, matrix)


def _decode(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """W x + b computed as (A + 1, n), the layout in which the heads are evaluated; logits are its transposed view."""
    out = _few_rows_times(weight, x.t())
    if bias is not None:
        out += bias[:, None]
    return out[:-1].t(), out[-1]


class _Decode(torch.autograd.Function):
    """`_decode` with a gradient that arrives in the same layout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _decode(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, d_logits: Tensor, d_values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gradients of x, weight and bias."""
        x, weight = ctx.saved_tensors
        grad = torch.cat([d_logits.t(), d_values[None]])
        return torch.mm(grad.t(), weight), _few_rows_times(grad, x), grad.sum(1) if ctx.has_bias else None


def make_policy(
    config: PolicyConfig,
    observation_space: spaces.Box,
    action_space: spaces.Space[Any],
    generator: torch.Generator,
    options: object | None = None,
    agent_types: Sequence[int] = (),
) -> Policy | TypedPolicy:
    """Build the network that ``config`` describes, with weights drawn from ``generator``.

    Args:
        config: Encoder (``auto``: as `choose_encoder` says), core, sizes.
        observation_space: Of one agent.
        action_space: Of one agent.
        generator: Source of all initial weights.
        options: The options dataclass of the encoder's plugin, for encoders that declare one.
        agent_types: Kind of each agent of an environment (`policies.typed.agent_types`); empty for one network.

    Raises:
        UnknownNameError: If no plugin supplies an encoder of that name.
        OptionError: If the encoder can't read these observations, or they can't be normalised and should be, or the
            actions can't be squashed and should be.
    """
    config = choose_encoder(config, observation_space)
    spec = manager().policies.get(config.name)
    encoder: Any = resolve(spec.encoder)
    arguments: dict[str, Any] = {} if spec.options is None else {"options": options}
    layout = ActionLayout.from_space(action_space, config.box)
    with torch.random.fork_rng(devices=[]):  # an encoder that draws from torch's own generator is seeded, too
        torch.manual_seed(generator.initial_seed())
        bodies = [
            encoder(observation_space, config.hidden_size, config.bias, generator, **arguments)
            for _ in range(len(set(agent_types)) or 1)
        ]
    normalizer = make_normalizer(observation_space, bodies[0]) if config.normalize_observations else None
    networks = [Policy(body, layout, config, generator, normalizer) for body in bodies]
    return TypedPolicy(networks, agent_types) if len(networks) > 1 else networks[0]
