"""The run directory: whole at any moment, found by what a person types."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from puffer_core import runs
from puffer_core.config import load
from puffer_core.errors import RunError
from puffer_core.runs import RunDirectory, find, find_checkpoint, list_runs

ENV = "ocean/toy"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of runs, named by PUFFER_RUNS, seen from an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PUFFER_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def create(root: Path, env: str = ENV, **options: str) -> RunDirectory:
    return RunDirectory.create(load(None, options=options), env, root)


def save(run: RunDirectory, step: int, text: str = "weights", raises: BaseException | None = None) -> None:
    with run.saving(step) as folder:
        (folder / "model.safetensors").write_text(text)
        if raises is not None:
            raise raises
        (folder / "state.json").write_text("{}")


def weights(checkpoint: Path) -> str:
    assert (checkpoint / "state.json").is_file()
    return (checkpoint / "model.safetensors").read_text()


def test_create_writes_configuration_and_pointer(root: Path) -> None:
    run = create(root, seed="7")
    assert run.path == root / "ocean" / "toy" / run.id
    assert re.fullmatch(r"\d{8}-\d{9}-[0-9a-f]{6}", run.id)
    assert RunDirectory.open(run.path).config == run.config
    assert run.config.base.seed == 7
    assert (root / "ocean" / "toy" / "latest").read_text() == f"{run.id}\n"
    assert RunDirectory.open(run.path).env_name == ENV


def test_create_uses_the_folder_of_the_configuration(tmp_path: Path) -> None:
    run = RunDirectory.create(load(None, options={"runs_dir": str(tmp_path / "here")}), ENV)
    assert run.path.parent == tmp_path / "here" / "ocean" / "toy"


@pytest.mark.parametrize(
    ("env", "folder"),
    [("gym/CartPole-v1", "gym/CartPole-v1"), ("a/../b", "a/env../b"), ("x:y z", "x-y-z"), ("_sweeps", "env_sweeps")],
)
def test_create_keeps_names_of_environments_inside_the_folder(root: Path, env: str, folder: str) -> None:
    assert create(root, env).path.parent == root / folder


def test_create_says_why_it_can_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"can't make a run directory in .*: Not a directory") as caught:
        create(tmp_path / "file")
    assert caught.value.hint == "choose another place with --runs-dir"


def test_ids_sort_by_time_and_are_never_shared(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes = iter(["000000", "000000", "000001"])
    real = runs.secrets.token_hex
    monkeypatch.setattr(runs.secrets, "token_hex", lambda size: next(suffixes) if size == 3 else real(size))

    class Frozen(runs.datetime):
        @classmethod
        def now(cls, tz: object = None) -> Frozen:
            return cls(2026, 1, 2, 3, 4, 5, 678901)

    monkeypatch.setattr(runs, "datetime", Frozen)
    first, second = create(root), create(root)
    assert (first.id, second.id) == ("20260102-030405678-000000", "20260102-030405678-000001")


def test_runs_made_at_once_have_directories_of_their_own(root: Path) -> None:
    made: list[RunDirectory] = []
    threads = [threading.Thread(target=lambda: made.append(create(root))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len({run.id for run in made}) == 8
    assert find("latest", ENV).id in {run.id for run in made}
    assert sorted(path.name for path in list_runs(root)) == sorted(run.id for run in made)


def test_metrics_events_and_result_are_read_back(root: Path) -> None:
    run = create(root)
    assert run.result() is None
    run.append_metrics({"step": 1, "env/score": 0.5})
    run.append_metrics({"step": 2, "loss/policy": float("nan")})
    run.event("checkpoint", step=2)
    run.write_result({"status": "finished", "score": 1.5})
    again = RunDirectory.open(run.path)
    assert again.metrics() == [{"step": 1, "env/score": 0.5}, {"step": 2, "loss/policy": None}]
    assert again.result() == {"status": "finished", "score": 1.5}
    event = runs.read_jsonl(run.path / "events.jsonl")[0]
    assert (event["kind"], event["step"]) == ("checkpoint", 2)
    assert event["time"].endswith("+00:00")


def test_rewind_drops_what_came_after_the_checkpoint(root: Path) -> None:
    run = create(root)
    for step in (10, 20, 30):
        run.append_metrics({"step": step})
    run.rewind(20)
    assert [row["step"] for row in run.metrics()] == [10, 20]


def test_saving_commits_a_whole_checkpoint(root: Path) -> None:
    run = create(root)
    save(run, 100, "a")
    save(run, 20_000, "b")
    assert [path.name for path in run.checkpoints()] == ["00000000000100", "00000000020000"]
    assert run.latest_checkpoint() == run.checkpoint_dir(20_000)
    assert weights(run.latest_checkpoint()) == "b"
    assert (run.path / "checkpoints" / "latest").read_text() == "00000000020000\n"


def test_saving_the_same_step_again_replaces_it(root: Path) -> None:
    run = create(root)
    save(run, 100, "a")
    save(run, 100, "b")
    assert weights(run.latest_checkpoint()) == "b"
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == ["00000000000100", "latest"]


def test_commit_checkpoint_takes_a_directory_that_is_in_place(root: Path) -> None:
    run = create(root)
    run.checkpoint_dir(5).mkdir(parents=True)
    assert run.commit_checkpoint(run.checkpoint_dir(5), 5) == run.latest_checkpoint()


def test_saving_removes_what_an_exception_left(root: Path) -> None:
    run = create(root)
    save(run, 100, "a")
    with pytest.raises(KeyboardInterrupt, match="by a person"):
        save(run, 200, raises=KeyboardInterrupt("by a person"))
    assert weights(run.latest_checkpoint()) == "a"
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == ["00000000000100", "latest"]


@pytest.mark.parametrize("step", [100, 200])
@pytest.mark.parametrize("function", ["os.fsync", "pathlib.Path.rename", "pathlib.Path.replace"])
def test_saving_on_a_full_disk_keeps_the_checkpoint_before(
    root: Path, monkeypatch: pytest.MonkeyPatch, function: str, step: int
) -> None:
    run = create(root)
    save(run, 100, "a")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(function, full)
        with pytest.raises(RunError, match=f"the checkpoint of step {step} can't be saved .* No space left on device"):
            save(run, step, "b")
    assert weights(run.latest_checkpoint()) in ("a", "b")
    save(run, 300, "c")
    assert weights(run.latest_checkpoint()) == "c"


CRASH = """
import os, sys
from pathlib import Path
from puffer_core.runs import RunDirectory

