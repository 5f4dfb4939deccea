"""Exported networks: their outputs are those of torch, on random inputs, for every kind of action and core."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from puffer_core import train
from puffer_core.cli.main import main
from puffer_core.config.schema import PolicyConfig
from puffer_core.emulation.spaces import FlatBox, action_codec, observation_codec
from puffer_core.errors import OptionError, PluginError, RunError
from puffer_core.export import export
from puffer_core.export.flat import write_flat
from puffer_core.export.network import ActingStep
from puffer_core.export.onnx import write_onnx
from puffer_core.policies import make_policy
from puffer_core.policies.actions import MASKED_LOGIT
from puffer_core.rl.agent import Agent, load

ROWS = 1000
VECTOR = spaces.Box(-1.0, 1.0, (5,), np.float32)
ACTIONS: dict[str, Any] = {
    "discrete": spaces.Discrete(4),
    "multidiscrete": spaces.MultiDiscrete([3, 2, 5]),
    "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "mixed": spaces.Tuple((spaces.Discrete(3), spaces.Box(-2.0, 2.0, (2,), np.float32), spaces.Discrete(2))),
}


def agent_of(observed: Any, acted: Any, types: tuple[int, ...] = (), **policy: Any) -> tuple[Agent, dict[str, Any]]:
    """Return an agent that has not learnt, but whose numbers are not those of a start, and what its network is."""
    config = PolicyConfig(**{"hidden_size": 24, **policy})
    generator = torch.Generator().manual_seed(3)
    made = make_policy(config, observed, acted, generator, None, types)
    with torch.no_grad():
        for tensor in made.parameters():
            tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.1)
    if made.normalizer is not None:
        made.normalizer.update(torch.randn(100, *observed.shape, generator=generator) * 3.0 + 1.0)
    return Agent(made, observed, acted, Path("7"), step=7), {"policy": asdict(config), "policy_options": None}


def run_onnx(path: Path, step: ActingStep, inputs: tuple[torch.Tensor, ...]) -> list[NDArray[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    assert [port.name for port in session.get_inputs()] == [port.name for port in step.inputs]
    assert [port.name for port in session.get_outputs()] == [port.name for port in step.outputs]
    feeds = {port.name: tensor.numpy() for port, tensor in zip(step.inputs, inputs, strict=True)}
    found: list[NDArray[Any]] = session.run(None, feeds)
    return found


def torch_step(agent: Agent, step: ActingStep, inputs: tuple[torch.Tensor, ...]) -> dict[str, NDArray[Any]]:
    """Compute what is exported with the agent's own functions."""
    given = dict(zip((port.name for port in step.inputs), inputs, strict=True))
    mask, policy = given.get("action_mask"), agent.policy
    state = given.get("state", policy.initial_state(ROWS)).clone()
    if "resets" in given:
        state[:, given["resets"]] = 0.0
    which = {"agents": given["agents"]} if "agents" in given else {}
    with torch.no_grad():
        logits, values, after = policy.forward_eval(given["observations"], state, **which)
    others: Any = {key: tensor.numpy() for key, tensor in which.items()}
    actions, _ = agent.act(
        given["observations"].numpy(), state, greedy=True, action_mask=None if mask is None else mask.numpy(), **others
    )
    if mask is not None:
        width = policy.layout.mask_width
        logits = torch.cat([logits[:, :width].masked_fill(mask == 0, MASKED_LOGIT), logits[:, width:]], 1)
    return {"logits": logits.numpy(), "actions": actions, "values": values.numpy(), "new_state": after.numpy()}


def assert_same(agent: Agent, network: Mapping[str, Any], folder: Path) -> None:
    (path,) = write_onnx(agent, folder / "network.onnx", network)
    step = ActingStep(agent)
    inputs = step.example(ROWS, torch.Generator().manual_seed(1))
    wanted = torch_step(agent, step, inputs)
    for port, found in zip(step.outputs, run_onnx(path, step, inputs), strict=True):
        expected = wanted[port.name].reshape(found.shape)
        if port.name == "actions" and found.dtype == np.int64:
            assert (found == expected).mean() > 0.995, "greedy choices differ where two logits are as good as equal"
        else:
            size = np.abs(expected[expected > MASKED_LOGIT]).max(initial=1.0)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * size, err_msg=port.name)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("kind", ACTIONS)
def test_onnx_agrees_with_torch_for_every_core_and_action(core: str, kind: str, tmp_path: Path) -> None:
    acted = ACTIONS[kind] if kind != "mixed" else action_codec(ACTIONS[kind]).space
    agent, network = agent_of(VECTOR, acted, core=core, num_layers=2, normalize_observations=True)
    assert_same(agent, network, tmp_path)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_onnx_agrees_with_torch_for_one_network_per_kind_of_agent(core: str, kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"core": core, "normalize_observations": True}
    agent, network = agent_of(VECTOR, ACTIONS[kind], (0, 1, 0, 2), **options)
    assert ActingStep(agent).inputs[-1].name == "agents"
    assert_same(agent, network, tmp_path)


