"""From what was asked to the counts of a run: environments, rows, rollouts, minibatches, gradient steps.

Counts from defaults and ini files are proposals, fitted to the length of the run. What a person set is never replaced
by something else: it is rounded by at most a tenth, which is said, or refused with numbers that are legal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from puffer_core.config.load import fixed
from puffer_core.config.options import spell
from puffer_core.config.schema import Config, SelfPlayConfig
from puffer_core.errors import OptionError

NATIVE_AGENTS = 4096
"""Agents that ``env.num_envs = auto`` is worth."""
PYTHON_AGENTS = 64
"""Agents that ``vec.num_envs = auto`` is worth for an environment in Python."""
LEAST_ROLLOUTS = 8
"""Rollouts for which proposed counts leave room."""
TOLERANCE = 0.1
"""Largest share by which a number that a person set is rounded."""


@dataclass(frozen=True)
class Plan:
    """The counts of a run.

    Attributes:
        num_envs: Environment instances in one process: ``env.num_envs`` times ``vec.num_envs``.
        num_agents: Rows in one process, N.
        horizon: Steps of one rollout per row, H.
        minibatch_size: Transitions of one gradient step, a multiple of the horizon.
        minibatches_per_epoch: Gradient steps after each rollout.
        epochs: Rollouts.
        steps: Agent-steps that will be done, over all processes.
        steps_asked: Agent-steps that were asked for.
        gradient_steps: Gradient steps of the whole run.
        notes: What was rounded or fitted, one sentence each.
        world_size: Processes, each with these environments, rollouts and minibatches.
    """

    num_envs: int
    num_agents: int
    horizon: int
    minibatch_size: int
    minibatches_per_epoch: int
    epochs: int
    steps: int
    steps_asked: int
    gradient_steps: int
    keys: Mapping[str, int] = field(default_factory=dict)
    """The keys to which `apply` gives a number."""
    notes: tuple[str, ...] = ()
    world_size: int = 1
    num_frozen: int = 0
    """Rows that opponents of self-play have, from which nothing is learnt."""

    @property
    def batch_size(self) -> int:
        """Transitions of one rollout in one process."""
        return (self.num_agents - self.num_frozen) * self.horizon

    @property
    def summary(self) -> str:
        """One line: steps asked, steps to be done, gradient steps."""
        processes = f"{self.world_size:,} processes x " if self.world_size > 1 else ""
        return (
            f"{self.steps_asked:,} steps asked, {self.steps:,} to be done in {self.epochs:,} rollouts of "
            f"{processes}{self.num_agents - self.num_frozen:,} agents x {self.horizon:,} steps; "
            f"{self.gradient_steps:,} gradient steps of "
            f"{processes}{self.minibatch_size:,} transitions"
        )

    def apply(self, config: Config) -> Config:
        """Return ``config`` with the counts of this plan in place of proposals; planning it again changes nothing."""
        env = {**config.env, **{key[4:]: count for key, count in self.keys.items() if key.startswith("env.")}}
        return replace(
            config,
            vec=replace(config.vec, num_envs=self.keys["vec.num_envs"]),
            train=replace(config.train, minibatch_size=self.minibatch_size),
            env=env,
        )


def plan(
    config: Config, agents_per_env: int, *, is_native: bool, is_resumed: bool = False, world_size: int = 1
) -> Plan:
    """Return the counts of a run.

    Args:
        config: The configuration; origins tell what a person set.
        agents_per_env: Rows of one instance of an environment in C, or of one environment object in Python.
        is_native: Whether the environment is one in C, which has ``env.num_envs`` instances per object.
        is_resumed: Whether the run has begun: its environments stay, and another total is rounded down.
        world_size: Processes that do this side by side; the total is over all of them.

    Raises:
        OptionError: If what was set can't be met within a tenth, or would train nothing; the hint has legal numbers.
    """
    selfplay = config.selfplay
    if selfplay.enabled and agents_per_env < 2:
        msg = "selfplay.enabled: each environment has one agent, so nobody could be met"
        raise OptionError(msg, hint="a parameter may give it more, as `--env.self-play on` does with connect4")
    ask = replace(_ask(config, agents_per_env, is_native), world=world_size, selfplay=selfplay)
    if is_resumed:
        ask = replace(ask, fixed=ask.fixed - {"total"} | {"inner", "outer"})
    fitted = _fit(ask)
    problem = _problem(fitted)
    if problem:
        raise OptionError(problem, hint=_legal(ask, fitted))
    minibatch, per_epoch = _minibatch(fitted), _per_epoch(fitted)
    epochs = fitted.total // fitted.whole
    return Plan(
        num_envs=fitted.inner * fitted.outer,
        num_agents=fitted.rows,
        horizon=fitted.horizon,
        minibatch_size=minibatch,
        minibatches_per_epoch=per_epoch,
        epochs=epochs,
        steps=epochs * fitted.whole,
        steps_asked=ask.total,
        gradient_steps=epochs * per_epoch,
        keys=({"env.num_envs": fitted.inner} if is_native else {}) | {"vec.num_envs": fitted.outer},
        notes=tuple(_notes(config, ask, fitted)),
        world_size=world_size,
        num_frozen=fitted.rows - fitted.learners,
    )


def environments_against_pool(config: SelfPlayConfig, num_envs: int) -> int:
    """Return in how many of the environments the learner meets opponents from its pool: the last ones."""
    return max(1, round(config.share * num_envs)) if config.enabled and config.share > 0 else 0


@dataclass(frozen=True)
class _Ask:
    """What was asked, as numbers. Rows are ``inner * outer * agents`` in each of ``world`` processes."""

    total: int
    horizon: int
    minibatch: int
    replay: float
    inner: int
    outer: int
    unit: int
    agents: int
    is_native: bool
    fixed: frozenset[str]
    world: int = 1
    selfplay: SelfPlayConfig = field(default_factory=SelfPlayConfig)

    @property
    def rows(self) -> int:
        return self.inner * self.outer * self.agents

    @property
    def learners(self) -> int:
        """Rows that are learnt from."""
        return self.rows - environments_against_pool(self.selfplay, self.inner * self.outer) * (self.agents - 1)

    @property
    def batch(self) -> int:
        return self.learners * self.horizon

    @property
    def whole(self) -> int:
        """Transitions of one rollout of all processes."""
        return self.batch * self.world

    @property
    def loss(self) -> float:
        """The share of the steps asked for that whole rollouts leave out."""
        return (self.total % self.whole) / self.total


_KEYS = {
    "total": "train.total_timesteps",
    "horizon": "train.horizon",
    "minibatch": "train.minibatch_size",
    "replay": "train.replay_ratio",
    "inner": "env.num_envs",
    "outer": "vec.num_envs",
}


def _ask(config: Config, agents: int, is_native: bool) -> _Ask:
    train, vec = config.train, config.vec
    workers = 1 if vec.num_workers == "auto" else vec.num_workers
    batch = 1 if vec.batch_size == "auto" or not vec.zero_copy else vec.batch_size
    unit = math.lcm(workers, batch)
    inner = cast("int | str", config.env.get("num_envs", "auto")) if is_native else 1
    outer: int | str = vec.num_envs
    if outer == "auto":
        outer = unit if is_native else max(unit, PYTHON_AGENTS // agents // unit * unit)
    elif int(outer) % unit and not fixed(config, "vec.num_envs"):
        outer = max(unit, int(outer) // unit * unit)
    elif int(outer) % unit:
        raise _uneven(int(outer), unit, workers, batch)
    return _Ask(
        total=train.total_timesteps,
        horizon=train.horizon,
        minibatch=train.minibatch_size,
        replay=train.replay_ratio,
        inner=max(1, NATIVE_AGENTS // agents) if inner == "auto" else int(inner),
        outer=int(outer),
        unit=unit,
        agents=agents,
        is_native=is_native,
        fixed=frozenset(name for name, key in _KEYS.items() if fixed(config, key)),
    )


def _uneven(outer: int, unit: int, workers: int, batch: int) -> OptionError:
    below, above = outer // unit * unit, (outer // unit + 1) * unit
    legal = " or ".join(str(count) for count in (below, above) if count)
    name, size = ("vec.num_workers", workers) if outer % workers else ("vec.batch_size", batch)
    divisors = [count for count in range(1, outer + 1) if outer % count == 0]
    near = [max((d for d in divisors if d <= size), default=1), min((d for d in divisors if d >= size), default=outer)]
    others = " or ".join(str(count) for count in dict.fromkeys(near))
    hint = f"use --vec.num-envs {legal}, or {spell(name)} {others}"
    return OptionError(f"vec.num_envs={outer} is not a multiple of {name}={size}", hint=hint)


def _fit(ask: _Ask) -> _Ask:
    """Return the ask with fewer environments where their number is a proposal and the run is short."""
    limit = ask.total // (LEAST_ROLLOUTS * ask.horizon * ask.world)
    can_inner = ask.is_native and "inner" not in ask.fixed
    can_outer = "outer" not in ask.fixed
    if can_inner and ask.rows > limit:
        ask = replace(ask, inner=max(1, limit // (ask.outer * ask.agents)))
    if can_outer and ask.rows > limit:
        ask = replace(ask, outer=max(ask.unit, limit // (ask.inner * ask.agents) // ask.unit * ask.unit))
    if "total" in ask.fixed and ask.loss > TOLERANCE:
        smaller: Iterable[_Ask] = ()
        if can_inner and ask.inner > 1:
            smaller = (replace(ask, inner=inner) for inner in range(ask.inner - 1, 0, -1))
        elif can_outer:
            smaller = (replace(ask, outer=outer) for outer in range(ask.outer - ask.unit, 0, -ask.unit))
        ask = next((option for option in smaller if option.loss <= TOLERANCE), ask)
    return ask


def _minibatch(ask: _Ask) -> int:
    return max(ask.horizon, min(ask.minibatch, ask.batch) // ask.horizon * ask.horizon)


def _per_epoch(ask: _Ask) -> int:
    # The small number keeps products such as 0.29 x 100 from being floored to one less.
    return math.floor(ask.replay * ask.batch / _minibatch(ask) + 1e-9)


def _problem(ask: _Ask) -> str | None:
    """Return why these numbers can't be used, None if they can."""
    made = ask.total // ask.whole * ask.whole
    size = f"{ask.learners} agents x {ask.horizon} steps" + f" x {ask.world} processes" * (ask.world > 1)
    if made == 0:
        return f"{_named(ask, 'total')} is less than one rollout, {ask.whole}: {size}"
    if "total" in ask.fixed and ask.loss > TOLERANCE:
        rollouts = f"whole rollouts of {ask.whole} ({size})"
        return f"{_named(ask, 'total')} can't be met: {rollouts} make {made}, {ask.loss:.0%} less"
    minibatch = _minibatch(ask)
    if "minibatch" in ask.fixed and abs(minibatch - ask.minibatch) > TOLERANCE * ask.minibatch:
        if ask.minibatch > ask.batch:
            return (
                f"{_named(ask, 'minibatch')} is more than one rollout has: {ask.batch}, {ask.learners} x {ask.horizon}"
            )
        return f"{_named(ask, 'minibatch')} is not a multiple of {_named(ask, 'horizon')}"
    if _per_epoch(ask) == 0:
        return f"no gradient step would be made: {_named(ask, 'replay')} of {ask.batch} is less than {minibatch}"
    return None


