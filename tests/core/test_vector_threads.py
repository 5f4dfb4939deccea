"""Numerical libraries of workers use one thread, and those of this process go on as before."""

from __future__ import annotations

import os

import numpy as np
import pytest

from puffer_core.vector import threads


def counts():
    return [threads._get(*found) for found in threads._loaded()]


def test_libraries_have_one_thread_meanwhile():
    np.ones((4, 4)) @ np.ones((4, 4))
    before = counts()
    if not before:
        pytest.skip("numpy has no OpenBLAS here")
    with threads.one_thread_libraries():
        assert counts() == [1] * len(before)
    assert counts() == before


@pytest.mark.parametrize("value", ["3", None])
def test_environment_has_one_thread_meanwhile(monkeypatch, value):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    with threads.one_thread_environment():
        assert {os.environ[name] for name in threads._SETTINGS} == {"1"}
    assert os.environ.get("OMP_NUM_THREADS") == value


def test_a_system_without_maps_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(threads, "_MAPS", tmp_path / "maps")
    assert counts() == []
