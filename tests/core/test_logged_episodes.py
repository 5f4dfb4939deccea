"""L04: each episode that is logged has the return and the length it had, in every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes_single import Count

from puffer_core.vector import Multiprocessing, Serial
from puffer_core.vector import make as make_vector

BACKENDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "serial": (Serial, {}),
    "multiprocessing": (Multiprocessing, {"num_workers": 2}),
    "ring": (Multiprocessing, {"num_workers": 2, "batch_size": 2}),
    "asynchronous": (Multiprocessing, {"num_workers": 2, "batch_size": 2, "zero_copy": False}),
}


@pytest.mark.parametrize("how", ["truncate", "terminate"])
@pytest.mark.parametrize("name", BACKENDS)
def test_l04_every_logged_episode_has_its_return_and_length(name: str, how: str) -> None:
    backend, options = BACKENDS[name]
    with make_vector(Count, num_envs=4, backend=backend, env_kwargs={"limit": 3, "how": how}, **options) as envs:
        returns, lengths = (envs.log_fields.index(f"episode_{key}") for key in ("return", "length"))
        envs.async_reset(seed=0)
        count = 0
        for _ in range(24):
            rows = envs.recv()[0].shape[0]
            logged = envs.log[envs.logged]
            count += len(logged)
            np.testing.assert_array_equal(logged[:, returns], 3.0)
            np.testing.assert_array_equal(logged[:, lengths], 3.0)
            envs.send(np.zeros(rows, np.int32))
        assert count >= 12
