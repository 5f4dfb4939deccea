"""Resolving a configuration: precedence, origins, presets, parameters of environments, and every way to be wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from puffer_core.config import Config, Origin, SweepRange, fixed, flatten, load, to_dict
from puffer_core.config.sections import param_kind
from puffer_core.errors import OptionError, PluginError
from puffer_core.specs import EnvSpec

FAMILY = """
    [train]
    gamma = 0.9
    horizon = 16
    [policy]
    hidden_size = 32
    [preset.torch.train]
    clip_coef = 0.1
    ent_coef = 0.5
"""
ALPHA = """
    [train]
    gamma = 0.97
    [env]
    size = 7
    [preset.torch.train]
    ent_coef = 0.25
    learning_rate = 0.5
    [preset.big.train]
    learning_rate = 0.75
    [preset.big.policy]
    hidden_size = 512
"""
PARAMS = """
    from dataclasses import dataclass
    from typing import Annotated, Literal
    from puffer_core.config.schema import Range

    @dataclass(frozen=True)
    class Params:
        size: Annotated[int, Range(3, 99)] = 5
        mode: Literal["easy", "hard"] = "easy"
        is_slippery: bool = False
        reward: float = 1.0

    @dataclass(frozen=True)
    class Encoder:
        width: Annotated[int, Range(1)] = 8
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a family's ini, an environment's ini, and an options dataclass."""
    folder = tmp_path / "toyfamily"
    (folder / "config").mkdir(parents=True)
    (folder / "__init__.py").write_text(dedent(PARAMS))
    (folder / "config" / "toy.ini").write_text(dedent(FAMILY))
    (folder / "config" / "alpha.ini").write_text(dedent(ALPHA))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PUFFER_RUNS", raising=False)
    yield folder
    sys.modules.pop("toyfamily", None)


@pytest.fixture
def alpha(package: Path) -> EnvSpec:
    return EnvSpec("toy/alpha", make="toyfamily:Alpha", config="toyfamily:config/alpha.ini", params="toyfamily:Params")


def write(folder: Path, text: str) -> Path:
    path = folder / "own.ini"
    path.write_text(dedent(text))
    return path


def test_load_without_sources_gives_the_defaults() -> None:
    config = load(None)
    assert config == Config()
    assert config.origins["train.gamma"] == Origin()
    assert config.train.gamma == 0.995


def test_load_lets_the_environments_ini_override_the_familys(alpha: EnvSpec) -> None:
    config = load(alpha)
    assert (config.train.gamma, config.train.horizon, config.policy.hidden_size) == (0.97, 16, 32)
    assert config.env == {"size": 7, "mode": "easy", "is_slippery": False, "reward": 1.0}
    assert config.origins["train.gamma"].kind == "env"
    assert config.origins["train.horizon"].kind == "family"
    assert config.origins["train.horizon"].where.endswith("toy.ini:4")
    assert config.origins["env.size"].kind == "env"
    assert config.origins["env.mode"] == Origin()


def test_load_takes_option_over_ini_over_default(alpha: EnvSpec) -> None:
    assert load(alpha, options=["--train.gamma", ".9"]).train.gamma == 0.9
    assert load(alpha).train.gamma == 0.97
    assert load(EnvSpec("toy/other", make="toyfamily:Other")).train.gamma == 0.995


def test_load_follows_the_whole_order_of_precedence(alpha: EnvSpec, tmp_path: Path) -> None:
    own = write(tmp_path, "[train]\nlearning_rate = 0.875\n[env]\nmode = hard\n")
    assert load(alpha).train.learning_rate == 0.015
    assert load(alpha, trainer="torch").train.learning_rate == 0.5
    assert load(alpha, trainer="torch", preset="big").train.learning_rate == 0.75
    assert load(alpha, trainer="torch", preset="big", file=own).train.learning_rate == 0.875
    config = load(alpha, trainer="torch", preset="big", file=own, options=["--train.learning-rate", "0.0625"])
    assert config.train.learning_rate == 0.0625
    edits = {"train": {"learning_rate": 0.03125}}
    config = load(alpha, trainer="torch", file=own, options=["--train.learning-rate", "0.0625"], edits=edits)
    assert config.train.learning_rate == 0.03125
    assert config.origins["train.learning_rate"] == Origin("edited")
    assert config.env["mode"] == "hard"
    assert config.origins["env.mode"] == Origin("file", f"{own}:4")


def test_load_takes_the_trainers_overlay_of_family_and_environment(alpha: EnvSpec) -> None:
    config = load(alpha, trainer="torch")
    assert (config.train.clip_coef, config.train.ent_coef) == (0.1, 0.25)
    assert config.origins["train.ent_coef"].kind == "preset"
    assert config.base.trainer == "torch"


@pytest.mark.parametrize("options", [["--trainer", "torch"], {"trainer": "torch"}])
def test_load_takes_the_overlay_of_a_trainer_that_an_option_names(alpha: EnvSpec, options: Any) -> None:
    assert load(alpha, options=options).train.ent_coef == 0.25


def test_load_takes_no_overlay_while_the_trainer_is_auto(alpha: EnvSpec) -> None:
    assert load(alpha).train.ent_coef == 0.001


@pytest.mark.parametrize("how", ["argument", "option", "file", "edit"])
def test_load_finds_the_preset_wherever_it_is_named(alpha: EnvSpec, tmp_path: Path, how: str) -> None:
    given: dict[str, Any] = {
        "argument": {"preset": "big"},
        "option": {"options": ["--preset", "big"]},
        "file": {"file": write(tmp_path, "[base]\npreset = big\n")},
        "edit": {"edits": {"base": {"preset": "big"}}},
    }[how]
    config = load(alpha, **given)
    assert config.policy.hidden_size == 512
    assert config.base.preset == "big"


def test_load_applies_presets_of_the_config_file_after_its_values(alpha: EnvSpec, tmp_path: Path) -> None:
    own = write(tmp_path, "[preset.tiny.train]\ngamma = 0.5\n[train]\ngamma = 0.6\n")
    assert load(alpha, file=own).train.gamma == 0.6
    config = load(alpha, file=own, preset="tiny")
    assert config.train.gamma == 0.5
    assert fixed(config, "train.gamma")


def test_load_takes_hyphens_in_names_of_presets(alpha: EnvSpec, tmp_path: Path) -> None:
    own = write(tmp_path, "[preset.one-gpu.train]\ngamma = 0.5\n")
    assert load(alpha, file=own, preset="one-gpu").train.gamma == 0.5
    assert load(alpha, file=own, options=["--preset", "one_gpu"]).train.gamma == 0.5


def test_load_lists_the_presets_there_are(alpha: EnvSpec) -> None:
    with pytest.raises(OptionError, match="unknown preset `bigg`: there are `big`, `torch` here") as caught:
        load(alpha, preset="bigg")
    assert caught.value.hint == "did you mean `big`?"


def test_load_takes_the_runs_folder_from_the_environment_variable(
    alpha: EnvSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUFFER_RUNS", "/somewhere")
    config = load(alpha)
    assert config.base.runs_dir == "/somewhere"
    assert config.origins["runs_dir"] == Origin("default", "PUFFER_RUNS")
    assert load(alpha, options=["--runs-dir", "here"]).base.runs_dir == "here"


def test_load_reads_the_ini_of_one_environment_of_a_family(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = EnvSpec("toy/*", make="toyfamily:make", list="toyfamily:names", config="toyfamily:config/toy.ini")
    monkeypatch.setattr("puffer_core.plugins.find_env", lambda name: (family, name))
    assert load("toy/Alpha").env == {"size": 7}
    assert load("toy/Alpha").train.gamma == 0.97
    assert load("toy/beta").train.gamma == 0.9


def test_load_takes_the_encoder_that_the_spec_proposes_below_the_inis(package: Path) -> None:
    spec = EnvSpec("toy/x", make="toyfamily:X", policy="cnn")
    assert load(spec).policy.name == "cnn"
    assert load(spec).origins["policy.name"] == Origin("env", "toy/x")
    assert load(spec, options=["--policy.name", "mlp"]).policy.name == "mlp"


def test_load_names_a_missing_ini_of_a_plugin(package: Path) -> None:
    with pytest.raises(PluginError, match=r"the ini of `toy/x`, toyfamily:config/x.ini, is missing"):
        load(EnvSpec("toy/x", make="toyfamily:X", config="toyfamily:config/x.ini"))
    with pytest.raises(PluginError, match=r"the ini of `toy/x`, nowhere:x.ini, can't be found"):
        load(EnvSpec("toy/x", make="toyfamily:X", config="nowhere:x.ini"))


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["--train.gama", "1"], r"unknown key `train.gama` = `1` \(option --train.gama\)", "`--train.gamma`"),
        (["--train.learn", "3"], r"unknown key `train.learn` = `3`", "`--train.learning-rate`"),
        (["--trian.gamma", "1"], r"unknown key `trian.gamma` = `1`", "`--train.gamma`"),
        (["--train.seed", "1"], r"unknown key `train.seed` = `1`", "`--seed`"),
        (["--gamma", "1"], r"unknown key `gamma` = `1`", "`--train.gamma`"),
        (["--train.hidden-size", "1"], r"unknown key `train.hidden_size` = `1`", "`--policy.hidden-size`"),
        (["--env.siz", "1"], r"unknown key `env.siz` = `1`", "`--env.size`"),
        (["--env.num-envs", "1"], r"unknown key `env.num_envs` = `1`", "`--vec.num-envs`"),
        (["--protein.x", "1"], r"unknown key `protein.x`", "section [protein] belongs to puffer-protein"),
        (["--wrap.frame-stak", "4"], r"unknown key `wrap.frame_stak` = `4`", "`--wrap.frame-stack`"),
        (["--wrap.gamma", "1"], r"unknown key `wrap.gamma` = `1`", "`--train.gamma`"),
        (["--qqqq", "1"], r"unknown key `qqqq` = `1`", "`puffer config show ENV` lists every key"),
        (["--train.gamma.x", "1"], r"unknown key `train.gamma.x` = `1`", "`--train.gamma`"),
        (["--sweep.train.gama.min", "1"], r"unknown key `sweep.train.gama.min`", "`--train.gamma`"),
    ],
)
def test_c01_load_refuses_unknown_options_and_names_the_closest(
    alpha: EnvSpec, args: list[str], message: str, hint: str
) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        load(alpha, options=args)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--train.gamma", "auto"], r"`train.gamma` = `auto` is not a number >= 0 and <= 1 \(option --train.gamma\)"),
        (["--train.gamma", "1.5"], r"`train.gamma` = `1.5` is too large"),
        (["--train.total-timesteps", "1.5"], r"`train.total_timesteps` = `1.5` is not a whole number"),
        (["--train.total-timesteps", "0"], r"`train.total_timesteps` = `0` is out of range"),
        (["--train.anneal-lr=maybe"], r"`train.anneal_lr` = `maybe` is not a boolean"),
        (["--train.max-grad-norm", "nan"], r"`train.max_grad_norm` = `nan` is not finite"),
        (
            ["--vec.num-workers", "0"],
            r"`vec.num_workers` = `0` is out of range: it must be a whole number >= 1 or `auto`",
        ),
        (
            ["--policy.core", "lstmm"],
            r"`policy.core` = `lstmm` is not `none`, `mingru` or `lstm`; did you mean `lstm`\?",
        ),
        (["--env.size", "2"], r"`env.size` = `2` is out of range: it must be a whole number >= 3 and <= 99"),
        (["--env.mode", "hrad"], r"`env.mode` = `hrad` is not `easy` or `hard`; did you mean `hard`\?"),
        (["--env.is-slippery=2"], r"`env.is_slippery` = `2` is not a boolean"),
        (["--env.size"], r"option `--env.size` needs a value: a whole number"),
    ],
)
def test_load_refuses_illegal_values_and_says_what_is_legal(alpha: EnvSpec, args: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load(alpha, options=args)


def test_load_accepts_auto_for_counts_only() -> None:
    assert load(None, options=["--vec.num-workers", "auto"]).vec.num_workers == "auto"


@pytest.mark.parametrize("text", ["False", "false", "0", "no", "off", "OFF"])
def test_c02_load_turns_booleans_off_by_every_spelling(text: str, tmp_path: Path) -> None:
    assert load(None, options=["--train.anneal-lr", text]).train.anneal_lr is False
    assert load(None, options=["--no-train.anneal-lr"]).train.anneal_lr is False
    assert load(None, file=write(tmp_path, f"[train]\nanneal_lr = {text}\n")).train.anneal_lr is False


@pytest.mark.parametrize("text", ["1e7", "10_000_000", "10M", "1.0e7"])
def test_c03_load_reads_large_numbers_alike_from_everywhere(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"[train]\ntotal_timesteps = {text}\n")
    for config in (
        load(None, options=["--train.total-timesteps", text]),
        load(None, file=path),
        load(None, edits={"train": {"total_timesteps": text}}),
    ):
        assert config.train.total_timesteps == 10_000_000


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "[train]\ngama = 1\n",
            r"unknown key `train.gama` = `1` \(file .*own.ini:2\)",
            "did you mean `gamma` in [train]?",
        ),
        ("[trian]\ngamma = 1\n", r"own.ini: unknown section \[trian\]", "did you mean `train`?"),
        ("[trian]\n", r"own.ini: unknown section \[trian\]", "did you mean `train`?"),
        ("[train]\ngamma = x\n", r"`train.gamma` = `x` is not a number .* \(file .*own.ini:2\)", None),
        ("[preset.a.train]\ngama = 1\n", r"unknown key `train.gama` = `1` \(file .*own.ini:2\)", "did you mean"),
        ("[preset.a]\ngamma = 1\n", r"own.ini: section \[preset.a\] names no section", "write [preset.NAME.SECTION]"),
        ("[env]\nsizes = 1\n", r"unknown key `env.sizes` = `1` \(file .*own.ini:2\)", "did you mean `size` in [env]?"),
        ("[rnn]\n", r"unknown section \[rnn\]", "section [rnn] belongs to puffer-compat, which is not installed"),
        ("[sweep.train.gama]\nmin = 1\n", r"unknown section \[sweep.train.gama\]", None),
    ],
)
def test_c01_load_refuses_typos_in_files_with_their_line(
    alpha: EnvSpec, tmp_path: Path, text: str, message: str, hint: str | None
) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        load(alpha, file=write(tmp_path, text))
    assert hint is None or hint in str(caught.value.hint)


def test_load_checks_presets_that_are_not_chosen(package: Path, alpha: EnvSpec) -> None:
    with (package / "config" / "alpha.ini").open("a") as file:
        file.write("[preset.unused.train]\ngamma = 2\n")
    with pytest.raises(OptionError, match=r"`train.gamma` = `2` is too large: .* \(preset .*alpha.ini:\d+\)"):
        load(alpha)


@pytest.mark.parametrize("option", ["--train.stop-at=5", "--train.stop-at-score=5", "--resume=latest", "--config=a"])
def test_load_refuses_options_of_a_command(option: str) -> None:
    with pytest.raises(OptionError, match="is an option of `puffer run` and `puffer train`"):
        load(None, options=[option])


def test_load_gives_open_parameters_the_type_of_their_text() -> None:
    spec = EnvSpec("toy/open", make="toyfamily:Open")
    config = load(spec, options=["--env.size=3", "--env.speed=1e3", "--env.Name=Ab-v0", "--no-env.fast", "--env.deep"])
    assert config.env == {"size": 3, "speed": 1000.0, "Name": "Ab-v0", "fast": False, "deep": True}


def test_load_without_an_environment_has_no_parameters() -> None:
    with pytest.raises(OptionError, match=r"unknown key `env.x` = `1`") as caught:
        load(None, options=["--env.x", "1"])
    assert caught.value.hint == "no environment is named, so there are no parameters"


def test_load_reads_ranges_of_a_sweep(tmp_path: Path) -> None:
    text = "[sweep]\nmax_runs = 10\n[sweep.train.gamma]\ndistribution = logit_normal\nmin = 0.8\nmax = 0.9999\n"
    config = load(None, file=write(tmp_path, text), options=["--sweep.train.gamma.min", "0.7"])
    assert config.ranges == {"train.gamma": SweepRange("logit_normal", 0.7, 0.9999)}
    assert config.sweep.max_runs == 10


def test_load_treats_edits_that_change_nothing_as_not_made(alpha: EnvSpec) -> None:
    config = load(alpha, options=["--train.gamma", "0.5"])
    nested = to_dict(config)
    nested["env"]["size"] = 9
    nested["train"]["total_timesteps"] = 5e6
    nested["sweep"]["train"] = {"gamma": {"min": 0.1}}
    edited = load(alpha, options=["--train.gamma", "0.5"], edits=nested)
    assert [key for key, origin in edited.origins.items() if origin.kind == "edited"] == [
        "train.total_timesteps",
        "env.size",
        "sweep.train.gamma.min",
    ]
    assert edited.train.total_timesteps == 5_000_000
    assert edited.ranges["train.gamma"].min == 0.1
    assert edited.origins["train.gamma"].kind == "option"


def test_load_keeps_the_trainer_that_the_caller_decided(alpha: EnvSpec) -> None:
    nested = to_dict(load(alpha))
    assert nested["base"]["trainer"] == "auto"
    assert load(alpha, trainer="torch", edits=nested).base.trainer == "torch"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"train": {"gama": 1}}, r"unknown key `train.gama` = `1` \(edited\)"),
        ({"train": {"gamma": None}}, r"`train.gamma` = `None` is not a number .* \(edited\)"),
        ({"trian": {"gamma": 1}}, r"unknown key `trian.gamma` = `1` \(edited\)"),
        ({"train": 3}, r"section `train` = `3` is not a dict of keys \(edited\)"),
        ({"env": {"size": 1000}}, r"`env.size` = `1000` is too large"),
    ],
)
def test_load_checks_edits(alpha: EnvSpec, edits: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load(alpha, edits=edits)


def test_load_includes_the_options_of_the_policy_that_is_chosen(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from puffer_core.plugins import manager
    from puffer_core.specs import PolicySpec

    specs = [PolicySpec(name, encoder="toyfamily:Encoder", options="toyfamily:Encoder") for name in ("toy", "two-part")]
    policies = {spec.name: spec for spec in specs}
    registry = type("Policies", (), {"names": lambda self: list(policies), "get": lambda self, name: policies[name]})
    monkeypatch.setattr(manager(), "policies", registry())
    config = load(None, options=["--policy.name", "toy"])
    assert config.plugins["toy"].width == 8
    assert load(None, options=["--policy.name", "toy", "--toy.width", "9"]).plugins["toy"].width == 9
    assert load(None, options=["--policy.name=two-part", "--two-part.width=7"]).plugins["two_part"].width == 7
    assert load(None, options=["--policy.name=two-part"]).options_of("two-part").width == 8
    assert load(None).options_of("toy") is None
    with pytest.raises(OptionError, match=r"`toy.width` = `0` is out of range"):
        load(None, options=["--toy.width", "0"])
    with pytest.raises(OptionError, match=r"unknown key `toy.widht` = `0`") as caught:
        load(None, options=["--toy.widht", "0"])
    assert caught.value.hint == "did you mean `--toy.width`?"


def test_fixed_is_what_a_person_set(alpha: EnvSpec, tmp_path: Path) -> None:
    config = load(alpha, trainer="torch", file=write(tmp_path, "[vec]\nnum_threads = 1\n"), options=["--seed", "1"])
    keys = [key for key, _ in flatten(config) if fixed(config, key)]
    assert keys == ["seed", "vec.num_threads"]


def test_flatten_yields_every_key_with_its_section(alpha: EnvSpec) -> None:
    config = load(alpha)
    keys = [key for key, _ in flatten(config)]
    assert len(keys) == len(set(keys)) == len(config.origins)
    assert set(keys) == set(config.origins)
    assert {"seed", "train.gamma", "env.size", "sweep.max_runs"} < set(keys)


def test_config_can_not_be_changed_in_place() -> None:
    config = load(None)
    with pytest.raises(AttributeError, match="cannot assign"):
        config.train.gamma = 0.5  # type: ignore[misc]
    assert replace(config.train, gamma=0.5).gamma == 0.5


def test_param_kind_reads_rows_of_a_c_table() -> None:
    from types import SimpleNamespace as Row

    size = Row(name="size", kind="int", default=5, min=3, max=255, step=2, choices=(), live=False, help="")
    speed = Row(name="speed", kind="float", default=1.0, min=0.0, max=2.0, step=0, choices=(), live=False, help="")
    mode = Row(name="mode", kind="enum", default="a", min=0, max=1, step=0, choices=("a", "b"), live=False, help="")
    assert str(param_kind(size)) == "a whole number >= 3 and <= 255 in steps of 2"
    assert str(param_kind(speed)) == "a number >= 0 and <= 2"
    assert str(param_kind(mode)) == "`a` or `b`"