@pytest.mark.parametrize("kind", ["box", "mixed"])
def test_onnx_agrees_with_torch_for_squashed_actions(kind: str, tmp_path: Path) -> None:
    agent, network = agent_of(VECTOR, action_codec(ACTIONS[kind]).space, box="squashed")
    assert_same(agent, network, tmp_path)


@pytest.mark.parametrize(
    ("name", "observed"),
    [
        ("cnn", spaces.Box(0, 255, (36, 36, 3), np.uint8)),
        ("impala", spaces.Box(0, 255, (12, 12, 1), np.uint8)),
        ("attention", spaces.Box(-1.0, 1.0, (6, 4), np.float32)),
        ("mlp", spaces.Box(0, 9, (4, 2), np.int8)),
    ],
)
def test_onnx_agrees_with_torch_for_every_encoder(name: str, observed: Any, tmp_path: Path) -> None:
    agent, network = agent_of(observed, ACTIONS["discrete"], name=name, core="mingru")
    assert_same(agent, network, tmp_path)


def test_onnx_says_how_to_act(tmp_path: Path) -> None:
    import onnx

    agent, network = agent_of(VECTOR, ACTIONS["unbounded"])
    (path,) = write_onnx(agent, tmp_path / "network.onnx", network)
    (entry,) = onnx.load(path).metadata_props
    about = json.loads(entry.value)
    assert (entry.key, about["step"], about["policy"]["hidden_size"]) == ("puffer", 7, 24)
    assert about["actions"]["continuous"] == [0, 1]
    assert about["actions"]["low"] == [None, None]
    assert about["actions"]["logstd"] == agent.policy.logstd.flatten().tolist()  # type: ignore[union-attr]


def test_export_refuses_bytes_of_nested_observations(tmp_path: Path) -> None:
    nested = spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3)})
    agent, network = agent_of(observation_codec(nested).space, ACTIONS["discrete"])
    assert isinstance(agent.observation_space, FlatBox)
    with pytest.raises(OptionError, match="nested observations of several types"):
        write_onnx(agent, tmp_path / "network.onnx", network)


def test_onnx_names_the_extra_where_the_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(PluginError, match="needs the package onnx") as caught:
        write_onnx(agent_of(VECTOR, ACTIONS["box"])[0], tmp_path / "network.onnx", {})
    assert caught.value.hint == "pip install 'puffer-core[onnx]'"


