from __future__ import annotations

import os
import signal
import warnings
from typing import TYPE_CHECKING

import pytest

from puffer_core import plugins
from puffer_core.errors import OptionError, PluginError, UnknownNameError
from puffer_core.plugins import PluginManager, PluginState, resolve

if TYPE_CHECKING:
    from tests.core.conftest import Site

POLICIES = ["attention", "cnn", "impala", "mlp", "multi-input"]
"""What the core itself supplies."""
POLICY = """
    @hookimpl
    def puffer_policies():
        return [PolicySpec({name!r}, encoder="nowhere:Encoder")]
"""
ENV = """
    @hookimpl
    def puffer_envs():
        return [EnvSpec({name!r}, make="nowhere:Env", aliases={aliases!r})]
"""
AT_IMPORT = {
    "ImportError": "import a_package_that_is_not_there",
    "SyntaxError": "def half(:",
    "SystemExit": "raise SystemExit(3)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    "RuntimeError": "raise RuntimeError('no display')",
}
IN_A_HOOK = {
    "ZeroDivisionError": "return 1 / 0",
    "SystemExit": "raise SystemExit('bye')",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "promises PolicySpecs and returned NoneType": "return None",
    "promises PolicySpecs and returned PolicySpec": "return PolicySpec('x', encoder='a:b')",
    "promises PolicySpecs and returned dict": "return {'x': PolicySpec('x', encoder='a:b')}",
    "promises PolicySpecs and returned str": "return 'x'",
    "promises PolicySpecs and returned one LoggerSpec": "return [LoggerSpec('x', make='a:b')]",
    "encoder='nothing' is not of the form 'module:attribute'": "return [PolicySpec('x', encoder='nothing')]",
    "half way": "yield PolicySpec('x', encoder='a:b')\n    raise OSError('half way')",
}


def state_of(name: str, found: PluginManager) -> PluginState:
    return next(state for state in found.states() if state.name == name)


def test_core_is_its_own_first_plugin() -> None:
    core = PluginManager(no_plugins=True)
    assert core.states()[0] == PluginState("core", plugins.resolve("puffer_core:__version__"), "loaded", "")
    assert core.backends.names() == ["multiprocessing", "native", "ray", "serial"]
    assert core.trainers.names() == ["torch"]
    assert core.policies.names() == POLICIES
    assert core.loggers.names() == ["jsonl", "neptune", "tensorboard", "wandb"]
    assert core.sweepers.names() == []


def test_everything_the_core_registers_can_be_resolved() -> None:
    core = PluginManager(no_plugins=True)
    for registry in (core.backends, core.trainers, core.policies, core.loggers):
        for spec in registry.specs():
            for field in spec._targets:
                target = getattr(spec, field)
                assert target is None or callable(resolve(target))


def test_plugin_registers_its_specs_with_its_name_and_version(site: Site) -> None:
    site.plugin("toy", POLICY.format(name="net"))
    spec = site.manager().policies.get("net")
    assert spec.encoder == "nowhere:Encoder"
    assert str(spec.plugin) == "toy 1.0"


def test_plugin_is_imported_when_the_first_name_is_looked_up_and_once(site: Site) -> None:
    site.plugin("toy", "import os\nos.environ['TOY_IMPORTS'] = os.environ.get('TOY_IMPORTS', '') + 'x'")
    os.environ.pop("TOY_IMPORTS", None)
    found = site.manager()
    found.commands()
    assert "TOY_IMPORTS" not in os.environ
    assert found.policies.names() == POLICIES
    found.states()
    assert os.environ.pop("TOY_IMPORTS") == "x"


@pytest.mark.parametrize("error", AT_IMPORT)
def test_plugin_that_fails_to_import_is_broken_and_stops_nothing(site: Site, error: str) -> None:
    site.plugin("broken", AT_IMPORT[error])
    site.plugin("toy", POLICY.format(name="net"))
    found = site.manager()
    state = state_of("broken", found)
    assert (state.version, state.state) == ("1.0", "broken")
    assert ("ModuleNotFoundError" if error == "ImportError" else error) in state.reason
    assert "puffer_broken_entry.py:4" in state.reason
    assert found.policies.names() == [*POLICIES, "net"]


