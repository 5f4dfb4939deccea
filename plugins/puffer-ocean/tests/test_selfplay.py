"""Connect four learnt by self-play alone, with the settings of the ini."""

from __future__ import annotations

from pathlib import Path

import pytest

from puffer_core.evaluate import evaluate
from puffer_core.training import train

SHORT = {"train.total_timesteps": "49152", "env.num_envs": "32", "train.minibatch_size": "512", "train.device": "cpu"}
SCRIPTED = {"env.self_play": "off", "env.opponent": "1"}


def learn(folder: Path, options: dict[str, str]) -> tuple[Path, Path]:
    """Train; return the first and the last checkpoint."""
    result = train("connect4", preset="selfplay", options={**options, "runs_dir": str(folder)})
    return min((Path(result["run_dir"]) / "checkpoints").glob("0*")), Path(result["checkpoint"])


def test_the_preset_plays_against_its_pool(tmp_path: Path) -> None:
    first, last = learn(tmp_path, {**SHORT, "selfplay.interval": "2"})
    for opponent in (first, "random"):
        found = evaluate("connect4", load=last, versus=opponent, episodes=100)
        assert found["wins"] + found["draws"] + found["losses"] == 100
        assert found["unfinished"] == 0


@pytest.mark.slow
def test_self_play_learns_to_beat_what_it_was_and_what_it_never_met(tmp_path: Path) -> None:
    first, last = learn(tmp_path, {"train.device": "cpu", "checkpoint_interval": "20"})
    assert evaluate("connect4", load=last, versus=first, episodes=400)["win_rate"] > 0.8
    before, after = (
        evaluate("connect4", load=checkpoint, episodes=2000, options=SCRIPTED)["perf"] for checkpoint in (first, last)
    )
    assert after > before + 0.02
