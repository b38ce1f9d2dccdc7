"""Sparse Transformer, strided pattern: a query attends to the last l tokens and to every l-th token before them.

    softmax    o_n = Σ_m softmax_m(q_n·k_m / √D) v_m      all m                                   O(N M D)
    strided                                               |n - m| ≤ l, or l divides n - m         O(N (l + N/l) D)

If l is the width of an image, these are the pixels before n in its row and those above it in its column; any two pixels
are then two layers apart. With l near √N the cost is N √N. Tokens l apart form a sequence of their own, so both parts
are dense products, one of the tokens in rows of l and one of the same tokens in columns.

Both parts are one softmax (the paper's merged head). Its other way, one part in each layer, is a list of the specs
`window` and `axial(axis='column')`, its third, a part in each head, `per_head` of these. Without a causal mask both
sides are read.

Child, Gray, Radford, Sutskever: Generating Long Sequences with Sparse Transformers. 2019. arXiv:1904.10509
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.mechanisms.dense import repeat_kv
from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import PatternAttention, SparsePattern, is_causal
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, TensorBias
from regard.core.shapes import Tensor
from regard.core.validation import Fraction


class SparseStridedAttention(PatternAttention):
    """Attention to the `stride` tokens before the query (and after it, if not causal) and to every `stride`-th one."""

    traits = Traits(
        cost="N (l + N / l) D",
        paper="1904.10509",
        square=True,
        positional=True,
        family="sparse by position",
        limit="stride=16",
    )
    pattern: StridedPattern

    def __init__(self, stride: int = 128, dropout: Fraction = 0.0, scale: float | None = None) -> None:
        super().__init__(StridedPattern(stride), dropout, scale)

    def mix_sparsely(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, layer_state: LayerState | None
    ) -> Tensor:
        """Score both parts, take one softmax over them, and add up their values.

        No group of queries shares the keys of both parts, so they are not gathered together, and every block of keys
        has some that are read, so a block-sparse kernel would save nothing.
        """
        heads, n, stride = q.shape[1], q.shape[2], self.pattern.stride
        causal = is_causal(mask)
        q, k, v = (_rows(repeat_kv(x, heads), stride) for x in (q * self._scale(q), k, v))  # B H rows l D
        place = torch.arange(q.shape[2] * stride, device=q.device).view(-1, stride)
        near = _with_neighbours(place[None, None, ..., None] + 1, causal)[0, 0, ..., 0] - 1  # rows, keys; -1: none
        in_row = upcast(q @ _with_neighbours(k, causal).mT)
        in_column = upcast(q.transpose(2, 3) @ k.transpose(2, 3).mT).transpose(2, 3)
        scores = torch.cat([in_row, in_column], -1)
        to_row, to_column = near[:, None], place.T[None]
        at_n = place[..., None]
        allowed = torch.cat(
            [
                (to_row >= 0) & ((at_n - to_row).abs() <= stride),
                (at_n - to_column).abs() > stride,  # the others are there already
            ],
            -1,
        )
        shape = (*place.shape, to_row.shape[-1]), (*place.shape, to_column.shape[-1])
        at_m = torch.cat([to_row.expand(shape[0]), to_column.expand(shape[1])], -1)
        allowed = allowed & (at_m < n)
        at_n, at_m = at_n.clamp(max=n - 1), at_m.clamp(0, n - 1)
        b = torch.arange(q.shape[0], device=q.device).view(-1, 1, 1, 1, 1)
        if mask is not None:
            allowed = allowed & mask.allow(b, at_n, at_m)
        if bias is not None:
            add = bias.score_mod() or TensorBias(bias.dense()).score_mod()
            scores = add(scores, b, torch.arange(heads, device=q.device).view(-1, 1, 1, 1), at_n, at_m)
        weights = masked_softmax(scores, allowed).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        by_row, by_column = weights.split([in_row.shape[-1], in_column.shape[-1]], -1)
        out = by_row @ _with_neighbours(v, causal)
        out = out + (by_column.transpose(2, 3) @ v.transpose(2, 3)).transpose(2, 3)
        return out.flatten(2, 3)[:, :, :n]


@dataclass(frozen=True)
class StridedPattern(SparsePattern):
    """The neighbours within one stride, and all tokens a multiple of it away."""

    stride: int

    def allow(self, h: Tensor, n: Tensor, m: Tensor, length: Tensor | int, causal: bool) -> Tensor:
        return ((n - m).abs() <= self.stride) | ((n - m) % self.stride == 0)


def _rows(x: Tensor, stride: int) -> Tensor:
    """B H N D -> B H rows l D, padded with zeros."""
    return F.pad(x, (0, 0, 0, -x.shape[2] % stride)).unflatten(2, (-1, stride))


def _with_neighbours(x: Tensor, causal: bool) -> Tensor:
    """Concatenate to every row the one before it and, if not causal, the one after it; zeros where there is none."""
    before = F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1]
    if causal:
        return torch.cat([before, x], 3)
    return torch.cat([before, x, F.pad(x, (0, 0, 0, 0, 0, 1))[:, :, 1:]], 3)
