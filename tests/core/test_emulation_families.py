from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest

import puffer_core
from puffer_core import listing, plugins, vector
from puffer_core.cli.main import main
from puffer_core.emulation import families
from puffer_core.emulation.families import list_gym, list_pettingzoo, make_gym, make_pettingzoo
from puffer_core.errors import EnvError, OptionError, PufferError, UnknownNameError


def layers_of(env: Any) -> list[str]:
    names = [type(env).__name__]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        names.append(type(env).__name__)
    return names


# -- gym/* ------------------------------------------------------------------------------------------------------------


def test_gym_lists_what_is_registered() -> None:
    names = list_gym()
    assert {"CartPole-v1", "LunarLander-v3", "FrozenLake8x8-v1", "HalfCheetah-v5"} <= set(names)
    assert names == sorted(names)


@pytest.mark.parametrize("name", ["CartPole-v1", "cartpole-v1", "CARTPOLE_V1", "CartPole", "cartpole"])
def test_gym_name_is_taken_in_any_spelling(name: str) -> None:
    assert make_gym(name).spec.id == "CartPole-v1"


def test_gym_environment_keeps_its_time_limit_and_leaves_out_checks() -> None:
    assert layers_of(make_gym("CartPole-v1")) == ["TimeLimit", "CartPoleEnv"]
    assert layers_of(gymnasium.make("CartPole-v1")) == [
        "TimeLimit",
        "OrderEnforcing",
        "PassiveEnvChecker",
        "CartPoleEnv",
    ]


def test_gym_arguments_go_to_the_environment() -> None:
    env = make_gym("FrozenLake-v1", map_name="8x8", is_slippery=False, max_episode_steps=7)
    assert env.observation_space.n == 64
    assert env.spec.max_episode_steps == 7


def test_gym_argument_that_is_not_taken_is_refused_with_those_that_are() -> None:
    with pytest.raises(OptionError, match="gym/CartPole-v1 takes no parameter `lenght`") as caught:
        make_gym("CartPole-v1", lenght=3)
    assert caught.value.hint == "it takes sutton_barto_reward, render_mode"


@pytest.mark.filterwarnings("ignore:.*is out of date")
@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        (
            "Taxi-v3",
            "`gym/Taxi-v3`: .* v3 for `Taxi` is deprecated. .* use `Taxi-v4`",
            "did you mean `gym/Taxi-v4`",
        ),
        (
            "taxi_v3",
            "`gym/taxi_v3`: .* v3 for `Taxi` is deprecated. .* use `Taxi-v4`",
            "did you mean `gym/Taxi-v4`",
        ),
        ("CartPole-v9", "version `v9` for environment `CartPole` doesn't exist", "did you mean `gym/CartPole-v1`"),
        ("Cartpol", "unknown environment `gym/Cartpol`: .*doesn't exist", "did you mean `gym/CartPole-v1`"),
        ("xyzzy", "unknown environment `gym/xyzzy`", "`puffer envs gym/` lists it"),
        (
            "nowhere/Maze-v0",
            "`gym/nowhere/Maze-v0`: Namespace nowhere not found",
            "puffer envs gym/",
        ),
    ],
)
def test_gym_says_what_is_wrong_with_a_name(name: str, text: str, hint: str) -> None:
    with pytest.raises(UnknownNameError, match=text) as caught:
        make_gym(name)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("entry_point", "error", "package"),
    [
        ("gymnasium.envs.box2d:Missing", "No module named 'Box2D'", "puffer-core[box2d]"),
        ("gymnasium.envs.mujoco.ant_v5:AntEnv", "No module named 'packaging'", "puffer-core[mujoco]"),
        ("gymnasium.envs.phys2d:Missing", "No module named 'jax'", "gymnasium[jax]"),
        ("elsewhere:Maze", 'run `pip install "gymnasium[other]"`', "gymnasium[other]"),
        ("elsewhere:Maze", "No module named 'elsewhere'", None),
    ],
)
def test_gym_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, entry_point: str, error: str, package: str | None
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ModuleNotFoundError(error)

    spec = gymnasium.envs.registration.EnvSpec("Maze-v0", entry_point=entry_point)
    monkeypatch.setitem(gymnasium.registry, "Maze-v0", spec)
    monkeypatch.setattr(gymnasium, "make", fail)
    with pytest.raises(EnvError, match="gym/Maze-v0 can't be made, something that it needs is missing") as caught:
        make_gym("maze")
    assert caught.value.hint == (None if package is None else f'pip install "{package}"')


