"""Cases of whole runs: seeds, names of environments, trackers, and what a fresh process does with a checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes_single import Count
from gymnasium import spaces
from safetensors.numpy import load_file

from puffer_core import errors
from puffer_core.cli.main import main
from puffer_core.config import load
from puffer_core.errors import OptionError
from puffer_core.evaluate import evaluate
from puffer_core.runs import RunDirectory
from puffer_core.specs import EnvSpec
from puffer_core.trained import environment_seed
from puffer_core.training import train
from puffer_core.vector import Multiprocessing, Serial, make

SAVING = EnvSpec("fake/saving", make="fakes_env:Saving")
SHORT_OR_LONG = EnvSpec("fake/short-or-long", make="fakes_env:ShortOrLong")
OCEAN = ("breakout", "cartpole", "connect4", "continuous", "memory", "snake", "squared", "target")
SMALL = {
    "train.device": "cpu", "train.horizon": "16", "train.minibatch_size": "64", "policy.hidden_size": "8",
    "policy.num_layers": "1",
}  # fmt: skip
BACKENDS = {
    "serial": {"vec.backend": "serial"},
    "1 worker": {"vec.backend": "multiprocessing", "vec.num_workers": "1"},
    "2 workers": {"vec.backend": "multiprocessing", "vec.num_workers": "2"},
}


def options(folder: Path, epochs: int = 5, **changes: str) -> dict[str, str]:
    given = {"vec.num_envs": "4", "train.total_timesteps": str(64 * epochs), "runs_dir": str(folder)}
    return SMALL | given | {key.replace("__", "."): text for key, text in changes.items()}


def weights(result: Any) -> dict[str, Any]:
    return dict(load_file(f"{result['checkpoint']}/model.safetensors"))


def equal(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


# -- seeds -------------------------------------------------------------------------------------------------------------


def test_d01_weights_after_five_epochs_depend_on_the_seed_alone(tmp_path: Path) -> None:
    found = [
        weights(train(SAVING, options=options(tmp_path, seed="1", vec__num_threads=threads) | backend))
        for backend in BACKENDS.values()
        for threads in ("1", "2")
    ]
    assert all(equal(found[0], other) for other in found[1:])
    assert not equal(found[0], weights(train(SAVING, options=options(tmp_path, seed="2"))))


@pytest.mark.parametrize("changes", [{"policy__core": "lstm"}, {"policy__normalize_observations": "on"}])
def test_d01_neither_a_core_nor_a_normaliser_adds_chance(changes: dict[str, str], tmp_path: Path) -> None:
    first, second = (weights(train(SAVING, options=options(tmp_path, seed="1", **changes))) for _ in range(2))
    assert equal(first, second)


def play(name: str, seed: int, before: int | None = None) -> np.ndarray[Any, Any]:
    """Return 200 steps of everything that an environment shows; ``before`` is the seed of a game left in its middle."""
    rng, rows = np.random.default_rng(0), []
    with make(f"ocean/{name}", num_envs=1) as envs:
        lows, highs = _range(envs.single_action_space)
        if before is not None:
            envs.async_reset(seed=before)
            for _ in range(37):
                envs.recv()
                envs.send(np.zeros_like(envs.actions))
            envs.recv()
        envs.async_reset(seed=seed)
        for _ in range(200):
            rows.append(np.concatenate([np.ravel(array).astype(np.float64) for array in envs.recv()[:4]]))
            actions = rng.uniform(lows, highs, (*envs.actions.shape,))
            envs.send(actions.astype(envs.actions.dtype))
    return np.stack(rows)


def _range(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    return 0, space.n if isinstance(space, spaces.Discrete) else space.nvec


@pytest.mark.parametrize("name", OCEAN)
def test_d02_every_shipped_environment_obeys_its_seed(name: str) -> None:
    pytest.importorskip("puffer_ocean")
    first = play(name, 3)
    assert np.array_equal(first, play(name, 3))
    assert np.array_equal(first, play(name, 3, before=9))
    assert not np.array_equal(first, play(name, 4))


@pytest.mark.parametrize("name", ["gym/CartPole-v1", "ocean/squared"])
@pytest.mark.parametrize("workers", [None, 1, 2, 4])
def test_x02_without_any_seed_no_two_environments_are_alike(name: str, workers: int | None) -> None:
    if name.startswith("ocean"):
        pytest.importorskip("puffer_ocean")
    how = {"backend": Serial} if workers is None else {"backend": Multiprocessing, "num_workers": workers}
    with make(name, num_envs=8, **how) as envs:
        envs.async_reset()
        rows = []
        for _ in range(20):
            rows.append(envs.recv()[0].reshape(envs.num_agents, -1).copy())
            envs.send(np.zeros_like(envs.actions))
    assert len(np.unique(np.concatenate(rows, 1), axis=0)) == envs.num_agents


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31 - 1, 2**40])
def test_x02_seeds_of_an_evaluation_are_none_of_training(seed: int) -> None:
    trained = range(seed % 2**31, seed % 2**31 + 65536)
    first = environment_seed(seed)
    assert first not in trained
    assert first + 4096 not in trained


@pytest.fixture(scope="module")
def short_or_long(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(SHORT_OR_LONG, options=options(tmp_path_factory.mktemp("runs"), epochs=1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_ev01_no_backend_favours_short_episodes(backend: str, short_or_long: dict[str, Any]) -> None:
    result = evaluate(SHORT_OR_LONG, load=short_or_long["run_dir"], episodes=64, options=BACKENDS[backend])
    # 64 draws from {2, 200}: the standard error is 12.4; the first 64 that end would have a mean near 2.
    assert result["episodes"] == 64
    assert result["score"] == pytest.approx(101, abs=3 * 12.4)
    assert result["score_stderr"] == pytest.approx(12.4, abs=1.0)


@pytest.mark.parametrize("episodes", [1, 17])
def test_ev01_any_number_of_episodes_is_played_exactly_also_after_a_run_with_workers(
    episodes: int, tmp_path: Path
) -> None:
    trained = train(SAVING, options=options(tmp_path, epochs=1) | BACKENDS["2 workers"])
    result = evaluate(SAVING, load=trained["run_dir"], episodes=episodes)
    assert (result["episodes"], result["episode_length"]) == (episodes, 8.0)


# -- a fresh process ---------------------------------------------------------------------------------------------------

FRESH = """
import json, sys
from puffer_core.evaluate import evaluate
from puffer_core.specs import EnvSpec
from puffer_core.training import train
if __name__ == "__main__":
    env, run, runs = EnvSpec("fake/saving", make="fakes_env:Saving"), *sys.argv[1:]
    score = evaluate(env, load=run, episodes=20)["score"]
    rest = train(env, options={"runs_dir": runs}, resume=run)
    print(json.dumps([score, rest["checkpoint"]]))
