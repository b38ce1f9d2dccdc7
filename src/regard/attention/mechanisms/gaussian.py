"""Gaussian Transformer: a prior on the distance of two tokens, added to their score.

    softmax     w = softmax(s_nm)                                   s_nm = q_n·k_m / √D       O(N M D)
    gaussian    w = softmax(s_nm - |w d² + b|),   d = n - m,  w > 0,  b <= 0                  O(N M D)

Adding -|w d² + b| to the scores multiplies the weights by a Gaussian of the distance, so near tokens are favoured; w is
learned. With b < 0 the maximum is not at the token itself but beside it, so that it does not attend to itself only.

The full text of the paper was not at hand. Our choices: w and b keep their signs as |w| and -|b|, and start at `weight`
and `offset`; one pair for all heads of a layer.

Guo, Zhang, Liu: Gaussian Transformer: A Lightweight Approach for Natural Language Inference. AAAI 2019.
doi:10.1609/aaai.v33i01.33016489
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import wide_dtype
from regard.attention.mechanisms.dense import DenseAttention, distances
from regard.attention.protocol import Traits
from regard.core.layer_state import LayerState
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Fraction, Range


class GaussianAttention(DenseAttention):
    """Softmax attention with a learned Gaussian of the distance; `weight` and `offset` are where w and b start."""

    traits = Traits(
        cost="N M D",
        paper="Guo et al. 2019",
        exact=False,
        square=True,
        positional=True,
        family="with a prior",
        limit="weight=0, offset=0",
    )

    def __init__(
        self,
        weight: Annotated[float, Range(low=0)] = 0.1,
        offset: Annotated[float, Range(high=0)] = -0.1,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(dropout, scale)
        self.weight = nn.Parameter(torch.tensor(float(weight)))
        self.offset = nn.Parameter(torch.tensor(float(offset)))

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        squares = distances(q, k, mask, rows).to(wide_dtype(q)).square()
        prior = -(self.weight.abs() * squares - self.offset.abs()).abs()
        return super().scores(q, k, mask, layer_state, rows) + prior
