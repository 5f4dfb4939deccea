"""What a user's network returns, in whatever form, as the logits and values that everything else reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal

from puffer_core.errors import ShapeError
from puffer_core.policies.actions import ActionLayout

_WANTED = "return (logits, values), or (logits, values, state) where there is a state"


@dataclass(frozen=True)
class Output:
    """One call of a network.

    Attributes:
        logits: (n, A) logits of discrete heads, then means, then log-deviations if they come from the network.
        values: (n,).
        state: What was returned as the third item, as it came; None where there was none.
        deviates_by_state: A Normal was returned.
    """

    logits: Tensor
    values: Tensor
    state: Any
    deviates_by_state: bool


def read_output(returned: Any, layout: ActionLayout, name: str) -> Output:
    """Read what the network called ``name`` has returned.

    Raises:
        ShapeError: If it is not (logits, values) or (logits, values, state), or their shapes don't fit the actions.
    """
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise ShapeError(f"the policy `{name}` returned {_describe(returned)}", hint=_WANTED)
    parts, deviations = _parts(returned[0], name)
    logits = torch.cat([*parts, *deviations], -1) if len(parts) + len(deviations) > 1 else parts[0]
    here = replace(layout, deviates_by_state=bool(deviations))
    if logits.ndim != 2 or logits.shape[1] != here.width:
        msg = f"the policy `{name}` returned logits {tuple(logits.shape)}, these actions need (n, {here.width})"
        raise ShapeError(msg, hint=_form(layout))
    values = returned[1]
    if not isinstance(values, Tensor) or values.shape not in ((len(logits),), (len(logits), 1)):
        msg = f"the policy `{name}` returned {_describe(values)} as values of {len(logits)} rows"
        raise ShapeError(msg, hint="values are a tensor (n,) or (n, 1)")
    return Output(logits, values.reshape(-1), returned[2] if len(returned) == 3 else None, bool(deviations))


def _parts(heads: Any, name: str) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors of all heads, and the log-deviations of those that are Normals."""
    parts, deviations = [], []
    for head in heads if isinstance(heads, tuple | list) else (heads,):
        found = head.base_dist if isinstance(head, Independent) else head
        if isinstance(found, Normal):
            parts.append(found.loc)
            deviations.append(found.scale.log())
        elif isinstance(found, Categorical | Tensor):
            parts.append(found if isinstance(found, Tensor) else found.logits)
        else:
            msg = f"the policy `{name}` returned {_describe(head)} among its logits"
            raise ShapeError(msg, hint="tensors, Normal and Categorical are understood")
    if not parts:
        raise ShapeError(f"the policy `{name}` returned no logits", hint=_WANTED)
    return parts, deviations


def _form(layout: ActionLayout) -> str:
    if layout.is_continuous:
        return f"return means (n, {layout.deviations}), or a Normal of that shape"
    means = f", then means (n, {len(layout.continuous)})" if layout.continuous else ""
    sizes = " + ".join(str(size) for size in layout.sizes)
    return f"one column for each choice ({sizes}){means}: one tensor, or a tuple of one tensor per head"


def _describe(thing: Any) -> str:
    if isinstance(thing, Tensor):
        return f"a tensor {tuple(thing.shape)}"
    if isinstance(thing, tuple | list):
        return f"a {type(thing).__name__} of {len(thing)}"
    return f"{type(thing).__name__}"
