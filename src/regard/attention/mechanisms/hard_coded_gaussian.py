"""Hard-coded Gaussian attention: every head looks at a fixed place beside the token, whatever the tokens are.

    softmax                w = softmax(s_nm)                                  s_nm = q_n·k_m / √D      O(N M D)
    hard_coded_gaussian    w = exp(-(m - n - offset_h)² / 2σ²) / (σ √(2π))                             O(N M E)

Nothing of the attention is learned except the values: heads look at the token before, itself or the next, blurred by σ.
As in the authors' code the weights are the density itself, without a softmax, so rows that reach over the end of the
text (or of what a mask allows) sum to less than one.

Differs from the paper: only self-attention (there it may also replace cross-attention, with the ratio of the two
lengths).

You, Sun, Iyyer: Hard-Coded Gaussian Attention for Neural Machine Translation. ACL 2020. arXiv:2005.00742
"""

from __future__ import annotations

import math
from typing import Annotated

import torch

from regard.attention.mask import Mask
from regard.attention.masked_softmax import wide_dtype
from regard.attention.mechanisms.dense import DenseAttention, dense_mask, distances, fixed_scores
from regard.attention.protocol import Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction, Range


class HardCodedGaussianAttention(DenseAttention):
    """Fixed Gaussian weights; `offsets` are the places of the heads, cycled (None: -1, 1, or -1, 0 if causal)."""

    traits = Traits(
        cost="N M E",
        paper="2005.00742",
        bias=False,
        exact=False,
        headwise=False,
        normalised=False,
        square=True,
        positional=True,
        family="with a prior",
    )

    default_projection = "value"

    def __init__(
        self,
        heads: int,
        offsets: Annotated[tuple[int, ...] | None, Range()] = None,
        sigma: Annotated[float, Range(above=0)] = 1.0,
        causal: bool = False,
        dropout: Fraction = 0.0,
    ) -> None:
        super().__init__(dropout)
        places = torch.tensor(offsets or ((-1, 0) if causal else (-1, 1)))
        self.register_buffer("offsets", places[torch.arange(heads) % len(places)], persistent=False)
        self.offsets: Tensor
        self.sigma = sigma

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        away = (distances(q, k, mask, rows) - self.offsets[:, None, None]).to(wide_dtype(q))
        density = -(away / self.sigma).square() / 2 - math.log(self.sigma * math.sqrt(2 * math.pi))
        return density.expand(q.shape[0], -1, -1, -1)

    def weight_matrix(
        self, scores: Tensor, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        allowed, density = dense_mask(q, k, mask, rows), fixed_scores(scores, mask).exp()
        return (density if allowed is None else density * allowed).expand(scores.shape)

    def extra_repr(self) -> str:
        return f"offsets={self.offsets.tolist()}, sigma={self.sigma}, dropout={self.dropout}"
