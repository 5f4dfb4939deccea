"""The encoder `attention`: self-attention over a list of entities, the same whatever their order.

Every entity is embedded by one linear layer and passes through blocks, x + attention(norm(x)), then x + W2 relu(W1
norm(x)); the mean and the maximum over the entities that are there go through one linear layer. Source: Vaswani et al.
2017, arXiv:1706.03762, with the norm first as Xiong et al. 2020, arXiv:2002.04745. Sizes: E entities, F features of
each, W their width in the blocks.
"""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import OptionError
from puffer_core.policies.init import uniform
from puffer_core.policies.options import AttentionOptions

INNER = 2
"""Widths of an entity between the two matrices of a block."""


class AttentionEncoder(nn.Module):
    """Observations (E, F) to the width of the trunk, attending to entities that are there.

    An observation without any entity is encoded as the bias.

    Attributes:
        reads_flags: A feature says which entities are there, so observations can't be normalised.

    Raises:
        OptionError: If observations are not lists of entities, or the options don't fit them or each other.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        width: int,
        bias: bool,
        generator: torch.Generator,
        options: AttentionOptions | None = None,
    ) -> None:
        super().__init__()
        options = options or AttentionOptions()
        _require_entities(observation_space, options)
        self.present = options.present
        self.reads_flags = self.present >= 0
        inner = options.width
        self.embed = Linear(observation_space.shape[1], inner, bias, generator)
        self.blocks = nn.ModuleList(Block(inner, options.heads, bias, generator) for _ in range(options.blocks))
        self.norm = nn.LayerNorm(inner, bias=bias)
        self.weight = uniform(width, 2 * inner, math.sqrt(2.0 / (2 * inner)), generator)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, observations: Tensor) -> Tensor:
        """Encode (n, E, F) to (n, width)."""
        features = observations.to(self.weight.dtype)
        there = None if self.present < 0 else features[:, :, self.present] > 0.0
        x = self.embed(features)
        # With nothing to attend to the result is not used, but softmax over nothing would be NaN.
        seen = None if there is None else (there | ~there.any(1, keepdim=True))[:, None, None]
        for block in self.blocks:
            x = block(x, seen)
        return nn.functional.linear(_pool(self.norm(x), there), self.weight, self.bias)


class Block(nn.Module):
    """Self-attention and a layer of two matrices, both added to what they read."""

    def __init__(self, width: int, heads: int, bias: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(width, bias=bias) for _ in range(2))
        self.qkv, self.out = Linear(width, 3 * width, bias, generator), Linear(width, width, bias, generator)
        self.expand = Linear(width, INNER * width, bias, generator)
        self.reduce = Linear(INNER * width, width, bias, generator)

    def forward(self, x: Tensor, seen: Tensor | None) -> Tensor:
        """Return (n, E, W) for (n, E, W); ``seen`` is (n, 1, 1, E) bool, entities that are attended to."""
        rows, entities, width = x.shape
        parts = self.qkv(self.attention_norm(x)).view(rows, entities, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, entities, width))
        hidden: Tensor = self.reduce(torch.relu(self.expand(self.mlp_norm(x))))
        return x + hidden


class Linear(nn.Module):
    """A linear layer whose weights start from U(-b, b), b = 1 / sqrt(inputs), and its bias from 0."""

    def __init__(self, inputs: int, outputs: int, bias: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = uniform(outputs, inputs, 1.0 / math.sqrt(inputs), generator)
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return (*n, outputs) for (*n, inputs)."""
        return nn.functional.linear(x, self.weight, self.bias)


def _pool(x: Tensor, there: Tensor | None) -> Tensor:
    """Return (n, 2W), mean and maximum over the entities that are there of (n, E, W); 0 where none is."""
    if there is None:
        return torch.cat([x.mean(1), x.amax(1)], 1)
    absent = ~there[:, :, None]
    count = there.sum(1, keepdim=True)
    mean = x.masked_fill(absent, 0.0).sum(1) / count.clamp(min=1)
    most = x.masked_fill(absent, -math.inf).amax(1).masked_fill(count == 0, 0.0)
    return torch.cat([mean, most], 1)


def _require_entities(space: spaces.Box, options: AttentionOptions) -> None:
    if isinstance(space, FlatBox):
        msg = f"policy.name=attention reads a list of entities, and these observations are {space.original}"
        raise OptionError(msg, hint="use `--policy.name multi-input` for nested observations")
    if len(space.shape) != 2 or min(space.shape) < 1:
        msg = f"policy.name=attention reads observations of shape (entities, features), these have {space.shape}"
        raise OptionError(msg, hint="give each entity a row, or use `--policy.name mlp`")
    if options.width % options.heads:
        msg = f"attention.width={options.width} is not a multiple of attention.heads={options.heads}"
        raise OptionError(msg, hint=f"use `--attention.width {-(-options.width // options.heads) * options.heads}`")
    if options.present >= space.shape[1]:
        msg = f"attention.present={options.present}: an entity has the features 0 to {space.shape[1] - 1}"
        raise OptionError(msg, hint="name the feature that is above 0 for entities that are there, or -1")
