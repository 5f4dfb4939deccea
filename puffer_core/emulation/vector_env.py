"""A vector environment of Gymnasium as one `PufferEnv`: its environments are the rows, reset in the same step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from puffer_core.emulation.making import made
from puffer_core.emulation.spaces import action_codec, observation_codec
from puffer_core.emulation.values import ActionReader, BoxWriter, CodecWriter
from puffer_core.env import Array, PufferEnv, Step, check_spaces, put_actions
from puffer_core.errors import EnvError, RenderError, UsageError

NEXT_STEP, SAME_STEP, DISABLED = MODES = ("next_step", "same_step", "disabled")
"""Ways in which a vector environment begins the next episode of a row, as Gymnasium names them."""
_FINAL = ("final_obs", "final_info")


class VectorPufferEnv(PufferEnv):
    """The environments of a `gymnasium.vector.VectorEnv`, one row each.

    What it declares as ``metadata["autoreset_mode"]`` is turned into a reset in the same step: ``SAME_STEP`` is one
    already; with ``DISABLED``, and ``NEXT_STEP`` of Gymnasium's own `SyncVectorEnv` and `AsyncVectorEnv`, the rows that
    ended are reset with a ``reset_mask``. In any other class ``NEXT_STEP`` spends a step on the reset, whose action it
    ignores: there the row has mask False after the end, and shows the new episode one step later, so that the step in
    between is never trained on or counted.

    Args:
        env: The vector environment.
        env_creator: What makes it, in place of ``env``.
        env_args, env_kwargs: Arguments of ``env_creator``.
        autoreset_mode: One of `MODES`, for a class that declares none.
        buf: Arrays to use, as in `PufferEnv`.
        seed: Of the first `reset` that is given none.

    Attributes:
        env: The vector environment.
        num_envs: Its environments.
    """

    is_adapter = True

    def __init__(
        self,
        env: Any = None,
        env_creator: Callable[..., Any] | None = None,
        env_args: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        autoreset_mode: str | None = None,
        buf: Mapping[str, Array] | None = None,
        seed: int | None = None,
    ) -> None:
        self._seed = seed
        self.env = made(env, env_creator, env_args, env_kwargs)
        self._kind = type(self.env).__name__
        self._mode = _mode_of(self.env, autoreset_mode)
        self._resets_rows = self._mode == DISABLED or type(self.env) in (SyncVectorEnv, AsyncVectorEnv)
        codec, action = observation_codec(self.env.single_observation_space), action_codec(self.env.single_action_space)
        self.single_observation_space, self.single_action_space = codec.space, action.space
        self.num_envs = self.num_agents = int(self.env.num_envs)
        check_spaces(self)
        super().__init__(buf)
        self._read = ActionReader(self._kind, action)
        writer = BoxWriter(self._kind, codec.space) if codec.is_identity else CodecWriter(self._kind, codec)
        self._puts = {
            name: [writer.bind(row) for row in getattr(self, name)] for name in ("observations", "final_observations")
        }
        self._is_due: npt.NDArray[np.bool_] | None = None

    # -- stepping -----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None, index: int = 0) -> tuple[Array, list[dict[str, Any]]]:
        """Start a new episode in every row; the first gets ``seed + index``, the others the seeds after that."""
        seed, self._seed = self._seed if seed is None else seed, None
        observations, infos = self.env.reset(seed=None if seed is None else seed + index)
        self._write("observations", observations)
        self.rewards[:], self.terminals[:], self.truncations[:], self.masks[:] = 0, False, False, True
        self._is_due = np.zeros(self.num_envs, np.bool_)
        return self.observations, self._infos(infos, self._is_due)

    def step(self, actions: Array) -> Step:
        """Step every environment, and start the next episode where one ended."""
        if self._is_due is None:
            raise UsageError(f"{self._kind}: reset before stepping")
        put_actions(actions, self.actions, self._kind)
        observations, rewards, terminals, truncations, infos = self.env.step(self._batch())
        idle, ended = self._is_due, self._take(rewards, terminals, truncations)
        self.masks[:] = True
        if self._mode == SAME_STEP:
            self._write("observations", observations)
            self._write_finals(infos, ended)
        else:
            self._write("final_observations", observations, ended)
            self._write("observations", observations, ~ended)
            self._restart(ended)
        return self.observations, self.rewards, self.terminals, self.truncations, self._infos(infos, idle)

    def _take(self, rewards: Any, terminals: Any, truncations: Any) -> npt.NDArray[np.bool_]:
        """Bring rewards and flags into the arrays; return which rows ended. A row that was only reset has none."""
        given = {"rewards": rewards, "terminations": terminals, "truncations": truncations}
        for name, values in given.items():
            if np.shape(values) != (self.num_envs,):
                raise EnvError(f"{self._kind}: step gave {name} of shape {np.shape(values)}, not ({self.num_envs},)")
        self.rewards[:], self.terminals[:], self.truncations[:] = rewards, terminals, truncations
        self.truncations &= ~self.terminals
        for array in (self.rewards, self.terminals, self.truncations):
            array[self._is_due] = 0
        return self.terminals | self.truncations

    def _restart(self, ended: npt.NDArray[np.bool_]) -> None:
        """Begin the next episodes of the rows that ended, in this step where the class can, else with the next."""
        if not self._resets_rows:
            self.observations[ended], self.masks[ended] = 0, False
            self._is_due = ended
        elif ended.any():
            observations, _ = self.env.reset(options={"reset_mask": ended.copy()})
            self._write("observations", observations, ended)

    def _write(self, name: str, observations: Any, which: npt.NDArray[np.bool_] | None = None) -> None:
        """Write a batch of observations, or those rows of it, into the array of that name."""
        rows = getattr(self, name)
        if type(observations) is np.ndarray and observations.dtype == rows.dtype and observations.shape == rows.shape:
            if which is None:
                rows[:] = observations
            elif which.any():
                rows[which] = observations[which]
            return
        each = list(self._each(observations))
        for row in range(self.num_envs) if which is None else np.flatnonzero(which):
            self._puts[name][row](each[row])

    def _each(self, observations: Any) -> Iterator[Any]:
        """Yield the observation of each environment."""
        try:
            yield from iterate(self.env.observation_space, observations)
        except (TypeError, ValueError, KeyError) as error:
            raise EnvError(f"{self._kind} gave observations that are not of {self.env.observation_space}") from error

    def _write_finals(self, infos: Mapping[str, Any], ended: npt.NDArray[np.bool_]) -> None:
        """Write the last observations, which come in infos where the reset has replaced them."""
        if not ended.any():
            return
        if "final_obs" not in infos:
            raise EnvError(f"{self._kind}: an episode ended, and infos have no `final_obs`, as SAME_STEP promises")
        finals = infos["final_obs"]
        each = list(finals if isinstance(finals, np.ndarray | list) else self._each(finals))
        for row in np.flatnonzero(ended):
            self._puts["final_observations"][row](each[row])

    def _batch(self) -> Any:
        """Return the rows of actions as the vector environment takes them."""
        space = self.env.single_action_space
        batch: Any = create_empty_array(space, n=self.num_envs)
        return concatenate(space, self._read(self.actions), batch)

    def _infos(self, infos: Mapping[str, Any], idle: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
        """Return no infos, or one per row; where an episode ended those of its last step, of a mere reset none."""
        if not infos:
            return []
        rows = _by_row({key: value for key, value in infos.items() if key.lstrip("_") not in _FINAL}, self.num_envs)
        for row, last in enumerate(_by_row(infos.get("final_info", {}), self.num_envs)):
            rows[row] = {} if idle[row] else last or rows[row]
        return rows if any(rows) else []

    # -- the rest -----------------------------------------------------------------------------------------------------

    def render(self, index: int = 0) -> Any:
        """Return a picture of one environment."""
        frames = self.env.render()
        if frames is None:
            raise RenderError(f"{self._kind} drew nothing", hint="make it with render_mode='rgb_array'")
        return frames[index] if isinstance(frames, tuple | list) and frames else frames

    def close(self) -> None:
        """Close the vector environment."""
        self.env.close()


def _mode_of(env: Any, given: str | None) -> str:
    """Return how a vector environment begins the next episode of a row."""
    declared = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    mode = declared if given is None else given
    legal = {mode.replace("_", ""): mode for mode in MODES}
    known = legal.get(str(getattr(mode, "name", mode)).lower().replace("_", ""))
    if known is not None:
        return known
    kind = type(env).__name__
    msg = f"{kind} declares no autoreset mode" if mode is None else f"{kind}: autoreset_mode={mode!r} is none"
    hint = f"set metadata['autoreset_mode'], or give VectorPufferEnv autoreset_mode= one of {', '.join(MODES)}"
    raise EnvError(msg, hint=hint)


def _by_row(infos: Mapping[str, Any], rows: int) -> list[dict[str, Any]]:
    """Return the infos of a vector environment, arrays by key with masks under ``_key``, as one dict per row."""
    found: list[dict[str, Any]] = [{} for _ in range(rows)]
    for key, values in infos.items():
        if key.startswith("_"):
            continue
        if isinstance(values, Mapping):
            for row, inner in enumerate(_by_row(values, rows)):
                if inner:
                    found[row][key] = inner
        elif isinstance(values, np.ndarray | list | tuple) and len(values) == rows:
            has = infos.get(f"_{key}")
            for row in range(rows):
                if has is None or has[row]:
                    found[row][key] = values[row]
    return found
