from __future__ import annotations

import pytest

from puffer_core.names import resolve_spelling, split_version

NAMES = ["CartPole-v0", "CartPole-v1", "CartPole-v10", "phys2d/CartPole-v0", "connect-four", "Maze", "maze-v3"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("CartPole-v1", ("CartPole", 1)),
        ("pistonball_v6", ("pistonball", 6)),
        ("phys2d/CartPole-V10", ("phys2d/CartPole", 10)),
        ("CartPole", ("CartPole", None)),
        ("v1", ("v1", None)),
        ("a-v1-b", ("a-v1-b", None)),
        ("", ("", None)),
    ],
)
def test_split_version_takes_it_from_the_end(name: str, parts: tuple[str, int | None]) -> None:
    assert split_version(name) == parts


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("cartpole_V0", "CartPole-v0"),
        ("CartPole", "CartPole-v10"),
        ("PHYS2D/cartpole", "phys2d/CartPole-v0"),
        ("Connect_Four", "connect-four"),
        ("Maze", "Maze"),
        ("maze", "Maze"),
        ("MAZE_V3", "maze-v3"),
        ("CartPole-v7", None),
        ("cart", None),
        ("", None),
    ],
)
def test_resolve_spelling_finds_what_is_meant(typed: str, name: str | None) -> None:
    assert resolve_spelling(typed, NAMES) == name
