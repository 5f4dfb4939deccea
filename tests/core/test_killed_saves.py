"""A run directory whose process is killed at any moment of a save loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from puffer_core.config.schema import Config
from puffer_core.runs import RunDirectory

KILLS = 20
CHILD = """
import os, select, signal, sys
from itertools import count
from fakes import Guess, make_trainer
from puffer_core.runs import RunDirectory
from puffer_core.vector import make

directory = RunDirectory.open(sys.argv[1])
with make(Guess, num_envs=4) as envs:
    trainer = make_trainer(envs)
    trainer.evaluate()
    trainer.train()
    for kill in range(int(sys.argv[2])):
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            for number in count():
                with directory.saving(number % 3) as folder:
                    trainer.save(folder)
                os.write(told, b".")
        os.read(ready, 1)
        os.close(told)
        select.select([], [], [], kill * 0.37e-3)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        print(trainer.load(directory.latest_checkpoint()) == (), flush=True)
"""


def test_k07_a_kill_at_any_moment_of_a_save_leaves_a_checkpoint_that_loads(tmp_path: Path) -> None:
    directory = RunDirectory.create(Config(), "fake/guess", tmp_path)
    words = [sys.executable, "-c", CHILD, str(directory.path), str(KILLS)]
    done = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True"] * KILLS