@pytest.mark.parametrize("reason", IN_A_HOOK)
def test_plugin_that_fails_in_a_hook_is_broken_and_stops_nothing(site: Site, reason: str) -> None:
    body = IN_A_HOOK[reason]
    site.plugin("broken", f"@hookimpl\ndef puffer_policies():\n    {body}")
    site.plugin("toy", POLICY.format(name="net"))
    found = site.manager()
    assert reason in state_of("broken", found).reason
    assert found.policies.names() == [*POLICIES, "net"]


@pytest.mark.parametrize(
    ("api", "source", "reason"),
    [
        ("", "", "declares no `puffer_api`"),
        ("puffer_api = 2", "", "is built for puffer_api 2, and puffer-core"),
        ("puffer_api = 1", "@hookimpl\ndef puffer_wishes(): ...", "needs a newer core: .* has no hook `puffer_wishes`"),
        ("puffer_api = 1", "@hookimpl\ndef puffer_envs(extra): ...", "needs another version of the core .*extra"),
        ("puffer_api = 1", "@hookimpl(wrapper=True)\ndef puffer_envs():\n    yield", "hooks can't be wrapped"),
        ("puffer_api = 1", "def puffer_envs():\n    return []", "`puffer_envs` is not marked with `@hookimpl`"),
    ],
)
def test_plugin_that_does_not_fit_this_core_is_broken(site: Site, api: str, source: str, reason: str) -> None:
    site.plugin("broken", source, api=api)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(state_of("broken", site.manager()).reason)


def test_plugin_may_ask_for_fewer_arguments_and_implement_an_optional_hook(site: Site) -> None:
    site.plugin(
        "toy",
        """
        @hookimpl
        def puffer_epoch_finished(run):
            run.append("epoch")

        @hookimpl(optionalhook=True)
        def puffer_wishes():
            return []
        """,
    )
    found = site.manager()
    run: list[str] = []
    for observer in found.observers():
        observer.epoch_finished(run, {"step": 1.0})
    assert run == ["epoch"]
    assert state_of("toy", found).state == "loaded"


def test_lookup_gives_the_reason_of_the_broken_plugin_that_would_have_supplied_the_name(site: Site) -> None:
    source = POLICY.format(name="net") + "\n    @hookimpl\n    def puffer_loggers():\n        return 1 / 0"
    site.plugin("broken", source)
    found = site.manager()
    with pytest.raises(UnknownNameError, match=r"unknown policy `net`; plugin broken 1.0 is broken: ZeroDivisionError"):
        found.policies.get("net")
    with pytest.raises(UnknownNameError, match="unknown policy `nut`") as caught:
        found.policies.get("nut")
    assert "broken" not in str(caught.value)
    with pytest.raises(UnknownNameError, match=r"unknown logger `any`; plugin broken 1.0 is broken: ZeroDivisionError"):
        found.loggers.get("any")


def test_lookup_suggests_the_closest_name_or_lists_them(site: Site) -> None:
    site.plugin("toy", "")
    found = site.manager()
    with pytest.raises(UnknownNameError, match="unknown trainer `torhc`") as caught:
        found.trainers.get("torhc")
    assert caught.value.hint == "did you mean `torch`?"
    with pytest.raises(UnknownNameError, match="unknown trainer `x`") as caught:
        found.trainers.get("x")
    assert caught.value.hint in ("choose from: torch", "`puffer plugins` gives the reasons")


@pytest.mark.parametrize("order", [("toy", "other"), ("other", "toy")])
def test_name_claimed_by_two_plugins_is_an_error_when_used_that_names_both(site: Site, order: tuple[str, str]) -> None:
    for name in order:
        site.plugin(name, POLICY.format(name="net"))
    found = site.manager()
    with pytest.raises(PluginError, match=r"policy `net` is claimed twice: by .* other 1.0 and .* toy 1.0") as caught:
        found.policies.get("net")
    assert caught.value.hint == "leave one out: `--block-plugin other` or `--block-plugin toy`"
    assert found.policies.names() == POLICIES
    assert state_of("toy", found) == PluginState("toy", "1.0", "conflict", "policy `net` is also claimed by other 1.0")
    assert site.manager(block=["other"]).policies.get("net").plugin == plugins.PluginInfo("toy", "1.0")


def test_name_claimed_twice_by_one_plugin_is_an_error_when_used(site: Site) -> None:
    site.plugin("toy", POLICY.format(name="net").replace("return [", "return 2 * ["))
    found = site.manager()
    with pytest.raises(PluginError, match=r"policy `net` is claimed twice: by .* toy 1.0 and .* toy 1.0"):
        found.policies.get("net")
    assert state_of("toy", found).reason == "policy `net` is also claimed by toy 1.0"


