"""A linear map of inputs that are mostly zeros, such as the words of a paper, with dropout before it.

    y = W dropout(x) + b        a dropped zero is a zero, so only the other entries are drawn and read       O(E C)

Training a citation graph costs most in this one product. On a CPU it is a sum of the rows of Wᵀ that the E entries
name; elsewhere, and for inputs with more entries, it is the dense product.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor
from regard.core.tensor_memo import TensorMemo

SHARE = 16  # entries of large inputs are listed where they are at most one in so many


class SparseLinear(nn.Linear):
    """A linear layer with dropout of its inputs, fast where few of these are not zero."""

    def __init__(self, width: int, out: int, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__(width, out, bias)
        self.dropout = dropout

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B _"]:
        listed = _listed(x) if _listed.takes(x) and not x.requires_grad else None
        if listed is None:
            return super().forward(F.dropout(x, self.dropout, self.training))
        columns, starts, values = listed
        kept = F.dropout(values, self.dropout, self.training)
        y = F.embedding_bag(columns, self.weight.T.contiguous(), starts, mode="sum", per_sample_weights=kept)
        y = y if self.bias is None else y + self.bias
        return y.unflatten(0, x.shape[:-1])


def _list_entries(x: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return columns, start of each row and values of what is not zero; None if that is much."""
    if int(x.count_nonzero()) * SHARE > x.numel():
        return None
    flat = x.flatten(0, -2)
    rows, columns = flat.nonzero().unbind(1)
    counts = rows.bincount(minlength=len(flat))
    return columns, counts.cumsum(0) - counts, flat[rows, columns]


_listed = TensorMemo(_list_entries)
