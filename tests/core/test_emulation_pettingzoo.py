from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes_pettingzoo import Schedule, Spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple

from puffer_core import vector
from puffer_core.emulation import PettingZooPufferEnv
from puffer_core.emulation.spaces import FlatActions, FlatBox
from puffer_core.errors import EnvError, OptionError, UsageError

FLOATS = Box(-1, 1, (2,), np.float32)
END = dict.fromkeys(("agent_0", "agent_1", "agent_2"), "terminate")


def opened(env: Any, seed: int = 7) -> PettingZooPufferEnv:
    adapted = PettingZooPufferEnv(env)
    adapted.reset(seed)
    return adapted


def step(env: PettingZooPufferEnv) -> list[dict[str, Any]]:
    return env.step(np.zeros_like(env.actions))[4]


def rows(env: PettingZooPufferEnv) -> dict[str, Any]:
    names = ("observations", "rewards", "terminals", "truncations", "masks")
    return {name: getattr(env, name).tolist() for name in names}


# -- who is there -----------------------------------------------------------------------------------------------------


def test_rows_are_the_possible_agents_in_their_order() -> None:
    env = opened(Schedule({}))
    assert env.possible_agents == ("agent_0", "agent_1", "agent_2")
    assert (env.num_agents, env.num_envs, env.num_instances) == (3, 1, 1)
    assert env.single_observation_space == Box(-100, 1000, (3,), np.float32)
    assert env.single_action_space == Discrete(4)
    assert env.action_mask is None
    assert env.observations.tolist() == [[1, 7, 0], [2, 7, 0], [3, 7, 0]]
    assert env.masks.all()


def test_step_brings_everybody_what_is_theirs() -> None:
    env = opened(Schedule({}))
    env.step(np.array([3, 2, 1], np.int32))
    assert env.env.taken == [{"agent_0": 3, "agent_1": 2, "agent_2": 1}]
    assert rows(env) == {
        "observations": [[1, 7, 1], [2, 7, 1], [3, 7, 1]],
        "rewards": [1, 11, 21],
        "terminals": [False] * 3,
        "truncations": [False] * 3,
        "masks": [True] * 3,
    }


@pytest.mark.parametrize("poison", [False, True])
def test_a16_an_agent_that_leaves_keeps_its_row_and_one_that_enters_gets_its_own(poison: bool) -> None:
    events = {2: {"agent_1": "terminate"}, 4: {"agent_3": "enter"}, 20: dict.fromkeys(("agent_0",), "truncate")}
    env = opened(Schedule(events, agents=4, absent=("agent_3",), poison=poison))
    assert env.masks.tolist() == [True, True, True, False]
    step(env)
    step(env)
    assert env.terminals.tolist() == [False, True, False, False]
    assert env.rewards.tolist() == [2, 12, 22, 0]
    assert env.final_observations[1].tolist() == [2, 7, 2]
    assert env.observations.tolist() == [[1, 7, 2], [0, 0, 0], [3, 7, 2], [0, 0, 0]]
    assert env.masks.tolist() == [True, False, True, False]
    step(env)
    assert env.env.taken[-1].keys() == {"agent_0", "agent_2"}
    assert env.rewards.tolist() == [3, 0, 23, 0]
    assert not (env.terminals | env.truncations).any()
    step(env)
    assert env.masks.tolist() == [True, False, True, True]
    assert env.observations[3].tolist() == [4, 7, 4]
    for _ in range(16):
        step(env)
        assert np.isfinite(env.observations).all()
        assert np.isfinite(env.rewards).all()
    assert env.truncations.tolist() == [True, False, False, False]
    assert env.masks.tolist() == [False, False, True, True]


def test_agent_that_comes_back_is_alive_from_its_first_observation() -> None:
    env = opened(Schedule({1: {"agent_0": "terminate"}, 3: {"agent_0": "enter"}}))
    masks = []
    for _ in range(4):
        step(env)
        masks.append(bool(env.masks[0]))
    assert masks == [False, False, True, True]
    assert env.env.taken[2].keys() == {"agent_1", "agent_2"}
    assert env.env.taken[3].keys() == {"agent_0", "agent_1", "agent_2"}
    assert env.observations[0].tolist() == [1, 7, 4]