def test_gym_takes_the_names_that_a_module_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_mazes.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('OwnMaze-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv', "
        "max_episode_steps=5)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with puffer_core.make("gym/own_mazes:OwnMaze-v0", num_envs=2) as envs:
            envs.reset(1)
            for _ in range(5):
                envs.step(np.array([0, 1], np.int32))
            assert (envs.terminals | envs.truncations).any()
        assert make_gym("ownmaze").spec.id == "OwnMaze-v0"
    finally:
        gymnasium.registry.pop("OwnMaze-v0", None)
        sys.modules.pop("own_mazes", None)
    with pytest.raises(EnvError, match="gym/no_such_module:X-v0: module `no_such_module` can't be imported"):
        make_gym("no_such_module:X-v0")


# -- pettingzoo/* -----------------------------------------------------------------------------------------------------


def test_pettingzoo_lists_names_without_versions() -> None:
    names = list_pettingzoo()
    assert {"knights-archers-zombies", "pistonball", "connect-four", "tictactoe", "rps", "simple-spread"} <= set(names)
    assert not [name for name in names if "_" in name or name[-1].isdigit()]


@pytest.mark.parametrize("name", ["simple-spread", "Simple_Spread", "simple_spread_v3", "SIMPLE-SPREAD-V3"])
def test_pettingzoo_name_is_taken_in_any_spelling(name: str) -> None:
    env = make_pettingzoo(name, max_cycles=4, N=2)
    assert env.possible_agents == ["agent_0", "agent_1"]
    assert hasattr(env, "step")
    assert not hasattr(env, "last")


def test_pettingzoo_takes_the_parallel_form_where_there_is_one() -> None:
    assert isinstance(make_pettingzoo("rps"), pettingzoo.ParallelEnv)
    assert isinstance(make_pettingzoo("connect-four"), pettingzoo.AECEnv)


def test_pettingzoo_leaves_out_wrappers_that_only_check_the_caller() -> None:
    assert type(make_pettingzoo("simple-spread").aec_env) is type(make_pettingzoo("simple-spread").unwrapped)
    assert type(make_pettingzoo("connect-four")).__name__ == "TerminateIllegalWrapper"


def test_pettingzoo_says_what_is_wrong_with_a_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown environment `pettingzoo/pistonbal`") as caught:
        make_pettingzoo("pistonbal")
    assert caught.value.hint == "did you mean `pettingzoo/pistonball`?"
    with pytest.raises(UnknownNameError, match="`pettingzoo/pistonball-v2`: version 6 of it is installed") as caught:
        make_pettingzoo("pistonball-v2")
    assert caught.value.hint == "`pettingzoo/pistonball` is that one"


def test_pettingzoo_argument_that_is_not_taken_is_refused() -> None:
    with pytest.raises(OptionError, match="pettingzoo/rps takes no parameter `number`") as caught:
        make_pettingzoo("rps", number=3)
    assert "num_actions" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("pistonball", "puffer-core[pettingzoo]"),
        ("simple-spread", "puffer-core[pettingzoo]"),
        ("chess", "pettingzoo[classic]"),
        ("pong", "pettingzoo[atari]"),
        ("mine/Maze", None),
    ],
)
def test_pettingzoo_says_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str, package: str | None) -> None:
    def fail(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}")

    own = SimpleNamespace(
        id="mine/Maze-v2", namespace="mine", name="Maze", version=2, entry_point="own:make", kwargs={}, max_cycles=None
    )
    monkeypatch.setattr(pettingzoo, "aec_registry", {**pettingzoo.aec_registry, own.id: own})
    monkeypatch.setattr(families, "import_module", fail)
    with pytest.raises(
        EnvError, match=f"pettingzoo/{name} can't be made, something that it needs is missing"
    ) as caught:
        make_pettingzoo(name)
    assert caught.value.hint == (None if package is None else f'pip install "{package}"')


