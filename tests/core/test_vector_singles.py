"""Single-agent adapters with large observations, which are copied as each environment returns: the same arrays."""

import gymnasium
import numpy as np
import pytest

from puffer_core.emulation import GymnasiumPufferEnv
from puffer_core.errors import EnvError
from puffer_core.vector import Serial

SHAPE = (40, 40, 4)
"""6,400 bytes: more than what is collected first."""


class Picture(gymnasium.Env):
    """Fills one picture, the same array every time, with its number and its steps; ends after as many as it is told."""

    observation_space, action_space = gymnasium.spaces.Box(0, 255, SHAPE, np.uint8), gymnasium.spaces.Discrete(2)

    def __init__(self, length=3, change=lambda picture: picture):
        self._length, self._change, self._picture = length, change, np.zeros(SHAPE, np.uint8)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        self._picture[...] = 100
        return self._picture, {}

    def step(self, action):
        self.steps += 1
        self._picture[...] = self.steps
        has_ended = self.steps == self._length
        return self._change(self._picture), float(self.steps), has_ended, False, {"last": 1} if has_ended else {}


def test_large_observations_are_written_row_by_row():
    with Serial([lambda length=length: Picture(length) for length in (2, 3)], 2) as vector:
        vector.reset()
        seen = []
        for _ in range(3):
            observations, rewards, terminals, _, infos = vector.step(np.zeros(2, int))
            seen.append((observations[:, 0, 0, 0].tolist(), rewards.tolist(), terminals.tolist(), len(infos)))
            assert (observations == observations[:, :1, :1, :1]).all()
            for row in np.flatnonzero(terminals):
                assert (vector.final_observations[row] == (2, 3)[row]).all()
    assert seen == [
        ([1, 1], [1, 1], [False, False], 0),
        ([100, 2], [2, 2], [True, False], 1),
        ([1, 100], [1, 3], [False, True], 1),
    ]


def test_one_environment_of_another_dtype_is_converted_beside_others():
    change = [lambda picture: picture, lambda picture: picture.astype(np.int64)]
    envs = [lambda change=each: Picture(3, change) for each in change]
    with Serial(envs, 2) as vector:
        vector.reset()
        with pytest.warns(UserWarning, match=r"gives observations as int64 \(40, 40, 4\), declared is uint8"):
            vector.step(np.zeros(2, int))
        for step in (2, 3):
            observations = vector.step(np.zeros(2, int))[0]
            assert (observations == (step if step < 3 else 100)).all()
        assert (vector.final_observations == 3).all()
        assert vector.terminals.all()


def test_a_large_observation_of_another_shape_is_refused_by_number():
    envs = [Picture, lambda: Picture(3, lambda picture: picture[:-1])]
    with Serial(envs, 2) as vector:
        vector.reset()
        with pytest.raises(EnvError, match=r"environment 1: Picture gave an observation of shape \(39, 40, 4\)"):
            vector.step(np.zeros(2, int))


@pytest.mark.parametrize("result", [None, (), (np.zeros(SHAPE, np.uint8),), [np.zeros(SHAPE, np.uint8), 1.0]])
def test_results_of_odd_lengths_are_refused(result, monkeypatch):
    with Serial([Picture, Picture], 2) as vector:
        vector.reset()
        monkeypatch.setattr(vector.members[1].env.env, "step", lambda action: result)
        vector._singles.refresh()
        with pytest.raises(EnvError, match="environment 1: Picture: step returned"):
            vector.step(np.zeros(2, int))


def test_the_old_form_with_lists_is_read():
    class Old(Picture):
        def step(self, action):
            observation, reward, done, _, info = super().step(action)
            return [observation, reward, done, info]

    with Serial([Old, Old], 2) as vector:
        assert type(vector.members[0].env) is GymnasiumPufferEnv
        vector.reset()
        for _ in range(3):
            observations = vector.step(np.zeros(2, int))[0]
        assert (observations == 100).all()
        assert (vector.final_observations == 3).all()
