"""Many single-agent adapters stepped in one tight loop: results are checked and written for all of them at once.

Whatever is unusual goes through `GymnasiumPufferEnv.take`, as if the environment were stepped alone: ends of episodes,
values of odd types, observations of another dtype. Both ways give the same arrays. A step of many small environments
costs so little that every call of numpy counts; hence the lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from puffer_core.emulation.gymnasium import GymnasiumPufferEnv
from puffer_core.emulation.values import LARGEST, BoxWriter
from puffer_core.env import Array, PufferEnv
from puffer_core.errors import EnvError

_LARGE = 4096
"""Bytes of an observation from which each is copied at once: a few fill the cache that it was just written in."""
_ODD = (TypeError, ValueError, ArithmeticError, RuntimeError, AttributeError, BufferError)


class SingleAgents:
    """Single-agent adapters, one in each row of a vector.

    Args:
        envs: The adapters; their arrays are the rows.
        arrays: Of the vector.
    """

    def __init__(self, envs: Sequence[GymnasiumPufferEnv], arrays: Mapping[str, Array]) -> None:
        self._envs = envs
        self._rewards, self._terminals, self._truncations = (
            arrays[name] for name in ("rewards", "terminals", "truncations")
        )
        self._observations, self._finals = arrays["observations"], arrays["final_observations"]
        self._reader, self._write_all = envs[0].reader, envs[0].writer.bind_all(arrays["observations"])
        is_large = isinstance(envs[0].writer, BoxWriter) and self._observations[0].nbytes >= _LARGE
        self._rows = list(self._observations) if is_large else []
        self.refresh()

    @classmethod
    def of(cls, envs: Sequence[PufferEnv], arrays: Mapping[str, Array]) -> SingleAgents | None:
        """Return them where all environments are such adapters of one class, and there are several; else None."""
        adapters = [env for env in envs if type(env) is GymnasiumPufferEnv]
        if len(envs) == 1 or len(adapters) < len(envs) or len({adapter.kind for adapter in adapters}) != 1:
            return None
        first = adapters[0].env.action_space
        return cls(adapters, arrays) if all(env.env.action_space == first for env in adapters) else None

    def refresh(self) -> None:
        """Take the environments' `step` anew, in case one was replaced."""
        self._steps = [env.env.step for env in self._envs]

    def read(self, actions: Array, own: Array) -> list[Any] | None:
        """Return what the environments take where ``actions`` are legal choices as they are, put into ``own``."""
        if type(actions) is not np.ndarray or actions.shape != own.shape or actions.dtype.kind not in "iu":
            return None
        given = self._reader.choose(actions)
        if given is not None and actions is not own:
            own[:] = actions
        return given

    def step(self, given: list[Any] | None, actions: Array) -> tuple[list[int], list[tuple[int, dict[str, Any]]]]:
        """Step every environment; return the rows that ended, and the infos that say something, each with its row.

        Args:
            given: What each environment takes, or None: what ``actions`` mean.
            actions: One row for each.

        Raises:
            EnvError: If an action is illegal or a result is wrong; the text names the environment.
        """
        given = self._reader(actions) if given is None else given
        if self._rows:
            results, is_written = self._step_large(given)
        else:
            results, is_written = [step(action) for step, action in zip(self._steps, given, strict=True)], False
        infos: Sequence[Any]
        try:
            observations, rewards, *flags, infos = zip(*results, strict=True)
            has_infos = any(infos)
            rows = self._write(None if is_written else observations, rewards, flags)
        except _ODD:
            rows = None
        if rows is None:
            rows = range(len(results))
            infos, has_infos = [self._take(row, result) for row, result in enumerate(results)], True
        else:
            for row in rows:
                self._end(row, results[row])
        ended = [row for row in rows if self._terminals[row] or self._truncations[row]]
        if not has_infos:
            return ended, []
        return ended, [(row, self._envs[row].as_info(info)) for row, info in enumerate(infos) if info]

    def _step_large(self, given: list[Any]) -> tuple[list[Any], bool]:
        """Step every environment, and copy each observation at once; return the results, and whether all were copied.

        A result holds its row instead of the observation then, of which the memory serves the next one.
        """
        results: list[Any] = []
        is_written, shape, dtype = True, self._rows[0].shape, self._rows[0].dtype
        for step, action, row in zip(self._steps, given, self._rows, strict=True):
            result = step(action)
            seen = result[0] if type(result) is tuple and result else None
            if type(seen) is np.ndarray and seen.dtype == dtype and seen.shape == shape:
                row[...] = seen
                result = (row, *result[1:])
            else:
                is_written = False
            results.append(result)
            del result, seen
        return results, is_written

    def _write(
        self, observations: Sequence[Any] | None, rewards: Sequence[Any], flags: list[Any]
    ) -> Iterable[int] | None:
        """Write what all of them returned; return the rows that ended, or None where each row has to be looked at.

        Without ``observations`` they are written.
        """
        # No reward is larger than this, and it is not a number where one of them is none.
        if len(flags) not in (1, 2) or not math.hypot(*rewards) <= LARGEST:
            return None
        self._rewards[:] = rewards
        if observations is not None and not self._write_all(observations):
            return None
        ended: list[int] = []
        for column in flags:
            rows = _rows_set(column)
            if rows is None:
                return None
            ended = sorted({*ended, *rows}) if ended and rows else ended or rows
        return ended

    def _end(self, row: int, result: Any) -> None:
        """Finish a row whose reward and observation are written."""
        if len(result) != 5 or type(result[2]) is not bool or type(result[3]) is not bool:
            self._take(row, result)
            return
        self._finals[row] = self._observations[row]
        self._terminals[row] = result[2]
        self._truncations[row] = not result[2]
        self._envs[row].restart()

    def _take(self, row: int, result: Any) -> dict[str, Any]:
        try:
            return self._envs[row].take(result)
        except EnvError as error:
            raise EnvError(f"environment {row}: {error}", hint=error.hint) from error


def _rows_set(column: tuple[Any, ...]) -> list[int] | None:
    """Return the rows whose flag is set, or None where one is not clearly a flag."""
    if type(column[0]) is np.bool_:
        flags = np.array(column)
        return flags.nonzero()[0].tolist() if flags.dtype == np.bool_ and flags.ndim == 1 else None
    count = len(column) - column.count(False)
    rows = [*compress(range(len(column)), column)] if count else []
    return rows if len(rows) == count else None
