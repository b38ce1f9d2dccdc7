"""A permutation of any number of rows that is computed, not stored.

    stored      order = randperm(n); row = order[i]                               8 n bytes: 80 GB for 10^10 rows
    computed    (x, y) = divmod(i, b);  x += f(y) mod a;  y += f(x) mod b; ...    none

Every line of the second is invertible, so it permutes the a·b cells of a table: a Feistel network, with sums instead of
exclusive or, so that a and b need not be powers of two. They are chosen so that a·b is just above n; the few results at
n and above are mapped again until they fall below (cycle walking).

Luby, Rackoff: How to Construct Pseudorandom Permutations from Pseudorandom Functions. SIAM J. Comput. 1988
Black, Rogaway: Ciphers with Arbitrary Finite Domains. CT-RSA 2002
"""

from __future__ import annotations

from math import isqrt

import numpy as np

ROUNDS = 8

_U64 = np.uint64


class Shuffle:
    """Permutation of 0 to size - 1 that depends on the key: ``shuffle(i)`` is the number at position i."""

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self.b = max(1, isqrt(max(size - 1, 0)) + 1)
        self.a = max(1, -(-size // self.b))
        with np.errstate(over="ignore"):
            self.keys = [
                splitmix64(np.array(key & (2**64 - 1), _U64) + _U64(r * GOLDEN_GAMMA % 2**64)) for r in range(ROUNDS)
            ]

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """Return the numbers at these positions (int64)."""
        found = self._once(places.astype(_U64))
        while (out := found >= self.size).any():
            found[out] = self._once(found[out])
        return found.astype(np.int64)

    def _once(self, places: np.ndarray) -> np.ndarray:
        a, b = _U64(self.a), _U64(self.b)
        x: np.ndarray = places // b
        y: np.ndarray = places % b
        with np.errstate(over="ignore"):  # overflow is intended
            for first, second in zip(self.keys[::2], self.keys[1::2], strict=True):
                x = (x + splitmix64(y + first) % a) % a
                y = (y + splitmix64(x + second) % b) % b
        return x * b + y


GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def random_bits(key: int, places: np.ndarray) -> np.ndarray:
    """Return a random 64-bit number for every position, computed from key and position."""
    with np.errstate(over="ignore"):
        start = splitmix64(np.array(key & (2**64 - 1), _U64))
        return splitmix64(splitmix64(places.astype(_U64) * _U64(GOLDEN_GAMMA) + start) + start)


def splitmix64(x: np.ndarray) -> np.ndarray:
    """Mix the bits of each 64-bit number (the finaliser of splitmix64)."""
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    found: np.ndarray = x ^ (x >> _U64(31))
    return found
