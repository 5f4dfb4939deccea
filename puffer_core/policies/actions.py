"""Action heads: what the decoder's numbers mean, how actions are drawn from them, and how likely an action is.

Discrete logits of all heads are concatenated, A = sum of head sizes; a Box has D means and one learned log-deviation
each, shared over states; a user's network may give deviations of each state, as the last D numbers. Mixed actions have
the logits of their discrete heads first, then the means of their continuous ones; a row of them is float32, its columns
in the order of the space. Inside, everything is heads-first, (A, n): reductions over a handful of logits then run along
the last axis, which is several times faster on a CPU than a softmax over rows of three.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from puffer_core.emulation.spaces import FlatActions
from puffer_core.errors import EnvError, OptionError

MASKED_LOGIT = -1e4
WIDEST = float(np.finfo(np.float32).max) / 4.0
"""Largest high - low of squashed numbers: float32 has to hold twice as much, with room for rounding."""
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


def full_precision(x: Tensor) -> Tensor:
    """Return ``x`` in float32 where it has fewer bits: log-probabilities and losses are never computed in less."""
    return x.float() if x.dtype.itemsize < 4 else x


@dataclass(frozen=True)
class ActionLayout:
    """How one action is laid out in the decoder's output.

    Attributes:
        is_continuous: A Box; otherwise one or more discrete heads.
        sizes: Size of each discrete head; 1 for each dimension of a Box.
        shape: Shape of one action row: () for Discrete, (K,) for MultiDiscrete, (D,) for a flattened Box, (W,) mixed.
        low, high: Bounds of a Box or of mixed actions, one per column; None where all heads are discrete.
        continuous: Columns of the continuous heads of mixed actions; the other columns belong to `sizes`, in order.
        is_squashed: Numbers are drawn as u and reach the environment as low + (high - low) (tanh(u) + 1) / 2.
        deviates_by_state: The last D numbers of the decoder are log-deviations; `logstd` is then None everywhere.
    """

    is_continuous: bool
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    continuous: tuple[int, ...] = ()
    is_squashed: bool = False
    deviates_by_state: bool = False

    @classmethod
    def from_space(cls, space: spaces.Space[object], box: str = "gaussian") -> ActionLayout:
        """Return the layout of a single agent's action space.

        Args:
            space: The space.
            box: ``gaussian``, clipped to the bounds on its way to the environment, or ``squashed`` into them by tanh;
                of no consequence where all heads are discrete.

        Raises:
            EnvError: If the space is neither Discrete, MultiDiscrete, FlatActions nor a Box.
            OptionError: If numbers that are to be squashed have no bounds, none between them, or too wide ones.
        """
        layout = cls._plain(space)
        return layout._squashed() if box == "squashed" and layout.deviations else layout

    def _squashed(self) -> ActionLayout:
        low, high = self.continuous_bounds
        if not np.isfinite(low + high).all():
            msg = f"policy.box=squashed needs bounds, these actions have low={list(low)}, high={list(high)}"
            raise OptionError(msg, hint="use `--policy.box gaussian`, or give the Box finite bounds")
        for least, most in zip(low, high, strict=True):
            if not 0.0 < most - least <= WIDEST:
                msg = f"policy.box=squashed needs bounds with 0 < high - low <= {WIDEST:.2g}, not {least} and {most}"
                raise OptionError(msg, hint="use `--policy.box gaussian`, or give the Box other bounds")
        return replace(self, is_squashed=True)

    @classmethod
    def _plain(cls, space: spaces.Space[object]) -> ActionLayout:
        if isinstance(space, FlatActions):
            return cls._mixed(space)
        if isinstance(space, spaces.Discrete):
            return cls(False, (int(space.n),), ())
        if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
            return cls(False, tuple(int(n) for n in space.nvec), (len(space.nvec),))
        if isinstance(space, spaces.Box):
            low, high = (tuple(bound.astype(np.float32).ravel().tolist()) for bound in (space.low, space.high))
            return cls(True, (1,) * len(low), (len(low),), low, high)
        msg = f"{space} is not an action space that a policy can have"
        raise EnvError(msg, hint="use Discrete, MultiDiscrete or a Box")

    @classmethod
    def _mixed(cls, space: FlatActions) -> ActionLayout:
        heads = space.action_layout
        continuous = tuple(i for i, head in enumerate(heads) if head.is_continuous)
        sizes = tuple(head.size for head in heads if not head.is_continuous)
        low, high = tuple(space.low.tolist()), tuple(space.high.tolist())
        return cls(False, sizes, (len(heads),), low, high, continuous)

    @property
    def width(self) -> int:
        """Logits, means and deviations of the state per action: A."""
        return sum(self.sizes) + len(self.continuous) + (self.deviations if self.deviates_by_state else 0)

    @property
    def mask_width(self) -> int:
        """Entries of an action mask per action: the logits of the discrete heads."""
        return 0 if self.is_continuous else sum(self.sizes)

    @property
    def deviations(self) -> int:
        """Log-deviations: D, one for each continuous column."""
        return len(self.sizes) if self.is_continuous else len(self.continuous)

    @property
    def continuous_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The lowest and highest number of each continuous column."""
        columns = self.continuous or range(self.deviations)
        low, high = self.low or (), self.high or ()
        return tuple(low[i] for i in columns), tuple(high[i] for i in columns)

    @property
    def dtype(self) -> torch.dtype:
        """Type of stored actions."""
        return torch.float32 if self.is_continuous or self.continuous else torch.int64

    def draw_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return (*shape, heads) random numbers, all that sampling needs.

        They are uniform in [0, 1) for discrete heads, then normal for continuous ones.
        """
        draw = torch.randn if self.is_continuous else torch.rand
        noise = draw(*shape, len(self.sizes), generator=generator)
        if not self.continuous:
            return noise
        return torch.cat([noise, torch.randn(*shape, len(self.continuous), generator=generator)], -1)

    def heads(self, logits: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        """Yield each discrete head's logits, (A_k, n), from (n, A); illegal ones are pushed to -10,000."""
        flat = full_precision(logits).t()
        if self.continuous:
            flat = flat[: self.mask_width]
        if mask is not None:
            flat = torch.where(mask.t().bool(), flat, MASKED_LOGIT)
        yield from torch.split(flat, list(self.sizes)) if len(self.sizes) > 1 else (flat,)

    def means(self, logits: Tensor) -> Tensor:
        """Return (n, D), the means among (n, A)."""
        return logits[:, self.mask_width : self.mask_width + self.deviations]

    def log_deviations(self, logits: Tensor, logstd: Tensor | None) -> Tensor | None:
        """Return (1, D) or (n, D), the log-deviations of continuous columns; None where all heads are discrete."""
        return full_precision(logits[:, -self.deviations :]) if self.deviates_by_state else logstd

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (n, K) choices, int64, and the (n, D) numbers in (n, W) rows of mixed actions."""
        discrete, continuous = self._columns(rows.device)
        return rows.index_select(1, discrete).long(), rows.index_select(1, continuous)

    def join(self, choices: Tensor, numbers: Tensor) -> Tensor:
        """Return the (n, W) rows of (n, K) choices and (n, D) numbers."""
        discrete, continuous = self._columns(numbers.device)
        rows = numbers.new_empty(len(numbers), *self.shape)
        return rows.index_copy_(1, discrete, choices.to(rows.dtype)).index_copy_(1, continuous, numbers)

    def _columns(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the indices of the discrete and of the continuous columns of mixed actions; made once per device."""
        if device not in self._indices:
            columns = range(len(self.sizes) + len(self.continuous))
            discrete = [i for i in columns if i not in self.continuous]
            found = (torch.tensor(kind, device=device) for kind in (discrete, list(self.continuous)))
            self._indices[device] = tuple(found)  # type: ignore[assignment]
        return self._indices[device]

    @cached_property
    def _indices(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        return {}

    def sample(self, logits: Tensor, noise: Tensor, mask: Tensor | None, logstd: Tensor | None) -> Tensor:
        """Draw one action per row by inverting the distribution function; a masked action is never drawn.

        Args:
            logits: (n, A) logits, means of a Box, or both.
            noise: (n, heads) from `draw_noise`.
            mask: (n, discrete logits), nonzero where an action is legal, or None.
            logstd: (1, D) where there are continuous columns and the layout does not deviate by state, else None.
        """
        logstd = self.log_deviations(logits, logstd)
        if logstd is None:
            return self._draw(logits, noise, mask)
        numbers = _draw_normal(self.means(logits), logstd, noise[:, -self.deviations :])
        return self.join(self._draw(logits, noise, mask), numbers) if self.continuous else numbers

    def _draw(self, logits: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:
        """Return the (n, K) choices of the discrete heads, (n,) for Discrete."""
        drawn = []
        for k, head in enumerate(self.heads(logits, mask)):
            cdf = torch.softmax(head, 0).cumsum(0)
            # Scaled by the last entry: rounding then can't leave the draw above the whole distribution.
            drawn.append((cdf <= noise[:, k] * cdf[-1]).sum(0))
        return torch.stack(drawn, 1) if self.shape else drawn[0]

    def greedy(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Return the most likely legal action of each row."""
        if self.is_continuous:
            return full_precision(self.means(logits))
        heads = [head.argmax(0) for head in self.heads(logits, mask)]
        best = torch.stack(heads, 1) if self.shape else heads[0]
        return self.join(best, full_precision(self.means(logits))) if self.continuous else best

    def log_prob(self, logits: Tensor, actions: Tensor, mask: Tensor | None, logstd: Tensor | None) -> Tensor:
        """Return (n,) log-probabilities of ``actions``, summed over heads.

        Those of squashed numbers are the normal's, of u: the density of what the environment gets has one more factor,
        which depends on u alone, so that it cancels in every ratio of two policies.
        """
        logstd = self.log_deviations(logits, logstd)
        if logstd is None:
            return self._log_prob_of_choices(logits, actions, mask)
        if not self.continuous:
            return _log_prob_normal(self.means(logits), actions, logstd)
        choices, numbers = self.split(actions)
        return self._log_prob_of_choices(logits, choices, mask) + _log_prob_normal(self.means(logits), numbers, logstd)

    def _log_prob_of_choices(self, logits: Tensor, choices: Tensor, mask: Tensor | None) -> Tensor:
        columns = choices.reshape(len(choices), -1).t()
        heads = zip(self.heads(logits, mask), columns, strict=True)
        return sum((torch.log_softmax(z, 0).gather(0, a[None])[0] for z, a in heads), start=logits.new_zeros(()))

    def to_env(self, actions: Tensor) -> Tensor:
        """Return the copy of ``actions`` that the environment gets: clipped to their bounds, or squashed into them."""
        if self.low is None or self.high is None:
            return actions
        low, high = actions.new_tensor(self.low), actions.new_tensor(self.high)
        if self.is_squashed and self.continuous:
            choices, numbers = self.split(actions)
            actions = self.join(choices, self._squash(numbers))
        elif self.is_squashed:
            actions = self._squash(actions)
        return torch.clamp(actions, low, high)  # squashed ones, too: rounding may lead out of the bounds

    def _squash(self, numbers: Tensor) -> Tensor:
        low, high = (numbers.new_tensor(bound) for bound in self.continuous_bounds)
        return low + (high - low) * (torch.tanh(numbers) + 1.0) / 2.0

    def log_stretch(self, numbers: Tensor) -> Tensor:
        """Return (n,) for (n, D) of u: the logarithm of the volume that a squashed action has for each of u.

        It is the sum of log((high - low) / 2) + log(1 - tanh(u)^2), the latter in a form without cancellation.
        Source: Haarnoja et al. 2018, arXiv:1801.01290, appendix C.
        """
        low, high = (numbers.new_tensor(bound) for bound in self.continuous_bounds)
        slope = 2.0 * (math.log(2.0) - numbers - torch.nn.functional.softplus(-2.0 * numbers))
        return (slope + torch.log((high - low) / 2.0)).sum(1)


def _draw_normal(means: Tensor, logstd: Tensor, noise: Tensor) -> Tensor:
    return torch.addcmul(full_precision(means), logstd.exp(), noise)


def _log_prob_normal(means: Tensor, actions: Tensor, logstd: Tensor) -> Tensor:
    deviations = (actions - full_precision(means)) * torch.exp(-logstd)
    return (-0.5 * deviations.square() - HALF_LOG_2PI - logstd).sum(-1)
