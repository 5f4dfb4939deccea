"""Many single-agent adapters stepped in one tight loop: results are checked and written for all of them at once.

Whatever is unusual goes through `GymnasiumPufferEnv.take`, as if the environment were stepped alone: ends of episodes,
values of odd types, observations of another dtype. Both ways give the same arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from puffer_core.emulation.gymnasium import GymnasiumPufferEnv
from puffer_core.emulation.values import LARGEST
from puffer_core.env import Array, PufferEnv
from puffer_core.errors import EnvError

_NUMBERS = {float, int, bool, *(np.dtype(code).type for code in "?bhilqBHILQefd")}
_ODD = (TypeError, ValueError, ArithmeticError, RuntimeError)


class Singles:
    """Single-agent adapters, one in each row of a vector.

    Args:
        envs: The adapters; their arrays are the rows.
        arrays: Of the vector.
    """

    def __init__(self, envs: Sequence[GymnasiumPufferEnv], arrays: Mapping[str, Array]) -> None:
        self._envs = envs
        self._observations, self._rewards = arrays["observations"], arrays["rewards"]
        self._exact = np.zeros(len(envs))
        self._read, self._writer = envs[0].reader, envs[0].writer
        self.refresh()

    @classmethod
    def of(cls, envs: Sequence[PufferEnv], arrays: Mapping[str, Array]) -> Singles | None:
        """Return them where all environments are such adapters of one class, else None."""
        adapters = [env for env in envs if type(env) is GymnasiumPufferEnv]
        if len(adapters) < len(envs) or len({adapter.kind for adapter in adapters}) != 1:
            return None
        first = adapters[0].env.action_space
        return cls(adapters, arrays) if all(env.env.action_space == first for env in adapters) else None

    def refresh(self) -> None:
        """Take the environments' `step` anew, in case one was replaced."""
        self._steps = [env.env.step for env in self._envs]

    def step(self, actions: Array) -> list[tuple[int, dict[str, Any]]]:
        """Step every environment; return the infos that say something, each with its row.

        Args:
            actions: One row for each.

        Raises:
            EnvError: If an action is illegal or a result is wrong; the text names the environment.
        """
        results = [step(action) for step, action in zip(self._steps, self._read(actions), strict=True)]
        try:
            observations, rewards, *flags, infos = zip(*results, strict=True)
            has_infos = any(infos)
            rows: Iterable[int] | None = self._write(observations, rewards, flags)
        except _ODD:
            rows = None
        if rows is None:
            infos, has_infos = tuple(self._take(row, result) for row, result in enumerate(results)), True
        else:
            for row in rows:
                self._take(row, results[row])
        if not has_infos:
            return []
        return [(row, self._envs[row].as_info(info)) for row, info in enumerate(infos) if info]

    def _write(self, observations: Sequence[Any], rewards: Sequence[Any], flags: list[Any]) -> list[int] | None:
        """Write what all of them returned; return the rows that ended, or None where each row has to be looked at."""
        if len(flags) not in (1, 2) or not _NUMBERS.issuperset(map(type, rewards)):
            return None
        self._exact[:] = rewards
        fits = np.minimum.reduce(self._exact) >= -LARGEST and np.maximum.reduce(self._exact) <= LARGEST
        if not fits or not self._writer.write_all(self._observations, observations):
            return None
        self._rewards[:] = self._exact
        ended = [_rows_not_false(column) for column in flags if column.count(False) < len(column)]
        return ended[0] if len(ended) == 1 else sorted(set().union(*ended))

    def _take(self, row: int, result: Any) -> dict[str, Any]:
        try:
            return self._envs[row].take(result)
        except EnvError as error:
            raise EnvError(f"environment {row}: {error}", hint=error.hint) from error


def _rows_not_false(column: tuple[Any, ...]) -> list[int]:
    no = np.False_
    return [row for row, flag in enumerate(column) if flag is not False and flag is not no]
