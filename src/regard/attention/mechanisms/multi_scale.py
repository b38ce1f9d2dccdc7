"""Multi-scale attention: each head has a window of its own, so that some heads see phrases and others the whole text.

    softmax        head_h of token n: softmax attention over all m                                O(N M D)
    multi-scale    head_h of token n: the same over |n - m| <= w_h                                O(N (w + s N) D)

A scale w_h is a number w of tokens to either side, or a share s of the length of the text: `scales=(1, 3, 0.25)` gives
a third of the heads the next token on either side, a third three of them, a third a quarter of the length; with fewer
heads than scales some have none. One scale for each head is possible too, and so are other scales in each layer (a list
of specs): `layer_scales` makes the list of the paper, in which lower layers have more heads of small scales. Windows
are read in blocks of keys, no N x N matrix is made; but heads whose scale is a share of the length, as in the paper,
still take time quadratic in it. With whole numbers alone it is linear.

What differs: a share of the length is that of the true length, rounded down, at least one token. The rule of
`layer_scales` is written from memory of the paper, whose text was not at hand.

Guo, Qiu, Liu, Xue, Zhang: Multi-Scale Self-Attention for Text Classification. AAAI 2020. arXiv:1912.00544
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from regard.attention.kernel import split_chunks
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import BadInput
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Bool, Float, Int, Rows, Tensor
from regard.core.validation import Fraction

PAPER_SCALES = (1, 3, 1 / 16, 1 / 8, 1 / 4)
MIN_BLOCK = 16  # queries whose keys are read together


class MultiScaleAttention(Mechanism):
    """Softmax attention within a window of each head's own; fewer `scales` than heads are shared out evenly."""

    traits = Traits(
        cost="N (w + s N) D",
        paper="1912.00544",
        masks=frozenset({"padding"}),
        bias=False,
        causality="none",
        headwise=False,
        square=True,
        positional=True,
        family="heads",
        limit="scales=(16,)",
    )

    def __init__(
        self, scales: tuple[int | float, ...] = PAPER_SCALES, dropout: Fraction = 0.0, scale: float | None = None
    ) -> None:
        super().__init__()
        if not scales or any(w < 0 or (w > 1 and w != int(w)) for w in scales):
            raise BadInput(f"scales must be whole numbers of tokens, or shares of the length below 1, got {scales}")
        self.scales, self.dropout, self.scale = tuple(map(float, scales)), dropout, scale

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        (b, heads, n, d), each = q.shape, q.shape[1] // k.shape[1]
        q = q * (d**-0.5 if self.scale is None else self.scale)
        k, v = (x.repeat_interleave(each, 1) for x in (k, v))
        lengths, out = _lengths(mask, b, n, q.device), []
        for w, begin, end in self._groups(heads):
            widest = min(int(w) if w == int(w) else max(1, int(w * n)), n - 1)  # of any text of the batch
            own = slice(begin, end)
            out.append(self._within(q[:, own], k[:, own], v[:, own], _reach(w, lengths), lengths, widest))
        return torch.cat(out, 1)

    def _within(
        self, q: Tensor, k: Tensor, v: Tensor, reach: Int[Tensor, " B"], lengths: Int[Tensor, " B"], widest: int
    ) -> Tensor:
        """Attend within windows of `reach` tokens to either side, at most `widest`, block by block."""
        n = q.shape[2]
        size = min(max(widest, MIN_BLOCK), n)
        q = split_chunks(q, size)  # B H blocks size D
        ends = (0, 0, widest, widest + -n % size)
        k, v = (F.pad(x, ends).unfold(2, size + 2 * widest, size) for x in (k, v))  # B H blocks D keys
        query, key = torch.arange(size, device=q.device)[:, None], torch.arange(size + 2 * widest, device=q.device)
        near = (key - widest - query).abs() <= reach[:, None, None]  # B size keys
        place = torch.arange(q.shape[2], device=q.device)[:, None] * size + key - widest  # blocks keys
        real = (place >= 0) & (place < lengths[:, None, None])  # B blocks keys
        weights = masked_softmax(q @ k, near[:, None, None] & real[:, None, :, None]).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        return (weights @ v.mT).flatten(2, 3)[:, :, :n]

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        self.check(q, k, mask, bias)
        (b, heads, n, d), each = q.shape, q.shape[1] // k.shape[1]
        scores = upcast(q[:, :, queries] @ k.repeat_interleave(each, 1).mT)
        lengths = _lengths(mask, b, n, q.device)
        place = torch.arange(n, device=q.device)
        apart, real = (place[:, None] - place).abs(), place < lengths[:, None, None]
        allowed: list[Bool[Tensor, "B h N M"]] = []
        for w, begin, end in self._groups(heads):
            seen = (apart <= _reach(w, lengths)[:, None, None]) & real
            allowed.append(seen[:, None].expand(-1, end - begin, -1, -1))
        scale = d**-0.5 if self.scale is None else self.scale
        return masked_softmax(scores * scale, torch.cat(allowed, 1)[:, :, queries]).to(q.dtype)

    def _groups(self, heads: int) -> list[tuple[float, int, int]]:
        """Return the scales and the heads that have them: from, to."""
        ends = [round(heads * i / len(self.scales)) for i in range(len(self.scales) + 1)]
        return [(w, begin, end) for w, begin, end in zip(self.scales, ends, ends[1:], strict=False) if begin < end]

    def extra_repr(self) -> str:
        return f"scales={self.scales}, dropout={self.dropout}"


def layer_scales(
    layers: int, heads: int, scales: Sequence[int | float] = PAPER_SCALES, alpha: float = 0.5
) -> list[str]:
    """Return the specs of all layers: with `alpha` > 0 lower layers have more heads of small scales.

    The share of scale k in layer l of L is softmax_k(z), z_k = (K - k) α / (2 l), and equal shares in the last layer.
    """
    specs = []
    for layer in range(1, layers + 1):
        step = 0.0 if layer == layers else 0.5 * alpha / layer
        z = torch.tensor([step * (len(scales) - k) for k in range(len(scales))], dtype=torch.float64)
        ends = [0, *(heads * z.softmax(0).cumsum(0)).round().long().tolist()]
        own = [w for w, begin, end in zip(scales, ends, ends[1:], strict=False) for _ in range(end - begin)]
        specs.append(f"multi_scale(scales={tuple(own)})")
    return specs


def _reach(w: float, lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Return the tokens to either side: w itself, or its share of the length if it is less than 1."""
    return torch.full_like(lengths, int(w)) if w == int(w) else (w * lengths).long().clamp(min=1)


def _lengths(mask: Mask | None, batch: int, n: int, device: torch.device) -> Int[Tensor, " B"]:
    padding = None if mask is None else mask.padding
    return torch.full((batch,), n, device=device) if padding is None else padding.lengths
