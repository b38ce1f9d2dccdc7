"""The usual join: concatenate the heads and apply one matrix.

out = [head_1 ... head_H] W_o        O(N C²)
"""

from __future__ import annotations

from torch import nn

from regard.core.shapes import Float, Tensor


class OutputProjection(nn.Module):
    """Concatenate the heads and apply one linear map."""

    def __init__(self, width: int, heads: int = 1, head_dim: int | None = None, bias: bool = True) -> None:
        super().__init__()
        self.out = nn.Linear(width if head_dim is None else heads * head_dim, width, bias=bias)

    def forward(self, heads: Float[Tensor, "B H N D"]) -> Float[Tensor, "B N C"]:
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return joined
