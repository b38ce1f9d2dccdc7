"""Adaptive span: every head learns how far back it looks.

    softmax          w_nm = exp(s_nm)      / Σ_m' exp(s_nm')           s_nm = q_n·k_m / √D          O(N M D)
    adaptive_span    w_nm = r_nm exp(s_nm) / Σ_m' r_nm' exp(s_nm')                                  O(N min(M, span) D)
                     r_nm = min(1, max(0, (R + z - |n - m|) / R)),   |n - m| < span

Most heads need only near tokens. A soft mask falls from 1 to 0 over a ramp of R tokens beyond z, so z has a gradient,
and a loss term λ·z makes each head keep its span as small as it can. Keys beyond the largest learned span have neither
weight nor gradient and are never read; compiled, or captured as a CUDA graph, which fixes shapes, those beyond `span`.

The loss is `penalty` times the mean span of the heads, in tokens; z is `span` times a parameter that is kept between 0
and 1 after every update. Differs from the paper: without a causal mask the span reaches to both sides.

Sukhbaatar, Grave, Bojanowski, Joulin: Adaptive Attention Span in Transformers. ACL 2019. arXiv:1905.07799
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast, wide_dtype
from regard.attention.mechanisms.dense import DenseAttention, dense_mask, distances, repeat_kv, scaled_products
from regard.attention.protocol import Traits
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.core.validation import Fraction, Range


class AdaptiveSpanAttention(DenseAttention):
    """Softmax attention with a learned span for each head.

    Args:
        span: the largest span in tokens; None: the length of the text that the layer was built for.
        ramp: R, over how many tokens the mask falls to zero.
        initial: z at the start, as a share of `span`.
        penalty: λ, the loss for each token of the mean span.
    """

    traits = Traits(
        cost="N min(M, span) D",
        paper="1905.07799",
        exact=False,
        headwise=False,
        square=True,
        positional=True,
        family="heads",
        limit="span=16, initial=1",
    )

    def __init__(
        self,
        heads: int,
        length: int | None = None,
        span: int | None = None,
        ramp: int = 32,
        initial: Annotated[float, Range(low=0, high=1)] = 0.0,
        penalty: Annotated[float, Range(low=0)] = 2e-6,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(dropout, scale)
        if span is None and length is None:
            raise RegardError("adaptive_span needs the largest span: write adaptive_span(span=1024)")
        self.span, self.ramp, self.penalty = int(span or length or 0), ramp, penalty
        self.extent = nn.Parameter(torch.full((heads,), float(initial)))

    @torch.no_grad()
    def after_update(self) -> None:
        """Bring the spans back between 0 and the largest."""
        self.extent.clamp_(0, 1)

    def soft_mask(self, distance: Int[Tensor, "*any 1 N M"]) -> Float[Tensor, "*any H N M"]:
        """Return r for these distances between query and key, of every head."""
        away = distance.abs().to(wide_dtype(self.extent))
        soft = ((self.ramp + self.span * upcast(self.extent)[:, None, None] - away) / self.ramp).clamp(0, 1)
        return soft * (away < self.span)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        if layer_state is not None:
            layer_state.add_loss("span", self.penalty * self.span * self.extent.mean())
        if q.shape[2] <= (reach := self._reach()) or (mask is not None and mask.token_positions is not None):
            return super().mix(q, k, v, mask, bias, layer_state)
        return self._mix_blocks(q, k, v, mask, bias, reach)

    def weight_matrix(
        self, scores: Tensor, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        scores = scores if bias is None else scores + bias.dense(rows)
        return _softmax(scores, self.soft_mask(distances(q, k, mask, rows)), dense_mask(q, k, mask, rows))

    def _reach(self) -> int:
        """Return how many keys a query sees on one side, itself included; reading the spans waits for a GPU."""
        if torch.compiler.is_compiling() or (self.extent.is_cuda and torch.cuda.is_current_stream_capturing()):
            return self.span
        return max(1, min(self.span, math.ceil(self.ramp + self.span * float(self.extent.detach().max()))))

    def _mix_blocks(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None, size: int) -> Tensor:
        """Attend from blocks of `size` queries to the keys of their own block and its neighbours."""
        n, heads, causal = q.shape[2], q.shape[1], mask is not None and "causal" in mask.kinds
        blocks, sides = -(-n // size), (1, 0 if causal else 1)
        q = F.pad(q, (0, 0, 0, blocks * size - n)).unflatten(2, (blocks, size))
        k, v = (_neighbours(repeat_kv(x, heads), blocks, size, sides) for x in (k, v))
        queries = torch.arange(blocks * size, device=q.device).view(1, blocks, size, 1)
        keys = queries[:, :, :1] + torch.arange(-size, size + sides[1] * size, device=q.device)
        allowed = (keys >= 0) & (keys < n) & (queries < n)
        queries, keys = queries.clamp(max=n - 1), keys.clamp(0, n - 1)  # those beyond are not allowed
        if mask is not None:
            batch = torch.arange(q.shape[0] if mask.batched else 1, device=q.device)[:, None, None, None]
            allowed = allowed & mask.allow(batch, queries, keys)
        scores = scaled_products(q.flatten(1, 2), k.flatten(1, 2), self.scale).unflatten(1, (heads, blocks))
        if bias is not None:
            scores = scores + bias.dense()[:, :, queries[0], keys[0]]
        soft = self.soft_mask((keys - queries)[:, :, None]).transpose(1, 2)  # 1 H blocks size keys
        weights = _softmax(scores, soft, allowed[:, None]).to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        return (weights @ v).flatten(2, 3)[:, :, :n]

    def extra_repr(self) -> str:
        return f"span={self.span}, ramp={self.ramp}, penalty={self.penalty}, {super().extra_repr()}"


def _softmax(scores: Tensor, soft: Tensor, allowed: Tensor | None) -> Tensor:
    """Return soft exp(scores), normalised over what is allowed."""
    near = soft > 0
    scores = scores + soft.clamp_min(torch.finfo(soft.dtype).tiny).log()
    return masked_softmax(scores, near if allowed is None else near & allowed)


def _neighbours(
    x: Float[Tensor, "B H M D"], blocks: int, size: int, sides: tuple[int, int]
) -> Float[Tensor, "B H blocks keys D"]:
    """Return the vectors of each block of `size`, with those of as many blocks before and after as `sides` says."""
    padded = F.pad(x, (0, 0, sides[0] * size, (blocks + sides[1]) * size - x.shape[2]))
    return padded.unfold(2, (1 + sum(sides)) * size, size).transpose(-1, -2)
