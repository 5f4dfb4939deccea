"""Tests of what `puffer config show` refuses, as `puffer run` does."""

from __future__ import annotations

import pytest

from puffer_core.cli.config import command
from puffer_core.errors import OptionError, UnknownNameError


@pytest.mark.parametrize("option", ["policy.name", "logger", "vec.backend"])
def test_names_that_nobody_supplies_are_refused(option: str) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown .* `nope`"):
        command(["show", "gym/CartPole-v1", f"--{option}", "nope"], standalone_mode=False)


def test_threads_and_replay_ratio_are_bounded() -> None:
    with pytest.raises(OptionError, match=r"`vec.num_threads` = `1000` is too large: .* <= 256"):
        command(["show", "gym/CartPole-v1", "--vec.num-threads", "1000"], standalone_mode=False)
    with pytest.raises(OptionError, match=r"`train.replay_ratio` = `1e9` is too large: .* <= 1000"):
        command(["show", "gym/CartPole-v1", "--train.replay-ratio", "1e9"], standalone_mode=False)


def test_a_parameter_that_the_constructor_refuses_is_named() -> None:
    with pytest.raises(OptionError, match="can't be made with max_episode_steps=0: ValueError"):
        command(["show", "gym/CartPole-v1", "--env.max-episode-steps", "0"], standalone_mode=False)


def test_few_keys_of_a_section_are_listed_where_none_is_close() -> None:
    with pytest.raises(OptionError, match=r"unknown key `wrap.nope`") as caught:
        command(["show", "gym/CartPole-v1", "--wrap.nope", "1"], standalone_mode=False)
    assert "section [wrap] has frame_stack, action_repeat" in str(caught.value.hint)