def test_pettingzoo_names_mpe2_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "find_spec", lambda name: None)
    with pytest.raises(UnknownNameError, match="unknown environment `pettingzoo/simple-spread`") as caught:
        make_pettingzoo("simple-spread")
    assert str(caught.value.hint).startswith('pip install "puffer-core[pettingzoo]"')


def test_pettingzoo_before_its_registry_is_known_by_its_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pettingzoo, "aec_registry")
    monkeypatch.delattr(pettingzoo, "parallel_registry")
    assert {"knights-archers-zombies", "pistonball", "connect-four", "simple-spread"} <= set(list_pettingzoo())
    module = ModuleType("rps_v2")
    module.env = lambda **kwargs: ("env", kwargs)  # type: ignore[attr-defined]
    monkeypatch.setattr(families, "import_module", lambda name: module)
    assert make_pettingzoo("rps", num_actions=5) == ("env", {"num_actions": 5})
    module.parallel_env = lambda **kwargs: ("parallel_env", kwargs)  # type: ignore[attr-defined]
    assert make_pettingzoo("rps") == ("parallel_env", {})


def test_newest_version_counts_and_defaults_of_a_registration_reach_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spec(version: int | None) -> Any:
        end = "" if version is None else f"-v{version}"
        return SimpleNamespace(
            id=f"mine/Big_Maze{end}",
            namespace="mine",
            name="Big_Maze",
            version=version,
            entry_point=lambda **kwargs: (version, kwargs),
            kwargs={"size": 3},
            max_cycles=9,
        )

    registry = {spec(version).id: spec(version) for version in (2, 10, None)}
    monkeypatch.setattr(pettingzoo, "parallel_registry", registry)
    assert "mine/Big-Maze" in list_pettingzoo()
    assert make_pettingzoo("mine/big_maze", size=4) == (10, {"size": 4, "max_cycles": 9})


# -- as a user sees them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["gym/CartPole-v1", "gym-CartPole-v1", "gym_cartpole_v1", "GYM/cartpole"])
def test_environment_of_a_family_has_one_name(typed: str) -> None:
    spec, name = plugins.find_env(typed)
    assert (spec.name, name) == ("gym/*", "gym/CartPole-v1")


def test_name_that_a_family_does_not_list_stays_as_typed() -> None:
    assert plugins.find_env("gym/module:Maze-v0")[1] == "gym/module:Maze-v0"


def test_family_that_cannot_be_listed_leaves_names_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[str]:
        raise ImportError("no framework")

    monkeypatch.setattr(families, "list_gym", fail)
    assert plugins.find_env("gym/cartpole")[1] == "gym/cartpole"


def test_envs_shows_families_as_one_row_each_and_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"gym/*", "pettingzoo/*"} <= {row["name"] for row in listing.list_envs()}
    assert main(["envs", "pettingzoo/", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["envs"]
    assert {"name": "pettingzoo/pistonball", "plugin": "core", "aliases": []} in rows
    assert main(["envs", "gym/*", "--json"]) == 0
    assert "gym/CartPole-v1" in [row["name"] for row in json.loads(capsys.readouterr().out)["envs"]]


def test_envs_describes_one_of_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "gym/cartpole", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["action"], found["limits"]) == ("gym/CartPole-v1", "Discrete(2)", [])
    assert main(["envs", "pettingzoo/Simple_Spread"]) == 0
    assert "pettingzoo/simple-spread" in capsys.readouterr().out


def test_unknown_name_in_a_family_exits_2_with_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "gym/Cartpol"]) == 2
    err = capsys.readouterr().err
    assert "error: unknown environment `gym/Cartpol`" in err
    assert "hint: did you mean `gym/CartPole-v1`" in err


