"""CPU time of the LSTM beside torch's, and of the encoders.

Acting: one step of n rows beside `nn.LSTM` called with a sequence of one and beside `nn.LSTMCell`, all without
gradients; "product" is the one matrix product of n x 2D by 2D x 4D that each of them has to compute. Training: forward
and backward of whole segments; torch's can't zero the state inside them. Every number is the median of interleaved
runs, in microseconds of CPU time of one thread.

    python tests/benchmarks/bench_policies.py [--width 128] [--runs 9] [--json] [--speed-options]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from puffer_core.config.schema import PolicyConfig
from puffer_core.policies import LSTMLayer, MinGRULayer, make_policy

ROWS = (1, 8, 64, 256, 1024)
HORIZON, SEGMENTS = 64, 128
PICTURES = 256
SECONDS = 0.1
"""Of CPU time, roughly, of one run."""


def medians(calls: Mapping[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Return the median microseconds of CPU time of each call; they take turns, ``runs`` times."""
    counts: dict[str, int] = {}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in calls.items():
        call()
        started = time.process_time()
        call()
        counts[name] = max(1, int(SECONDS / max(1e-6, time.process_time() - started)))
    for _ in range(runs):
        for name, call in calls.items():
            started = time.process_time()
            for _ in range(counts[name]):
                call()
            times[name].append((time.process_time() - started) / counts[name] * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def acting(rows: int, width: int, runs: int) -> dict[str, float]:
    """Return the times of one step."""
    layer, sequence, cell = LSTMLayer(width, True, torch.Generator()), nn.LSTM(width, width), nn.LSTMCell(width, width)
    x, state = torch.randn(rows, width), torch.randn(rows, 2 * width)
    h, c = (part.contiguous() for part in state.chunk(2, 1))
    both, scaled = torch.cat([x, h], 1), layer.weight.detach().t()
    calls: dict[str, Callable[[], object]] = {
        "LSTMLayer.step": lambda: layer.step(x, state),
        "nn.LSTM": lambda: sequence(x[None], (h[None], c[None])),
        "nn.LSTMCell": lambda: cell(x, (h, c)),
        "product": lambda: torch.mm(both, scaled),
    }
    with torch.no_grad():
        return medians(calls, runs)


def training(width: int, runs: int) -> dict[str, float]:
    """Return the times of forward and backward of one minibatch."""
    g = torch.Generator().manual_seed(0)
    lstm, mingru, sequence = LSTMLayer(width, True, g), MinGRULayer(width, g), nn.LSTM(width, width)
    x, grad = (torch.randn(HORIZON, SEGMENTS, width, requires_grad=first) for first in (True, False))
    flags = torch.rand(HORIZON, SEGMENTS, generator=g) < 0.02
    flags[0] = False
    resets, zero = flags.flatten().nonzero().squeeze(1), torch.zeros(SEGMENTS, 2 * width)
    start = zero[:, :width].contiguous()[None]
    return medians(
        {
            "LSTMLayer": lambda: lstm(x, zero, resets).backward(grad),
            "nn.LSTM, no resets": lambda: sequence(x, (start, start))[0].backward(grad),
            "MinGRULayer": lambda: mingru(x, start[0], resets).backward(grad),
        },
        runs,
    )


def encoders(width: int, runs: int) -> dict[str, float]:
    """Return the times of forward and backward of pictures 84 x 84 x 4."""
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    pictures = torch.randint(0, 256, (PICTURES, 84, 84, 4), dtype=torch.uint8)
    calls: dict[str, Callable[[], object]] = {}
    for name in ("cnn", "impala"):
        config = PolicyConfig(name=name, hidden_size=width)
        encoder = make_policy(config, space, spaces.Discrete(2), torch.Generator()).encoder

        def learn(encoder: nn.Module = encoder) -> None:
            out: Tensor = encoder(pictures)
            torch.autograd.backward(out.sum())

        calls[name] = learn
    return medians(calls, runs)


def speed_options(runs: int) -> dict[str, dict[str, float]]:
    """Return the times of the encoders of pictures as they come, compiled, and in bfloat16; learning and acting."""
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    pictures = torch.randint(0, 256, (PICTURES // 2, 84, 84, 4), dtype=torch.uint8)
    found = {}
    for name in ("cnn", "impala"):
        learn: dict[str, Callable[[], object]] = {}
        act: dict[str, Callable[[], object]] = {}
        for is_compiled, is_half in ((False, False), (True, False), (False, True), (True, True)):
            encoder = make_policy(PolicyConfig(name=name), space, spaces.Discrete(2), torch.Generator()).encoder
            if is_compiled:
                encoder.compile()
            label = f"{'compiled' if is_compiled else 'plain'}, {'bfloat16' if is_half else 'float32'}"
            learn[label] = lambda encoder=encoder, is_half=is_half: encode(encoder, pictures, is_half, learn=True)
            act[label] = lambda encoder=encoder, is_half=is_half: encode(encoder, pictures, is_half, learn=False)
        found[f"{name}, forward and backward of {len(pictures)} pictures"] = medians(learn, runs)
        found[f"{name}, forward"] = medians(act, runs)
    return found


def encode(encoder: nn.Module, pictures: Tensor, is_half: bool, *, learn: bool) -> None:
    """Encode, and if ``learn`` go back."""
    with torch.autocast("cpu", torch.bfloat16, enabled=is_half), torch.set_grad_enabled(learn):
        out: Tensor = encoder(pictures)
    if learn:
        torch.autograd.backward(out.float().sum())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--speed-options", action="store_true", help="Only torch.compile and bfloat16; takes minutes.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.speed_options:
        found = speed_options(options.runs)
    else:
        found = {f"acting, {n} rows": acting(n, options.width, options.runs) for n in ROWS}
        found[f"training, {HORIZON} x {SEGMENTS}"] = training(options.width, options.runs)
        found[f"training, {PICTURES} pictures"] = encoders(options.width, max(3, options.runs // 3))
    if options.json:
        print(json.dumps(found))
        return
    for title, times in found.items():
        print(f"{title}: " + ", ".join(f"{name} {micros:,.0f} us" for name, micros in times.items()))


if __name__ == "__main__":
    main()
