"""The letters, everywhere the same, carried by jaxtyping in signatures (and checked at run time in tests only).

    B batch   H heads   G groups of heads   N queries   M keys   K beams
    C width   D head width   E value width   V vocabulary   T time   Y X rows and columns

A mask is True where a query *may* attend.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

Rows = slice | list[int]  # which query rows are asked for

__all__ = ["Bool", "Float", "Int", "Rows", "Tensor"]
