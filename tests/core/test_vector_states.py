"""Tests that a state saved with some number of workers is one of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from fakes_env import Saving

from puffer_core.errors import EnvError
from puffer_core.vector import Serial
from puffer_core.vector.states import join_states, split_state


def stepped(envs: int, first_index: int = 0) -> Serial:
    """Return environments after three steps; what each does depends on its row."""
    vector = Serial(Saving, envs, first_index=first_index)
    vector.reset(seed=1)
    for step in range(3):
        vector.step((np.arange(first_index, first_index + envs) + step).astype(np.int32) % 2)
    return vector


def test_states_of_two_workers_are_the_state_of_the_whole() -> None:
    with stepped(4) as whole, stepped(2) as first, stepped(2, first_index=2) as second:
        assert join_states([first.save(), second.save()]) == whole.save()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_state_splits_into_any_number_of_workers(workers: int) -> None:
    with stepped(4) as whole:
        state = whole.save()
    parts = split_state(state, workers, 4 // workers, "saving")
    assert len(parts) == workers
    assert join_states(parts) == state


def test_a_state_of_other_environments_is_refused() -> None:
    with stepped(4) as whole:
        state = whole.save()
    with pytest.raises(EnvError, match="saving: the saved state has 4 environments, not 6"):
        split_state(state, 2, 3, "saving")