def test_agent_that_leaves_without_a_flag_is_terminal_with_what_it_saw_last() -> None:
    env = opened(Schedule({2: {"agent_2": "vanish"}}))
    step(env)
    step(env)
    assert env.terminals.tolist() == [False, False, True]
    assert env.final_observations[2].tolist() == [3, 7, 1]
    assert not env.masks[2]


def test_both_flags_are_one_end_of_the_task() -> None:
    env = opened(Schedule({1: {"agent_0": "both"}}))
    step(env)
    assert (env.terminals[0], env.truncations[0]) == (True, False)


@pytest.mark.parametrize("first", ["terminate", "truncate", "vanish"])
def test_episode_that_ends_in_mixed_ways_begins_anew_in_the_same_step(first: str) -> None:
    end = {"agent_0": first, "agent_1": "terminate", "agent_2": "truncate"}
    env = opened(Schedule({2: end}))
    step(env)
    step(env)
    assert env.observations.tolist() == [[1, 8, 0], [2, 8, 0], [3, 8, 0]]
    assert env.final_observations[1:].tolist() == [[2, 7, 2], [3, 7, 2]]
    assert (env.terminals ^ env.truncations).all()
    assert env.masks.all()
    step(env)
    assert env.observations[0].tolist() == [1, 8, 1]
    assert not (env.terminals | env.truncations).any()


def test_row_of_an_agent_that_died_earlier_has_no_flag_when_the_episode_ends() -> None:
    env = opened(Schedule({1: {"agent_0": "terminate"}, 3: {"agent_1": "truncate", "agent_2": "truncate"}}))
    for _ in range(3):
        step(env)
    assert env.terminals.tolist() == [False] * 3
    assert env.truncations.tolist() == [False, True, True]
    assert env.rewards.tolist() == [0, 13, 23]
    assert env.masks.all()
    assert env.observations[0].tolist() == [1, 8, 0]


def test_flagged_agents_that_stay_listed_do_not_keep_an_episode_alive() -> None:
    class Stubborn(Schedule):
        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            self.agents = list(self.possible_agents)
            return result

    env = opened(Stubborn({2: END}))
    step(env)
    step(env)
    assert env.terminals.all()
    assert env.observations[0].tolist() == [1, 8, 0]


# -- seeds, vectors ---------------------------------------------------------------------------------------------------


def test_reset_gives_the_environment_seed_and_index() -> None:
    env = PettingZooPufferEnv(Schedule({}))
    env.reset(5, index=3)
    assert env.observations[0, 1] == 8


def test_seed_of_the_constructor_is_that_of_the_first_reset() -> None:
    env = PettingZooPufferEnv(Schedule({}), seed=40)
    env.reset()
    assert env.observations[0, 1] == 40
    env.reset()
    assert env.observations[0, 1] == 41


def test_environment_without_seed_is_called_bare_and_says_so() -> None:
    class Unseeded(Schedule):
        def reset(self) -> Any:  # type: ignore[override]
            return super().reset()

    with vector.make(lambda: Unseeded({}), num_envs=2, backend="serial") as opened_vector:
        opened_vector.reset(3)
        assert opened_vector.limits == ("no-seed",)


def test_vector_logs_each_agent_over_the_steps_it_was_there() -> None:
    events = {
        2: {"agent_1": "terminate"},
        3: {"agent_3": "enter"},
        5: dict.fromkeys(("agent_0", "agent_2"), "truncate"),
    }
    events[5] = {**events[5], "agent_3": "terminate"}

    def make() -> Any:
        return Schedule(events, agents=4, absent=("agent_3",))

    with vector.make(make, num_envs=2, backend="serial") as envs:
        envs.reset(1)
        assert envs.observations[:, 1].tolist() == [1] * 3 + [0] + [2] * 3 + [0]
        lengths = {}
        for _ in range(5):
            envs.step(np.zeros(8, np.int32))
            lengths |= {int(row): envs.log[row, 3] for row in np.flatnonzero(envs.logged)}
        assert lengths == {0: 5, 1: 2, 2: 5, 3: 2, 4: 5, 5: 2, 6: 5, 7: 2}


