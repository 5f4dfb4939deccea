"""Observers given to `train`: curricula through ``run.env.set``, and what becomes of them when a run is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_resume import Paid, PaidSaving
from test_resume import options, rows_of, same

from puffer_core.errors import OptionError
from puffer_core.runs import RunDirectory
from puffer_core.training import train


class Raises:
    """Pays one more at each of the given epochs."""

    def __init__(self, *epochs: int) -> None:
        self.epochs = epochs
        self.seen: list[tuple[str, Any]] = []

    def puffer_run_started(self, run: Any) -> None:
        self.seen.append(("started", dict(run.env.values)))

    def puffer_epoch_finished(self, run: Any, metrics: Mapping[str, float]) -> None:
        if run.epoch in self.epochs:
            run.env.set(pay=run.env.values.get("pay", 1.0) + 1)

    def puffer_run_finished(self, result: Mapping[str, Any]) -> None:
        self.seen.append(("finished", result["steps"]))


VECTORS: dict[str, dict[str, str]] = {
    "serial": {"vec.backend": "serial"},
    "2 workers": {"vec.backend": "multiprocessing", "vec.num_workers": "2"},
}


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_curriculum_goes_on_where_a_resumed_run_was(vector: dict[str, str], tmp_path: Path) -> None:
    given = options(tmp_path, vec__num_envs="4", **vector)
    first, second = Raises(3, 12), Raises(3, 12)
    whole = train(PaidSaving, options=given, observers=[Raises(3, 12)])
    half = train(PaidSaving, options=given, observers=[first], stop_at=640)
    rest = train(PaidSaving, resume=half["run_dir"], observers=[second])
    # What is set counts from each next episode on.
    assert [row["score"] for row in rows_of(whole)] == [
        8,
        8,
        8,
        12,
        *[16] * 8,
        20,
        *[24] * 7,
    ]
    assert same(whole, rest)
    assert rows_of(whole) == rows_of(rest)
    assert first.seen == [("started", {}), ("finished", 640)]
    assert second.seen == [("started", {"pay": 2.0}), ("finished", 1280)]


def test_environments_that_begin_anew_have_the_parameters_of_the_checkpoint(tmp_path: Path) -> None:
    half = train(Paid, options=options(tmp_path, vec__num_envs="4"), observers=[Raises(3)], stop_at=640)
    older = RunDirectory.open(half["run_dir"]).checkpoints()[1]
    rest = train(Paid, resume=half["run_dir"])
    assert [row["score"] for row in rows_of(rest)] == [8, 8, 8, 12, *[16] * 16]
    again = train(Paid, resume=str(older))
    assert [row["score"] for row in rows_of(again)] == [8.0] * 20


class Asks:
    """Sets what it is told to, and notes what comes back."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.error: OptionError | None = None
        self.after: dict[str, Any] = {}

    def puffer_epoch_finished(self, run: Any) -> None:
        try:
            run.env.set(**self.values)
        except OptionError as error:
            self.error = error
        self.after = dict(run.env.values)
        run.stop("asked")


LIVE = "these can change while running: opponent, depth"


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"depth": 99}, "depth", None),
        ({"dept": 2}, "has no parameter `dept`", f"did you mean `depth`? {LIVE}"),
        ({"self_play": True}, "`self_play` can't change while running", LIVE),
        ({"depth": 2, "self_play": True}, "`self_play` can't change while running", LIVE),
    ],
)
def test_what_a_native_environment_refuses_is_an_error_that_names_the_parameters(
    values: dict[str, Any], message: str, hint: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("puffer_ocean")
    observer = Asks(**values)
    train("ocean/connect4", options=options(tmp_path, env__num_envs="4"), observers=[observer])
    assert observer.error is not None
    assert message in str(observer.error)
    assert hint is None or hint in str(observer.error.hint)
    assert observer.after == {}


def test_values_are_those_that_json_gives_back(tmp_path: Path) -> None:
    good, bad = Asks(pay=np.float32(2.0)), Asks(pay=object())
    train(PaidSaving, options=options(tmp_path, vec__num_envs="4"), observers=[good, bad])
    assert good.after == {"pay": 2.0}
    with pytest.raises(OptionError, match="`pay` can't be saved with the run"):
        raise bad.error or AssertionError("it was taken")


def test_an_observer_saves_and_stops(tmp_path: Path) -> None:
    class Stops:
        def puffer_epoch_finished(self, run: Any, metrics: Mapping[str, float]) -> None:
            assert run.metrics == metrics
            if run.epoch == 2:
                assert run.save() == run.directory / "checkpoints" / "00000000000128"
            if run.epoch == 3:
                run.stop("enough")

    result = train(
        PaidSaving, options=options(tmp_path, vec__num_envs="4", checkpoint_interval="50"), observers=[Stops()]
    )
    assert [int(path.name) for path in RunDirectory.open(result["run_dir"]).checkpoints()] == [128, 192]


def test_an_observer_that_raises_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Clumsy:
        def puffer_epoch_finished(self) -> None:
            raise KeyError("lost")

    assert train(PaidSaving, options=options(tmp_path, vec__num_envs="4"), observers=[Clumsy()])["steps"] == 1280
    assert capsys.readouterr().err.count("observer Clumsy: puffer_epoch_finished raised KeyError: 'lost'") == 1


def test_objects_that_observe_nothing_or_ask_for_too_much_are_refused(tmp_path: Path) -> None:
    class Greedy:
        def puffer_epoch_finished(self, run: Any, trainer: Any) -> None: ...

    for observer, message in ((object(), "observer object observes nothing"), (Greedy(), "asks for `trainer`")):
        with pytest.raises(OptionError, match=message):
            train(PaidSaving, options=options(tmp_path), observers=[observer])
    assert not list(tmp_path.iterdir())
