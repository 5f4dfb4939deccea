"""Observation normalisation: buffers of the policy, so that whoever acts with its weights sees what it learnt from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.errors import OptionError

CLIP = 10.0
"""Largest magnitude of a normalised number."""
EPS = 1e-8
"""Added to the variance."""
CHUNK = 2**22
"""Numbers that are converted to float64 at once."""


class Normalizer(nn.Module):
    """Gives every number of an observation mean 0 and variance 1 over all that were counted, within `CLIP`.

    Counting is exact to float64, however many there are; acting is float32. Before the first count it only clips.

    Args:
        shape: Of one observation.

    Attributes:
        mean, var: Of ``shape``, float64, in the checkpoint.
        count: Observations counted, float64, in the checkpoint.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    _shift: Tensor
    _scale: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("_shift", torch.zeros(shape), persistent=False)
        self.register_buffer("_scale", torch.ones(shape), persistent=False)
        self.register_load_state_dict_post_hook(_refresh)  # type: ignore[no-untyped-call]

    def forward(self, observations: Tensor) -> Tensor:
        """Normalise (n, *shape) to float32."""
        return ((observations.to(self._shift.dtype) - self._shift) * self._scale).clamp_(-CLIP, CLIP)

    @torch.no_grad()
    def update(self, observations: Tensor) -> None:
        """Count (n, *shape) more observations; what `forward` gives changes at once."""
        for chunk in torch.split(observations, max(1, CHUNK // max(1, self.mean.numel()))):
            if len(chunk):
                numbers = chunk.to(self.mean)
                self._add(len(chunk), numbers.mean(0), numbers.var(0, correction=0))
        _refresh(self)

    @torch.no_grad()
    def merge(self, counted: Sequence[tuple[int, Tensor, Tensor]]) -> None:
        """Count what others have counted: of each, how many, their mean and their variance."""
        for count, mean, var in counted:
            if count:
                self._add(count, mean.to(self.mean), var.to(self.var))
        _refresh(self)

    def _add(self, count: int, mean: Tensor, var: Tensor) -> None:
        """Merge mean and variance of two sets. Source: Chan, Golub, LeVeque 1979, equation 2.1."""
        total = self.count + count
        share = count / total
        delta = mean - self.mean
        self.var.lerp_(var, share).add_(delta.square() * share * (1.0 - share))
        self.mean.add_(delta * share)
        self.count.copy_(total)


def _refresh(module: nn.Module, _: object = None) -> None:
    """Bring what acting uses up to date with what was counted."""
    assert isinstance(module, Normalizer)
    module._shift.copy_(module.mean)
    module._scale.copy_((module.var + EPS).rsqrt())


def make_normalizer(space: spaces.Box, encoder: nn.Module | None = None) -> Normalizer:
    """Return a normaliser of these observations that has counted nothing.

    Raises:
        OptionError: If they are integers: pixels, or the bytes of a nested observation; or if ``encoder`` says with
            ``reads_flags`` that some numbers must keep their values.
    """
    if getattr(encoder, "reads_flags", False):
        msg = "policy.normalize_observations would change the feature that says which entities are present"
        raise OptionError(msg, hint="leave it off, or scale the other features in the environment")
    if space.dtype is None or space.dtype.kind != "f":
        msg = f"policy.normalize_observations needs observations in floating point, these are {space.dtype}"
        raise OptionError(msg, hint="leave it off: encoders scale pixels and take nested observations apart")
    return Normalizer(space.shape)
