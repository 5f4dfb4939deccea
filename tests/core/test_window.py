"""Windows on SDL's dummy display, with events that the tests post."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fakes_play import GREY, Keyed, Steps

from puffer_core.actors import RandomActor
from puffer_core.errors import RenderError
from puffer_core.evaluate import Play, watch
from puffer_core.play import Person, play_on
from puffer_core.training.signals import Interrupted
from puffer_core.vector import make
from puffer_core.window import Window, WindowScreen, fitted

pygame = pytest.importorskip("pygame", reason="the extra `window` is not installed")
PICTURE = np.full((20, 40, 3), 77, np.uint8)


@pytest.fixture(autouse=True)
def display(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    yield
    pygame.display.quit()


def post(kind: int, **values: Any) -> None:
    pygame.event.post(pygame.event.Event(kind, **values))


def tap(*keys: int) -> None:
    for key in keys:
        post(pygame.KEYDOWN, key=key)
        post(pygame.KEYUP, key=key)


def test_a_picture_is_scaled_to_fit_and_keeps_its_shape() -> None:
    window = Window("a title")
    window.draw(PICTURE)
    assert pygame.display.get_caption()[0] == "a title"
    surface = pygame.display.get_surface()
    assert surface.get_size() == (480, 240)
    assert surface.get_at((479, 239))[:3] == (77, 77, 77)
    pygame.display.set_mode((480, 480))
    window._canvas = pygame.display.get_surface()
    window.draw(PICTURE)
    assert window._canvas.get_at((240, 240))[:3] == (77, 77, 77)
    assert window._canvas.get_at((240, 40))[:3] == (0, 0, 0)
    window.close()
    window.close()
    assert not pygame.display.get_init()


@pytest.mark.parametrize(
    ("size", "display_size", "expected"),
    [
        ((40, 20), (1920, 1080), (480, 240)),
        ((600, 400), (1920, 1080), (600, 400)),
        ((4000, 2000), (1920, 1080), (1632, 816)),
        ((32, 32), (400, 300), (224, 224)),
        ((1, 3000), (1920, 1080), (1, 918)),
    ],
)
def test_sizes_of_windows(size: Any, display_size: Any, expected: Any) -> None:
    assert fitted(*size, display_size) == expected


def test_keys_of_a_window() -> None:
    window = Window("keys")
    window.draw(PICTURE)
    window.poll()
    post(pygame.KEYDOWN, key=pygame.K_LEFT)
    tap(pygame.K_a, pygame.K_SPACE)
    post(pygame.KEYDOWN, key=pygame.K_SCROLLLOCK)
    assert window.poll() == ["left", "a", "space"]
    keys = window.take_keys()
    assert (keys.down, keys.pressed) == ({"left", "a", "space"}, {"left", "a", "space"})
    keys = window.take_keys()
    assert (keys.down, keys.pressed) == ({"left"}, frozenset())
    post(pygame.WINDOWFOCUSLOST)
    window.poll()
    assert window.take_keys().down == frozenset()
    window.close()


def watched(episodes: int, *events: Any, length: int = 5) -> tuple[list[int], Any, WindowScreen]:
    """Watch random play; each event is called before the frame of its number is waited for."""
    seen: list[int] = []
    with (
        make(lambda: Steps(length), num_envs=1) as envs,
        WindowScreen("test", check=lambda: None, fps=1000) as screen,
    ):
        draw = screen.window.draw

        def drawn(frame: Any) -> None:
            draw(frame)
            for event in events[len(seen) : len(seen) + 1]:
                event()
            seen.append(int(frame[0, 0, 0]) // GREY)

        screen.window.draw = drawn  # type: ignore[method-assign]  # to look at what is drawn
        found = watch([RandomActor(envs, np.arange(1), 1)], envs, Play(episodes, 0), screen)
    return seen, found, screen


def nothing() -> None:
    pass


def test_an_evaluation_in_a_window() -> None:
    seen, found, screen = watched(2)
    assert seen == [0, 1, 2, 3, 4, 5] * 2
    assert (found.asked, len(found.rows), screen.is_open) == (2, 2, False)


@pytest.mark.parametrize(
    "close", [lambda: post(pygame.QUIT), lambda: tap(pygame.K_q), lambda: tap(pygame.K_ESCAPE)], ids=["x", "q", "esc"]
)
def test_closing_the_window_ends_the_evaluation(close: Any) -> None:
    seen, found, _ = watched(5, *[nothing] * 7, close)
    assert seen == [0, 1, 2, 3, 4, 5, 0, 1]
    assert (found.asked, len(found.rows)) == (1, 1)


def test_pause_step_and_speed() -> None:
    checks, speeds = [], []

    def check() -> None:
        checks.append(len(checks))
        if len(checks) == 5:
            tap(pygame.K_n)
        if len(checks) == 10:
            tap(pygame.K_SPACE, pygame.K_EQUALS, pygame.K_EQUALS, pygame.K_MINUS)

    with make(Steps, num_envs=1) as envs, WindowScreen("test", check=check, fps=1000) as screen:
        envs.reset(0)
        screen.window.draw(PICTURE)
        tap(pygame.K_SPACE)
        screen.show(envs)  # paused until n
        assert len(checks) == 5
        screen.show(envs)  # still paused, until space
        assert len(checks) >= 10
        speeds.append(screen._speed)
        screen._answer("f3")
        speeds.append(screen._speed)
        for _ in range(20):
            screen._answer("-")
        speeds.append(screen._speed)
    assert speeds == [2.0, 1.0, 1 / 64]


def test_what_check_raises_ends_the_waiting() -> None:
    def check() -> None:
        raise Interrupted(2, {})

    with make(Steps, num_envs=1) as envs:
        envs.reset(0)
        with WindowScreen("test", check=check) as screen, pytest.raises(Interrupted, match="stopped by SIGINT"):
            screen.show(envs)
    assert not pygame.display.get_init()


def test_a_person_plays_in_a_window() -> None:
    def check() -> None:
        tap(pygame.K_d)

    with make(Keyed, num_envs=1) as envs, WindowScreen("test", check=check, is_watched=False, fps=1000) as screen:
        rows = play_on(screen, envs, Person(envs, 0), [], 1, episodes=2)
        assert pygame.display.get_caption()[0] == "episode 2: score 5, 5 steps"
    assert [row["score"] for row in rows] == [5.0, 5.0]


def test_keys_of_the_game_do_not_pause_it() -> None:
    screen = WindowScreen("test", check=lambda: None, is_watched=False)
    for name in ("space", "q", "n", "-", "+"):
        screen._answer(name)
    assert (screen.is_open, screen._is_paused, screen._speed) == (True, False, 1.0)
    screen._answer("f4")
    screen._answer("f1")
    assert (screen._is_paused, screen._speed) == (True, 2.0)
    screen.close()


def test_a_display_that_can_not_be_opened_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "no-such-driver")
    with pytest.raises(RenderError, match="no window can be opened") as caught:
        Window("none")
    assert caught.value.hint == "use `--render video` or `--render ansi`"


def test_what_is_no_picture_is_refused() -> None:
    class Wrong(Steps):
        def render(self) -> Any:
            return np.zeros((3, 3), np.float32)

    with make(Wrong, num_envs=1) as envs, WindowScreen("test", check=lambda: None) as screen:
        envs.reset(0)
        with pytest.raises(RenderError, match=r"a frame has shape \(3, 3\) and dtype float32"):
            screen.show(envs)
