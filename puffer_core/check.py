"""The conformance kit without pytest: `check` runs every check of `EnvContract` on any environment and reports.

An environment given as text is checked in a child process, so that a crash or a hang costs one check and names it.
"""

from __future__ import annotations

import base64
import pickle
import re
import signal
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from puffer_core import plugins
from puffer_core.errors import OptionError, PufferError
from puffer_core.specs import EnvSpec
from puffer_core.testing.contract import BreachError, described
from puffer_core.testing.envs import EnvContract
from puffer_core.testing.isolated import Outcome, run_isolated
from puffer_core.testing.target import find_target, is_declared

_OPENS = "opens_steps_and_closes"
_PLAY_S = 1.5
"""Seconds of play that one trajectory may take; slow environments are played for fewer steps."""
_STEPS, _FEWEST_STEPS = 400, 30
_SLOW_RESET_S = 0.05
_CASE_TIMEOUT_S, _MAX_HUNG = 60.0, 2
"""A check that takes longer has hung; after two of them nothing more is tried."""


@dataclass(frozen=True)
class Finding:
    """One thing that a check found."""

    name: str
    """Of the check, without ``test_``."""
    reason: str
    """What was found, where, at which step."""
    hint: str | None = None
    """How to mend it."""


@dataclass(frozen=True)
class Report:
    """What the kit found out about one environment."""

    env: str
    passed: tuple[str, ...] = ()
    failed: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    """Allowed, and good to know."""
    limits: tuple[str, ...] = ()
    """What its framework can't give; not failed."""

    @property
    def is_ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as `puffer check --json` prints it."""
        return {
            "env": self.env,
            "passed": list(self.passed),
            "failed": [asdict(finding) for finding in self.failed],
            "warnings": [asdict(finding) for finding in self.warnings],
            "limits": list(self.limits),
        }


@dataclass(frozen=True)
class Case:
    """One check of one environment; it can be sent to a child process."""

    env: Any
    params: Mapping[str, Any] = field(default_factory=dict)
    is_random: bool | None = None
    steps: int = _STEPS
    name: str = _OPENS
    plugin_settings: Mapping[str, Any] = field(default_factory=dict)

    def contract(self) -> EnvContract:
        """Return the suite, set up for the environment."""
        contract = EnvContract()
        contract.env = find_target(self.env) if isinstance(self.env, str) else self.env
        contract.params, contract.is_random, contract.steps = self.params, self.is_random, self.steps
        return contract


@dataclass(frozen=True)
class Result:
    """What became of one check."""

    name: str
    failure: Finding | None = None
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Probe:
    """What opening the environment told."""

    opening: Result
    env: str = ""
    limits: tuple[str, ...] = ()
    steps: int = _STEPS
    names: tuple[str, ...] = ()
    """Checks that are left to run."""


def check(
    env: Any,
    params: Mapping[str, Any] | None = None,
    *,
    is_random: bool | None = None,
    isolated: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> Report:
    """Run the conformance kit on an environment.

    Args:
        env: Its name, ``module:attribute`` or ``path/to/file.py:Class``; or a class, a factory, a spec, a capsule.
        params: Parameters of the environment.
        is_random: Whether two seeds have to give two trajectories; None: where episodes without a seed differ.
        isolated: Whether checks run in a child process, where a crash or a hang fails one check. None: where ``env`` is
            a text, so that a child can find it.
        say: Called with a line when a check begins.

    Returns:
        What passed, what failed and why, what is worth knowing, and the limits that are declared.

    Raises:
        PufferError: If there is no such environment, or a parameter is illegal.
    """
    if isinstance(env, str):
        find_target(env)
    case = Case(env, dict(params or {}), is_random, plugin_settings=plugins.settings())
    run = _run_in_child if isolated or (isolated is None and isinstance(env, str)) else _run_here
    (probed,) = run(probe, [case], None if say is None else lambda i: say(f"{_OPENS} ..."))
    if isinstance(probed, Result):
        probed = Probe(probed, str(env))
    names = probed.names
    on_start = None if say is None else lambda i: say(f"{names[i]} ... ({i + 2} of {len(names) + 1})")
    results = [probed.opening, *run(run_check, [replace(case, name=n, steps=probed.steps) for n in names], on_start)]
    warned = {finding.reason: finding for result in reversed(results) for finding in result.warnings}
    return Report(
        env=probed.env,
        passed=tuple(result.name for result in results if result.failure is None),
        failed=tuple(result.failure for result in results if result.failure is not None),
        warnings=tuple(reversed(warned.values())),
        limits=probed.limits,
    )


def check_names(framework: str | None = None, limits: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of the checks that apply, in the order in which they are run.

    Args:
        framework: As in `Contract.framework`; None: of every one.
        limits: Checks of what an environment can't give are left out.
    """
    names = {}
    for part in EnvContract.__mro__:
        for name, function in vars(part).items():
            if not name.startswith("test_"):
                continue
            frameworks, limit = getattr(function, "frameworks", None), getattr(function, "limit", None)
            if (frameworks is None or framework is None or framework in frameworks) and limit not in limits:
                names[name.removeprefix("test_")] = frameworks is not None
    return tuple(sorted(names, key=lambda name: (name != _OPENS, not names[name])))


