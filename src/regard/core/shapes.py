"""The letters, everywhere the same, carried by jaxtyping in signatures (and checked at run time in tests only).

    B batch   H heads   G groups of heads   N queries   M keys   K beams
    C width   D head width   E value width   V vocabulary   T time   Y X rows and columns

A mask is True where a query *may* attend.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

Rows = slice | list[int]  # which query rows are asked for
Pair = tuple[int, int]  # rows and columns
Size = int | Pair  # the same, where one number is a square

__all__ = ["Bool", "Float", "Int", "Pair", "Rows", "Size", "Tensor", "pair"]


def pair(size: Size) -> Pair:
    """Rows and columns; one number is a square."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])
