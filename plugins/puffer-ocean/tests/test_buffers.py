"""P2 and P8: every own byte is written and no other; given arrays are used as they are, wrong ones refused."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core.errors import EnvError
from puffer_core.testing import play, random_actions

GUARD = 64
FIELDS = (
    "observations",
    "actions",
    "rewards",
    "terminals",
    "truncations",
    "masks",
    "final_observations",
    "action_mask",
)


class Guarded:
    """Buffers like another environment's, each between guard bytes."""

    def __init__(self, env, pattern):
        self.pattern = pattern
        self.blocks, self.buf = {}, {}
        for field in FIELDS:
            like = getattr(env, field)
            if like is None:
                continue
            block = np.full(like.nbytes + 3 * GUARD, pattern, np.uint8)
            start = GUARD + (-(block.ctypes.data + GUARD)) % GUARD
            self.blocks[field] = block, start, like.nbytes
            self.buf[field] = block[start : start + like.nbytes].view(like.dtype).reshape(like.shape)

    def check(self, label):
        for field, (block, start, size) in self.blocks.items():
            outside = np.concatenate([block[:start], block[start + size :]])
            assert (outside == self.pattern).all(), f"{label}: bytes beside {field} changed"


def test_reset_and_rebind_write_every_own_byte_and_no_other(opened, sets, steps):
    """Two fill patterns leave the same rows behind only if nothing of either is left."""
    for label, params in sets:
        like = opened(params, num_envs=3, seed=1)
        for when in ("reset", "rebind"):
            written = []
            for pattern in (0xA5, 0x5A):
                guarded = Guarded(like, pattern)
                if when == "reset":
                    env = opened(params, num_envs=3, seed=1, buf=guarded.buf)
                    env.reset(seed=1)
                else:
                    env = opened(params, num_envs=3, seed=1)
                    env.reset(seed=1)
                    play(env, 20)
                    env.reset(seed=1)
                    env.rebind(guarded.buf)
                fields = [field for field in ("observations", "masks", "action_mask") if field in guarded.buf]
                written.append([guarded.buf[field].tobytes() for field in fields])
                guarded.check(f"{label}, {when}")
                play(env, steps(env, 30, 300))
                guarded.check(f"{label}, {when} and steps")
                env.close()
            assert written[0] == written[1], f"{label}: bytes not written by {when}"
        like.close()


def test_rebinding_while_running_changes_no_trajectory(opened):
    env, moved = (opened(num_envs=3, seed=1) for _ in range(2))
    env.reset(seed=1)
    moved.reset(seed=1)
    for round_ in range(6):
        buf = Guarded(env, round_).buf
        moved.rebind(buf)
        assert moved.observations is buf["observations"]
        assert np.array_equal(env.observations, moved.observations), f"rebind {round_}"
        expected, steps = play(env, 40, first_step=round_ * 40)
        assert play(moved, steps, first_step=round_ * 40)[0] == expected, f"rebind {round_}"


def test_given_arrays_keep_their_identity_and_are_written(opened):
    buf = Guarded(opened(num_envs=3), 0).buf
    env = opened(num_envs=3, seed=1, buf=buf)
    own = opened(num_envs=3, seed=1)
    env.reset(seed=1)
    own.reset(seed=1)
    for step in range(50):
        actions = random_actions(env, 1, step, env.action_mask)
        env.step(actions)
        own.step(actions)
        assert np.array_equal(buf["actions"], actions)
        for field, array in buf.items():
            assert getattr(env, field) is array
            assert np.array_equal(array, getattr(own, field)), field


def test_own_arrays_are_aligned_and_contiguous(opened):
    env = opened(num_envs=3)
    for field in FIELDS:
        array = getattr(env, field)
        if array is not None:
            assert array.flags.c_contiguous, field
            assert array.ctypes.data % 64 == 0, field


def _wrong_buffers(buf):
    """Yield (field, what is wrong, array) for each way to break one buffer."""
    for field, array in buf.items():
        other = np.float64 if array.dtype != np.float64 else np.float32
        yield field, "dtype", np.zeros(array.shape, other)
        yield field, "shape", np.zeros((array.shape[0] + 1, *array.shape[1:]), array.dtype)
        yield field, "contiguous", np.zeros((array.shape[0] * 2, *array.shape[1:]), array.dtype)[::2]
        locked = np.zeros(array.shape, array.dtype)
        locked.flags.writeable = False
        yield field, "writ", locked
        if array.dtype.itemsize > 1:
            shifted = np.zeros(array.nbytes + array.dtype.itemsize, np.uint8)[1 : 1 + array.nbytes]
            yield field, "align", shifted.view(array.dtype).reshape(array.shape)


def test_wrong_buffers_are_refused(opened):
    like = opened(num_envs=2)
    buf = Guarded(like, 0).buf
    for field, word, array in _wrong_buffers(buf):
        with pytest.raises(EnvError, match=f"(?s){field}.*{word}"):
            opened(num_envs=2, buf={**buf, field: array})


def test_missing_and_unknown_buffers_are_refused(opened):
    buf = Guarded(opened(num_envs=2), 0).buf
    with pytest.raises(EnvError, match="observations"):
        opened(num_envs=2, buf={key: value for key, value in buf.items() if key != "observations"})
    with pytest.raises(EnvError, match="no_such_buffer"):
        opened(num_envs=2, buf={**buf, "no_such_buffer": buf["rewards"]})


def test_wrong_actions_are_refused(opened):
    env = opened(num_envs=2)
    env.reset(seed=1)
    for wrong in (np.zeros((env.num_agents + 1, *env.actions.shape[1:]), env.actions.dtype), np.array(["up"])):
        with pytest.raises(EnvError, match="actions"):
            env.step(wrong)
