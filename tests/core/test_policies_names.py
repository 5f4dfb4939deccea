"""K05: the weights of every encoder and core have plain names, whatever wraps the policy, and load strictly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from puffer_core import policies
from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox
from puffer_core.errors import RunError
from puffer_core.policies import make_policy
from puffer_core.rl import checkpoint

SPACES: dict[str, spaces.Box] = {
    "mlp": Box(-1, 1, (5,)),
    "cnn": Box(0, 255, (36, 36, 3), np.uint8),
    "impala": Box(0, 255, (8, 8, 3), np.uint8),
    "attention": Box(-1, 1, (4, 3)),
    "multi-input": FlatBox(Dict({"image": Box(0, 255, (9, 9, 3), np.uint8), "choice": Discrete(3)})),
}


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    """A process group of this process alone, for DistributedDataParallel."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def build(name: str = "mlp", core: str = "mingru", seed: int = 0) -> Any:
    config = PolicyConfig(name=name, core=core, hidden_size=8, num_layers=1)  # type: ignore[arg-type]
    return make_policy(config, SPACES[name], Discrete(2), torch.Generator().manual_seed(seed))


class Nested(nn.Module):
    """A policy with a submodule that is really called ``module``."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(3, 2)
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.module(x))
        return out


def wrapped(policy: nn.Module, kind: str) -> nn.Module:
    if kind in ("ddp", "both"):
        policy = nn.parallel.DistributedDataParallel(policy)
    return torch.compile(policy, backend="eager") if kind in ("compile", "both") else policy


KINDS = ("plain", "compile", "ddp", "both")


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("saved_as", KINDS)
def test_k05_weights_saved_under_any_wrapper_load_under_every_other(saved_as: str, tmp_path: Path) -> None:
    for make in (Nested, build):
        policy = make()
        file = tmp_path / "model.safetensors"
        save_file(checkpoint.plain(wrapped(policy, saved_as)).state_dict(), file)
        assert set(load_file(file)) == set(policy.state_dict())
        for kind in KINDS:
            other = make()
            for parameter in other.parameters():
                parameter.data += 1.0
            checkpoint.load_model(wrapped(other, kind), load_file(file), file)
            assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), other.parameters(), strict=True))


def test_k05_a_missing_name_is_an_error_even_under_a_wrapper(tmp_path: Path) -> None:
    policy = Nested()
    model = {name.removeprefix("module."): tensor for name, tensor in policy.state_dict().items()}
    with pytest.raises(RunError, match=r"`bias` is \(2,\) there, missing here"):
        checkpoint.load_model(wrapped(policy, "compile"), model, tmp_path)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("name", SPACES)
def test_every_encoder_and_core_names_its_weights_plainly_and_loads_them(name: str, core: str, tmp_path: Path) -> None:
    first, second = build(name, core, 1), build(name, core, 2)
    model = first.state_dict()
    assert {key.partition(".")[0] for key in model} == {"encoder", "layers", "decoder"}
    save_file(model, tmp_path / "m")
    checkpoint.load_model(second, load_file(tmp_path / "m"), tmp_path)
    rows = torch.from_numpy(np.stack([SPACES[name].sample() for _ in range(3)]))
    state = first.initial_state(3)
    assert torch.equal(first.forward_eval(rows, state)[0], second.forward_eval(rows, state)[0])
    with pytest.raises(RunError, match="missing there"):
        checkpoint.load_model(second, dict(list(model.items())[1:]), tmp_path)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("name", SPACES)
def test_t05_every_encoder_and_core_trains_on_what_it_acted_with(name: str, core: str) -> None:
    policy, space = build(name, core), SPACES[name]
    space.seed(4)
    rows = torch.from_numpy(np.stack([space.sample() for _ in range(12)])).view(6, 2, *space.shape)
    resets = torch.rand(6, 2, generator=torch.Generator().manual_seed(1)) < 0.3
    state = entering = policy.initial_state(2)
    logits, values = policy(rows, entering, resets)
    for t in range(6):
        if t > 0:
            state = torch.where(resets[t, :, None], 0.0, state)
        acted, value, state = policy.forward_eval(rows[t], state)
        assert torch.allclose(logits.view(6, 2, -1)[t], acted, atol=1e-5)
        assert torch.allclose(values.view(6, 2)[t], value, atol=1e-5)


def test_heads_start_alike_whatever_the_core_is() -> None:
    """A7: a core that starts later re-initialised the heads in PufferLib 3."""
    for core in ("none", "mingru", "lstm"):
        weight = build(core=core).decoder.weight.detach()
        assert 0.8 / 8**0.5 < float(weight.abs().max()) <= 1 / 8**0.5


def test_options_of_encoders_are_read_without_torch() -> None:
    script = "import sys, puffer_core.policies.options; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_names_of_the_package_are_all_there() -> None:
    assert all(getattr(policies, name) for name in policies.__all__)
    assert set(policies.__all__) <= set(dir(policies))
    with pytest.raises(AttributeError, match="has no attribute 'GRULayer'"):
        _ = policies.GRULayer