def test_vector_writes_into_its_own_arrays() -> None:
    with vector.make(lambda: Schedule({2: END}), num_envs=3, backend="serial") as envs:
        envs.reset(1)
        for _ in range(2):
            envs.step(np.zeros(9, np.int32))
        assert envs.observations[:, 1].tolist() == [2] * 3 + [3] * 3 + [4] * 3
        assert envs.final_observations[:, 1].tolist() == [1] * 3 + [2] * 3 + [3] * 3


# -- spaces -----------------------------------------------------------------------------------------------------------


def test_nested_spaces_are_flat_rows_and_back() -> None:
    seen = Dict({"place": FLOATS, "kind": Discrete(3, start=1)})
    does = Dict({"move": Discrete(4, start=2), "aim": Box(-1, 1, (2,), np.float32)})
    env = opened(Spaces([seen, seen], [does, does]))
    assert isinstance(env.single_observation_space, FlatBox)
    assert isinstance(env.single_action_space, FlatActions)
    shown = env.single_observation_space.unflatten(env.observations[1])
    assert shown["kind"] == env.env.shown["agent_1"]["kind"]
    assert (shown["place"] == env.env.shown["agent_1"]["place"]).all()
    env.step(np.array([[5, 0.5, 3], [0, 0, 0]], np.float32))  # aim, clipped to its bounds, then move
    taken = env.env.taken[0]["agent_0"]
    assert taken["move"] == 5
    assert taken["aim"].tolist() == [1, 0.5]


def test_flat_observations_of_floats_are_padded_to_the_widest() -> None:
    env = opened(Spaces([FLOATS, Box(0, 2, (4,), np.float32)], [Discrete(2)] * 2))
    space = env.single_observation_space
    assert (space.low.tolist(), space.high.tolist()) == ([-1, -1, 0, 0], [2, 2, 2, 2])
    assert env.observations[0, :2].tolist() == env.env.shown["agent_0"].tolist()
    assert env.observations[0, 2:].tolist() == [0, 0]
    assert env.observations[1].tolist() == env.env.shown["agent_1"].tolist()
    assert env.action_mask is None


def test_padding_of_last_observations_is_zero_whatever_was_there() -> None:
    class Ends(Spaces):
        def step(self, actions: Any) -> Any:
            observations, rewards, no, _, infos = super().step(actions)
            return observations, rewards, dict.fromkeys(no, True), no, infos

    env = opened(Ends([FLOATS, Box(0, 2, (4,), np.float32)], [Discrete(2)] * 2))
    env.final_observations[:] = np.nan
    env.observations[:, 2:] = np.nan
    step(env)
    assert np.isfinite(env.final_observations).all()
    assert np.isfinite(env.observations).all()


def test_spaces_that_differ_in_bounds_only_are_joined() -> None:
    env = opened(Spaces([Box(0, 1, (2, 2), np.uint8), Box(0, 9, (2, 2), np.uint8)], [Discrete(2)] * 2))
    assert env.single_observation_space == Box(0, 9, (2, 2), np.uint8)


def test_surplus_choices_are_masked_and_never_reach_the_environment() -> None:
    env = opened(Spaces([FLOATS] * 2, [Discrete(2), Discrete(4)]))
    assert env.single_action_space == Discrete(4)
    assert env.action_mask is not None
    assert env.action_mask.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    env.step(np.array([3, 3], np.int32))
    assert env.env.taken[0] == {"agent_0": 1, "agent_1": 3}


def test_surplus_choices_of_several_heads_are_masked() -> None:
    env = opened(Spaces([FLOATS] * 2, [MultiDiscrete([3, 2]), MultiDiscrete([2, 4])]))
    assert env.single_action_space == MultiDiscrete([3, 4])
    assert env.action_mask is not None
    assert env.action_mask.tolist() == [[1, 1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1, 1]]
    env.step(np.array([[2, 3], [2, 3]], np.int32))
    assert [action.tolist() for action in env.env.taken[0].values()] == [[2, 1], [1, 3]]