run, step, crash_at = RunDirectory.open(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
calls = 0


def counted(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == crash_at:
            os._exit(9)
        result = function(*args, **kwargs)
        return result
    return call


for owner, names in ((Path, ("mkdir", "rename", "replace", "unlink")), (os, ("fsync", "rmdir", "unlink"))):
    for name in names:
        setattr(owner, name, counted(getattr(owner, name)))
with run.saving(step) as folder:
    for name in ("model.safetensors", "state.json"):
        counted((folder / name).write_text)("new" if name.startswith("model") else "{}")
run.write_result({"status": "done"})
print(calls)
"""


@pytest.mark.parametrize("step", [100, 200])
def test_a_kill_at_any_moment_leaves_a_run_that_loads(root: Path, step: int) -> None:
    template = create(root)
    save(template, 100, "old")
    template.append_metrics({"step": 100})
    crash_at, done = 0, False
    while not done:
        crash_at += 1
        run = RunDirectory(template.path.with_name(f"run-{crash_at}"), ENV)
        shutil.copytree(template.path, run.path)
        code = subprocess.run(
            [sys.executable, "-c", CRASH, str(run.path), str(step), str(crash_at)], capture_output=True, timeout=60
        )
        done = code.returncode == 0
        assert done or code.returncode == 9, code.stderr.decode()
        again = find(str(run.path))
        assert again.config == template.config
        assert (
            weights(again.latest_checkpoint()) == "new"
            if done
            else weights(again.latest_checkpoint()) in ("old", "new")
        )
        assert again.result() in (None, {"status": "done"})
        save(again, 300, "later")
        assert weights(again.latest_checkpoint()) == "later"
    assert crash_at > 10


def test_latest_checkpoint_survives_a_broken_pointer(root: Path) -> None:
    run = create(root)
    save(run, 100, "a")
    save(run, 200, "b")
    for text in ("", "../../etc", "\x00"):
        (run.path / "checkpoints" / "latest").write_text(text)
        assert weights(run.latest_checkpoint()) == "b"
    (run.path / "checkpoints" / "latest").write_bytes(b"\xff")
    assert weights(run.latest_checkpoint()) == "b"


def test_latest_checkpoint_of_a_young_run_is_an_error(root: Path) -> None:
    run = create(root)
    with pytest.raises(RunError, match=f"run {run.id} has no checkpoint yet"):
        run.latest_checkpoint()


def test_unfinished_directories_are_not_seen(root: Path) -> None:
    run = create(root)
    (root / "ocean" / "toy" / ".x.partial").mkdir()
    (run.checkpoint_dir(5).parent / "00000000000005.partial").mkdir()
    assert list_runs(root) == [run.path]
    assert run.checkpoints() == []


@pytest.mark.parametrize(
    "ref",
    [
        lambda run: "latest",
        lambda run: run.id,
        lambda run: run.id[:-2],
        lambda run: str(run.path),
        lambda run: os.path.relpath(run.path),
        lambda run: f"ocean/toy/{run.id}",
        lambda run: str(run.path / "checkpoints"),
    ],
)
def test_find_takes_what_a_person_types(root: Path, ref: Callable[[RunDirectory], str]) -> None:
    older, run = create(root), create(root)
    assert older.id != run.id
    found = find(ref(run), ENV)
    assert (found.id, found.env_name) == (run.id, ENV)


def test_find_takes_the_newest_where_the_pointer_is_lost(root: Path) -> None:
    create(root)
    run = create(root)
    (root / "ocean" / "toy" / "latest").unlink()
    assert find("latest", ENV).id == run.id
    assert find("latest").id == run.id


def test_find_looks_below_the_folder_it_is_given(root: Path, tmp_path: Path) -> None:
    create(root)
    run = create(tmp_path / "other")
    assert find("latest", ENV, tmp_path / "other").id == run.id


def test_find_without_any_run_says_how_to_make_one(root: Path) -> None:
    with pytest.raises(RunError, match=r"there are no runs of ocean/toy in `.*runs`") as caught:
        find("latest", ENV)
    assert caught.value.hint == "puffer train ocean/toy"


def test_find_refuses_a_prefix_of_several(root: Path) -> None:
    create(root)
    create(root)
    with pytest.raises(RunError, match="`20` begins the ids of 2 runs: ") as caught:
        find("20", ENV)
    assert caught.value.hint == "type more of the id"


def test_find_suggests_the_closest_id(root: Path) -> None:
    run = create(root)
    with pytest.raises(RunError, match=r"there is no run `.*` of ocean/toy in") as caught:
        find(f"x{run.id[1:]}", ENV)
    assert caught.value.hint == f"did you mean `{run.id}`?"


def test_find_says_whose_run_it_is(root: Path) -> None:
    create(root)
    other = create(root, "ocean/other")
    with pytest.raises(RunError, match=f"run {other.id} is of ocean/other, not of ocean/toy"):
        find(other.id, ENV)


def test_find_refuses_a_path_without_a_run(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"`.*empty` is not in a run directory"):
        find(str(tmp_path / "empty"))
    with pytest.raises(RunError, match=r"`.*empty` is not a run directory: it holds no config\.ini"):
        RunDirectory.open(tmp_path / "empty")


def test_a_configuration_of_somebody_else_is_no_run(root: Path, tmp_path: Path) -> None:
    inside = tmp_path / "project" / "data"
    inside.mkdir(parents=True)
    for text in ("[tool]\nkey = 1\n", "not an ini", "[run]\nid = 3\n"):
        (tmp_path / "project" / "config.ini").write_text(text)
        with pytest.raises(RunError, match="is not in a run directory"):
            find(str(inside))
        assert list_runs(tmp_path / "project") == []
        assert list_runs(tmp_path) == []
    with pytest.raises(RunError, match=r"is not a run directory: its config.ini names no environment in \[run\]"):
        RunDirectory.open(tmp_path / "project")


def test_open_says_which_configuration_is_damaged(root: Path) -> None:
    run = create(root)
    (run.path / "config.ini").write_text("[run\n")
    with pytest.raises(RunError, match=r"the run in `.*` can't be read: .*config\.ini:1: `\[run` is not a section"):
        RunDirectory.open(run.path)


def test_find_checkpoint_takes_runs_and_checkpoints(root: Path) -> None:
    run = create(root)
    save(run, 100)
    save(run, 200)
    first = run.checkpoint_dir(100)
    assert find_checkpoint("latest", ENV) == run.checkpoint_dir(200)
    assert find_checkpoint(str(run.path)) == run.checkpoint_dir(200)
    assert find_checkpoint(str(first)) == first
    assert find_checkpoint(str(first / "model.safetensors")) == first


def test_module_imports_nothing_heavy() -> None:
    code = "import sys, puffer_core.runs, puffer_core.config.plan; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"torch", "numpy", "gymnasium", "rich", "pluggy"} & set(done.stdout.split())