def _notes(config: Config, ask: _Ask, fitted: _Ask) -> Iterable[str]:
    if config.vec.num_envs not in ("auto", ask.outer):
        yield f"vec.num_envs is {ask.outer:,} instead of {config.vec.num_envs:,}: a multiple of {ask.unit}"
    for name in ("inner", "outer"):
        before, after = getattr(ask, name), getattr(fitted, name)
        if before != after:
            yield f"{_KEYS[name]} is {after:,} instead of {before:,}: the run is short, {ask.total:,} steps"
    minibatch = _minibatch(fitted)
    if minibatch != ask.minibatch:
        reason = f"a multiple of horizon {ask.horizon:,}, at most one rollout of {fitted.batch:,}"
        yield f"train.minibatch_size is {minibatch:,} instead of {ask.minibatch:,}: {reason}"
    epochs, rest = divmod(fitted.total, fitted.whole)
    if rest:
        reason = f"{epochs:,} whole rollouts of {fitted.whole:,}"
        yield f"train.total_timesteps is {fitted.total - rest:,} instead of {fitted.total:,}: {reason}"


def _named(ask: _Ask, name: str) -> str:
    return f"{_KEYS[name].partition('.')[2]}={getattr(ask, name)}"


def _legal(ask: _Ask, fitted: _Ask) -> str:
    """Return what to change: each single change that makes the numbers legal, at most two values of each key.

    Every value was tried. Where no single change is enough, the changes to make together.
    """
    choices = []
    for name, candidates in _candidates(fitted).items():
        legal = [value for value in dict.fromkeys(candidates) if _is_legal(ask, name, value)]
        if legal:
            near = sorted(sorted(legal, key=lambda value: abs(value - getattr(fitted, name)))[:2])
            choices.append(f"{spell(_KEYS[name])} {' or '.join(str(value) for value in near)}")
    return f"use {', or '.join(choices) or ' together with '.join(_together(ask, fitted))}"


