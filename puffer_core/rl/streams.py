"""One seed for a run: every generator is derived from it, and from nothing else.

    environments   31 bits of the seed itself; instance k of a C environment mixes them with k, environment k in Python
                   is reset with seed + k, so that runs of neighbouring seeds see some of the same first episodes
    policy         initial weights
    actions        the noise that actions are drawn with
    replay         which rows a minibatch is made of
    restart        environments that a resumed run has to start anew, by epoch
    evaluation     0 the environments of an evaluation, 1 the noise of its actions, 2 that of its opponent's
    opponents      whom the learner meets in self-play

The global generators of torch, numpy and Python, which only other people's environments and policies draw from, are
seeded with it as well (`puffer_core.vector.generators`).

A stream is numpy's `SeedSequence` of the seed, spawned with (stream, rank): streams are independent, those of
neighbouring seeds as well, and a rank of a distributed run has its own, but for the weights, which all ranks share.
"""

from __future__ import annotations

import numpy as np
import torch

STREAMS = ("policy", "actions", "replay", "restart", "evaluation", "opponents")


def derive(seed: int, stream: str, index: int = 0) -> int:
    """Return the 63-bit seed of ``stream``; ``index`` is the rank, or for ``restart`` the epoch."""
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS.index(stream), index))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def environment_seed(seed: int) -> int:
    """Return a seed as environments are reset with it: 31 bits, so that numpy's old generator can take it, too."""
    return seed % 2**31


def generator(seed: int, stream: str, index: int = 0) -> torch.Generator:
    """Return the generator of ``stream``, on the CPU whatever the device: the same numbers everywhere."""
    return torch.Generator().manual_seed(derive(seed, stream, index))
