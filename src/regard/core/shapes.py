"""The letters of shapes, the same everywhere, in jaxtyping annotations (checked at run time in tests only).

    B batch   H heads   G key/value heads   N queries   M keys   K beams
    C width   D head width   E value width   V vocabulary   T time   Y X rows and columns

A mask is True where a query *may* attend.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from regard.core.errors import BadInput

Rows = slice | list[int]  # which query rows
Pair = tuple[int, int]  # rows and columns
Size = int | Pair  # the same, where one number is a square

__all__ = [
    "Bool",
    "Float",
    "Int",
    "Pair",
    "Rows",
    "Shaped",
    "Size",
    "Tensor",
    "check_id_range",
    "check_token_ids",
    "pair",
]


def pair(size: Size) -> Pair:
    """Return (rows, columns); one number means a square."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def check_token_ids(tokens: Tensor, what: str = "tokens") -> Int[Tensor, "B N"]:
    """Return the tokens if they are a 2-D integer tensor, else raise `BadInput`; the ids themselves are not read."""
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
        got = f"{str(tokens.dtype).removeprefix('torch.')} of shape {tuple(tokens.shape)}"
        raise BadInput(f"{what} must be integers of shape (batch, length) (one row: tokens[None]), got {got}")
    return tokens


def check_id_range(what: str, numbers: Tensor, size: int) -> None:
    """Raise `BadInput` for ids beyond a table; skipped on a GPU, where reading them would synchronise."""
    if numbers.device.type != "cpu" or torch.compiler.is_compiling() or not numbers.numel():
        return
    low, high = (int(x) for x in numbers.aminmax())
    if low < 0 or high >= size:
        raise BadInput(f"{what} ids must be from 0 to {size - 1}, got {low if low < 0 else high}")
