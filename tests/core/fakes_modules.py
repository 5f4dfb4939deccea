"""Networks as users write them, in every convention that is understood."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal


class Plain(nn.Module):
    """``forward(observations)``, the spaces from an environment."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.body = nn.Linear(env.single_observation_space.shape[0], 16)
        self.pi, self.v = nn.Linear(16, int(env.single_action_space.n)), nn.Linear(16, 1)

    def forward(self, observations: Tensor) -> Any:
        hidden = torch.tanh(self.body(observations))
        return self.pi(hidden), self.v(hidden)


class Both(Plain):
    """``forward_eval(observations, state)`` and ``forward(observations, state)``."""

    def forward_eval(self, observations: Tensor, state: Any = None) -> Any:
        return Plain.forward(self, observations)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        return self.forward_eval(observations, state)


class Returns(nn.Module):
    """A GRU cell whose state is returned as the third item."""

    def __init__(self, env: Any, width: int = 8) -> None:
        super().__init__()
        self.cell = nn.GRUCell(env.single_observation_space.shape[0], width)
        self.pi, self.v = nn.Linear(width, int(env.single_action_space.n)), nn.Linear(width, 1)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        hidden = self.cell(observations, state)
        return self.pi(hidden), self.v(hidden), hidden


class Stacked(nn.Module):
    """torch's own LSTM of two layers: a tuple of (2, n, D)."""

    def __init__(self, env: Any, width: int = 8) -> None:
        super().__init__()
        self.core = nn.LSTM(env.single_observation_space.shape[0], width, 2)
        self.pi, self.v = nn.Linear(width, int(env.single_action_space.n)), nn.Linear(width, 1)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        hidden, state = self.core(observations[None], state)
        return self.pi(hidden[0]), self.v(hidden[0]), state


class Mutates(nn.Module):
    """An LSTM cell that writes into the dict it is handed."""

    def __init__(self, env: Any, width: int = 8) -> None:
        super().__init__()
        self.hidden_size = width
        self.cell = nn.LSTMCell(env.single_observation_space.shape[0], width)
        self.pi, self.v = nn.Linear(width, int(env.single_action_space.n)), nn.Linear(width, 1)

    def forward_eval(self, observations: Tensor, state: Any) -> Any:
        before = None if state["lstm_h"] is None else (state["lstm_h"], state["lstm_c"])
        hidden, cell = self.cell(observations, before)
        state["hidden"], state["lstm_h"], state["lstm_c"] = hidden, hidden, cell
        return self.pi(hidden), self.v(hidden)


class Demands(Mutates):
    """The same without a beginning from None."""

    def forward_eval(self, observations: Tensor, state: Any) -> Any:
        h, c = self.cell(observations, (state["lstm_h"] + 0.0, state["lstm_c"] + 0.0))
        state["lstm_h"], state["lstm_c"] = h, c
        return self.pi(h), self.v(h)


class Parts(nn.Module):
    """An encoder and a decoder, which a recurrent core may be put between."""

    def __init__(self, env: Any, width: int = 8) -> None:
        super().__init__()
        self.hidden_size = width
        self.body = nn.Linear(env.single_observation_space.shape[0], width)
        self.pi, self.v = nn.Linear(width, int(env.single_action_space.n)), nn.Linear(width, 1)

    def encode_observations(self, observations: Tensor, state: Any = None) -> Tensor:
        return torch.relu(self.body(observations))

    def decode_actions(self, hidden: Tensor) -> Any:
        return self.pi(hidden), self.v(hidden)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        return self.decode_actions(self.encode_observations(observations, state))


class Gaussian(nn.Module):
    """A Normal whose deviations depend on the state."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.out = nn.Linear(env.single_observation_space.shape[0], 2 * env.single_action_space.shape[0] + 1)

    def forward(self, observations: Tensor) -> Any:
        mean, log_std, value = self.out(observations).tensor_split((1, 2), 1)
        return Normal(mean, log_std.exp()), value


class Noisy(Plain):
    """Has dropout, and draws where it is told not to."""

    def forward(self, observations: Tensor) -> Any:
        logits, values = super().forward(observations)
        return logits + torch.randn_like(logits), values