@pytest.mark.parametrize(
    ("observations", "actions", "text"),
    [
        (
            [FLOATS, Box(0, 1, (3, 3), np.float32)],
            [Discrete(2)] * 2,
            "and agent `agent_1` have different obs",
        ),
        ([FLOATS, Box(0, 1, (3,), np.float64)], [Discrete(2)] * 2, "have different observation spaces: Box"),
        ([Box(0, 9, (2,), np.uint8), Box(0, 9, (3,), np.uint8)], [Discrete(2)] * 2, "have different observation"),
        ([FLOATS, Tuple((Discrete(2), FLOATS))], [Discrete(2)] * 2, "have different observation spaces"),
        ([FLOATS] * 2, [Discrete(2), Box(0, 1, (1,), np.float32)], "have different action spaces: Discrete"),
        ([FLOATS] * 2, [Discrete(2), MultiDiscrete([2, 2])], "have different action spaces: Discrete"),
        ([FLOATS] * 2, [MultiDiscrete([2]), MultiDiscrete([2, 2])], "have different action spaces: MultiDiscrete"),
        ([FLOATS] * 2, [Box(0, 1, (1,)), Box(0, 2, (1,))], "have different action spaces: Box"),
        ([FLOATS, Text(3)], [Discrete(2)] * 2, "agent `agent_1`: observation is a Text"),
    ],
)
def test_other_differences_are_refused_with_both_spaces(observations: Any, actions: Any, text: str) -> None:
    with pytest.raises(EnvError, match=f"^Spaces: .*{text}"):
        PettingZooPufferEnv(Spaces(observations, actions))


# -- action masks -----------------------------------------------------------------------------------------------------


def masked(size: int = 3, **more: Any) -> Any:
    return Dict({"observation": FLOATS, "action_mask": Box(0, 1, (size,), np.int8), **more})


def test_mask_in_a_dict_observation_becomes_the_action_mask() -> None:
    env = opened(Spaces([masked()] * 2, [Discrete(3)] * 2))
    assert env.has_action_mask
    assert env.single_observation_space == FLOATS
    assert env.action_mask is not None
    for row, agent in enumerate(env.possible_agents):
        given = env.env.shown[agent]
        assert env.observations[row].tolist() == given["observation"].tolist()
        expected = given["action_mask"].tolist() if given["action_mask"].any() else [1, 0, 0]
        assert env.action_mask[row].tolist() == expected


def test_other_keys_beside_a_mask_stay_in_the_observation() -> None:
    env = opened(Spaces([masked(clock=FLOATS)] * 2, [Discrete(3)] * 2))
    assert isinstance(env.single_observation_space, FlatBox)
    assert set(env.single_observation_space.original) == {"observation", "clock"}


def test_key_of_another_size_is_an_ordinary_part_of_the_observation() -> None:
    env = opened(Spaces([masked(5)] * 2, [Discrete(3)] * 2))
    assert not env.has_action_mask
    assert set(env.single_observation_space.original) == {"observation", "action_mask"}  # type: ignore[attr-defined]


def test_mask_in_an_info_becomes_the_action_mask_and_leaves_the_infos() -> None:
    env = Spaces([FLOATS] * 2, [Discrete(3)] * 2, masks=[[0, 1, 0], [True, False, True]])
    adapted = opened(env)
    assert adapted.action_mask is not None
    assert adapted.action_mask.tolist() == [[0, 1, 0], [1, 0, 1]]
    assert step(adapted) == []


def test_mask_without_a_legal_choice_allows_the_first() -> None:
    adapted = opened(Spaces([FLOATS] * 2, [Discrete(3)] * 2, masks=[[0, 0, 0], [0, 0, 1]]))
    assert adapted.action_mask is not None
    assert adapted.action_mask.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_mask_of_the_wrong_size_is_refused_with_its_agent() -> None:
    with pytest.raises(EnvError, match="agent `agent_0`: its action_mask has 2 entries, its actions have 3"):
        opened(Spaces([FLOATS] * 2, [Discrete(3)] * 2, masks=[[0, 1], [1, 1, 1]]))


