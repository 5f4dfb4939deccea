from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from puffer_core import plugins
from puffer_core.errors import PluginError, UnknownNameError
from puffer_core.registry import EnvRegistry, Plugin, split
from puffer_core.specs import EnvSpec, PluginInfo

if TYPE_CHECKING:
    from tests.core.conftest import Site


def registry(*plugins: tuple[str, list[EnvSpec]], broken: dict[str, str] | None = None) -> EnvRegistry:
    """Return the environments of plugins given by name, each from a distribution ``puffer-<name>``."""
    found = []
    for name, specs in plugins:
        info = PluginInfo(name, "1.0")
        owned = tuple(EnvSpec(**{**vars(spec), "plugin": info}) for spec in specs)
        found.append(Plugin(info, f"puffer-{name}", supplied={EnvSpec: owned}))
    for name, reason in (broken or {}).items():
        found.append(Plugin(PluginInfo(name, "1.0"), f"puffer-{name}", "broken", reason))
    return EnvRegistry(lambda: found)


def env(name: str, *aliases: str) -> EnvSpec:
    return EnvSpec(name, make="nowhere:make", aliases=aliases)


def family(name: str) -> EnvSpec:
    return EnvSpec(name, make="nowhere:make", list="nowhere:list")


OCEAN = (
    "ocean",
    [
        env("ocean/breakout", "breakout", "puffer_breakout"),
        env("ocean/trash_pickup", "trash_pickup", "puffer_trash_pickup"),
        env("ocean/snake", "snake", "puffer_snake"),
    ],
)
GYM = ("gym", [family("gym/*")])


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ocean/breakout", ("ocean", "breakout")),
        ("OCEAN-Trash_Pickup", ("ocean", "Trash_Pickup")),
        ("gym_CartPole-v1", ("gym", "CartPole-v1")),
        ("Breakout", ("breakout", "")),
        ("gym/", ("gym", "")),
        ("", ("", "")),
    ],
)
def test_split_ends_the_family_at_the_first_separator(name: str, parts: tuple[str, str]) -> None:
    assert split(name) == parts


@pytest.mark.parametrize(
    "name",
    [
        *("ocean/breakout", "OCEAN/Breakout", "ocean-breakout", "ocean_breakout"),
        *("breakout", "Breakout", "puffer_breakout", "puffer-breakout", "Puffer_Breakout"),
    ],
)
def test_c06_find_knows_every_spelling(name: str) -> None:
    spec, canonical = registry(OCEAN, GYM).find(name)
    assert (spec.name, canonical) == ("ocean/breakout", "ocean/breakout")


@pytest.mark.parametrize("name", ["ocean/trash-pickup", "trash-pickup", "TRASH_PICKUP", "puffer-trash_pickup"])
def test_find_takes_either_separator_inside_a_name(name: str) -> None:
    assert registry(OCEAN).find(name)[1] == "ocean/trash_pickup"


@pytest.mark.parametrize("name", ["gym/CartPole-v1", "GYM/CartPole-v1", "gym-CartPole-v1", "gym_CartPole-v1"])
def test_find_gives_a_family_the_rest_as_typed(name: str) -> None:
    spec, canonical = registry(OCEAN, GYM).find(name)
    assert (spec.name, canonical) == ("gym/*", "gym/CartPole-v1")


def test_find_keeps_slashes_in_the_rest() -> None:
    assert registry(GYM).find("gym/ALE/Pong-v5")[1] == "gym/ALE/Pong-v5"


@pytest.mark.parametrize("name", ["gym", "gym/", "gym/*", "", "/", "*"])
def test_find_refuses_a_family_without_a_name_in_it(name: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown environment"):
        registry(GYM).find(name)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("breakot", "unknown environment `breakot`$", "did you mean `breakout`?"),
        ("puffer_breakot", "unknown environment `puffer_breakot`$", "did you mean `breakout`?"),
        ("ocaen/breakout", "unknown environment `ocaen/breakout`$", "did you mean `breakout`?"),
        (
            "ocean/breakot",
            "unknown environment `ocean/breakot`: the family `ocean` comes from plugin ocean 1.0",
            "did you mean `ocean/breakout`?",
        ),
        ("ocean/xyz", "the family `ocean` comes from plugin ocean 1.0", "`puffer envs ocean/` lists it"),
        ("xyz", "unknown environment `xyz`$", "`puffer envs` lists the names, `puffer plugins` what supplies them"),
        ("atari/pong", "`atari/pong`: it comes with puffer-atari, which is not installed", "pip install puffer-atari"),
        ("Procgen-coinrun", "it comes with puffer-procgen, which is not", "pip install puffer-procgen"),
        ("minihack_river", "it comes with puffer-nethack, which is not", "pip install puffer-nethack"),
    ],
)
def test_find_says_what_to_do_about_an_unknown_name(name: str, text: str, hint: str) -> None:
    with pytest.raises(UnknownNameError, match=text) as caught:
        registry(OCEAN).find(name)
    assert caught.value.hint == hint


@pytest.mark.parametrize("name", ["breakout", "puffer_breakout", "ocean/breakout", "OCEAN-Snake", "Trash_Pickup"])
def test_find_says_to_install_ocean_for_a_name_of_ours(name: str) -> None:
    with pytest.raises(UnknownNameError, match="it comes with puffer-ocean, which is not installed") as caught:
        registry(GYM).find(name)
    assert caught.value.hint == "pip install puffer-ocean"


