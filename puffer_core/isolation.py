"""Calls into plugins. Whatever a plugin does wrong becomes a reason on its record, never the end of the program."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from puffer_core.errors import PluginError, PufferError
from puffer_core.registry import Hook, Plugin
from puffer_core.specs import PluginInfo, Spec

RAISE = "PUFFER_RAISE_PLUGIN_ERRORS"
"""Environment variable: with ``1`` the errors of plugins are raised where they happen."""

S = TypeVar("S", bound=Spec)


def raises_plugin_errors() -> bool:
    """Return whether the errors of plugins are to be raised, for their authors."""
    return os.environ.get(RAISE, "") not in ("", "0")


@contextmanager
def isolated(plugin: Plugin) -> Iterator[None]:
    """Run code of a plugin; if it raises anything at all, take the plugin out of use with that reason.

    A person's Ctrl-C is passed on, a `KeyboardInterrupt` of the plugin's own is not. What it prints goes to stderr, so
    that the one object of ``--json`` stays alone on stdout.
    """
    with redirect_stdout(sys.stderr), noting_ctrl_c() as pressed:
        try:
            yield
        except BaseException as error:
            if pressed or raises_plugin_errors():
                raise
            plugin.fail("broken", describe(error))


def describe(error: BaseException) -> str:
    """Return one line about an exception: class, message, and the file and line it came from.

    Our own errors speak for themselves and come without a place.
    """
    text = " ".join(traceback.format_exception_only(error)[-1].split())
    if isinstance(error, PufferError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{text} ({Path(error.filename or '?').name}:{error.lineno})"
    core = str(Path(__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(("<", core))]
    return f"{text} ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else text


def implementations(module: object) -> dict[str, list[Hook]]:
    """Return the hook implementations of an entry module by hook, after checking that they fit this core.

    Raises:
        PluginError: If it is built for another API, implements an unknown hook, asks for an argument the hook does not
            have, wraps a hook, or forgot `@hookimpl`.
    """
    import pluggy

    from puffer_core import __version__, hookspecs

    core = f"puffer-core {__version__}"
    api = getattr(module, "puffer_api", None)
    if api != hookspecs.API:
        says = "declares no `puffer_api`" if api is None else f"is built for puffer_api {api!r}"
        raise PluginError(f"it {says}, and {core} has puffer_api {hookspecs.API}")
    checker = pluggy.PluginManager("puffer")
    checker.add_hookspecs(hookspecs)
    try:
        checker.register(module)
    except pluggy.PluginValidationError as error:
        msg = f"it needs another version of the core than {core}: {' '.join(str(error).split())}"
        raise PluginError(msg) from error
    found: dict[str, list[Hook]] = {}
    for caller in checker.get_hookcallers(module) or ():
        for implementation in caller.get_hookimpls():
            if implementation.hookwrapper or implementation.wrapper:
                raise PluginError(f"it wraps the hook `{caller.name}`, and hooks can't be wrapped")
            if caller.has_spec():
                found.setdefault(caller.name, []).append(bind(implementation.function, implementation.argnames))
            elif not implementation.optionalhook:
                raise PluginError(f"it needs a newer core: {core} has no hook `{caller.name}`")
    for name in vars(hookspecs):
        if name.startswith("puffer_") and name not in found and callable(getattr(module, name, None)):
            raise PluginError(f"its `{name}` is not marked with `@hookimpl`")
    return found


def collect(plugin: PluginInfo, name: str, kind: type[S], hooks: Iterable[Hook]) -> tuple[S, ...]:
    """Call the implementations of a hook that returns specs, and return these with the plugin written into them.

    Raises:
        PluginError: If one returns something else than it promised.
    """
    specs: list[S] = []
    for hook in hooks:
        returned = hook({})
        if not isinstance(returned, Iterable) or isinstance(returned, (str, bytes, Mapping)):
            raise PluginError(f"{name} promises {kind.__name__}s and returned {type(returned).__name__}")
        for spec in returned:
            if not isinstance(spec, kind):
                raise PluginError(f"{name} promises {kind.__name__}s and returned one {type(spec).__name__}")
            specs.append(replace(spec, plugin=plugin))
    return tuple(specs)


class Observer:
    """The observer hooks of one plugin or object; after the first exception none of them is called again.

    Args:
        label: Who is named where one raises.
        hooks: Implementations by hook.
    """

    def __init__(self, label: str, hooks: Mapping[str, Sequence[Hook]]) -> None:
        self.label = label
        self._hooks = dict(hooks)

    def run_started(self, run: Any) -> None:
        """Call `puffer_run_started`."""
        self._call("puffer_run_started", {"run": run})

    def epoch_finished(self, run: Any, metrics: Mapping[str, float]) -> None:
        """Call `puffer_epoch_finished`."""
        self._call("puffer_epoch_finished", {"run": run, "metrics": metrics})

    def run_finished(self, run: Any, result: Mapping[str, Any]) -> None:
        """Call `puffer_run_finished`."""
        self._call("puffer_run_finished", {"run": run, "result": result})

    def _call(self, name: str, arguments: Mapping[str, Any]) -> None:
        try:
            with redirect_stdout(sys.stderr):
                for hook in self._hooks.get(name, ()):
                    hook(arguments)
        except (Exception, SystemExit) as error:
            self._hooks.clear()
            if raises_plugin_errors():
                raise
            text = f"{self.label}: {name} raised {describe(error)}; it is detached from this run"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def bind(function: Callable[..., object], wanted: Sequence[str]) -> Hook:
    """Return ``function`` as something that is called with all arguments of its hook, and takes those it wants."""
    return lambda arguments: function(**{name: arguments[name] for name in wanted})


@contextmanager
def noting_ctrl_c() -> Iterator[list[int]]:
    """Yield a list that is no longer empty once a person pressed Ctrl-C."""
    pressed: list[int] = []
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield pressed
        return

    def note(number: int, frame: Any) -> None:
        pressed.append(number)
        previous(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, previous)