def read_flat(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """The reader of docs/export.md."""
    about = json.loads(Path(f"{path}.json").read_text())
    numbers = np.fromfile(path, "<f4")
    tensors = {}
    for entry in about["tensors"]:
        size = int(np.prod(entry["shape"]))
        tensors[entry["name"]] = numbers[entry["offset"] : entry["offset"] + size].reshape(entry["shape"])
    return about, tensors


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return 1.0 / (1.0 + np.exp(-x))


def act_flat(
    about: dict[str, Any], tensors: dict[str, NDArray[Any]], x: NDArray[Any], state: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits and values side by side, and the state, of a network with the encoder mlp, in numpy alone."""
    if "normalizer.shift" in tensors:
        x = np.clip((x - tensors["normalizer.shift"]) * tensors["normalizer.scale"], -10, 10)
    x = x @ tensors["encoder.weight"].T + tensors["encoder.bias"]
    after = []
    if about["policy"]["core"] == "none":
        x = np.tanh(x)
    for layer in range(about["policy"]["num_layers"]):
        y = x @ tensors[f"layers.{layer}.weight"].T if about["policy"]["core"] != "lstm" else x
        if about["policy"]["core"] == "mingru":
            a, g, p = np.split(y, 3, 1)
            h = state[layer] + sigmoid(g) * (np.where(a >= 0, a + 0.5, sigmoid(a)) - state[layer])
            x = sigmoid(p) * h + (1 - sigmoid(p)) * x
            after.append(h)
        elif about["policy"]["core"] == "lstm":
            h, c = np.split(state[layer], 2, 1)
            gates = np.hstack([x, h]) @ tensors[f"layers.{layer}.weight"].T + tensors[f"layers.{layer}.bias"]
            i, f, g, o = np.split(gates, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            x = sigmoid(o) * np.tanh(c)
            after.append(np.hstack([x, c]))
        else:
            x = np.tanh(y + tensors[f"layers.{layer}.bias"])
    return x @ tensors["decoder.weight"].T + tensors["decoder.bias"], np.array(after)


@pytest.mark.parametrize("core", ["none", "mingru", "lstm"])
@pytest.mark.parametrize("width", [24, 13])
def test_flat_agrees_with_torch_also_for_odd_widths_A5(core: str, width: int, tmp_path: Path) -> None:
    agent, network = agent_of(
        VECTOR,
        ACTIONS["box"],
        core=core,
        num_layers=2,
        normalize_observations=True,
        activation="tanh",
        hidden_size=width,
    )
    path, _ = write_flat(agent, tmp_path / "network.bin", network)
    about, tensors = read_flat(path)
    x = torch.randn(ROWS, 5)
    state = torch.rand(agent.policy.initial_state(ROWS).shape)
    logits, values, after = agent.policy.forward_eval(x, state)
    out, new_state = act_flat(about, tensors, x.numpy(), state.numpy())
    np.testing.assert_allclose(out, torch.cat([logits, values[:, None]], 1).detach(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(new_state.reshape(after.shape), after.detach(), rtol=0, atol=1e-5)


def test_flat_file_has_no_gaps(tmp_path: Path) -> None:
    agent, network = agent_of(VECTOR, ACTIONS["discrete"], core="mingru")
    path, sidecar = write_flat(agent, tmp_path / "network.bin", network)
    about = json.loads(sidecar.read_text())
    assert (about["format"], about["version"], about["file"], about["dtype"]) == ("puffer-flat", 1, path.name, "<f4")
    ends = [entry["offset"] + int(np.prod(entry["shape"])) for entry in about["tensors"]]
    assert [entry["offset"] for entry in about["tensors"]] == [0, *ends[:-1]]
    assert about["numbers"] * 4 == ends[-1] * 4 == path.stat().st_size
    assert [entry["name"] for entry in about["tensors"]] == list(agent.policy.state_dict())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs")
    options = {"runs_dir": str(folder), "train.total_timesteps": "1024", "vec.num_envs": "4", "vec.backend": "serial"}
    return folder, train("gym/CartPole-v1", options=options)


@pytest.mark.parametrize("kind", ["onnx", "flat"])
def test_export_takes_a_run_a_checkpoint_an_id_and_latest(
    trained: tuple[Path, dict[str, Any]], kind: str, tmp_path: Path
) -> None:
    folder, result = trained
    run = Path(result["run_dir"])
    for k, source in enumerate((run, result["checkpoint"], run.name, "latest")):
        output = tmp_path / f"{k}.file"
        found = export(source, kind, output, env="gym/CartPole-v1", runs_dir=str(folder))
        assert found["checkpoint"] == str(load(result["checkpoint"]).path)
        assert found["files"][0] == str(output)
        assert output.read_bytes() == (tmp_path / "0.file").read_bytes()


def test_export_command_prints_the_files(
    trained: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", trained[1]["run_dir"], "--format", "flat", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "flat"
    path = Path(found["files"][0])
    assert path.parent == Path(trained[1]["run_dir"]) / "export"
    about, _ = read_flat(path)
    assert about["step"] == 1024


class Own(torch.nn.Module):
    """A network of a person's own, without a state."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.body = torch.nn.Linear(env.single_observation_space.shape[0], 8)
        self.head = torch.nn.Linear(8, env.single_action_space.n + 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.head(torch.relu(self.body(observations)))
        return out[:, :-1], out[:, -1:]


def test_export_takes_a_network_of_ones_own(tmp_path: Path) -> None:
    options = {"runs_dir": str(tmp_path), "train.total_timesteps": "512", "vec.num_envs": "4", "vec.backend": "serial"}
    result = train("gym/CartPole-v1", options=options, policy=Own)
    (path,) = export(result["checkpoint"], policy=Own)["files"]
    agent = load(result["checkpoint"], policy=Own)
    step = ActingStep(agent)
    inputs = step.example(ROWS, torch.Generator().manual_seed(1))
    logits, _, values = run_onnx(Path(path), step, inputs)
    found_logits, found_values, _ = agent.policy.forward_eval(inputs[0], agent.initial_state(ROWS))
    mask = inputs[-1] == 0
    np.testing.assert_allclose(logits, found_logits.detach().masked_fill(mask, MASKED_LOGIT), rtol=0, atol=1e-5)
    np.testing.assert_allclose(values, found_values.detach(), rtol=0, atol=1e-5)


def test_export_says_what_is_wrong(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    run = trained[1]["run_dir"]
    with pytest.raises(OptionError, match="`--format tflite` is not one of onnx, flat"):
        export(run, "tflite")
    with pytest.raises(RunError, match="there are no runs"):
        export("latest", runs_dir=str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't write"):
        export(run, "flat", tmp_path / "file" / "network.bin")
