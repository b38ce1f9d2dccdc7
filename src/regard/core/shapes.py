"""The letters, everywhere the same, carried by jaxtyping in signatures (and checked at run time in tests only).

    B batch   H heads   G groups of heads   N queries   M keys   K beams
    C width   D head width   E value width   V vocabulary   T time   Y X rows and columns

A mask is True where a query *may* attend.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.errors import BadInput

Rows = slice | list[int]  # which query rows are asked for
Pair = tuple[int, int]  # rows and columns
Size = int | Pair  # the same, where one number is a square

__all__ = ["Bool", "Float", "Int", "Pair", "Rows", "Size", "Tensor", "check_token_ids", "pair"]


def pair(size: Size) -> Pair:
    """Rows and columns; one number is a square."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def check_token_ids(tokens: Tensor, what: str = "tokens") -> Int[Tensor, "B N"]:
    """Tokens as they are, if they are rows of whole numbers; looks at no number."""
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
        given = f"{str(tokens.dtype).removeprefix('torch.')} of shape {tuple(tokens.shape)}"
        raise BadInput(f"{what} are B N, rows of whole numbers (one row: tokens[None]); these are {given}")
    return tokens
