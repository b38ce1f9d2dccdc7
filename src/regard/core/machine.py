"""What this machine does best, found by trying: threads for small matrix products.

Decoding is many small products, and threads meet at the end of each. On a machine that others use too, a thread that is
not running keeps all of them waiting, and two threads can be fifty times slower than one. So it is measured, not
assumed.
"""

from __future__ import annotations

import os
import statistics
import time

import torch


def choose_threads() -> int:
    """Set the number of threads that does small products fastest; OMP_NUM_THREADS is respected. Takes some 20 ms."""
    most = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ or most == 1:
        return most
    found = {number: _seconds(number) for number in sorted({1, max(1, most // 2), most})}
    best = min(found, key=lambda number: found[number])
    torch.set_num_threads(best)
    return best


def _seconds(threads: int) -> float:
    """The time of a row of products like those of a decoding step; the upper quartile, since waiting comes and goes."""
    torch.set_num_threads(threads)
    x, w = torch.randn(16, 512), torch.randn(2048, 512)
    taken = []
    for _ in range(12):
        began = time.perf_counter()
        for _ in range(3):
            torch.nn.functional.linear(x, w)
        taken.append(time.perf_counter() - began)
    return statistics.quantiles(taken[2:], n=4)[2]
