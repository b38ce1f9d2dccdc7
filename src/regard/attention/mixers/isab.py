"""Induced set attention: the tokens attend to a few learned points that have attended to all tokens before.

    MAB(X, Y)    norm(H + relu(H W))   H = norm(X + attend(X, Y))       one block of attention from X to Y
    SAB(X)       MAB(X, X)                                              O(N² D): a block with softmax attention
    ISAB(X)      MAB(X, MAB(I, X))                                      O(N P D), P inducing points I
    PMA(X)       MAB(S, X)                                              O(N S D), S learned seeds: pools to S vectors

A set has no order, so none of them looks at positions: a permutation of X permutes the result (PMA: changes nothing).
The inducing points are a bottleneck through which all tokens exchange what matters, and they are the same for every
set. In an encoder block with `attention="isab(points=32)"` the outer MAB is the block itself (its norms, residual
connections and feed-forward), so the mixer is attend(X, MAB(I, X)).

What differs from the authors' code: queries are projected before the residual connection there, heads are not joined by
a matrix, and scores are divided by √C; here as in the paper's formulas.

Lee, Lee, Kim, Kosiorek, Choi, Teh: Set Transformer. ICML 2019. arXiv:1810.00825
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.attention.multihead import MultiHeadAttention
from regard.attention.protocol import Traits, check_mask
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import PositionInfo
from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction


class ISAB(nn.Module):
    """Attend from the tokens to `points` learned points, which have attended to the tokens."""

    traits = Traits(
        cost="N P D",
        paper="1810.00825",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        square=True,
        family="fewer queries or keys",
    )

    def __init__(self, width: int, heads: int, points: int = 32, dropout: Fraction = 0.0, cross: bool = False) -> None:
        super().__init__()
        if cross:
            raise Unsupported("isab attends within one set; use another attention for a context")
        self.induce = PMA(width, heads, points, dropout)
        self.spread = MultiHeadAttention(width, heads, dropout=dropout, cross=True)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"] | None = None,
        mask: Mask | None = None,
        positions: PositionInfo | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        """Return what every token reads off the inducing points; padding does not reach them."""
        if context is not None:
            raise Unsupported("isab attends within one set and takes no context; use another attention for that")
        check_mask(mask, self.traits, "isab")
        if positions is not None:
            positions.require_added("isab")
        out: Tensor = self.spread(x, self.induce(x, mask, layer_state), layer_state=layer_state)
        return out


class MAB(nn.Module):
    """Attend from x to a context: attention and a row-wise layer, each with a residual connection and a norm."""

    def __init__(self, width: int, heads: int, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, dropout=dropout, cross=True)
        self.feed = nn.Linear(width, width)
        self.norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(
        self,
        x: Float[Tensor, "B N C"],
        context: Float[Tensor, "B M C"],
        mask: Mask | None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B N C"]:
        h = self.norm(x + self.attention(x, context, mask, layer_state=layer_state))
        out: Tensor = self.feed_norm(h + torch.relu(self.feed(h)))
        return out


class PMA(nn.Module):
    """Pooling by multi-head attention: learned seeds attend to the set, B N C -> B S C."""

    def __init__(self, width: int, heads: int, seeds: int = 1, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.seeds = nn.Parameter(nn.init.xavier_uniform_(torch.empty(seeds, width)))
        self.mab = MAB(width, heads, dropout)

    def forward(
        self, x: Float[Tensor, "B N C"], mask: Mask | None = None, layer_state: LayerState | None = None
    ) -> Float[Tensor, "B S C"]:
        out: Tensor = self.mab(self.seeds.to(x.dtype).expand(x.shape[0], -1, -1), x, mask, layer_state)
        return out