def test_find_suggests_a_name_of_ours_even_when_ocean_is_missing() -> None:
    with pytest.raises(UnknownNameError, match="unknown environment `breakot`") as caught:
        registry(GYM).find("breakot")
    assert caught.value.hint == "did you mean `breakout`?"


@pytest.mark.parametrize("name", ["ocean/breakout", "breakout"])
def test_find_gives_the_reason_of_a_broken_plugin_instead_of_a_package(name: str) -> None:
    found = registry(GYM, broken={"ocean": "ImportError: no _native"})
    with pytest.raises(UnknownNameError, match=r"; plugin ocean 1.0 is broken: ImportError: no _native"):
        found.find(name)


def test_find_blames_only_the_broken_plugin_that_is_named_like_the_family() -> None:
    found = registry(broken={"toy": "first reason", "other": "second reason"})
    with pytest.raises(UnknownNameError, match=r"unknown environment `toy/maze`; plugin toy 1.0 .* first reason$"):
        found.find("toy/maze")
    with pytest.raises(UnknownNameError, match=r"plugin toy 1.0 .* first reason; plugin other 1.0 .* second reason"):
        found.find("maze")


@pytest.mark.parametrize("order", [1, -1])
def test_c06_find_refuses_a_bare_name_claimed_twice_but_not_the_canonical_ones(order: int) -> None:
    found = registry(*[OCEAN, ("toy", [env("toy/breakout", "breakout")])][::order])
    with pytest.raises(PluginError, match=r"`breakout` is claimed twice: by .*ocean/breakout.*") as caught:
        found.find("breakout")
    assert "`toy/breakout` of plugin toy 1.0" in str(caught.value)
    assert caught.value.hint == "leave one out: `--block-plugin ocean` or `--block-plugin toy`"
    assert found.find("ocean/breakout")[0].name == "ocean/breakout"
    assert found.find("toy-breakout")[0].name == "toy/breakout"
    assert found.names() == ["ocean/breakout", "ocean/snake", "ocean/trash_pickup", "toy/breakout"]


def test_find_refuses_an_alias_of_a_canonical_name_claimed_twice() -> None:
    found = registry(("toy", [env("x/maze", "maze1")]), ("other", [env("x/maze", "maze2")]))
    with pytest.raises(PluginError, match="environment `x/maze` is claimed twice"):
        found.find("maze1")
    assert found.names() == []


def test_find_refuses_names_that_differ_in_case_or_separator_only() -> None:
    found = registry(("toy", [env("toy/a_b"), env("Toy/A-B")]))
    with pytest.raises(PluginError, match="`toy/a_b` is claimed twice"):
        found.find("toy/a_b")


def test_find_lets_a_plugin_repeat_its_own_spelling() -> None:
    assert registry(("toy", [env("toy/maze", "toy_maze", "toy-maze")])).find("toy_maze")[1] == "toy/maze"


def test_find_refuses_another_plugin_inside_a_family() -> None:
    found = registry(GYM, ("toy", [env("gym/CartPole-v1")]))
    with pytest.raises(PluginError, match=r"`gym/CartPole-v1` is claimed twice: by `gym/CartPole-v1` of plugin toy"):
        found.find("gym/CartPole-v1")
    assert found.find("gym/Acrobot-v1")[0].name == "gym/*"
    assert list(found.conflicts()) == ["gym/cartpole-v1"]


def test_find_lets_a_plugin_list_one_of_its_family_apart() -> None:
    found = registry(("gym", [family("gym/*"), env("gym/CartPole-v1")]))
    assert found.find("gym/cartpole_v1")[0].name == "gym/CartPole-v1"
    assert found.conflicts() == {}


def test_find_refuses_a_family_claimed_twice() -> None:
    found = registry(GYM, ("toy", [family("gym/*")]))
    with pytest.raises(PluginError, match=r"`gym/X-v0` is claimed twice: by `gym/\*` of plugin gym 1.0 and"):
        found.find("gym/X-v0")


def test_family_lists_what_is_in_it() -> None:
    found = registry(OCEAN, GYM)
    assert [spec.name for spec in found.family("gym/")] == ["gym/*"]
    assert [spec.name for spec in found.family("GYM/*")] == ["gym/*"]
    assert [spec.name for spec in found.family("ocean/")] == ["ocean/breakout", "ocean/snake", "ocean/trash_pickup"]
    with pytest.raises(UnknownNameError, match="unknown environment `atari/`"):
        found.family("atari/")


def test_find_env_uses_the_plugins_of_the_process(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin(
        "toy", "@hookimpl\ndef puffer_envs():\n    return [EnvSpec('toy/maze', make='a:b', aliases=('labyrinth',))]"
    )
    monkeypatch.setenv("PUFFER_PLUGINS", "toy")
    plugins.configure()
    try:
        spec, canonical = plugins.find_env("Labyrinth")
    finally:
        plugins.configure()
    assert canonical == "toy/maze"
    assert str(spec.plugin) == "toy 1.0"


@pytest.mark.parametrize("name", ["oce/", "o/", "oceans/", "oce/*"])
def test_family_takes_no_beginning_of_a_name(name: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown environment"):
        registry(OCEAN, GYM).family(name)
