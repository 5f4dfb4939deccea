from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pytest

from puffer_core import plugins
from puffer_core.cli import main as cli
from puffer_core.cli.common import emit, raw_command, table, to_json
from puffer_core.cli.main import COMMANDS, main, take_plugin_options
from puffer_core.errors import OptionError, WorkerError

if TYPE_CHECKING:
    from tests.core.conftest import Site


@pytest.fixture(autouse=True)
def fresh_plugins() -> Iterator[None]:
    yield
    plugins.configure()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Put a function in the place of `puffer doctor`."""

    def put(function: Callable[..., Any]) -> None:
        monkeypatch.setitem(sys.modules, "a_command", type(sys)("a_command"))
        sys.modules["a_command"].command = raw_command("doctor")(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(COMMANDS, "doctor", ("a_command:command", "A test."))

    return put


def test_help_lists_every_command_of_the_core(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in COMMANDS.items():
        assert f"  {name.ljust(7)}  {text}\n" in out


def test_no_words_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: puffer [OPTIONS] COMMAND")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("puffer 0")


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["enxs"], "unknown command `enxs`", "did you mean `envs`?"),
        (["zzz"], "unknown command `zzz`", "`puffer --help` lists the commands"),
        (["--frobnicate"], "No such option '--frobnicate'.", "`puffer --help` says how it is called"),
        (["plugins", "--frobnicate"], "No such option '--frobnicate'.", "`puffer plugins --help` says"),
        (["envs", "no-such-env"], "unknown environment `no-such-env`", "`puffer envs` lists the names"),
        (["envs", "no-such-env", "--json"], "unknown environment `no-such-env`", "`puffer envs` lists the names"),
        (["envs", "atari/"], "unknown environment `atari/`: it comes with puffer-atari", "pip install puffer-atari"),
        (["envs", "a", "b"], "Got unexpected extra argument (b)", "`puffer envs --help` says"),
        (["--block-plugin"], "option `--block-plugin` needs the name of a plugin", "`puffer --help` says"),
        (["envs", "--block-plugin", "zzz"], "--block-plugin names `zzz`, which is no plugin", "`puffer plugins` lists"),
    ],
)
def test_mistake_prints_error_and_hint_and_exits_2(
    args: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith(f"error: {error}")
    assert second.startswith(f"hint: {hint}")


def test_raw_command_leaves_options_of_the_configuration_in_order(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda context, env, as_json: emit({"env": env, "rest": context.args}, as_json, str))
    words = ["--train.gamma", "0.9", "--json", "--env.x=-3", "--no-train.anneal-lr", "--train.y", "-3", "--seed", "1"]
    assert main(["doctor", "breakout", *words]) == 0
    rest = ["--train.gamma", "0.9", "--env.x=-3", "--no-train.anneal-lr", "--train.y", "-3", "--seed", "1"]
    assert json.loads(capsys.readouterr().out) == {"env": "breakout", "rest": rest}


def test_raw_command_wants_the_environment_first(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda context, env, as_json: None)
    assert main(["doctor", "--train.gamma", "0.9", "breakout"]) == 2
    assert "the environment comes before `--train.gamma`" in capsys.readouterr().err
    assert main(["doctor"]) == 2
    assert "Missing argument 'ENV'" in capsys.readouterr().err


def test_command_chooses_the_exit_code(command: Callable[..., None]) -> None:
    command(lambda context, env, as_json: context.exit(1))
    assert main(["doctor", "x"]) == 1


def test_error_without_hint_prints_one_line(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    def fail(context: click.Context, env: str, as_json: bool) -> None:
        raise OptionError("gamma=2 is too large")

    command(fail)
    assert main(["doctor", "x", "--json"]) == 2
    assert capsys.readouterr() == ("", "error: gamma=2 is too large\n")


def test_bug_keeps_its_traceback(command: Callable[..., None]) -> None:
    command(lambda context, env, as_json: 1 / 0)
    with pytest.raises(ZeroDivisionError, match="division"):
        main(["doctor", "x"])


def test_broken_pipe_that_is_not_stdout_is_a_bug(command: Callable[..., None]) -> None:
    def fail(context: click.Context, env: str, as_json: bool) -> None:
        raise BrokenPipeError("a worker's")

    command(fail)
    with open(os.devnull, "w") as null, pytest.MonkeyPatch.context() as patch:  # noqa: PTH123
        patch.setattr(sys, "stdout", null)
        with pytest.raises(BrokenPipeError, match="a worker's"):
            main(["doctor", "x"])


def test_ctrl_c_exits_130(command: Callable[..., None]) -> None:
    def interrupt(context: click.Context, env: str, as_json: bool) -> None:
        signal.raise_signal(signal.SIGINT)

    command(interrupt)
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        assert main(["doctor", "x"]) == 130
    finally:
        signal.signal(signal.SIGINT, inherited)


def test_keyboard_interrupt_of_the_code_itself_is_a_bug(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(context: click.Context, env: str, as_json: bool) -> None:
        raise KeyboardInterrupt

    command(interrupt)
    assert main(["doctor", "x"]) == 1
    told = capsys.readouterr().err
    assert f"{Path(__file__).name}" in told
    assert "nobody pressed Ctrl-C" in told


def test_failed_worker_exits_1_as_a_bug_in_this_process_does(
    command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(context: click.Context, env: str, as_json: bool) -> None:
        raise WorkerError("worker 1 raised ValueError: no\n\nTraceback", hint="look")

    command(fail)
    assert main(["doctor", "x"]) == 1
    assert capsys.readouterr().err == "error: worker 1 raised ValueError: no\n\nTraceback\nhint: look\n"


def test_json_stays_alone_on_stdout_whatever_writes_to_its_descriptor() -> None:
    code = (
        "import os, sys; from puffer_core.cli import main as m; from puffer_core.cli.common import emit; "
        "work = lambda as_json: (os.write(1, b'noise'), emit({'a': 1}, as_json, str)); "
        "sys.modules['x'] = sys; sys.command = m.click.option('--json', 'as_json', is_flag=True)(work); "
        "sys.command = m.click.command()(sys.command); "
        "m.COMMANDS['doctor'] = ('x:command', ''); code = m.main(['doctor', '--json']); print('after'); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ('{"a": 1}\nafter\n', "noise")


def test_bug_exits_1_and_a_reader_that_leaves_is_not_one(tmp_path: Path) -> None:
    code = (
        "import sys; from puffer_core.cli import main as m; "
        "sys.modules['x'] = sys; sys.command = m.click.command()(lambda: print(*range(99999), 1 // int(sys.argv[1]))); "
        "m.COMMANDS['doctor'] = ('x:command', ''); sys.exit(m.main(['doctor']))"
    )
    bug = subprocess.run([sys.executable, "-c", code, "0"], capture_output=True, text=True, timeout=60)
    assert (bug.returncode, bug.stdout) == (1, "")
    assert bug.stderr.startswith("Traceback")
    for unbuffered in ("", "1"):
        reader, writer = os.pipe()
        os.close(reader)
        env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        gone = subprocess.run(
            [sys.executable, "-c", code, "1"], stdout=writer, stderr=subprocess.PIPE, timeout=60, env=env
        )
        os.close(writer)
        assert (gone.returncode, gone.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_stdout_that_is_full_or_closed_is_no_bug() -> None:
    puffer = [sys.executable, "-m", "puffer_core", "envs"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(puffer, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: stdout can't be written: No space left on device",
    )
    closed = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', *puffer], stderr=subprocess.PIPE, text=True, timeout=60)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == 2
    assert capsys.readouterr().err.startswith("Usage: puffer config [OPTIONS] COMMAND")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--no-plugins", "envs"], (True, [], ["envs"])),
        (["envs", "--no-plugins"], (True, [], ["envs"])),
        (["envs", "--block-plugin", "a", "x", "--block-plugin=b"], (False, ["a", "b"], ["envs", "x"])),
        (["run", "x", "--", "--no-plugins"], (False, [], ["run", "x", "--", "--no-plugins"])),
    ],
)
def test_plugin_options_may_stand_anywhere(args: list[str], expected: tuple[bool, list[str], list[str]]) -> None:
    assert take_plugin_options(args) == expected


def test_plugins_lists_every_plugin_with_state_and_reason(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("broken", "raise ImportError('no such engine')")
    site.plugin("fine", "")
    assert main(["plugins", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["plugins"]}
    assert rows["fine"] == {"name": "fine", "version": "1.0", "state": "loaded", "reason": ""}
    assert rows["broken"]["state"] == "broken"
    assert rows["broken"]["reason"] == "ImportError: no such engine (puffer_broken_entry.py:4)"
    assert main(["plugins", "--block-plugin", "fine"]) == 0
    out = capsys.readouterr().out
    assert "broken  1.0      broken   ImportError: no such engine" in out
    assert "fine    1.0      blocked  by --block-plugin" in out


def test_no_plugins_leaves_the_core(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("fine", "@hookimpl\ndef puffer_envs():\n    return [EnvSpec('fine/env', make='a:b')]")
    assert main(["--no-plugins", "envs", "--json"]) == 0
    out, err = capsys.readouterr()
    assert {row["plugin"] for row in json.loads(out)["envs"]} == {"core"}
    assert err == ""
    assert main(["--no-plugins", "envs", "fine/env"]) == 2
    assert "error: unknown environment `fine/env`; not loaded: fine" in capsys.readouterr().err


def test_envs_lists_names_and_says_what_is_broken(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin(
        "fine", "@hookimpl\ndef puffer_envs():\n    return [EnvSpec('fine/env', make='a:b', aliases=('env1',))]"
    )
    site.plugin("broken", "1 / 0")
    assert main(["envs", "--json"]) == 0
    out, err = capsys.readouterr()
    assert {"name": "fine/env", "plugin": "fine", "aliases": ["env1"]} in json.loads(out)["envs"]
    assert "note: plugin broken 1.0 is broken: ZeroDivisionError: division by zero (puffer_broken_entry.py:4)" in err


def test_envs_imports_and_lists_a_family_when_asked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin(
        "farm",
        """
        @hookimpl
        def puffer_envs():
            return [
                EnvSpec("farm/*", make="farm_family:make", list="farm_family:names"),
                EnvSpec("sad/*", make="sad_family:make", list="farm_family:fail"),
                EnvSpec("bad/*", make="bad_family:make", list="bad_family:names"),
            ]
        """,
    )
    site.add("farm-family", modules={"farm_family": "def names(): return ['A-v1', 'B-v2']\ndef fail(): return 1 / 0"})
    assert main(["envs", "--json"]) == 0
    assert {"name": "farm/*", "plugin": "farm", "aliases": []} in json.loads(capsys.readouterr().out)["envs"]
    assert main(["envs", "farm/", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["envs"]
    assert [row["name"] for row in found] == ["farm/A-v1", "farm/B-v2"]
    assert main(["envs", "sad/*"]) == 2
    assert "error: plugin farm 1.0 can't list `sad/*`: ZeroDivisionError" in capsys.readouterr().err
    assert main(["envs", "bad/*"]) == 2
    assert "error: `bad_family:names` can't be loaded: ModuleNotFoundError" in capsys.readouterr().err


def test_command_of_a_plugin_runs_and_a_broken_one_says_so(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.add(
        "puffer-dance",
        commands={"dance": "dancing:dance", "fall": "falling:fall", "run": "dancing:dance"},
        modules={
            "dancing": "import click\n@click.command()\ndef dance():\n    click.echo('dancing')",
            "falling": "1 / 0",
        },
    )
    assert main(["--help"]) == 0
    assert (
        "Commands of plugins:\n  dance  from puffer-dance 1.0\n  fall   from puffer-dance 1.0\n"
        in capsys.readouterr().out
    )
    assert main(["dance"]) == 0
    assert capsys.readouterr().out == "dancing\n"
    assert main(["fall"]) == 2
    assert "error: command `fall` of puffer-dance 1.0 is broken: ZeroDivisionError" in capsys.readouterr().err
    assert main(["--no-plugins", "dance"]) == 2
    assert "error: unknown command `dance`" in capsys.readouterr().err


def test_command_of_the_core_can_not_be_taken(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.add(
        "puffer-dance",
        plugins={"dance": "dancing"},
        commands={"plugins": "dancing:dance"},
        modules={"dancing": "puffer_api = 1"},
    )
    assert main(["plugins"]) == 0
    assert "dance   1.0      conflict  command `plugins` is also claimed by core" in capsys.readouterr().out


def test_module_is_the_command(site: Site) -> None:
    done = site.run("plugins", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["plugins"][0]["name"] == "core"


def test_to_json_has_a_word_for_everything() -> None:
    values = {
        "nan": float("nan"),
        "inf": [float("-inf")],
        "path": Path("a/b"),
        "array": np.arange(2),
        "f": np.float32(1),
        3: (),
    }
    assert json.loads(to_json(values)) == {
        "nan": None,
        "inf": [None],
        "path": "a/b",
        "array": [0, 1],
        "f": 1.0,
        "3": [],
    }


def test_table_aligns_its_columns() -> None:
    assert table([("a", "bbb"), ("cc", "")], header=("x", "y")) == "x   y\na   bbb\ncc"


def test_cli_module_names_a_target_for_each_command() -> None:
    for name, (target, text) in cli.COMMANDS.items():
        assert target == f"puffer_core.cli.{name}:command"
        assert text.endswith(".")