def test_mask_that_comes_later_than_the_first_reset_is_refused() -> None:
    env = Spaces([FLOATS] * 2, [Discrete(3)] * 2)
    adapted = opened(env)
    env.masks = [[1, 1, 1]]
    with pytest.raises(EnvError, match="an action_mask came in the info of `agent_0`, and none at its first reset"):
        step(adapted)


def test_rows_of_absent_agents_allow_everything() -> None:
    class Leaves(Schedule):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            observations, infos = super().reset(seed)
            return observations, {agent: {"action_mask": [1, 0, 0, 0]} for agent in infos}

    env = opened(Leaves({1: {"agent_0": "terminate"}}))
    assert env.action_mask is not None
    assert env.action_mask[0].tolist() == [1, 0, 0, 0]
    step(env)
    assert env.action_mask.tolist() == [[1, 1, 1, 1]] * 3


# -- infos ------------------------------------------------------------------------------------------------------------


def test_infos_are_none_or_one_per_row() -> None:
    class Telling(Schedule):
        def step(self, actions: Any) -> Any:
            *result, infos = super().step(actions)
            return *result, {**infos, "agent_1": {"score": self.time}} if self.time == 2 else infos

    env = opened(Telling({}))
    assert step(env) == []
    assert step(env) == [{}, {"score": 2}, {}]
    assert step(env) == []


def test_score_in_an_info_goes_to_the_row_of_its_agent() -> None:
    class Telling(Schedule):
        def step(self, actions: Any) -> Any:
            *result, infos = super().step(actions)
            return *result, {**infos, "agent_1": {"score": 0.5}}

    with vector.make(lambda: Telling({2: END}), num_envs=2, backend="serial") as envs:
        envs.reset(1)
        for _ in range(2):
            envs.step(np.zeros(6, np.int32))
        assert envs.log[:, 0].tolist() == [3, 0.5, 43, 3, 0.5, 43]


# -- what is refused --------------------------------------------------------------------------------------------------


def test_step_before_reset_is_refused() -> None:
    with pytest.raises(UsageError, match="Schedule: reset before stepping"):
        step(PettingZooPufferEnv(Schedule({})))


def test_actions_may_be_given_by_name() -> None:
    env = opened(Schedule({1: {"agent_2": "terminate"}}))
    env.step({"agent_0": 1, "agent_1": 2, "agent_2": 3})
    assert env.env.taken == [{"agent_0": 1, "agent_1": 2, "agent_2": 3}]
    env.step({"agent_0": 3, "agent_1": 2})
    with pytest.raises(EnvError, match="no action was given for agent_1"):
        env.step({"agent_0": 3})
    with pytest.raises(EnvError, match="`agent_7` is no agent: possible_agents are agent_0, agent_1, agent_2"):
        env.step({"agent_0": 3, "agent_7": 2})
    with pytest.raises(EnvError, match="action is 9, declared is Discrete"):
        env.step({"agent_0": 9, "agent_1": 2})


def test_actions_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(EnvError, match=r"Schedule: actions are int64 \(2,\), needed are int32 \(3,\)"):
        opened(Schedule({})).step(np.zeros(2, np.int64))


