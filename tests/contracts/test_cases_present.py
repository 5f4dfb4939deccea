"""Every case that is owed has a test that carries its id, as in `test_t01_...`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CASES = {
    "t01": "a time limit treated as death",
    "t02": "advantages bootstrap from the next episode's first state",
    "t03": "flags of ends are one step off",
    "t04": "the last step of a segment is wrong",
    "t05": "stored and recomputed log-probabilities differ before any update",
    "t06": "log-probability of the clipped action",
    "t07": "recurrent state crosses an episode's end",
    "t08": "NaN from normalising one sample or equal advantages",
    "t12": "total steps: too many, too few, none",
    "t13": "masked actions are still chosen",
    "ev01": "parallel evaluation favours short episodes",
    "k01": "a resumed run restores the weights only",
    "k03": "statistics of normalisation are not saved",
    "k05": "prefixes of compile or DDP in the names of weights",
    "k07": "an interrupted save leaves a broken file",
    "c01": "a misspelt option is ignored",
    "c02": "booleans that can not be turned off",
    "c03": "scientific notation and grouped digits",
    "c06": "two names for one environment",
    "l01": "no tracker, no training",
    "l04": "return or length of an episode is wrong after the first",
    "x01": "ranks hang at the very end",
    "x02": "all ranks see the same randomness",
    "d01": "same seed, different run",
    "d02": "the seed of a reset is ignored",
    "a01": "rho inside the bracket of the advantage",
    "a02": "a truncation bootstraps from the next episode's observation",
    "a03": "equal priorities always draw row 0",
    "a06": "state leaks across the ends of episodes",
    "a07": "a recurrent core changes how the heads begin",
    "a08": "seeds of workers overlap",
    "a09": "the seed of make() is ignored",
    "a10": "emulation wastes a step per episode",
    "a11": "asynchronous Ray waits for the slowest",
    "a12": "a dead worker hangs the program",
    "a13": "discrete observations have the wrong size",
    "a14": "wrong offsets in nested structs",
    "a15": "nested actions crash",
    "a16": "absent agents are taken for alive at a reset",
    "a17": "arrays in infos and boolean observations",
    "a18": "False is read as true",
    "a22": "zero minibatches",
    "a23": "errors fail in their own constructor",
    "a25": "sampling hides logits that are NaN",
    "a26": "absent agents are trained on",
    "a27": "bfloat16 rounds log-probabilities",
    "a28": "rows of frozen opponents are trained on",
}
NAMES = [
    name
    for path in sorted((Path(__file__).parents[1] / "core").glob("test_*.py"))
    for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("case", CASES)
def test_case_has_a_test(case: str) -> None:
    found = [name for name in NAMES if re.search(rf"^test_(?:[a-z]+\d+_)*{case}_", name)]
    assert found, f"no test is named test_{case}_...: {CASES[case]}"