def _together(ask: _Ask, fitted: _Ask) -> Iterable[str]:
    """Yield changes of several keys that are legal together."""
    fitted = replace(fitted, total=-(-fitted.total // fitted.whole) * fitted.whole)
    fitted = replace(fitted, minibatch=_minibatch(fitted))
    fitted = replace(fitted, replay=max(fitted.replay, _least_replay(fitted)))
    for name in ("total", "minibatch", "replay"):
        if getattr(fitted, name) != getattr(ask, name):
            yield f"{spell(_KEYS[name])} {getattr(fitted, name)}"


def _least_replay(ask: _Ask) -> float:
    """Return the smallest replay ratio of three digits that makes a gradient step."""
    return math.ceil(1000 * _minibatch(ask) / ask.batch) / 1000


def _candidates(ask: _Ask) -> dict[str, list[Any]]:
    """Return, for each number, values that may be legal when everything else stays as it is."""
    per_env = ask.agents * ask.horizon
    whole = ask.minibatch // ask.horizon * ask.horizon
    trained = math.floor(ask.replay * ask.learners + 1e-9) * ask.horizon
    shares = [ask.total // (count * ask.world) for count in range(1, 11)]
    least_batch = math.ceil(ask.minibatch / min(1.0, ask.replay))
    return {
        "total": [(ask.total // ask.whole + extra) * ask.whole for extra in (0, 1)],
        "inner": [size // (per_env * ask.outer) for size in shares] + [-(-least_batch // (per_env * ask.outer))],
        "outer": [size // (per_env * ask.inner * ask.unit) * ask.unit for size in shares],
        "horizon": [size // ask.learners for size in shares] + [ask.minibatch],
        "minibatch": [min(whole, ask.batch), whole + ask.horizon, min(trained, ask.minibatch)],
        "replay": [_least_replay(ask)],
    }


def _is_legal(ask: _Ask, name: str, value: Any) -> bool:
    if value <= 0 or value == getattr(ask, name) or (name == "inner" and not ask.is_native):
        return False
    return _problem(_fit(replace(ask, **{name: value}, fixed=ask.fixed | {name}))) is None
