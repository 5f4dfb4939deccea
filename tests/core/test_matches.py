"""`puffer eval --versus`: who plays which seat, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_selfplay import Duel

from puffer_core.console import Reporter
from puffer_core.console.summary import eval_summary
from puffer_core.errors import OptionError, RunError
from puffer_core.evaluate import evaluate
from puffer_core.matches import Opponent, cast, summary
from puffer_core.specs import EnvSpec
from puffer_core.training import train
from puffer_core.vector import make

DUEL = EnvSpec("fake/duel", make="fakes_selfplay:Duel")
NUMBERS = EnvSpec("fake/numbers", make="fakes_selfplay:NumberDuel")
KEYS = ("versus", "win_rate", "wins", "draws", "losses", "elo_difference", "elo_difference_stderr")
SMALL = {
    "train.total_timesteps": "6144",
    "train.device": "cpu",
    "train.horizon": "8",
    "train.minibatch_size": "64",
    "train.learning_rate": "0.03",
    "vec.num_envs": "16",
    "policy.hidden_size": "8",
    "policy.num_layers": "1",
    "checkpoint_interval": "1",
    "selfplay.enabled": "on",
    "selfplay.interval": "5",
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    return {**train(DUEL, options={**SMALL, "runs_dir": str(folder)}), "folder": folder}


def checkpoints(trained: dict[str, Any]) -> list[Path]:
    return sorted((Path(trained["run_dir"]) / "checkpoints").glob("0*"))


def test_a_run_of_self_play_is_logged(trained: dict[str, Any]) -> None:
    assert trained["steps"] == 6144
    row = json.loads((Path(trained["run_dir"]) / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["selfplay/opponents"] == 7
    assert 0.4 < row["selfplay/win_rate"] <= 1.0
    assert {"selfplay/elo", "selfplay/win_rate_0"} <= row.keys()


def test_the_console_shows_how_strong_the_learner_is(tmp_path: Path) -> None:
    class Watching(Reporter):
        def show(self, snapshot: Any, *, force: bool = False) -> None:
            self.shown = snapshot()

    console = Watching()
    train(DUEL, options={**SMALL, "train.total_timesteps": "1536", "runs_dir": str(tmp_path)}, console=console)
    shown = {name for name in console.shown.environment if name not in ("perf", "score", "episode_length", "n")}
    assert shown == {"elo", "opponents", "win_rate"}


def test_the_trained_agent_beats_the_first_snapshot_from_either_side(trained: dict[str, Any]) -> None:
    first, *_, last = checkpoints(trained)
    found = evaluate(DUEL, load=last, versus=first, episodes=400)
    back = evaluate(DUEL, load=first, versus=last, episodes=400)
    assert found["win_rate"] == found["perf"] > 0.6
    assert found["elo_difference"] > 3 * found["elo_difference_stderr"] > 0
    assert found["wins"] + found["draws"] + found["losses"] == found["episodes"] == 400
    assert back["win_rate"] == pytest.approx(1 - found["win_rate"], abs=0.1)
    assert Path(found["versus"]) == first


def test_against_random(trained: dict[str, Any]) -> None:
    found = evaluate(DUEL, load=trained["run_dir"], versus="random", episodes=200, seed=3)
    assert found == evaluate(DUEL, load=trained["run_dir"], versus="random", episodes=200, seed=3)
    assert found["win_rate"] > 0.6
    assert found["versus"] == "random"
    assert "win rate" in eval_summary(found)
    assert "versus          random" in eval_summary(found)


def test_an_agent_against_itself_is_worth_half(trained: dict[str, Any]) -> None:
    found = evaluate(DUEL, load=trained["run_dir"], versus=trained["run_dir"], episodes=400)
    assert abs(found["elo_difference"]) < 4 * found["elo_difference_stderr"]


def test_alone_nothing_is_told_of_a_match(trained: dict[str, Any]) -> None:
    found = evaluate(DUEL, load=trained["run_dir"], episodes=20)
    assert not found.keys() & set(KEYS)
    assert found["perf"] == 0.5


def test_the_seats_go_round() -> None:
    with make(Duel, 8, "serial") as envs:
        opponent = Opponent("random", None, 1)
        actors, counted = cast(None, opponent, envs, False, "duel")  # type: ignore[arg-type]
        assert counted is not None
        assert np.flatnonzero(counted).tolist() == [0, 3, 4, 7, 8, 11, 12, 15]
        assert sorted(np.concatenate([actor.rows for actor in actors])) == list(range(16))


def test_one_agent_has_nobody_to_meet(tmp_path: Path) -> None:
    alone = EnvSpec("fake/match", make="fakes_env:Match")
    options = {name: text for name, text in SMALL.items() if not name.startswith("selfplay")}
    done = train(alone, options={**options, "train.total_timesteps": "512", "runs_dir": str(tmp_path)})
    with pytest.raises(OptionError, match="has one agent here: two policies need an environment with at least two"):
        evaluate(alone, load=done["run_dir"], versus="random", episodes=2)


def test_an_opponent_of_another_environment_is_refused(trained: dict[str, Any], tmp_path: Path) -> None:
    other = train(NUMBERS, options={**SMALL, "train.total_timesteps": "1536", "runs_dir": str(tmp_path)})
    with pytest.raises(RunError, match="is one of fake/numbers, not of fake/duel") as caught:
        evaluate(DUEL, load=trained["run_dir"], versus=other["run_dir"], episodes=2)
    assert caught.value.hint == "take a run of fake/duel, or `random`"
    moved = tmp_path / "moved"
    Path(other["checkpoint"]).rename(moved)
    with pytest.raises(RunError, match="was trained on actions Box"):
        evaluate(DUEL, load=trained["run_dir"], versus=moved, episodes=2)


def test_nothing_is_known_of_games_without_a_result() -> None:
    found = summary(Opponent("random", None, 0), np.zeros((3, 1), np.float32), ("length",))
    assert found == {**dict.fromkeys(KEYS), "versus": "random"}
    assert [summary(Opponent("x", None, 0), np.ones((1, 1), np.float32), ("perf",))[key] for key in KEYS] == [
        "x", 1.0, 1, 0, 0, None, None,
    ]  # fmt: skip
