"""Counts of a run: proposals are fitted, fixed values are rounded by a tenth or refused with numbers that are legal."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puffer_core.config import Config, load
from puffer_core.config.options import parse
from puffer_core.config.plan import Plan, plan
from puffer_core.config.schema import Origin, TrainConfig, VecConfig
from puffer_core.errors import OptionError
from puffer_core.specs import EnvSpec

SPEC = EnvSpec("toy/open", make="toy:Open")
KEYS = ("total_timesteps", "horizon", "minibatch_size", "replay_ratio")


def planned(*options: str, agents: int = 1, is_native: bool = True) -> Plan:
    return plan(load(SPEC, options=options), agents, is_native=is_native)


def configured(fixed: set[str], envs: Any = "auto", objects: Any = "auto", **train: Any) -> Config:
    """Return a configuration as inis give it, but for the keys in ``fixed``."""
    origins = {key: Origin("option" if key in fixed else "env") for key in ("env.num_envs", "vec.num_envs")}
    origins |= {f"train.{key}": Origin("option" if f"train.{key}" in fixed else "env") for key in KEYS}
    return Config(train=TrainConfig(**train), vec=VecConfig(num_envs=objects), env={"num_envs": envs}, origins=origins)


def test_plan_of_the_defaults() -> None:
    counts = planned()
    assert (counts.num_envs, counts.num_agents, counts.horizon, counts.minibatch_size) == (4096, 4096, 64, 8192)
    assert (counts.batch_size, counts.epochs, counts.minibatches_per_epoch) == (262144, 38, 32)
    assert (counts.steps_asked, counts.steps, counts.gradient_steps) == (10_000_000, 9_961_472, 38 * 32)
    assert counts.notes == ("train.total_timesteps is 9,961,472 instead of 10,000,000: 38 whole rollouts of 262,144",)


def test_plan_of_the_published_breakout() -> None:
    args = ["--train.replay-ratio=1.42421", "--train.minibatch-size=65536", "--train.total-timesteps=94M"]
    counts = planned("--env.num-envs=4096", *args)
    assert (counts.epochs, counts.minibatches_per_epoch) == (358, 5)
    assert counts.minibatch_size // counts.horizon == 1024


def test_plan_refuses_zero_minibatches() -> None:
    args = ["--env.num-envs=8", "--train.horizon=4", "--train.minibatch-size=16", "--train.replay-ratio=.4"]
    with pytest.raises(OptionError, match=r"no gradient step .*: replay_ratio=0\.4 of 32 is less than 16") as caught:
        planned(*args)
    assert "--train.replay-ratio 0.5" in str(caught.value.hint)
    assert "--train.minibatch-size 12" in str(caught.value.hint)


def test_plan_refuses_a_replay_ratio_that_trains_nothing() -> None:
    with pytest.raises(OptionError, match=r"no gradient step would be made: replay_ratio=0\.01"):
        planned("--train.replay-ratio", "0.01")


def test_plan_fits_proposals_to_a_short_run() -> None:
    counts = planned("--train.total-timesteps", "1000")
    assert (counts.num_agents, counts.minibatch_size, counts.steps, counts.gradient_steps) == (1, 64, 960, 15)
    assert [note.partition(" ")[0] for note in counts.notes] == [
        "env.num_envs",
        "train.minibatch_size",
        "train.total_timesteps",
    ]


def test_plan_leaves_room_for_eight_rollouts() -> None:
    counts = planned("--train.total-timesteps", "1M")
    assert counts.num_agents == 1_000_000 // (8 * 64)
    assert counts.epochs == 8


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            ["--train.total-timesteps=1000", "--env.num-envs=4096"],
            "total_timesteps=1000 is less than one rollout, 262144: 4096 agents x 64 steps",
            "use --train.total-timesteps 262144, or --env.num-envs 5 or 15",
        ),
        (
            ["--train.total-timesteps=300000", "--env.num-envs=4096"],
            r"total_timesteps=300000 can't be met: whole rollouts of 262144 \(.*\) make 262144, 13% less",
            "use --train.total-timesteps 262144 or 524288",
        ),
        (
            ["--train.minibatch-size=32"],
            "minibatch_size=32 is not a multiple of horizon=64",
            "use --train.horizon 32, or --train.minibatch-size 64",
        ),
        (
            ["--train.minibatch-size=100"],
            "minibatch_size=100 is not a multiple of horizon=64",
            "--train.minibatch-size 64 or 128",
        ),
        (
            ["--train.minibatch-size=1M", "--env.num-envs=4096"],
            "minibatch_size=1000000 is more than one rollout has: 262144, 4096 x 64",
            "--train.minibatch-size 262144",
        ),
        (
            ["--vec.num-envs=8", "--vec.num-workers=7"],
            r"vec.num_envs=8 is not a multiple of vec.num_workers=7",
            "use --vec.num-envs 7 or 14, or --vec.num-workers 4 or 8",
        ),
        (
            ["--vec.num-envs=8", "--vec.batch-size=3"],
            r"vec.num_envs=8 is not a multiple of vec.batch_size=3",
            "use --vec.num-envs 6 or 9, or --vec.batch-size 2 or 4",
        ),
    ],
)
def test_plan_refuses_fixed_values_with_legal_numbers(options: list[str], message: str, hint: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        planned(*options)
    assert hint in str(caught.value.hint)


def test_plan_rounds_a_fixed_minibatch_by_a_tenth_and_says_so() -> None:
    counts = planned("--train.minibatch-size", "8200")
    assert counts.minibatch_size == 8192
    assert "train.minibatch_size is 8,192 instead of 8,200" in counts.notes[0]


def test_plan_takes_the_horizon_as_minibatch_where_a_proposal_is_smaller() -> None:
    assert planned("--train.horizon", "10000", "--train.total-timesteps", "10M").minibatch_size == 10_000


def test_plan_counts_agents_of_an_environment() -> None:
    counts = planned(agents=10)
    assert (counts.num_envs, counts.num_agents) == (409, 4090)
    assert counts.keys == {"env.num_envs": 409, "vec.num_envs": 1}


def test_plan_refuses_a_run_shorter_than_one_rollout_of_one_environment() -> None:
    with pytest.raises(OptionError, match="total_timesteps=1000 is less than one rollout, 65536: 1024 agents x 64"):
        planned("--train.total-timesteps", "1000", agents=1024)


def test_plan_multiplies_instances_by_objects() -> None:
    counts = planned("--env.num-envs=256", "--vec.num-envs=2", "--train.total-timesteps=200_000")
    assert (counts.num_envs, counts.batch_size, counts.steps) == (512, 32768, 196608)


def test_plan_counts_objects_of_a_python_environment() -> None:
    counts = planned(is_native=False)
    assert (counts.num_envs, counts.num_agents, counts.minibatch_size) == (64, 64, 4096)
    assert planned(is_native=False, agents=100).num_envs == 1
    assert planned("--vec.num-envs=5", "--env.num-envs=7", is_native=False, agents=7).num_agents == 35


@pytest.mark.parametrize(
    ("options", "objects"),
    [
        (["--vec.num-workers=6"], 60),
        (["--vec.num-workers=100"], 100),
        (["--vec.batch-size=24"], 48),
        (["--vec.num-workers=4", "--vec.batch-size=6"], 60),
        (["--vec.batch-size=100", "--vec.num-workers=4", "--no-vec.zero-copy"], 64),
    ],
)
def test_plan_splits_objects_evenly_over_workers_and_batches(options: list[str], objects: int) -> None:
    assert planned(*options, is_native=False).num_envs == objects


def test_plan_shrinks_objects_in_whole_shares() -> None:
    counts = planned("--vec.num-workers=6", "--train.total-timesteps=10000", is_native=False)
    assert counts.num_envs == 18


def test_plan_rounds_objects_of_an_ini_to_whole_shares_and_says_so() -> None:
    config = configured(set(), objects=8)
    config = Config(train=config.train, vec=VecConfig(num_envs=8, num_workers=3), origins=config.origins)
    counts = plan(config, 1, is_native=False)
    assert counts.num_envs == 6
    assert counts.notes[0] == "vec.num_envs is 6 instead of 8: a multiple of 3"


def test_plan_does_not_floor_a_product_that_is_whole() -> None:
    counts = planned("--env.num-envs=100", "--train.horizon=1", "--train.minibatch-size=1", "--train.replay-ratio=.29")
    assert counts.minibatches_per_epoch == 29


def test_plan_summary_says_what_is_asked_done_and_trained() -> None:
    text = planned().summary
    assert text.startswith("10,000,000 steps asked, 9,961,472 to be done in 38 rollouts of 4,096 agents x 64 steps")
    assert "1,216 gradient steps of 8,192 transitions" in text


def test_apply_puts_the_counts_in_place_of_proposals() -> None:
    config = load(SPEC, options=["--train.total-timesteps", "1M", "--env.size", "3"])
    counts = plan(config, 1, is_native=True)
    applied = counts.apply(config)
    assert applied.env == {"size": 3, "num_envs": 1953}
    assert applied.vec.num_envs == 1
    assert applied.train.total_timesteps == 1_000_000
    assert config.env == {"size": 3}


COUNTS = ("env.num_envs", "vec.num_envs", *(f"train.{key}" for key in KEYS))
ASKS = st.fixed_dictionaries(
    {
        "fixed": st.sets(
            st.sampled_from(["env.num_envs", "vec.num_envs", *(f"train.{key}" for key in KEYS)]), max_size=3
        ),
        "envs": st.just("auto") | st.integers(1, 5000),
        "objects": st.just("auto") | st.integers(1, 64),
        "total_timesteps": st.integers(1, 10**4) | st.integers(1, 10**8),
        "horizon": st.integers(1, 300),
        "minibatch_size": st.integers(1, 40000),
        "replay_ratio": st.floats(0.001, 8),
    }
)


@settings(max_examples=300, deadline=None)
@given(ASKS, st.integers(1, 300), st.booleans())
def test_every_plan_is_consistent_and_trains(ask: dict[str, Any], agents: int, is_native: bool) -> None:
    config = configured(**ask)
    fixed = ask["fixed"]
    try:
        counts = plan(config, agents, is_native=is_native)
    except OptionError:
        return
    assert counts.gradient_steps == counts.epochs * counts.minibatches_per_epoch >= 1
    assert counts.num_agents == counts.num_envs * agents >= agents
    assert counts.steps == counts.epochs * counts.batch_size <= counts.steps_asked == ask["total_timesteps"]
    assert counts.steps_asked - counts.steps < counts.batch_size
    assert counts.minibatch_size % counts.horizon == 0
    assert counts.horizon <= counts.minibatch_size <= counts.batch_size
    assert counts.horizon == ask["horizon"]
    for key, asked in (("env.num_envs", ask["envs"]), ("vec.num_envs", ask["objects"])):
        if key in fixed and asked != "auto" and key in counts.keys:
            assert counts.keys[key] == asked
    if "train.total_timesteps" in fixed:
        assert counts.steps >= 0.9 * counts.steps_asked
    if "train.minibatch_size" in fixed:
        assert abs(counts.minibatch_size - ask["minibatch_size"]) <= 0.1 * ask["minibatch_size"]
    changed = {
        "env.num_envs": is_native and ask["envs"] not in ("auto", counts.keys.get("env.num_envs")),
        "vec.num_envs": ask["objects"] not in ("auto", counts.keys["vec.num_envs"]),
        "train.minibatch_size": ask["minibatch_size"] != counts.minibatch_size,
        "train.total_timesteps": counts.steps_asked != counts.steps,
    }
    told = {note.partition(" ")[0] for note in counts.notes}
    assert {key for key, is_changed in changed.items() if is_changed} <= told
    again = plan(counts.apply(config), agents, is_native=is_native)
    assert again == counts.__class__(**{**vars(counts), "notes": again.notes})


@settings(max_examples=150, deadline=None)
@given(ASKS, st.integers(1, 300), st.booleans())
def test_every_refusal_gives_numbers_that_are_legal(ask: dict[str, Any], agents: int, is_native: bool) -> None:
    try:
        plan(configured(**ask), agents, is_native=is_native)
    except OptionError as error:
        hint = str(error.hint)
    else:
        return
    choices = re.findall(r"(--[\w.-]+) ([\d.]+)(?: or ([\d.]+))?", hint)
    assert choices
    changed = ask
    for option, *values in choices:
        for value in filter(None, values):
            key = next(iter(parse([option, value])))
            name = {"env.num_envs": "envs", "vec.num_envs": "objects"}.get(key, key.removeprefix("train."))
            number = float(value) if name == "replay_ratio" else int(value)
            before = changed if "together" in hint else ask
            changed = {**before, name: number, "fixed": before["fixed"] | {key}}
            if "together" not in hint:
                assert plan(configured(**changed), agents, is_native=is_native).gradient_steps >= 1
    assert plan(configured(**changed), agents, is_native=is_native).gradient_steps >= 1


@settings(max_examples=200, deadline=None)
@given(ASKS, st.integers(1, 300), st.booleans())
def test_proposals_alone_fail_only_where_one_environment_is_too_much(
    ask: dict[str, Any], agents: int, is_native: bool
) -> None:
    proposals = {**ask, "fixed": set(), "replay_ratio": 1.0 + ask["replay_ratio"]}
    one = agents * ask["horizon"]
    if ask["total_timesteps"] < one:
        with pytest.raises(OptionError, match="is less than one rollout"):
            plan(configured(**proposals), agents, is_native=is_native)
    else:
        assert plan(configured(**proposals), agents, is_native=is_native).gradient_steps >= 1