"""


@pytest.mark.parametrize("changes", [{}, {"policy__normalize_observations": "on", "train__optimizer": "adam"}])
def test_k01_k03_a_fresh_process_goes_on_and_evaluates_as_this_one_would(
    changes: dict[str, str], tmp_path: Path
) -> None:
    given = options(tmp_path / "runs", epochs=20, **changes)
    whole, half = train(SAVING, options=given), train(SAVING, options=given, stop_at=640)
    here = evaluate(SAVING, load=half["run_dir"], episodes=20)["score"]
    script = tmp_path / "fresh.py"
    script.write_text(FRESH)
    words = [sys.executable, str(script), half["run_dir"], str(tmp_path / "runs")]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    score, checkpoint = json.loads(done.stdout.splitlines()[-1])
    assert score == here
    for name in ("model", "arrays"):
        first, second = (load_file(f"{path}/{name}.safetensors") for path in (whole["checkpoint"], checkpoint))
        assert equal(dict(first), dict(second))


# -- command line ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["True", "true", "1", "yes", "on", "YES"])
def test_c02_every_spelling_of_true_is_true(text: str, tmp_path: Path) -> None:
    file = tmp_path / "own.ini"
    file.write_text(f"[train]\nanneal_lr = {text}\n")
    assert load(None, options=["--train.anneal-lr", text]).train.anneal_lr is True
    assert load(None, options=[f"--train.anneal-lr={text}"]).train.anneal_lr is True
    assert load(None, options=["--train.anneal-lr"]).train.anneal_lr is True
    assert load(None, file=file).train.anneal_lr is True


@pytest.mark.parametrize("text", ["2", "maybe", "yess", "", "None", "-1", "0.0"])
def test_c02_what_is_neither_true_nor_false_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"train\.anneal.lr"):
        load(None, options=[f"--train.anneal-lr={text}"])


WORDS = [*(f"--{key.replace('_', '-')}={text}" for key, text in SMALL.items()), "--train.total-timesteps=256"]
COMMANDS = {
    "envs": [],
    "config show": [],
    "check": [],
    "bench env": ["--seconds", "0.05"],
    "bench vec": ["--seconds", "0.05"],
    "bench train": [*WORDS, "--env.num-envs=4", "--seconds", "0.05"],
    "train": [*WORDS, "--env.num-envs=4"],
    "run": [*WORDS, "--env.num-envs=4", "--eval-episodes=4"],
    "eval": ["--episodes", "2"],
}


@pytest.mark.parametrize("name", ["squared", "puffer_squared", "ocean/squared"])
def test_c06_every_command_knows_every_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("puffer_ocean")
    monkeypatch.chdir(tmp_path)
    for command, words in COMMANDS.items():
        assert main([*command.split(), name, *words, "--json"]) == 0, (command, capsys.readouterr().err)
        assert "ocean/squared" in capsys.readouterr().out, command
    assert [path.name for path in (tmp_path / "runs" / "ocean").iterdir()] == ["squared"]


# -- trackers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "neptune", "tensorboard", "torch.utils.tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("no_tracker")
def test_l01_without_any_tracker_installed_a_run_keeps_its_own_log(tmp_path: Path) -> None:
    result = train(SAVING, options=options(tmp_path))
    assert RunDirectory.open(result["run_dir"]).metrics()[-1]["step"] == 320


@pytest.mark.usefixtures("no_tracker")
@pytest.mark.parametrize("logger", ["wandb", "neptune", "tensorboard", "wandb,neptune"])
def test_l01_a_tracker_that_is_not_installed_is_named_before_anything_runs(logger: str, tmp_path: Path) -> None:
    with pytest.raises(errors.PufferError, match=logger.split(",")[0]):
        train(SAVING, options=options(tmp_path, logger=logger))


def test_l01_two_loggers_at_once_leave_the_local_log_whole(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    result = train(SAVING, options=options(tmp_path, logger="jsonl,tensorboard"))
    run = RunDirectory.open(result["run_dir"])
    assert run.metrics()[-1]["step"] == 320
    assert list((run.path / "tensorboard").glob("events.*"))


# -- emulation and errors ----------------------------------------------------------------------------------------------


class Reports(Count):
    """Its infos hold arrays, its observations booleans."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"b": spaces.MultiBinary(3), "a": spaces.Box(0, 1, (2,), np.bool_)})

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self._show(), {}

    def step(self, action: Any) -> Any:
        _, *rest, _ = super().step(action)
        return self._show(), *rest, {"vector": np.array([1.0, 2.0]), "one": np.array(3.0), "flag": np.bool_(True)}

    def _show(self) -> dict[str, Any]:
        return {"b": np.array([1, 0, 1], np.int8), "a": np.array([self.t % 2 == 0, True])}


