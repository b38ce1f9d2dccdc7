"""Models built without drawing their weights, since those are read from a file next, or only counted.

    with undrawn():
        model = GPT(config)            # zeros, or what comes of them, wherever numbers would have been drawn
    read(table, state, model)

Drawing takes longer than reading: 124 million normal numbers are seconds of one core. Constants (ones of a norm, tables
of angles, buffers that no file holds) are what they always are, and the caller's random numbers are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Of torch.nn.init some announce themselves and some only the draws they are made of; all that is made of these takes
# zeros (a truncated draw is repeated until it is within bounds, and zero is).
RANDOM_INITS = frozenset({"normal_", "uniform_", "kaiming_normal_", "kaiming_uniform_"})


@contextmanager
def skip_init() -> Iterator[None]:
    """Within it numbers are not drawn into tensors; they are zero."""
    with torch.random.fork_rng(devices=[]), _Zeros():
        yield


class _Zeros(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in RANDOM_INITS:
            return func(*args, **(kwargs or {}))
        into = args[0] if args else kwargs["tensor"]  # torch.nn.init calls it so
        with torch.no_grad():
            return into if into.is_meta else into.zero_()
