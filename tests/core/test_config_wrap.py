"""The section ``[wrap]``: which wrappers are listed, in which order, and how it is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from puffer_core.config import load
from puffer_core.config.saved import dumps, from_run, to_dict
from puffer_core.errors import OptionError
from puffer_core.evaluate import evaluate
from puffer_core.specs import EnvSpec
from puffer_core.training import train

ALPHA = EnvSpec("fake/match", make="fakes_env:Match")
INI = "[wrap]\ntime_limit = 9\nframe_stack = 4\nreward_clip = 1\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wrap.ini"
    path.write_text(INI)
    return path


def test_only_wrappers_that_are_listed_are_in_the_configuration() -> None:
    assert load(ALPHA).wrap == {}
    assert load(ALPHA, options=["--wrap.frame-stack", "4"]).wrap == {"frame_stack": 4}


def test_wrappers_of_an_ini_can_be_switched_off(file: Path) -> None:
    off = load(ALPHA, file=file, options=["--wrap.frame-stack", "1", "--wrap.reward-clip", "0"]).wrap
    assert off == {"time_limit": 9}


def test_wrappers_keep_the_order_in_which_they_are_listed(file: Path) -> None:
    options = [
        "--wrap.reward-scale",
        "0.5",
        "--wrap.frame-stack",
        "2",
        "--no-wrap.grayscale",
        "--wrap.reward-normalize",
    ]
    wrap = load(ALPHA, options=options).wrap
    assert list(wrap.items()) == [
        ("reward_scale", 0.5),
        ("frame_stack", 2),
        ("reward_normalize", True),
    ]
    assert list(load(ALPHA, file=file).wrap) == ["time_limit", "frame_stack", "reward_clip"]
    over = load(ALPHA, file=file, options=options).wrap
    assert list(over)[:4] == ["time_limit", "frame_stack", "reward_clip", "reward_scale"]
    assert over["frame_stack"] == 2
    assert list(load(ALPHA, edits={"wrap": {"reward_scale": 2, "frame_stack": 3}}).wrap) == [
        "reward_scale",
        "frame_stack",
    ]


def test_wrappers_are_saved_and_edited_with_their_order(file: Path, tmp_path: Path) -> None:
    config = load(ALPHA, file=file, options=["--wrap.reward-scale", "0.5"])
    (tmp_path / "config.ini").write_text(dumps(config))
    again = from_run(tmp_path)
    assert list(again.wrap.items()) == list(config.wrap.items())
    assert to_dict(config)["wrap"] == dict(config.wrap)
    assert again.origins["wrap.reward_scale"].kind == "option"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--wrap.frame-stack", "0"], r"`wrap.frame_stack` = `0` is out of range"),
        (["--wrap.reward-clip", "x"], r"`wrap.reward_clip` = `x` is not a number"),
        (["--wrap.frame_stacks", "3"], r"unknown key `wrap.frame_stacks` = `3`"),
    ],
)
def test_illegal_values_are_refused(option: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load(ALPHA, options=option)


def small(tmp_path: Path, **changes: str) -> dict[str, str]:
    options = {
        "train.total_timesteps": "2048",
        "train.device": "cpu",
        "train.horizon": "16",
        "train.minibatch_size": "64",
        "vec.num_envs": "4",
        "policy.hidden_size": "8",
        "policy.num_layers": "1",
        "runs_dir": str(tmp_path / "runs"),
    }
    return options | {key.replace("__", "."): text for key, text in changes.items()}


def test_training_and_evaluation_see_the_wrapped_spaces(tmp_path: Path) -> None:
    options = small(tmp_path, wrap__frame_stack="3", wrap__reward_scale="0.25", wrap__action_repeat="1")
    result: dict[str, Any] = train(ALPHA, options=options)
    found = evaluate(ALPHA, load=result["run_dir"], episodes=8)
    assert found["episodes"] == 8
    assert found["score"] == pytest.approx(round(found["score"] * 8) / 8), "raw: a mean of whole numbers"
    from puffer_core import load as load_agent

    assert load_agent(result["run_dir"]).observation_space.shape == (9,)


def test_a_wrapper_that_does_not_fit_is_refused_before_a_run_exists(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"wrap.grayscale can't be applied to Box"):
        train(ALPHA, options=small(tmp_path, wrap__grayscale="true"))
    assert not (tmp_path / "runs").exists()
