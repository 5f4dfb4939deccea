"""One network per kind of agent: rows go to the network of their agent's kind, and only that one learns from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from puffer_core.policies.actions import full_precision

if TYPE_CHECKING:
    from puffer_core.policies.policy import Policy
    from puffer_core.vector.base import Vector


class TypedPolicy(nn.Module):
    """Networks of one shape side by side, ``types.{k}``; callers say which agent of its environment each row is.

    Log-deviations of continuous actions belong to a network, too: they follow the logits of each row, as those of a
    network that gives them by state. Observations are normalised before they are divided, by statistics of all rows.

    Args:
        networks: One for each kind.
        agent_types: Kind of each agent of an environment, from 0 on.

    Attributes:
        needs_agents: Calls take ``agents``, the index of each row's agent in its environment.
        normalizer: What observations of all kinds pass first, or None.
        logstd: None.
    """

    needs_agents = True
    logstd = None
    _kinds: Tensor

    def __init__(self, networks: Sequence[Policy], agent_types: Sequence[int]) -> None:
        super().__init__()
        self.agent_types = tuple(agent_types)
        layout = networks[0].layout
        self.layout = replace(layout, deviates_by_state=True) if layout.deviations else layout
        self.normalizer = networks[0].normalizer
        for network in networks:
            network.normalizer = None
        self.types = nn.ModuleList(networks)
        self.register_buffer("_kinds", torch.tensor(self.agent_types), persistent=False)

    def initial_state(self, rows: int) -> Tensor:
        """Return the (L, rows, W) state before the first observation."""
        return self._network(0).initial_state(rows)

    def forward_eval(self, observations: Tensor, state: Tensor, *, agents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (logits (n, A), values (n,), new state) for one observation of each row.

        Args:
            observations: (n, *shape).
            state: (L, n, W).
            agents: (n,) int64, the index of each row's agent in its environment.
        """
        observations = self._normalized(observations)
        kinds, parts = self._kinds[agents], []
        places = self._places(kinds)
        for kind, rows in places:
            own = observations.index_select(0, rows), state.index_select(1, rows)
            logits, values, after = self._network(kind).forward_eval(*own)
            parts.append((self._with_deviations(kind, logits), values, after))
        logits, values, after = (torch.cat(part, int(part[0].ndim == 3)) for part in zip(*parts, strict=True))
        back = torch.argsort(torch.cat([rows for _, rows in places]))
        return logits.index_select(0, back), values.index_select(0, back), after.index_select(1, back)

    def forward(self, observations: Tensor, state: Tensor, resets: Tensor, *, agents: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits (H*S, A), values (H*S,)) of whole segments, time-major, for training.

        Args:
            observations: (H, S, *shape).
            state: (L, S, W), the state that entered the first step.
            resets: (H, S) bool, the state was zeroed before that step.
            agents: (S,) int64, the index of each segment's agent in its environment.
        """
        horizon = len(observations)
        observations = self._normalized(observations.flatten(0, 1)).view_as(observations)
        kinds, parts = self._kinds[agents], []
        places = self._places(kinds)
        for kind, rows in places:
            own = observations.index_select(1, rows), state.index_select(1, rows), resets.index_select(1, rows)
            logits, values = self._network(kind)(*own)
            logits = self._with_deviations(kind, logits)
            parts.append((logits.reshape(horizon, len(rows), -1), values.reshape(horizon, len(rows))))
        back = torch.argsort(torch.cat([rows for _, rows in places]))
        logits, values = (torch.cat(part, 1).index_select(1, back).flatten(0, 1) for part in zip(*parts, strict=True))
        return logits, values

    def forward_every(self, observations: Tensor, state: Tensor, agents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `forward_eval` does, by asking every network about every row: a form that can be recorded."""
        observations = self._normalized(observations)
        kinds, found = self._kinds[agents], None
        for kind in range(len(self.types)):
            logits, values, after = self._network(kind).forward_eval(observations, state)
            new = self._with_deviations(kind, logits), values, after
            if found is None:
                found = new
                continue
            is_its, (logits, values, after) = kinds == kind, found
            found = (
                torch.where(is_its[:, None], new[0], logits),
                torch.where(is_its, new[1], values),
                torch.where(is_its[None, :, None], new[2], after) if len(after) else after,
            )
        assert found is not None
        return found

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have `torch.compile` take the encoder of each network."""
        for kind in range(len(self.types)):
            self._network(kind).compile(*args, **kwargs)

    def _network(self, kind: int) -> Policy:
        return self.types[kind]  # type: ignore[return-value]

    def _normalized(self, observations: Tensor) -> Tensor:
        return observations if self.normalizer is None else self.normalizer(observations)

    def _places(self, kinds: Tensor) -> list[tuple[int, Tensor]]:
        """Return the kinds that are there, and where each is among the rows."""
        places = ((kind, (kinds == kind).nonzero().squeeze(1)) for kind in range(len(self.types)))
        return [(kind, rows) for kind, rows in places if len(rows)]

    def _with_deviations(self, kind: int, logits: Tensor) -> Tensor:
        """Return logits with the network's log-deviations behind them; a sum, since a recording would fix `expand`."""
        logstd = self._network(kind).logstd
        if logstd is None:
            return logits
        return torch.cat([full_precision(logits), logstd + torch.zeros_like(logits[:, :1])], 1)


def agent_types(parameters: str, vector: Vector) -> tuple[int, ...]:
    """Return the kind of each agent of an environment, counted from 0 on; empty where one network is for all.

    Args:
        parameters: As ``policy.parameters``.
        vector: The environments.
    """
    found = {"shared": (), "per-type": vector.agent_types, "per-agent": range(vector.agents_per_env)}
    each: Sequence[int] = found[parameters]
    order = list(dict.fromkeys(each))
    return tuple(order.index(kind) for kind in each) if len(order) > 1 else ()
