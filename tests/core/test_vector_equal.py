"""Every backend, however it divides environments, shows what `Serial` does: 1,000 steps of each kind of environment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pytest
from counter import counter_table
from fakes_equal import History, Party, Turns, actions_of, play, walks_of_gymnasium
from fakes_single import Motley, Nested
from fakes_spaces import Sentry
from fakes_workers import Walk
from fakes_wrap import Coming

from puffer_core import vector
from puffer_core.vector import Multiprocessing, Native, Serial

ENVS, STEPS, SEED = 4, 1000, 7


def ocean(name: str) -> str:
    pytest.importorskip("puffer_ocean")
    return f"ocean/{name}"


IN_PYTHON: dict[str, tuple[Any, dict[str, Any]]] = {
    "gymnasium": (Walk, {}),
    "gym of four values": (Motley, {"values": 4, "is_wild": False}),
    "in place, agents leave": (Coming, {}),
    "pettingzoo parallel": (Party, {}),
    "pettingzoo aec": (Turns, {}),
    "dict observations": (Nested, {}),
    "mixed actions": (Sentry, {}),
    "gymnasium.vector": (walks_of_gymnasium, {}),
}
IN_C: dict[str, tuple[Any, dict[str, Any]]] = {
    "counter": (counter_table, {"absent": True}),
    "breakout": (lambda: ocean("breakout"), {}),
    "snake": (lambda: ocean("snake"), {"width": 24, "height": 24, "num_snakes": 4, "num_food": 30, "max_life": 50}),
}
KINDS = [*IN_PYTHON, *IN_C]
SPLITS: dict[str, dict[str, Any]] = {
    "1 worker": {"num_workers": 1},
    "2 workers": {"num_workers": 2},
    "4 workers": {"num_workers": 4},
    "ring": {"num_workers": 4, "batch_size": 2},
    "asynchronous": {"num_workers": 4, "batch_size": 2, "sync_traj": False},
}
COSTLY = ("pettingzoo aec", "mixed actions", "gymnasium.vector")
"""Kinds whose steps take so long that some ways to split them are left to the long tests."""
CASES = [
    pytest.param(kind, split, marks=[pytest.mark.slow] * (kind in COSTLY and split in ("1 worker", "4 workers")))
    for kind in KINDS
    for split in SPLITS
]


def opened(kind: str, backend: Any = Serial, num_envs: int = ENVS, **options: Any) -> Any:
    if kind in IN_PYTHON:
        env, params = IN_PYTHON[kind]
    else:
        make, params = IN_C[kind]
        env = make()
    return vector.make(env, num_envs, backend, params=params, **options)


@dataclass(frozen=True)
class Reference:
    """What `Serial` shows, and the infos of each environment object by itself: ``infos[object][step]``."""

    actions: Any
    history: History
    infos: list[list[list[dict[str, Any]]]]

    def infos_of(self, times: Any, ids: Any) -> list[dict[str, Any]]:
        """Return the infos of a batch: those of its environments one after the other."""
        rows = self.actions.shape[1] // ENVS
        first = zip(times[::rows], ids[::rows], strict=True)
        return list(chain.from_iterable(self.infos[agent // rows][time] for time, agent in first))


@cache
def reference(kind: str) -> Reference:
    """Play with all environments in one `Serial`, and with each in one of its own."""
    with opened(kind) as serial:
        actions = actions_of(serial.single_action_space, (STEPS, serial.num_agents), SEED)
        whole = play(serial, actions, SEED)
        rows, instances = serial.num_agents // ENVS, serial.num_envs // ENVS
    infos = []
    for i in range(ENVS):
        with opened(kind, num_envs=1, first_index=i * instances) as alone:
            part = play(alone, actions[:, i * rows : (i + 1) * rows], SEED)
        infos.append([batch[2] for batch in part.batches])
        for name, array in part.arrays.items():
            if name != "agent_ids":
                np.testing.assert_array_equal(array, whole.arrays[name][:, i * rows : (i + 1) * rows], name)
    return Reference(actions, whole, infos)


def require_same(found: History, wanted: Reference) -> None:
    assert found.arrays.keys() == wanted.history.arrays.keys()
    for name, array in found.arrays.items():
        if array.tobytes() != wanted.history.arrays[name].tobytes():
            np.testing.assert_array_equal(array, wanted.history.arrays[name], name)
    for times, ids, infos in found.batches:
        if times.max() <= STEPS:
            assert infos == wanted.infos_of(times, ids)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_worth_comparing_with(kind: str) -> None:
    """Episodes end in it, rewards and observations differ, and its own infos are those of its parts."""
    wanted = reference(kind)
    arrays = wanted.history.arrays
    assert len(np.unique(arrays["observations"])) > 1
    assert len(np.unique(arrays["rewards"])) > 1 or kind == "dict observations"
    assert (arrays["terminals"] | arrays["truncations"]).any()
    assert arrays["logged"].any()
    require_same(wanted.history, wanted)


@pytest.mark.parametrize(("kind", "split"), CASES)
def test_worker_processes_show_what_serial_does(kind: str, split: str) -> None:
    wanted = reference(kind)
    with opened(kind, Multiprocessing, **SPLITS[split]) as workers:
        require_same(play(workers, wanted.actions, SEED), wanted)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kind", IN_C)
def test_threads_show_what_serial_does(kind: str, threads: int) -> None:
    wanted = reference(kind)
    with opened(kind, Native, num_threads=threads) as native:
        require_same(play(native, wanted.actions, SEED), wanted)


def test_a_vector_of_gymnasium_shows_what_serial_does() -> None:
    """Its infos are one of each row, empty ones too."""
    wanted = reference("gymnasium")
    with vector.make(walks_of_gymnasium, 1, Serial, params={"count": ENVS}) as one:
        found = play(one, wanted.actions, SEED)
    found.batches = [(times, ids, [info for info in infos if info]) for times, ids, infos in found.batches]
    require_same(found, wanted)