@pytest.mark.parametrize("what", ["agents", "observations", "rewards", "terminals", "truncations"])
def test_agents_without_a_row_are_named(what: str) -> None:
    class Strange(Schedule):
        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            parts = dict(zip(("observations", "rewards", "terminals", "truncations"), result, strict=False))
            if what == "agents":
                self.agents.append("ghost")
            else:
                parts[what]["ghost"] = parts[what]["agent_0"]
            return result

    with pytest.raises(
        EnvError, match=f"Strange: step gave {what} of `ghost`, which is not in possible_agents: agent_0"
    ):
        step(opened(Strange({})))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({0: None}, "Broken: step returned observations that are NoneType, not a dict by agent"),
        ({4: [{}]}, "Broken: step returned infos that are list, not a dict by agent"),
        ({1: {"agent_0": "much"}}, "Broken gave the reward of `agent_0`='much', which is not one real number"),
        ({1: {"agent_0": [1, 2]}}, r"Broken gave the reward of `agent_0`=\[1, 2\], which is not one real number"),
        ({0: {"agent_0": np.zeros(2, np.float32)}}, r"Broken: agent `agent_0` gave an observation of shape \(2,\)"),
        (
            {0: {"agent_1": "picture"}},
            "Broken: agent `agent_1` gave observation='picture', which is not an array",
        ),
        ({4: {"agent_2": [1]}}, "Broken: the info of `agent_2` is list, not a dict"),
    ],
)
def test_results_that_are_wrong_are_named(change: dict[int, Any], text: str) -> None:
    class Broken(Schedule):
        def step(self, actions: Any) -> Any:
            result = list(super().step(actions))
            for place, value in change.items():
                result[place] = {**result[place], **value} if isinstance(value, dict) else value
            return tuple(result)

    with pytest.raises(EnvError, match=text):
        step(opened(Broken({})))


def test_old_step_of_four_values_is_refused() -> None:
    class Old(Schedule):
        def step(self, actions: Any) -> Any:
            return super().step(actions)[:4]

    with pytest.raises(EnvError, match="Old: step returned 4 values, not 5 dicts: observations, rewards, term"):
        step(opened(Old({})))


def test_agent_without_observation_is_refused() -> None:
    class Blind(Schedule):
        def step(self, actions: Any) -> Any:
            observations, *rest = super().step(actions)
            return {"agent_0": observations["agent_0"]}, *rest

    with pytest.raises(EnvError, match="Blind: agent `agent_1` is in `agents`, and no observation of it came"):
        step(opened(Blind({})))


def test_reset_that_leaves_nobody_is_refused() -> None:
    with pytest.raises(EnvError, match="Schedule: no agent is there after reset"):
        opened(Schedule({}, absent=("agent_0", "agent_1", "agent_2")))


def test_reset_of_observations_only_is_taken() -> None:
    class Bare(Schedule):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed)[0]

    assert opened(Bare({})).observations[0].tolist() == [1, 7, 0]


def test_possible_agents_are_needed_each_once() -> None:
    env = Schedule({})
    env.possible_agents = []
    with pytest.raises(EnvError, match="Schedule has no possible_agents"):
        PettingZooPufferEnv(env)
    env.possible_agents = ["a", "a"]
    with pytest.raises(EnvError, match=r"possible_agents is \['a', 'a'\]: needed are names, each once"):
        PettingZooPufferEnv(env)


def test_environment_or_creator_is_given() -> None:
    assert PettingZooPufferEnv(env_creator=Schedule, env_args=({},), env_kwargs={"agents": 2}).num_agents == 2
    with pytest.raises(OptionError, match="of env and env_creator neither were given"):
        PettingZooPufferEnv()
    with pytest.raises(OptionError, match="of env and env_creator both were given"):
        PettingZooPufferEnv(Schedule({}), Schedule)
    with pytest.raises(OptionError, match="makes environments and is none"):
        PettingZooPufferEnv(Schedule)
    with pytest.raises(OptionError, match="env_creator=3 can't be called"):
        PettingZooPufferEnv(env_creator=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="env_args and env_kwargs are arguments of env_creator"):
        PettingZooPufferEnv(Schedule({}), env_kwargs={"agents": 2})


def test_parameters_and_pictures_are_passed_on() -> None:
    class Able(Schedule):
        def set_params(self, **values: Any) -> None:
            self.values = values

        def render(self) -> str:
            return "drawn"

    env = opened(Able({}))
    env.set_params(speed=3)
    assert env.env.values == {"speed": 3}
    assert env.render() == "drawn"
    env.close()
    with pytest.raises(OptionError, match="has no parameters that change while running: speed"):
        opened(Schedule({})).set_params(speed=3)