def test_name_of_the_core_stays_with_the_core(site: Site) -> None:
    site.plugin("toy", POLICY.format(name="mlp"))
    found = site.manager()
    assert str(found.policies.get("mlp").plugin).startswith("core ")
    assert found.policies.names() == POLICIES
    assert "policy `mlp` is also claimed by core" in state_of("toy", found).reason
    assert state_of("core", found).state == "loaded"


def test_plugin_named_like_the_core_is_refused(site: Site) -> None:
    site.plugin("core", POLICY.format(name="net"), distribution="puffer-toy")
    states = [state for state in site.manager().states() if state.name == "core"]
    assert [state.state for state in states] == ["loaded", "conflict"]
    assert states[1].reason == "the name `core` is taken by the core"


def test_two_distributions_with_one_plugin_name_are_both_refused(site: Site) -> None:
    site.plugin("toy", POLICY.format(name="net"))
    site.plugin("toy", POLICY.format(name="nut"), distribution="puffer-other")
    found = site.manager()
    reasons = {state.reason for state in found.states() if state.name == "toy"}
    assert reasons == {"the name `toy` is taken twice: by puffer-other 1.0 and puffer-toy 1.0"}
    with pytest.raises(UnknownNameError, match=r"unknown policy `net`; plugin toy 1.0 is in conflict: the name `toy`"):
        found.policies.get("net")
    assert site.manager(block=["puffer-other"]).policies.names() == [*POLICIES, "net"]


def test_settings_choose_what_loads(site: Site) -> None:
    site.plugin("toy", POLICY.format(name="net"))
    site.plugin("other", "raise AssertionError('imported')")
    assert state_of("other", site.manager(block=["other"])).reason == "by --block-plugin"
    assert state_of("other", PluginManager(no_plugins=True)).reason == "by --no-plugins"
    assert state_of("other", site.manager(select={"toy"})).reason == "not named in PUFFER_PLUGINS"
    missing = state_of("tyo", site.manager(select={"tyo"}))
    assert (missing.state, missing.reason) == ("missing", "named in PUFFER_PLUGINS, but not installed")


def test_blocking_a_plugin_that_is_not_there_is_an_error_with_the_closest_name(site: Site) -> None:
    site.plugin("toy", "")
    with pytest.raises(OptionError, match="--block-plugin names `tyo`, which is no plugin") as caught:
        site.manager(block=["tyo"]).load()
    assert caught.value.hint == "did you mean `toy`?"


