"""Low-rank and locality-constrained attention: few dimensions for what is far, a band for what is near.

    softmax           A = softmax(q kᵀ / √D)                                                        O(N M D)
    low-rank, local   A = (1 - λ) softmax(q P (k P')ᵀ / √r) + λ softmax within w tokens (q kᵀ / √D)   O(N M D)

Attention between distant words is close to low rank, so r < D dimensions are enough for it and overfit less on small
data; what a low rank cannot express, sharp attention to neighbours, is left to a band. The projections P and P', D x r,
and the share λ, a sigmoid, are learned for each head. Scores are still those of all pairs: the gain is in
generalisation, not in time.

What was reconstructed: of the paper only the abstract was at hand, and Lin et al.'s survey: a low-rank module with a
small width of keys beside a band module. That the two are mixed by a learned share is our choice. When causal, the band
is that of the last w tokens, else half of it lies on either side.

Guo, Qiu, Xue, Zhang: Low-Rank and Locality Constrained Self-Attention for Sequence Modeling. IEEE/ACM Transactions on
Audio, Speech, and Language Processing 27(12), 2019
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.mechanisms.window import SlidingWindowAttention
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction


class LowRankLocalAttention(Mechanism):
    """A mixture of softmax attention in `rank` dimensions and of softmax attention within `window` tokens."""

    traits = Traits(
        cost="N M D",
        paper="Guo et al. 2019",
        exact=False,
        headwise=False,
        square=True,
        positional=True,
        family="low rank",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        rank: int = 8,
        window: int = 16,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.far = SoftmaxAttention(dropout, scale=rank**-0.5)
        self.near = SlidingWindowAttention(window, dropout=dropout, scale=scale)
        self.project_queries = nn.Parameter(torch.randn(heads, head_dim, rank) * head_dim**-0.5)
        self.project_keys = nn.Parameter(torch.randn(heads, head_dim, rank) * head_dim**-0.5)
        self.share = nn.Parameter(torch.zeros(heads, 1, 1))  # before the sigmoid, of the band

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        return self._join(self._attend_far(q, k, v, mask, bias), self.near(q, k, v, mask, bias))

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
        far = self.far.weights(*self._low_rank(q, k), mask, bias, queries=queries)
        return self._join(far, self.near.weights(q, k, mask, bias, queries=queries))

    def step(
        self,
        q: Float[Tensor, "B H K D"],
        k: Float[Tensor, "B G K D"],
        v: Float[Tensor, "B G K E"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H K E"], Any]:
        near, state = self.near.step(q, k, v, state, beam_table, mask, bias)
        k, v = state.append(k, v, beam_table)  # once more into the same slots, to read all of them
        return self._join(self._attend_far(q, k, v, mask, bias), near), state

    def _attend_far(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Bias | None) -> Tensor:
        q, k = self._low_rank(q, k)
        wide = max(0, v.shape[-1] - q.shape[-1])  # fused kernels need one width for all three
        out: Tensor = self.far(F.pad(q, (0, wide)), F.pad(k, (0, wide)), self._for_heads(v), mask, bias)
        return out

    def _low_rank(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys in the few dimensions of each head."""
        return q @ self.project_queries.to(q.dtype), self._for_heads(k) @ self.project_keys.to(k.dtype)

    def _for_heads(self, x: Tensor) -> Tensor:
        """Repeat keys or values for query heads that share them, since every query head has its own projections."""
        return x.repeat_interleave(self.share.shape[0] // x.shape[1], 1)

    def _join(self, far: Tensor, near: Tensor) -> Tensor:
        return torch.lerp(far, near, self.share.sigmoid().to(far.dtype))

    def extra_repr(self) -> str:
        return f"rank={self.project_keys.shape[-1]}"
