"""A network as one file of numbers, for programs in C, and a text file that says where each tensor lies in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from puffer_core.errors import OptionError
from puffer_core.export.description import describe
from puffer_core.export.network import ActingStep
from puffer_core.files import replace_text
from puffer_core.policies.policy import Policy
from puffer_core.rl.agent import Agent

VERSION = 1
"""Of the format."""


def write_flat(agent: Agent, path: Path, network: Mapping[str, Any]) -> list[Path]:
    """Write the weights as little-endian float32, without padding, and ``<path>.json``; return both files.

    Raises:
        OptionError: If a tensor of the network is not of real numbers.
    """
    step = ActingStep(agent)
    tensors = flat_tensors(agent.policy)
    entries, offset = [], 0
    for name, tensor in tensors.items():
        entries.append({"name": name, "shape": list(tensor.shape), "offset": offset})
        offset += tensor.numel()
    header = {"format": "puffer-flat", "version": VERSION, "file": path.name, "dtype": "<f4", "numbers": offset}
    path.write_bytes(b"".join(tensor.numpy().astype("<f4").tobytes() for tensor in tensors.values()))
    sidecar = path.with_name(f"{path.name}.json")
    replace_text(sidecar, json.dumps({**header, **describe(agent, step, network), "tensors": entries}, indent=1) + "\n")
    return [path, sidecar]


def flat_tensors(policy: Policy) -> dict[str, Tensor]:
    """Return the tensors of a policy in the order of the file: the normaliser, then weights as in the checkpoint.

    ``normalizer.shift`` and ``normalizer.scale`` are what acting uses: (x - shift) * scale, within -10 and 10.
    """
    found: dict[str, Tensor] = {}
    if policy.normalizer is not None:
        found["normalizer.shift"], found["normalizer.scale"] = policy.normalizer._shift, policy.normalizer._scale
    found |= {name: tensor for name, tensor in policy.state_dict().items() if not name.startswith("normalizer.")}
    for name, tensor in found.items():
        if not tensor.dtype.is_floating_point:
            raise OptionError(f"the tensor {name} is {tensor.dtype}, and a flat file holds float32")
    return {name: tensor.detach().to("cpu", torch.float32).contiguous() for name, tensor in found.items()}
