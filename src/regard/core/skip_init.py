"""Build a model without random initialisation, because its weights are loaded next, or only counted.

    with skip_init():
        model = GPT(config)            # zeros wherever numbers would be drawn

Drawing takes longer than loading: 124 million normal numbers are seconds of one core. Constants (ones of a norm, tables
of angles, buffers) keep their values, and the global random state does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Some functions of torch.nn.init reach the mode by their own name, others only by the draws they make. Truncated draws
# repeat until the value is within bounds; zero is.
RANDOM_INITS = frozenset({"normal_", "uniform_", "kaiming_normal_", "kaiming_uniform_"})


@contextmanager
def skip_init() -> Iterator[None]:
    """Replace random initialisation by zeros within this block."""
    with torch.random.fork_rng(devices=[]), _Zeros():
        yield


class _Zeros(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in RANDOM_INITS:
            return func(*args, **(kwargs or {}))
        tensor = args[0] if args else kwargs["tensor"]  # the keyword of torch.nn.init
        with torch.no_grad():
            return tensor if tensor.is_meta else tensor.zero_()
