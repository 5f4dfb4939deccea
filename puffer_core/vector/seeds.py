"""How the seed of a vector reaches each of its environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puffer_core.emulation.forms import accepts
from puffer_core.env import PufferEnv


class Seeding:
    """What an environment's ``reset`` is given: seed and index, their sum, or nothing.

    Attributes:
        takes_seed: Whether a seed reaches the environment. Adapters and wrappers say so themselves: their ``reset``
            takes one in any case.
    """

    def __init__(self, env: PufferEnv) -> None:
        reset: Callable[..., Any] = env.reset
        takes_one = env.is_adapter or accepts(reset, "seed")
        self.takes_seed = takes_one and bool(getattr(env, "takes_seed", True))
        self._takes_index = env.is_adapter or (takes_one and accepts(reset, "index"))

    def arguments(self, seed: int | None, index: int) -> dict[str, int]:
        """Return what to call ``reset`` with.

        Args:
            seed: Of the vector; None where the generators go on.
            index: Instances before this environment.
        """
        if seed is None or not (self._takes_index or self.takes_seed):
            return {}
        return {"seed": seed, "index": index} if self._takes_index else {"seed": seed + index}