def probe(case: Case) -> Probe:
    """Open the environment, and measure how long it takes to step."""
    contract = case.contract()
    opening = run_check(case)
    name = contract.source.name if contract.source is not None else ""
    if opening.failure is not None:
        return Probe(opening, name, names=_of_framework_only(contract))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limits = contract.all_limits
        names = check_names(contract.framework, limits)
        step_s, reset_s = _timings(contract)
    if reset_s > _SLOW_RESET_S and reset_s > 20 * step_s:
        told = f"a reset takes {reset_s * 1e3:.0f} ms, as long as {reset_s / step_s:.0f} steps"
        slow = Finding("slow_reset", told, "prepare what episodes share once, in the constructor")
        opening = replace(opening, warnings=(*opening.warnings, slow))
    steps = max(_FEWEST_STEPS, min(_STEPS, int(_PLAY_S / step_s)))
    return Probe(opening, name, limits, steps, tuple(n for n in names if n != _OPENS))


def run_check(case: Case) -> Result:
    """Run one check, and gather what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        failure = _failure(case)
    told = [warning for warning in caught if issubclass(warning.category, UserWarning)]
    return Result(case.name, failure, tuple(Finding(case.name, str(warning.message)) for warning in told))


def _failure(case: Case) -> Finding | None:
    try:
        getattr(case.contract(), f"test_{case.name}")()
    except BreachError as breach:
        return Finding(case.name, breach.message, breach.hint)
    except PufferError as error:
        return Finding(case.name, str(error), error.hint)
    except Exception as error:
        return Finding(case.name, described(error))
    return None


def _of_framework_only(contract: EnvContract) -> tuple[str, ...]:
    """Return the checks of an environment that can't be adapted: those that look at it as it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            framework = contract.framework
    except Exception:  # it can't even be made, which the report says already
        return ()
    return tuple(name for name in check_names(framework) if name not in check_names("")) if framework else ()


def _timings(contract: EnvContract) -> tuple[float, float]:
    """Return the seconds of a step and of a reset, the median of a few; next to nothing where that fails."""
    with suppress(BreachError), contract.opened() as env:
        resets, start = [], time.perf_counter()
        for seed in range(3):
            begun = time.perf_counter()
            contract.reset(env, seed)
            resets.append(time.perf_counter() - begun)
        contract.steps, start = _FEWEST_STEPS, time.perf_counter()
        for _ in contract.play(env):
            continue
        step_s = (time.perf_counter() - start) / _FEWEST_STEPS
        return max(step_s, 1e-9), sorted(resets)[1]
    return 1e-9, 0.0  # a check will tell


def _run_here(
    function: Callable[[Case], Any], cases: list[Case], on_start: Callable[[int], None] | None = None
) -> list[Any]:
    results = []
    for i, case in enumerate(cases):
        if on_start is not None:
            on_start(i)
        results.append(function(case))
    return results


def _run_in_child(
    function: Callable[[Case], Any], cases: list[Case], on_start: Callable[[int], None] | None = None
) -> list[Any]:
    """Return what the function gives for each case, in a child process; where that dies, a failed `Result`."""
    work = [(function.__name__, case) for case in cases]
    outcomes = run_isolated(
        "puffer_core.check:answer", work, case_timeout_s=_CASE_TIMEOUT_S, max_hung=_MAX_HUNG, on_start=on_start
    )
    return [_unpacked(outcome, case) for outcome, case in zip(outcomes, cases, strict=True)]


def answer(work: tuple[str, Case]) -> str:
    """Do in the child what the parent asks; what it answers is a text."""
    name, case = work
    plugins.configure(**case.plugin_settings)
    function: Callable[[Case], Any] = {"probe": probe, "run_check": run_check}[name]
    return base64.b64encode(pickle.dumps(function(case))).decode()


def _unpacked(outcome: Outcome, case: Case) -> Any:
    if outcome.status == "ok":
        return pickle.loads(base64.b64decode(outcome.detail))
    return Result(case.name, Finding(case.name, _last_words(outcome)))


def _last_words(outcome: Outcome) -> str:
    """Return in words how a child ended that did not answer."""
    found = re.match(r"exit status (-?\d+): (.*)", outcome.detail, flags=re.DOTALL)
    if found is None:
        return f"{'it hung: ' if outcome.status == 'hung' else ''}{outcome.detail}"
    status, words = int(found[1]), found[2].strip().splitlines()
    died = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
    return f"the process ended {died}" + (f": {words[-1]}" if words else "")


def params_of(env: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters that options of the command line give, typed; nothing else has a meaning here.

    Args:
        env: A name or the place of a class, as in `check`.
        given: Key -> text, as `config.options.parse` returns them.
    """
    from puffer_core import config

    if refused := [key for key in given if not key.startswith("env.")]:
        hint = "this takes --env.KEY, --deterministic and --json"
        raise OptionError(f"`{config.options.spell(refused[0])}` has no meaning here", hint=hint)
    if is_declared(env):
        params = dict(config.load(env, options=given).env)
        return {key: value for key, value in params.items() if key != "num_envs"}
    return dict(config.load(EnvSpec("checked", make="puffer_core.check:check"), options=given).env)
