from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import puffer_core
from puffer_core.emulation.rendering import render
from puffer_core.errors import RenderError


class Drawn(gymnasium.Env):
    metadata = {"render_modes": ["ansi", "human"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def render(self) -> Any:
        return "text" if self.render_mode == "ansi" else None


def test_environment_made_without_a_mode_gets_the_one_asked_for() -> None:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=1)
    frame = render(env, "rgb_array")
    assert (frame.shape, frame.dtype) == ((400, 600, 3), np.uint8)
    assert render(Drawn(), "ansi") == "text"
    assert render(Drawn()) == "text"


def test_environment_made_with_a_mode_keeps_it() -> None:
    env = Drawn("human")
    assert render(env) is None
    assert env.render_mode == "human"


def test_view_that_is_not_there_is_refused() -> None:
    with pytest.raises(RenderError, match="Drawn has no rgb_array view: it has ansi, human"):
        render(Drawn(), "rgb_array")
    with pytest.raises(RenderError, match="Drawn drew no ansi view") as caught:
        render(Drawn("human"), "ansi")
    assert caught.value.hint == "make it with render_mode='ansi'"
    with pytest.raises(RenderError, match="object does not render"):
        render(object())


def test_environment_that_declares_no_views_is_asked_all_the_same() -> None:
    class Plain(gymnasium.Env):
        def render(self) -> Any:
            return "plain"

    assert render(Plain(), "ansi") == "plain"


def test_environment_that_has_to_be_made_for_drawing_says_so() -> None:
    with puffer_core.make("pettingzoo/tictactoe", backend="serial") as envs:
        envs.reset(1)
        with pytest.raises(RenderError, match="raw_env has to be made for drawing: AttributeError") as caught:
            envs.render(0, "rgb_array")
        assert caught.value.hint == "make it with render_mode='rgb_array', or --env.render-mode rgb_array"
        envs.step(np.zeros(2, np.int32))


def test_error_of_an_environment_made_for_drawing_is_its_own() -> None:
    class Broken(Drawn):
        def render(self) -> Any:
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        render(Broken("ansi"), "ansi")


def test_old_form_is_given_the_mode() -> None:
    class Old:
        def render(self, mode: str = "human") -> str:
            return mode

    assert render(Old(), "ansi") == "ansi"
    assert render(Old()) == "rgb_array"


@pytest.mark.parametrize("error", [ImportError("no pygame"), gymnasium.error.DependencyNotInstalled("no pygame")])
def test_missing_package_is_named(error: Exception) -> None:
    class Bare(Drawn):
        def render(self) -> Any:
            raise error

    with pytest.raises(
        RenderError, match="Bare can't be drawn, something that it needs is missing: no pygame"
    ) as caught:
        render(Bare(), "ansi")
    assert caught.value.hint == 'pip install "puffer-core[window]"'


@pytest.mark.parametrize(
    ("name", "params"),
    [("gym/CartPole-v1", {}), ("pettingzoo/simple-spread", {}), ("pettingzoo/tictactoe", {"render_mode": "rgb_array"})],
)
def test_vector_renders_environments_of_the_families(name: str, params: dict[str, str]) -> None:
    with puffer_core.make(name, num_envs=2, backend="serial", params=params) as envs:
        envs.reset(1)
        frame = envs.render(1, "rgb_array")
        assert (frame.ndim, frame.shape[2], frame.dtype) == (3, 3, np.uint8)
