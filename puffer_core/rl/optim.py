"""Muon and Adam over one flat gradient (algorithms page, section 5).

The gradient of all parameters is one flat array, so that the norm, the momentum and a sum over ranks are single
operations; what is specific to a parameter works on views of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from puffer_core.config.schema import TrainConfig
from puffer_core.errors import RunError

NEWTON_SCHULZ = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""Coefficients (a, b, c) of the five quintic steps; singular values land within about 3 % of 1."""


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return the (R, C) ``matrix`` with all singular values near 1; zero stays zero.

    Source: Newton-Schulz iteration, X <- a X + (b S + c S^2) X with S = X X', on the shorter side.
    """
    x: Tensor = matrix / matrix.norm().clamp(min=1e-7)
    if matrix.shape[0] > matrix.shape[1]:
        x = x.t()
    for a, b, c in NEWTON_SCHULZ:
        square = torch.mm(x, x.t())
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.t() if matrix.shape[0] > matrix.shape[1] else x


class Optimizer(ABC):
    """A flat gradient, its clipping, and the update of named parameters from it."""

    slots: tuple[str, ...] = ()
    """Names of the flat state arrays."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], weight_decay: float = 0.0) -> None:
        self.steps = 0
        self._parameters = dict(parameters)
        self._weight_decay = weight_decay
        self._sizes = [p.numel() for p in self._parameters.values()]
        first = next(iter(self._parameters.values()))
        self.gradient = first.new_zeros(sum(self._sizes))
        self.state = {slot: torch.zeros_like(self.gradient) for slot in self.slots}

    def gradient_of(self, loss: Tensor) -> Tensor:
        """Return the flat gradient of ``loss``; zero for parameters it does not depend on."""
        gradients = torch.autograd.grad(loss, list(self._parameters.values()), materialize_grads=True)
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def clip(self, max_norm: float) -> float:
        """Scale the gradient down to ``max_norm`` where it is longer; return its length before."""
        norm = float(self.gradient.norm())
        if norm == math.inf and (largest := float(self.gradient.abs().max())) < math.inf:
            # The squares are too large for the dtype, the gradient is not: its length is taken in units of its largest.
            norm = float(self.gradient.div_(largest).norm())
            self.gradient.mul_(min(largest, max_norm / norm))
            return largest * norm
        if norm > max_norm:
            self.gradient.mul_(max_norm / (norm + 1e-6))
        return norm

    def first_non_finite(self) -> str | None:
        """Return the name of the first parameter whose gradient is not finite."""
        parts = zip(self._parameters, self._split(self.gradient), strict=True)
        return next((name for name, (_, part) in parts if not bool(part.isfinite().all())), None)

    def _split(self, flat: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
        parts = zip(self._parameters.values(), torch.split(flat, self._sizes), strict=True)
        return [(parameter, part.view_as(parameter)) for parameter, part in parts]

    def step(self, learning_rate: float) -> None:
        """Update the parameters from the gradient."""
        self.steps += 1
        with torch.no_grad():
            for parameter, update, scale in self._updates():
                if self._weight_decay:
                    parameter.mul_(1.0 - learning_rate * self._weight_decay)
                parameter.add_(update, alpha=-learning_rate * scale)

    @abstractmethod
    def _updates(self) -> Iterator[tuple[nn.Parameter, Tensor, float]]:
        """Advance the state and yield each parameter, the direction to subtract, and a factor on the learning rate."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state arrays split by parameter: ``momentum.encoder.weight`` and so on."""
        names = self._parameters
        return {
            f"{slot}.{name}": part
            for slot in self.slots
            for name, (_, part) in zip(names, self._split(self.state[slot]), strict=True)
        }

    def load_state_dict(self, arrays: Mapping[str, Tensor], steps: int) -> None:
        """Take back what `state_dict` returned.

        Raises:
            RunError: As `require_fit`.
        """
        self.require_fit(arrays)
        for key, part in self.state_dict().items():
            part.copy_(arrays[key])
        self.steps = steps

    def require_fit(self, arrays: Mapping[str, Tensor]) -> None:
        """Check that `load_state_dict` can take back these arrays.

        Raises:
            RunError: If arrays are missing, left over, or of another shape.
        """
        own = self.state_dict()
        if own.keys() != arrays.keys() or any(own[key].shape != arrays[key].shape for key in own):
            raise RunError("the optimiser's state in the checkpoint does not fit this network and optimiser")


class Muon(Optimizer):
    """Momentum, orthogonalised for every parameter of two or more axes, plain for the rest.

    Args:
        momentum: Heavy-ball decay mu; the update looks ahead as Nesterov's does.
    """

    slots = ("momentum",)

    def __init__(self, parameters: Mapping[str, nn.Parameter], momentum: float, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, weight_decay)
        self._mu = momentum

    def _updates(self) -> Iterator[tuple[nn.Parameter, Tensor, float]]:
        """With u = g + mu m: s NS(u), s = sqrt(max(1, rows / columns)), for matrices; u for the rest."""
        momentum = self.state["momentum"].mul_(self._mu).add_(self.gradient)
        for parameter, update in self._split(torch.add(self.gradient, momentum, alpha=self._mu)):
            if parameter.ndim < 2:
                yield parameter, update, 1.0
                continue
            matrix = update.flatten(1)
            scale = math.sqrt(max(1.0, matrix.shape[0] / matrix.shape[1]))
            yield parameter, orthogonalize(matrix).reshape(parameter.shape), scale


class Adam(Optimizer):
    """Adam with bias correction; weight decay is decoupled.

    Args:
        betas: Decay of the first and the second moment.
        eps: Added to the root of the second moment.
    """

    slots = ("mean", "square")

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, weight_decay)
        self._betas = betas
        self._eps = eps

    def _updates(self) -> Iterator[tuple[nn.Parameter, Tensor, float]]:
        beta1, beta2 = self._betas
        mean = self.state["mean"].lerp_(self.gradient, 1.0 - beta1)
        square = self.state["square"].mul_(beta2).addcmul_(self.gradient, self.gradient, value=1.0 - beta2)
        root = square.sqrt().div_(math.sqrt(1.0 - beta2**self.steps)).add_(self._eps)
        for parameter, update in self._split(mean / root):
            yield parameter, update, 1.0 / (1.0 - beta1**self.steps)


def make_optimizer(policy: nn.Module, config: TrainConfig) -> Optimizer:
    """Return the optimiser that ``config`` names, over every trainable parameter of ``policy``."""
    parameters = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    if config.optimizer == "adam":
        return Adam(parameters, (config.adam_beta1, config.adam_beta2), config.adam_eps, config.weight_decay)
    return Muon(parameters, config.momentum, config.weight_decay)
