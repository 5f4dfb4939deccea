"""The grammar of the command line: what is an option, what is its value, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puffer_core.config import load
from puffer_core.config.options import parse, spell, split, split_command
from puffer_core.config.schema import SECTIONS, CommandConfig
from puffer_core.config.sections import join
from puffer_core.config.values import kinds
from puffer_core.errors import OptionError
from puffer_core.specs import EnvSpec

KEYS = {join(section, name): kind for section, cls in SECTIONS.items() for name, kind in kinds(cls).items()}


def test_parse_takes_the_next_word_or_what_follows_the_equals_sign() -> None:
    args = ["--train.learning-rate", "3e-4", "--train.gamma=.9", "--seed", "3", "--env.frameskip", "2"]
    assert parse(args) == {"train.learning_rate": "3e-4", "train.gamma": ".9", "seed": "3", "env.frameskip": "2"}


def test_parse_treats_hyphens_and_underscores_alike() -> None:
    assert (
        parse(["--train.min_lr-ratio", "0.1"])
        == parse(["--train.min-lr-ratio", "0.1"])
        == {"train.min_lr_ratio": "0.1"}
    )


def test_parse_keeps_case() -> None:
    assert parse(["--env.maxSteps", "A b"]) == {"env.maxSteps": "A b"}


@pytest.mark.parametrize("value", ["-1", "-1e-3", "-.5", "-inf", "-x"])
def test_parse_takes_negative_values(value: str) -> None:
    assert parse(["--env.timeout-reward", value]) == {"env.timeout_reward": value}
    assert parse(["--train.gamma", value]) == {"train.gamma": value}


def test_parse_takes_a_value_with_an_equals_sign_in_it() -> None:
    assert parse(["--runs-dir=a=b", "--env.x", "c=d"]) == {"runs_dir": "a=b", "env.x": "c=d"}


@pytest.mark.parametrize("word", ["true", "False", "yes", "no", "ON", "off", "0", "1"])
def test_parse_gives_a_boolean_the_next_word_if_it_says_true_or_false(word: str) -> None:
    assert parse(["--train.anneal-lr", word, "--seed", "1"]) == {"train.anneal_lr": word, "seed": "1"}


def test_parse_reads_a_bare_boolean_as_true() -> None:
    assert parse(["--train.anneal-lr"]) == {"train.anneal_lr": "true"}
    assert parse(["--train.anneal-lr", "--seed", "1"]) == {"train.anneal_lr": "true", "seed": "1"}
    assert parse(["--env.continuous", "--seed", "1"]) == {"env.continuous": "true", "seed": "1"}


def test_split_leaves_a_word_after_a_bare_boolean_alone() -> None:
    assert split(["--train.anneal-lr", "breakout"]) == (["breakout"], {"train.anneal_lr": "true"})


def test_parse_reads_no_as_false() -> None:
    assert parse(["--no-train.anneal-lr", "--no-env.continuous"]) == {
        "train.anneal_lr": "false",
        "env.continuous": "false",
    }


@pytest.mark.parametrize("args", [["--no-train.gamma"], ["--no-train.anneal-lr=1"], ["--no-seed"]])
def test_parse_refuses_no_where_it_means_nothing(args: list[str]) -> None:
    with pytest.raises(OptionError, match="`--no-` is for switching a boolean off"):
        parse(args)


@pytest.mark.parametrize("args", [["--train.gamma"], ["--train.gamma", "--seed", "3"], ["--preset"], ["--resume"]])
def test_parse_refuses_an_option_without_its_value(args: list[str]) -> None:
    with pytest.raises(OptionError, match=f"option `{args[0]}` needs a value"):
        parse(args)


@pytest.mark.parametrize(
    "word",
    ["--", "--=3", "--train.=3", "--.gamma=3", "--train..gamma=3", "--train.gamma.=3", "--no-=1", "--3=4", "--a b=1"],
)
def test_parse_refuses_empty_and_malformed_names(word: str) -> None:
    with pytest.raises(OptionError, match="is not an option name"):
        parse([word])


def test_parse_refuses_single_dashes_and_stray_words() -> None:
    with pytest.raises(OptionError, match="unknown option `-v`"):
        parse(["-v"])
    with pytest.raises(OptionError, match=r"unexpected argument `train\.gamma=\.9`") as caught:
        parse(["train.gamma=.9"])
    assert caught.value.hint == "did you mean `--train.gamma=.9`?"


def test_parse_sends_base_keys_to_their_one_spelling() -> None:
    with pytest.raises(OptionError, match=r"`--base\.seed`: keys of section base carry no section") as caught:
        parse(["--base.seed", "3"])
    assert caught.value.hint == "write `--seed`"


def test_parse_lets_a_later_option_win_but_adds_loggers_up() -> None:
    args = ["--seed", "1", "--logger", "wandb", "--seed=2", "--logger=tensorboard"]
    assert parse(args) == {"seed": "2", "logger": "wandb,tensorboard"}


def test_parse_knows_short_options_by_their_key() -> None:
    assert parse(["--episodes", "5", "--device", "cpu"]) == {"eval_episodes": "5", "train.device": "cpu"}
    assert spell("eval_episodes") == "--episodes"
    assert spell("train.device") == "--train.device"


def test_split_command_separates_what_is_never_restored() -> None:
    args = [
        "--resume",
        "latest",
        "--train.stop-at",
        "1e6",
        "--train.stop-at-score=-3.5",
        "--config",
        "a.ini",
        "--seed",
        "1",
    ]
    command, options = split_command(parse(args))
    assert command == CommandConfig(config="a.ini", resume="latest", stop_at=1_000_000, stop_at_score=-3.5)
    assert options == {"seed": "1"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--train.stop-at", "1.5"], "`--train.stop-at 1.5` is not a whole number"),
        (["--train.stop-at", "0"], "`--train.stop-at 0` is out of range"),
        (["--train.stop-at-score", "nan"], "`--train.stop-at-score nan` is not finite"),
    ],
)
def test_split_command_checks_values(args: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        split_command(parse(args))


@pytest.mark.parametrize("option", ["--resume", "--config", "--runs-dir"])
def test_split_command_refuses_an_empty_name(option: str) -> None:
    with pytest.raises(OptionError, match=f"`{option}` is empty"):
        split_command(parse([option, ""]))


@given(st.sampled_from(sorted(KEYS)), st.text(min_size=1).filter(lambda text: not text.startswith("--")))
def test_every_key_reads_any_value_in_both_forms(key: str, text: str) -> None:
    assert parse([f"{spell(key)}={text}"]) == {key: text}
    if KEYS[key].base != "bool":
        assert parse([spell(key), text]) == {key: text}


@given(
    st.lists(st.text(max_size=12) | st.sampled_from(["--train.gamma", "--env.x", "--no-env.x", "-1", "="]), max_size=6)
)
def test_parse_gives_options_or_says_why_not(args: list[str]) -> None:
    try:
        options = parse(args)
    except OptionError:
        return
    assert all(isinstance(text, str) and key.replace(".", "_").isidentifier() for key, text in options.items())


def test_a_boolean_of_the_environment_takes_the_next_word_only_where_it_is_one() -> None:
    spec = EnvSpec("test/counter", table="counter:TABLE")
    assert parse(["--env.absent", "--env.limit", "5"], spec) == {"env.absent": "true", "env.limit": "5"}
    assert split(["--env.absent", "counter", "--env.absent", "off"], spec) == (["counter"], {"env.absent": "off"})
    assert parse(["--env.absent", "counter"]) == {"env.absent": "counter"}
    with pytest.raises(OptionError, match="unexpected argument `counter`"):
        load(spec, options=["--env.absent", "counter"])
    with pytest.raises(OptionError, match=r"`--no-env\.limit`: `--no-` is for switching a boolean off"):
        parse(["--no-env.limit"], spec)