def test_a_gym_environment_gives_what_the_raw_one_does() -> None:
    raw = gymnasium.make("Acrobot-v1", max_episode_steps=30)
    with puffer_core.make("gym/Acrobot-v1", num_envs=2, seed=4, max_episode_steps=30, backend="serial") as envs:
        envs.reset()
        observation, _ = raw.reset(seed=5)
        rng = np.random.default_rng(0)
        for _ in range(100):
            assert envs.observations[1].tolist() == observation.tolist()
            actions = rng.integers(0, 3, 2)
            envs.step(actions)
            observation, reward, terminated, truncated, _ = raw.step(actions[1])
            assert (envs.rewards[1], envs.terminals[1]) == (reward, terminated)
            if terminated or truncated:
                assert envs.final_observations[1].tolist() == observation.tolist()
                observation, _ = raw.reset()


# -- emulate ----------------------------------------------------------------------------------------------------------


class Tiny(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.full(1, self.value, np.float32), {}

    def step(self, action: int) -> Any:
        return np.full(1, self.value, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("env", [Tiny, lambda value=1.0: Tiny(value)], ids=["class", "factory"])
def test_emulate_opens_several_of_a_class_or_factory(env: Any) -> None:
    with puffer_core.emulate(env, num_envs=3, value=2.0, seed=5) as envs:
        assert isinstance(envs, vector.Vector)
        assert envs.reset()[0].tolist() == [[2], [2], [2]]


def test_emulate_takes_one_environment_that_is_open() -> None:
    with puffer_core.emulate(Tiny(3.0)) as envs:
        assert envs.reset()[0].tolist() == [[3]]
    with pytest.raises(OptionError, match="num_envs=2"):
        puffer_core.emulate(Tiny(3.0), num_envs=2)


def test_emulate_takes_every_kind_of_environment() -> None:
    with puffer_core.emulate(lambda: make_pettingzoo("simple-spread"), num_envs=2) as envs:
        assert envs.num_agents == 6
    with puffer_core.emulate(lambda: gymnasium.vector.SyncVectorEnv([Tiny] * 3)) as envs:
        assert envs.num_agents == 3


def test_emulate_refuses_a_name_and_what_is_no_environment() -> None:
    with pytest.raises(OptionError, match="emulate got a name, 'gym/CartPole-v1'") as caught:
        puffer_core.emulate("gym/CartPole-v1")
    assert caught.value.hint == "`puffer_core.make('gym/CartPole-v1')` opens one by its name"
    with pytest.raises(PufferError, match="int"):
        puffer_core.emulate(int)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "registers_here.py").write_text(
        "import gymnasium\n"
        "class NoEnv: pass\n"
        "for name in ('NoEnv', 'Gone'):\n"
        "    gymnasium.register(f'{name}Here-v0', f'registers_here:{name}')\n"
        "gymnasium.register('SmallHere-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv')\n"
        "gymnasium.register('NumberHere-v0', lambda: 3)\n"
    )
    (tmp_path / "broken_here.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    yield
    sys.modules.pop("registers_here", None)
    for name in [name for name in gymnasium.registry if name.endswith("Here-v0")]:
        del gymnasium.registry[name]


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("registers_here:NoEnvHere-v0", "makes no environment"),
        ("NumberHere-v0", "makes no environment"),
        ("registers_here:GoneHere-v0", "registered as `registers_here:Gone`, which is not there"),
        ("broken_here:x", "module `broken_here` can't be imported: SystemExit: 3"),
        ("absent_here:x", "module `absent_here` can't be imported: ModuleNotFoundError"),
        (":x", "`` is not the name of a module"),
        ("..a:x", r"`\.\.a` is not the name of a module"),
    ],
)
def test_what_is_registered_wrongly_is_told(name: str, told: str) -> None:
    make_gym("registers_here:SmallHere-v0").close()
    with pytest.raises(PufferError, match=told):
        make_gym(name)


@pytest.mark.parametrize(
    ("name", "option"), [("gym/Pendulum-v1", ("g", 10.0)), ("pettingzoo/connect-four", ("screen_scaling", 9))]
)
def test_options_of_the_constructor_are_described(name: str, option: tuple[str, object]) -> None:
    assert option in [(row["name"], row["default"]) for row in listing.describe(name)["params"]]
