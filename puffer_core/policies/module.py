"""A user's own `torch.nn.Module` as a policy: `ModulePolicy` finds out how it wants to be called.

It may define ``forward_eval(observations, state)``, ``forward(observations, state)`` or ``forward(observations)``, and
returns logits, values and, if it likes, a new state. A module with ``encode_observations`` and ``decode_actions`` may
have a recurrent core of this package between them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import EnvError, OptionError, ShapeError
from puffer_core.policies.actions import ActionLayout, full_precision
from puffer_core.policies.lstm import LSTMLayer
from puffer_core.policies.memory import Memory, find_memory
from puffer_core.policies.mingru import MinGRULayer
from puffer_core.policies.nativize import Nativizer, torch_dtype
from puffer_core.policies.outputs import read_output


@dataclass(frozen=True)
class PolicyEnv:
    """What a factory of policies is called with: the spaces of one agent, as an environment has them.

    Attributes:
        num_agents: Rows; 1 where a trained policy is loaded, since any number of rows may be played then.
    """

    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    num_agents: int = 1

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The same as `single_observation_space`."""
        return self.single_observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The same as `single_action_space`."""
        return self.single_action_space


class ModulePolicy(nn.Module):
    """Adapts a module to what rollout, trainer and agent ask of a policy.

    It is called once or twice with zeros when it is adapted. A recurrent one learns step by step, with its state zeroed
    where episodes begin: correct, and several times slower than a built-in core, which takes a segment at once. It
    always acts and learns as in ``eval()``: with dropout or statistics of the batch, the ratio of two policies would be
    one of two random networks.

    Args:
        module: The network. ``nativize = True`` asks for nested observations; else it gets flat rows.
        observation_space: Of one agent.
        action_space: Of one agent.
        box: As ``policy.box``.

    Attributes:
        logstd: (1, D) learned log-deviations, where the module returns means only; else None.

    Raises:
        ShapeError: If what the module returns does not fit; the text says what came and what is wanted.
        EnvError: If it can't be called, with what it raised.
    """

    normalizer = None

    def __init__(
        self,
        module: nn.Module,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        box: str = "gaussian",
    ) -> None:
        super().__init__()
        self.name, self.module = type(module).__name__, module
        self.layout = ActionLayout.from_space(action_space, box)
        self._native = _nativizer(module, observation_space)
        self._methods = _methods(module)  # acting, learning
        self._compiled: tuple[Callable[..., Any], ...] = ()
        self._takes_state = [_takes_state(_method(module, name)) for name in self._methods]
        self.eval()
        self.memory = self._try(observation_space)
        learned = self.layout.deviations and not self.layout.deviates_by_state
        self.logstd = nn.Parameter(torch.zeros(1, self.layout.deviations)) if learned else None
        self.register_buffer("_place", torch.zeros(()), persistent=False)

    def train(self, mode: bool = True) -> ModulePolicy:
        """Stay as in `eval`; recurrent layers of torch alone are switched, which a GPU asks for and changes nothing."""
        super().train(False)
        for part in self.module.modules():
            if isinstance(part, nn.RNNBase) and not part.dropout:
                part.training = True
        return self

    def _try(self, space: spaces.Space[Any]) -> Memory:
        """Call the module with zeros, read its layout from what comes back, and return what it remembers."""
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))

        def call(rows: int, state: Any) -> Any:
            shape: Any = space.shape
            zeros = torch.zeros(rows, *shape, dtype=torch_dtype(space.dtype), device=device)
            output = read_output(self._call(0, zeros, state), self.layout, self.name)
            if len(output.logits) != rows:
                raise ShapeError(f"the policy `{self.name}` returned {len(output.logits)} rows for {rows}")
            self.layout = replace(self.layout, deviates_by_state=output.deviates_by_state)
            return output.state

        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                hidden_size = getattr(self.module, "hidden_size", None)
                return find_memory(call, self._takes_state[0], hidden_size, self.name)
        except ShapeError:
            raise
        except Exception as error:  # whatever a user's code raises
            msg = f"the policy `{self.name}` can't be called with observations of {space}: {error}"
            hint = "it is called as forward_eval or forward, with (observations, state) or (observations)"
            raise EnvError(msg, hint=hint) from error

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have `torch.compile` take what the module is called by; names of weights stay."""
        calls = (_method(self.module, name) for name in self._methods)
        self._compiled = tuple(torch.compile(call, *args, **kwargs) for call in calls)

    def __getstate__(self) -> dict[str, Any]:
        return _without_compiled(self)

    def _call(self, kind: int, observations: Tensor, state: Any) -> Any:
        method = self._compiled[kind] if self._compiled else _method(self.module, self._methods[kind])
        seen = observations if self._native is None else self._native(observations)
        return method(seen, state) if self._takes_state[kind] else method(seen)

    def initial_state(self, rows: int) -> Tensor:
        """Return the (1, rows, W) state before the first observation, (0, rows, 0) for a feed-forward module."""
        width = self.memory.width
        return self._place.new_zeros(1 if width else 0, rows, width)  # type: ignore[operator]

    def forward_eval(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (logits (n, A), values (n,), new state) for one observation of each row."""
        handed = self.memory.unpack(state)
        output = read_output(self._call(0, observations, handed), self.layout, self.name)
        return output.logits, output.values, self.memory.pack(handed, output.state, state, self.name)

    def forward(self, observations: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits (H*S, A), values (H*S,)) of whole segments; arguments as of `Policy.forward`."""
        if not self.memory.width:
            handed = self.memory.unpack(state)
            returned = self._call(1, observations.flatten(0, 1), handed)
            output = read_output(returned, self.layout, self.name)
            return output.logits, output.values
        logits, values = [], []
        for t, seen in enumerate(observations):
            if t and bool(resets[t].any()):
                state = torch.where(resets[t][:, None], 0.0, state)
            z, v, state = self.forward_eval(seen, state)
            logits.append(z)
            values.append(v)
        return torch.cat(logits), torch.cat(values)


class CoreModule(nn.Module):
    """A user's encoder and decoder around recurrent layers of this package.

    Args:
        module: Has ``encode_observations(observations, state=None)`` to (n, D), ``decode_actions(hidden)`` to (logits,
            values), and ``hidden_size``, D.
        core: ``mingru`` or ``lstm``.
        num_layers: Layers.
        generator: Source of their initial weights.
        observation_space, action_space, box: As of `ModulePolicy`.
    """

    normalizer = None

    def __init__(
        self,
        module: nn.Module,
        core: str,
        num_layers: int,
        generator: torch.Generator,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        box: str = "gaussian",
    ) -> None:
        super().__init__()
        self.width: int = module.hidden_size  # type: ignore[assignment]
        whole = _Joined(module)
        # Whether encoder and decoder fit each other and the actions is found as for any module.
        plain = ModulePolicy(whole, observation_space, action_space, box)
        self.name, self.module, self._joined = type(module).__name__, module, (whole,)
        self.layout, self.logstd, self._native = plain.layout, plain.logstd, plain._native
        self.layers = nn.ModuleList(
            LSTMLayer(self.width, True, generator) if core == "lstm" else MinGRULayer(self.width, generator)
            for _ in range(num_layers)
        )
        self._factor = 2 if core == "lstm" else 1

    def train(self, mode: bool = True) -> CoreModule:
        """Stay as in `eval`, as `ModulePolicy` does."""
        super().train(False)
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have `torch.compile` take the encoder; names of weights stay."""
        self._joined[0].compile(*args, **kwargs)

    def initial_state(self, rows: int) -> Tensor:
        """Return the (L, rows, W) state before the first observation."""
        weight: Tensor = self.layers[0].weight  # type: ignore[assignment]
        return weight.new_zeros(len(self.layers), rows, self._factor * self.width)

    def forward_eval(self, observations: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (logits (n, A), values (n,), new state) for one observation of each row."""
        x, after = self._encode(observations), []
        for layer, before in zip(self.layers, state, strict=True):
            x, new = layer.step(x, before)  # type: ignore[operator]
            after.append(new)
        return (*self._decode(x), torch.stack(after))

    def forward(self, observations: Tensor, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (logits (H*S, A), values (H*S,)) of whole segments; arguments as of `Policy.forward`."""
        horizon, segments = observations.shape[:2]
        x = self._encode(observations.flatten(0, 1)).view(horizon, segments, self.width)
        indices = resets[1:].flatten().nonzero().squeeze(1) + segments
        for layer, entering in zip(self.layers, state, strict=True):
            x = layer(x, entering, indices)
        return self._decode(x.view(horizon * segments, self.width))

    def _encode(self, observations: Tensor) -> Tensor:
        seen = observations if self._native is None else self._native(observations)
        return full_precision(self._joined[0].encode(seen))

    def _decode(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        output = read_output(self.module.decode_actions(hidden), self.layout, self.name)  # type: ignore[operator]
        return output.logits, output.values


class _Joined(nn.Module):
    """An encoder and decoder without anything between them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.nativize = getattr(module, "nativize", False)
        self._compiled: tuple[Callable[..., Any], ...] = ()  # a tuple, since what is in it may be a module
        self._has_state = _takes_state(_method(module, "encode_observations"))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        self._compiled = (torch.compile(_method(self.module, "encode_observations"), *args, **kwargs),)

    def __getstate__(self) -> dict[str, Any]:
        return _without_compiled(self)

    def encode(self, observations: Any) -> Tensor:
        encoder = self._compiled[0] if self._compiled else _method(self.module, "encode_observations")
        hidden: Tensor = encoder(observations, None) if self._has_state else encoder(observations)
        return hidden

    def forward(self, observations: Any) -> Any:
        return self.module.decode_actions(self.encode(observations))  # type: ignore[operator]


def adapt(
    module: Any,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    core: str = "none",
    num_layers: int = 1,
    box: str = "gaussian",
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return ``module`` as a policy: as it is if it is one, else adapted.

    Args:
        module: A network.
        observation_space: Of one agent.
        action_space: Of one agent.
        core: As ``policy.core``, for a module that has an encoder and a decoder.
        num_layers: Of that core.
        box: As ``policy.box``.
        generator: Source of the weights of a core of this package; None draws them from torch's own.

    Raises:
        OptionError: If it is no network.
        ShapeError, EnvError: As `ModulePolicy`.
    """
    if not isinstance(module, nn.Module):
        msg = f"a policy is a torch.nn.Module, this is {module!r}"
        raise OptionError(msg, hint="give a class or function that is called with an environment and returns a module")
    if all(hasattr(module, name) for name in ("layout", "initial_state", "forward_eval")):
        return module
    has_parts = all(hasattr(module, name) for name in ("encode_observations", "decode_actions", "hidden_size"))
    if has_parts and core in ("mingru", "lstm"):
        source = generator or torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        return CoreModule(module, core, num_layers, source, observation_space, action_space, box)
    return ModulePolicy(module, observation_space, action_space, box)


def adapt_to(env: Any, policy: Any, config: PolicyConfig, generator: torch.Generator) -> nn.Module:
    """Return ``policy`` as a policy for the agents of ``env``: a policy, a module, or a factory of one.

    Args:
        env: Has ``single_observation_space``, ``single_action_space`` and ``num_agents``.
        policy: What is there already is taken; a class or function is called with a `PolicyEnv`.
        config: Its core, layers and ``box`` count.
        generator: Its seed is that of torch's own generator while a factory is called, and of a core.

    Raises:
        OptionError, ShapeError, EnvError: As `adapt`.
    """
    spaces_ = env.single_observation_space, env.single_action_space
    if not isinstance(policy, nn.Module) and callable(policy):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            policy = policy(PolicyEnv(*spaces_, env.num_agents))
    return adapt(policy, *spaces_, core=config.core, num_layers=config.num_layers, box=config.box, generator=generator)


def module_name(policy: nn.Module) -> str | None:
    """Return the class of the user's module inside a policy, None for a network of this package."""
    return policy.name if isinstance(policy, ModulePolicy | CoreModule) else None


def _nativizer(module: nn.Module, space: spaces.Space[Any]) -> Nativizer | None:
    return Nativizer(space) if getattr(module, "nativize", False) and isinstance(space, FlatBox) else None


def _methods(module: nn.Module) -> tuple[str, str]:
    """Return the names that a module is called by for acting and for learning from all steps at once."""
    has_forward = getattr(type(module), "forward", None) is not nn.Module.forward
    can_act = hasattr(module, "forward_eval")
    if not has_forward and not can_act:
        msg = f"the policy `{type(module).__name__}` has neither `forward` nor `forward_eval`"
        raise ShapeError(msg, hint="define forward(self, observations), which returns (logits, values)")
    return "forward_eval" if can_act else "forward", "forward" if has_forward else "forward_eval"


def _method(module: nn.Module, name: str) -> Callable[..., Any]:
    """Return what is called by ``name``; the module itself for ``forward``, so that its hooks run."""
    method: Callable[..., Any] = module if name == "forward" else getattr(module, name)
    return method


def _without_compiled(module: nn.Module) -> dict[str, Any]:
    """Return what a copy of ``module`` is made from: what is compiled would go on with the weights of the original."""
    state: dict[str, Any] = nn.Module.__getstate__(module)  # type: ignore[no-untyped-call]
    return {**state, "_compiled": ()}


def _takes_state(call: Callable[..., Any]) -> bool:
    """Whether a second argument may be given by position."""
    method = call.forward if isinstance(call, nn.Module) else call
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in inspect.signature(method).parameters.values()) > 1
