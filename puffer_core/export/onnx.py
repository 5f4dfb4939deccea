"""A network as one ONNX file."""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from puffer_core.errors import PluginError, PufferError
from puffer_core.export.description import describe
from puffer_core.export.network import ActingStep
from puffer_core.rl.agent import Agent

OPSET = 17
"""Version of the operators: that of ONNX 1.12, which every runtime of today reads."""
EXAMPLE_ROWS = 3


def write_onnx(agent: Agent, path: Path, network: Mapping[str, Any]) -> list[Path]:
    """Write one acting step of an agent; return the file written.

    Inputs and outputs are those of `ActingStep`, with any number of rows; what else one needs to act is JSON in the
    metadata entry ``puffer``.

    Raises:
        PluginError: If the package onnx is not installed.
        PufferError: If the network has an operation that ONNX lacks.
    """
    if importlib.util.find_spec("onnx") is None:
        raise PluginError("export to ONNX needs the package onnx, which is not installed", hint=_INSTALL)
    import onnx

    step = ActingStep(agent)
    model = onnx.load_model_from_string(_trace(step))
    entry = model.metadata_props.add()
    entry.key, entry.value = "puffer", json.dumps(describe(agent, step, network))
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return [path]


def _trace(step: ActingStep) -> bytes:
    """Return the model as torch writes it, by recording one step."""
    names = [port.name for port in step.inputs], [port.name for port in step.outputs]
    axes = {port.name: {port.axis: "rows"} for port in (*step.inputs, *step.outputs)}
    example = step.example(EXAMPLE_ROWS, torch.Generator().manual_seed(0))
    # The exporter that records is the one that every torch since 2.2 has.
    options: dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # it warns of itself, and of shapes it takes for constants: tests hold those
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        try:
            torch.onnx.export(
                step,
                example,
                buffer,  # type: ignore[arg-type]  # a file object is taken, too
                input_names=names[0],
                output_names=names[1],
                dynamic_axes=axes,
                opset_version=OPSET,
                **options,
            )
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            reason = " ".join(str(error).split())[:300]
            msg = f"this network can't be written as ONNX: {reason}"
            raise PufferError(msg, hint="`--format flat` writes the weights alone") from error
    return buffer.getvalue()


_INSTALL = "pip install 'puffer-core[onnx]'"