def test_a17_array_infos_arrive_and_boolean_observations_are_learnt_from(tmp_path: Path) -> None:
    with make(Reports, num_envs=2, backend=Serial) as envs:
        envs.async_reset(seed=0)
        envs.recv()
        envs.send(np.zeros(2, np.int32))
        infos = envs.recv()[4]
        assert [info["vector"].tolist() for info in infos] == [[1.0, 2.0]] * 2
        means = envs.drain_log()
        assert means is not None
        assert (means["one"], means["flag"]) == (3.0, 1.0)
    result = train(Reports, options=options(tmp_path, epochs=2))
    assert result["gradient_steps"] == 2


class Nested(Count):
    """Takes nested actions, and keeps those that are none."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.action_space = space

    def step(self, action: Any) -> Any:
        assert action in self.action_space
        return super().step(action)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([3, 4]))),
        spaces.Dict({"z": spaces.MultiDiscrete([2, 2]), "a": spaces.Discrete(3, start=2)}),
        spaces.Dict({"aim": spaces.Box(-1, 1, (2,)), "more": spaces.Tuple((spaces.Box(0, 5, (1,)),))}),
        spaces.Tuple((spaces.MultiBinary(3), spaces.Dict({"x": spaces.Discrete(2)}))),
    ],
)
def test_a15_nested_actions_reach_the_environment_as_it_declares_them(space: gymnasium.Space[Any]) -> None:
    with make(lambda: Nested(space), num_envs=2, backend=Serial) as envs:
        envs.async_reset(seed=0)
        envs.recv()
        for _ in range(20):
            drawn = np.stack([np.asarray(envs.single_action_space.sample()) for _ in range(2)])
            envs.send(drawn.astype(envs.actions.dtype).reshape(envs.actions.shape))
            envs.recv()


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PufferError)]


@pytest.mark.parametrize("kind", KINDS)
def test_a23_every_error_can_be_made_and_shown(kind: type[errors.PufferError]) -> None:
    error = kind("what was wrong", hint="what to do")
    assert (str(error), error.hint) == ("what was wrong", "what to do")
    assert isinstance(kind("what was wrong").hint, str | None)
