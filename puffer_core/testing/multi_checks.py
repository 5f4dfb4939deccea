"""Checks of a PettingZoo environment before it is adapted: dictionaries by agent, deaths, turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from puffer_core.emulation.forms import accepts
from puffer_core.errors import shortened
from puffer_core.testing.contract import PARALLEL, TURNS, BreachError, Contract, blamed, for_framework, remark
from puffer_core.testing.samples import misfits
from puffer_core.testing.single_checks import require_number

_RESULTS = ("observations", "rewards", "terminations", "truncations", "infos")


class MultiChecks(Contract):
    """What PettingZoo environments return, agent by agent."""

    @for_framework(PARALLEL)
    def test_parallel_results_cover_every_agent(self) -> None:
        """Reset and step return one entry for each agent that was there: its last observation too."""
        with self.opened_raw() as raw:
            for where, agents, results in self._parallel(raw):
                for name, result in results.items():
                    if not isinstance(result, Mapping):
                        raise BreachError(f"{where}: {name} is a {type(result).__name__}, not a dict by agent")
                    if missing := [agent for agent in agents if agent not in result]:
                        hint = "give every agent that acted an entry, in the step in which it leaves too"
                        raise BreachError(f"{where}: {name} lacks the agents {missing}", hint)

    @for_framework(PARALLEL, TURNS)
    def test_multi_agents_are_declared(self) -> None:
        """Agents come and go among `possible_agents`, which never changes."""
        with self.opened_raw() as raw:
            possible = list(raw.possible_agents)
            for where in self._moments(raw):
                if list(raw.possible_agents) != possible:
                    raise BreachError(f"{where}: possible_agents is {raw.possible_agents}, was {possible}")
                if unknown := [agent for agent in raw.agents if agent not in possible]:
                    raise BreachError(
                        f"{where}: agents {unknown} are not in possible_agents", "declare every agent there"
                    )

    @for_framework(PARALLEL)
    def test_parallel_observations_and_rewards_fit(self) -> None:
        """Every agent's observation fits its space, rewards are finite numbers, flags booleans, infos dicts."""
        with self.opened_raw() as raw:
            has_remarked = False
            for where, agents, results in self._parallel(raw):
                for agent in agents:
                    has_remarked = self._require_fit(raw, where, agent, results, has_remarked)

    def _require_fit(self, raw: Any, where: str, agent: Any, results: Mapping[str, Any], has_remarked: bool) -> bool:
        for misfit in misfits(
            raw.observation_space(agent), results["observations"].get(agent), f"observation of {agent}"
        ):
            if not misfit.is_bound:
                raise BreachError(f"{where}: {misfit}", "declare what is returned, or convert it")
            if not has_remarked:
                remark(f"{where}: {misfit}")
            has_remarked = True
        if "rewards" in results:
            require_number(results["rewards"].get(agent), f"{where}: reward of {agent}")
            for name in ("terminations", "truncations"):
                if not isinstance(flag := results[name].get(agent), bool | np.bool_):
                    raise BreachError(f"{where}: {name}[{agent!r}] is {shortened(repr(flag))}, not a bool")
        if not isinstance(info := results["infos"].get(agent), dict):
            raise BreachError(f"{where}: info of {agent} is {shortened(repr(info))}, not a dict")
        return has_remarked

    @for_framework(PARALLEL)
    def test_parallel_agents_leave_when_they_end(self) -> None:
        """An agent whose end is told is gone from `agents` after that step."""
        with self.opened_raw() as raw:
            for where, agents, results in self._parallel(raw):
                if "terminations" not in results:
                    continue
                ended = [a for a in agents if results["terminations"].get(a) or results["truncations"].get(a)]
                if staying := [agent for agent in ended if agent in raw.agents]:
                    raise BreachError(
                        f"{where}: {staying} ended and are still in `agents`", "remove them from `agents`"
                    )
                if gone := [agent for agent in agents if agent not in ended and agent not in raw.agents]:
                    raise BreachError(
                        f"{where}: {gone} left `agents` without an end", "set its termination or truncation"
                    )

    @for_framework(PARALLEL, TURNS)
    def test_multi_spaces_stay_as_declared(self) -> None:
        """The spaces of an agent are the same after resets and steps."""
        with self.opened_raw() as raw:
            calls = {"observation_space": raw.observation_space, "action_space": raw.action_space}
            declared = {(name, a): call(a) for name, call in calls.items() for a in raw.possible_agents}
            for where in self._moments(raw):
                for (name, agent), space in declared.items():
                    if (found := getattr(raw, name)(agent)) != space:
                        raise BreachError(f"{where}: {name}({agent!r}) is {found}, declared was {space}")

    @for_framework(TURNS)
    def test_turns_finished_agents_take_none(self) -> None:
        """An agent that has ended is stepped with None once, and is gone then."""
        with self.opened_raw() as raw:
            for _ in self._turns(raw):
                continue

    @for_framework(TURNS)
    def test_turns_observations_fit_the_declared_space(self) -> None:
        """What an agent sees at its turn fits its space."""
        with self.opened_raw() as raw:
            has_remarked = False
            for step, agent, last in self._turns(raw):
                for misfit in misfits(raw.observation_space(agent), last[0], f"observation of {agent}"):
                    if not misfit.is_bound:
                        raise BreachError(f"step {step}: {misfit}", "declare what is returned, or convert it")
                    if not has_remarked:
                        remark(f"step {step}: {misfit}")
                        has_remarked = True
                require_number(last[1], f"step {step}: reward of {agent}")

    @for_framework(TURNS)
    def test_turns_rewards_out_of_turn_are_kept(self) -> None:
        """At its turn an agent is told everything it was rewarded since its last one."""
        owed: dict[Any, float] = defaultdict(float)
        with self.opened_raw() as raw:
            for step, agent, last in self._turns(raw, owed):
                if not np.isclose(float(last[1]), owed[agent], rtol=1e-5, atol=1e-6):
                    told = f"last() tells {agent} a reward of {last[1]}, since its last turn it got {owed[agent]}"
                    raise BreachError(f"step {step}: {told}", "call `self._accumulate_rewards()` after every step")
                owed[agent] = 0.0

    # -- playing ------------------------------------------------------------------------------------------------------

    def _moments(self, raw: Any) -> Iterator[str]:
        """Give where we are, after each call."""
        if hasattr(raw, "agent_selection") or hasattr(raw, "agent_iter"):
            yield from (f"step {step}" for step, _, _ in self._turns(raw))
        else:
            yield from (where for where, _, _ in self._parallel(raw))

    def _parallel(self, raw: Any) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
        """Play; give where we are, the agents that acted, and what was returned."""
        where, seeding = "reset", {"seed": 1} if accepts(raw.reset, "seed") else {}
        for agent in raw.possible_agents:
            raw.action_space(agent).seed(1)
        steps = iter(range(self.steps))
        for step in steps:
            with blamed(where):
                result = raw.reset(**seeding)
            if not isinstance(result, tuple) or len(result) != 2:
                raise BreachError(f"{where} returned {type(result).__name__}, not observations and infos")
            yield where, list(raw.agents), {"observations": result[0], "infos": result[1]}
            seeding = {}
            while raw.agents:
                agents = list(raw.agents)
                yield f"step {step}", agents, self._parallel_step(raw, step, agents)
                if (step := next(steps, -1)) < 0:
                    return
            where = f"reset after step {step}"

    def _parallel_step(self, raw: Any, step: int, agents: list[Any]) -> dict[str, Any]:
        actions = {agent: raw.action_space(agent).sample() for agent in agents}
        with blamed(f"step {step} with actions {shortened(repr(actions))}"):
            results = raw.step(actions)
        if not isinstance(results, tuple) or len(results) != 5:
            found = f"{len(results)} values" if isinstance(results, tuple) else type(results).__name__
            raise BreachError(f"step {step} returned {found}, not {', '.join(_RESULTS)}")
        return dict(zip(_RESULTS, results, strict=True))

    def _turns(self, raw: Any, owed: dict[Any, float] | None = None) -> Iterator[tuple[int, Any, tuple[Any, ...]]]:
        """Play; give the step, the agent whose turn it is, and what `last` tells it. Rewards of steps are added up."""
        for agent in raw.possible_agents:
            raw.action_space(agent).seed(1)
        seeding = {"seed": 1} if accepts(raw.reset, "seed") else {}
        steps = iter(range(self.steps))
        for step in steps:
            with blamed("reset"):
                raw.reset(**seeding)
            seeding = {}
            if owed is not None:
                owed.clear()
            while raw.agents:
                agent = raw.agent_selection
                with blamed(f"step {step}: last() of {agent}"):
                    last = raw.last()
                yield step, agent, last
                self._turn(raw, step, agent, last, owed)
                if (step := next(steps, -1)) < 0:
                    return

    def _turn(self, raw: Any, step: int, agent: Any, last: tuple[Any, ...], owed: dict[Any, float] | None) -> None:
        is_over = bool(last[2] or last[3])
        action = None if is_over else _legal_action(raw, agent, last)
        with blamed(f"step {step} of {agent}{', which has ended,' if is_over else ''} with action {action}"):
            raw.step(action)
        if is_over and agent in raw.agents:
            raise BreachError(f"step {step}: {agent} has ended, was stepped with None, and is still in `agents`")
        if owed is not None and not is_over:
            for name, reward in raw.rewards.items():
                owed[name] += float(reward)


def _legal_action(raw: Any, agent: Any, last: tuple[Any, ...]) -> Any:
    observation, info = last[0], last[4]
    mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
    if mask is None and isinstance(info, Mapping):
        mask = info.get("action_mask")
    space = raw.action_space(agent)
    return space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))
