"""P13: pictures and text without a display, and without a trace in the state."""

from __future__ import annotations

import numpy as np
import pytest

from puffer_core import abi
from puffer_core.errors import RenderError
from puffer_core.testing import random_actions


def test_rgb_array_is_a_picture_and_leaves_no_trace(opened, sets, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    for label, params in sets[:8]:
        env = opened(params, num_envs=2, seed=1)
        env.reset(seed=1)
        for step in range(20):
            env.step(random_actions(env, 1, step, env.action_mask))
        before = env.save(), env.observations.tobytes(), env.rewards.tobytes(), env.log.tobytes()
        first, again = env.render(1, "rgb_array"), env.render(1, "rgb_array")
        assert first.dtype == np.uint8, label
        assert first.ndim == 3, label
        assert first.shape[2] == 3, label
        assert 16 <= min(first.shape[:2]) <= max(first.shape[:2]) <= 4096, f"{label}: {first.shape}"
        assert np.array_equal(first, again), label
        assert (first != first[0, 0]).any(), f"{label}: one colour only"
        assert (env.save(), env.observations.tobytes(), env.rewards.tobytes(), env.log.tobytes()) == before, label
        env.close()


def test_picture_follows_the_state(opened):
    env = opened(num_envs=2, seed=1)
    env.reset(seed=1)
    pictures = {env.render(0, "rgb_array").tobytes()}
    for step in range(40):
        env.step(random_actions(env, 1, step, env.action_mask))
        pictures.add(env.render(0, "rgb_array").tobytes())
    assert len(pictures) > 1
    assert all(len(picture) == len(next(iter(pictures))) for picture in pictures)


def test_ansi_is_text_or_says_that_there_is_none(opened, table):
    env = opened(num_envs=2, seed=1)
    env.reset(seed=1)
    before = env.save()
    if abi.open_table(table).text:
        texts = []
        for step in range(40):
            env.step(random_actions(env, 1, step, env.action_mask))
            before = env.save()
            texts.append(env.render(0, "ansi"))
            assert env.save() == before
        assert all(isinstance(text, str) and text.strip() and "\0" not in text for text in texts)
        assert len(set(texts)) > 1
    else:
        with pytest.raises(RenderError, match="ansi"):
            env.render(0, "ansi")
        assert env.save() == before


def test_unknown_mode_and_instance_are_refused(opened):
    env = opened(num_envs=2, seed=1)
    env.reset(seed=1)
    with pytest.raises(ValueError, match="etching"):
        env.render(0, "etching")
    with pytest.raises((ValueError, IndexError), match="2"):
        env.render(2, "rgb_array")


def test_human_mode_without_a_display_raises(opened, monkeypatch):
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(variable, raising=False)
    env = opened(num_envs=1, seed=1)
    env.reset(seed=1)
    with pytest.raises(RenderError, match="human") as caught:
        env.render(0, "human")
    assert "rgb_array" in f"{caught.value} {caught.value.hint}"
