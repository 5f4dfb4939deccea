"""The random numbers of C environments, in Python: for reference implementations that repeat a trajectory exactly."""

from __future__ import annotations

import numpy as np

_MASK32, _MASK64 = 2**32 - 1, 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Generator:
    """xoshiro128++, seeded by splitmix64 from the vector's seed and the instance's index, as ``env.h`` does it.

    Args:
        seed: Of the vector.
        index: Of the instance over all workers and ranks.
    """

    def __init__(self, seed: int, index: int = 0) -> None:
        start = _mix((_mix((seed + _GOLDEN) & _MASK64) + index * 0xD1342543DE82EF95) & _MASK64)
        a, b = (_mix((start + k * _GOLDEN) & _MASK64) for k in (1, 2))
        self._s = [a & _MASK32, a >> 32, b & _MASK32, (b >> 32) | (a == 0 and b == 0)]

    def next(self) -> int:
        """Return the next 32 bits (``puffer_rng_next``)."""
        s = self._s
        result, t = (_rotate((s[0] + s[3]) & _MASK32, 7) + s[0]) & _MASK32, (s[1] << 9) & _MASK32
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = _rotate(s[3], 11)
        return result

    def below(self, n: int) -> int:
        """Return an integer from 0 to ``n - 1`` (``puffer_rng_below``)."""
        while True:
            product = self.next() * n
            if product & _MASK32 >= 2**32 % n:
                return product >> 32

    def uniform(self) -> np.float32:
        """Return a float in [0, 1) (``puffer_rng_uniform``)."""
        return np.float32((self.next() >> 8) * 2.0**-24)

    def range(self, low: float, high: float) -> np.float32:
        """Return a float between ``low`` and ``high`` (``puffer_rng_range``)."""
        return np.float32(low) + (np.float32(high) - np.float32(low)) * self.uniform()


def _mix(x: int) -> int:
    """Return the finaliser of splitmix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def _rotate(x: int, k: int) -> int:
    return ((x << k) | (x >> (32 - k))) & _MASK32