def test_environment_variable_selects_plugins_and_none_when_empty(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("toy", POLICY.format(name="net"))
    site.plugin("other", POLICY.format(name="nut"))
    try:
        for value, names in [("toy, other", ["net", "nut"]), ("toy", ["net"]), ("", [])]:
            monkeypatch.setenv("PUFFER_PLUGINS", value)
            plugins.configure()
            assert plugins.manager().policies.names() == [*POLICIES, *names]
    finally:
        plugins.configure()


def test_errors_of_plugins_are_raised_when_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("broken", "raise RuntimeError('no display')")
    monkeypatch.setenv("PUFFER_RAISE_PLUGIN_ERRORS", "1")
    found = site.manager()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no display"):
            found.load()


def test_ctrl_c_while_a_plugin_is_imported_is_passed_on(site: Site) -> None:
    site.plugin("toy", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n[0] * 1000\n")
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            site.manager().load()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, inherited)


def test_plugin_that_prints_at_import_leaves_stdout_alone(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("toy", "print('hello from toy')")
    site.manager().load()
    assert capsys.readouterr() == ("", "hello from toy\n")


OBSERVER = """
    calls = []

    @hookimpl
    def puffer_run_started(run):
        run.append("toy started")

    @hookimpl
    def puffer_epoch_finished(run, metrics):
        run.append("toy epoch")
        raise ValueError("no such metric")

    @hookimpl
    def puffer_run_finished(run, result):
        run.append("toy finished")
"""


def test_observer_that_raises_is_reported_once_and_detached_from_the_run(site: Site) -> None:
    site.plugin("toy", OBSERVER)
    site.plugin("other", OBSERVER.replace("toy", "other").replace("raise ValueError", "str"))
    found = site.manager()
    run: list[str] = []
    other, toy = found.observers()
    other.run_started(run)
    toy.run_started(run)
    other.epoch_finished(run, {})
    with pytest.warns(RuntimeWarning, match=r"plugin toy 1.0: puffer_epoch_finished raised ValueError: no such metric"):
        toy.epoch_finished(run, {})
    with warnings.catch_warnings(record=True) as caught:
        for observer in (other, toy):
            observer.epoch_finished(run, {})
            observer.run_finished(run, {})
    assert not caught
    assert run == [
        *("other started", "toy started", "other epoch", "toy epoch"),
        *("other epoch", "other finished"),
    ]
    assert [observer.label.split()[1] for observer in found.observers()] == ["other", "toy"]


def test_observer_warning_names_the_line(site: Site) -> None:
    site.plugin("toy", OBSERVER)
    (observer,) = site.manager().observers()
    with pytest.warns(RuntimeWarning, match=r"\(puffer_toy_entry.py:\d+\); it is detached from this run"):
        observer.epoch_finished([], {})


def test_observer_errors_are_raised_when_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("toy", OBSERVER)
    (observer,) = site.manager().observers()
    monkeypatch.setenv("PUFFER_RAISE_PLUGIN_ERRORS", "1")
    with pytest.raises(ValueError, match="no such metric"):
        observer.epoch_finished([], {})


def test_observer_that_prints_leaves_stdout_alone(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.plugin("toy", "@hookimpl\ndef puffer_run_finished(run, result):\n    print('done')")
    (observer,) = site.manager().observers()
    observer.run_finished([], {})
    assert capsys.readouterr() == ("", "done\n")


def test_commands_come_from_metadata_of_the_chosen_plugins(site: Site) -> None:
    site.add("puffer-toy", plugins={"toy": "gone"}, commands={"dance": "gone:command"})
    site.add("only-commands", commands={"sing": "gone:command"})
    assert {"dance", "sing"} <= PluginManager().commands().keys()
    assert PluginManager(no_plugins=True).commands() == {}
    assert site.manager(select={"toy"}).commands().keys() == {"dance"}
    assert site.manager(select={"sing"}).commands().keys() == {"sing"}
    assert "dance" not in PluginManager(block=["toy"]).commands()
    assert "sing" not in PluginManager(block=["only-commands"]).commands()


def test_command_that_fails_to_load_says_so(site: Site) -> None:
    site.add(
        "puffer-toy",
        commands={"gone": "toy_gone:command", "five": "toy_five:five"},
        modules={"toy_five": "five = 5"},
    )
    found = PluginManager()
    with pytest.raises(
        PluginError, match=r"command `gone` of puffer-toy 1.0 is broken: ModuleNotFoundError: .*toy_gone"
    ):
        found.load_command("gone", str)
    with pytest.raises(PluginError, match=r"command `five` of puffer-toy 1.0 is broken: `toy_five:five` is no str"):
        found.load_command("five", str)
    assert found.load_command("five", int) == 5
    with pytest.raises(UnknownNameError, match="unknown command `fife`"):
        found.load_command("fife", int)


def test_command_claimed_twice_is_an_error_that_names_both(site: Site) -> None:
    site.add(
        "puffer-toy", plugins={"toy": "toy"}, commands={"dance": "gone:command"}, modules={"toy": "puffer_api = 1"}
    )
    site.add("puffer-other", commands={"dance": "gone:command"})
    with pytest.raises(PluginError, match=r"command `dance` is claimed twice: by puffer-other 1.0 and puffer-toy 1.0"):
        PluginManager().load_command("dance", int)
    assert state_of("toy", PluginManager()).reason == "command `dance` is also claimed by puffer-other 1.0"


def test_resolve_imports_what_is_named() -> None:
    assert resolve("puffer_core.plugins:PluginManager.load") is PluginManager.load


def test_resolve_blames_the_plugin_whose_import_fails(site: Site) -> None:
    site.add("puffer-toy", modules={"toy_env": "import a_package_that_is_not_there"})
    with pytest.raises(PluginError, match=r"`toy_env:Maze` can't be loaded: ModuleNotFoundError.*\(toy_env.py:1\)"):
        resolve("toy_env:Maze")
    with pytest.raises(PluginError, match="`json:maze` can't be loaded: AttributeError"):
        resolve("json:maze")


def test_resolve_keeps_the_traceback_of_the_core() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        resolve("puffer_core.plugins:nothing")
