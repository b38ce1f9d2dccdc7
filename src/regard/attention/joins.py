"""Joins: the outputs of all heads to tokens. The table of contents is `JOINS`.

concat    out = [head_1 ... head_H] W_o
"""

from __future__ import annotations

from torch import nn

from regard.core.shapes import Float, Tensor
from regard.core.spec import Registry

JOINS: Registry = {
    "concat": ("regard.attention.joins", "OutputProjection"),
}


class OutputProjection(nn.Module):
    """Concatenate the heads and apply one linear map."""

    def __init__(self, width: int, heads: int = 1, head_dim: int | None = None, bias: bool = True) -> None:
        super().__init__()
        self.out = nn.Linear(width if head_dim is None else heads * head_dim, width, bias=bias)

    def forward(self, heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N C"]:
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return joined
