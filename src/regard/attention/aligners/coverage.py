"""Coverage: the attention that each position has received so far joins the score.

    coverage    e_m = v · tanh(W s + U h_m + V C_m)      C_m = Σ past w_m / Φ_m      Φ_m = N σ(u · h_m)      O(K M A)
    additive    e_m = v · tanh(W s + U h_m)

The fertility Φ_m, at most N, is the expected number of outputs of a position, computed once for each input. A position
attended to Φ_m times is covered: C_m = 1. So fewer words are translated twice or not at all. Σ_m Φ_m C_m is the number
of steps so far.

Tu, Lu, Liu, Liu, Li: Modeling Coverage for Neural Machine Translation. ACL 2016. arXiv:1601.04811 (section 3.1.1)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.attention.aligners.additive import AdditiveAlignerBase
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor


class CoverageAligner(AdditiveAlignerBase):
    """Attention with coverage, its state B K M; `fertility` is N, the upper bound of Φ."""

    def __init__(self, query_width: int, memory_width: int, width: int, fertility: float = 2.0) -> None:
        super().__init__(query_width, memory_width, width)
        if not fertility > 0:
            raise BadInput(f"fertility must be above 0, got {fertility}")
        self.max_fertility = fertility
        self.fertility = nn.Linear(memory_width, 1, bias=False)  # u
        self.cover = nn.Linear(1, width, bias=False)  # V

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M both"]:
        """Return U h with the fertility Φ appended."""
        return torch.cat([self.memory(memory), self.max_fertility * torch.sigmoid(self.fertility(memory))], -1)

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M both"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        past = None if state is None else self.cover(state[..., None].to(keys.dtype))
        scores = self.scores(query, keys[..., :-1], past)
        weights = masked_softmax(scores, None if mask is None else mask[:, None])
        covered = weights / upcast(keys[..., -1])[:, None]
        return weights.to(keys.dtype), covered if state is None else state + covered

    def extra_repr(self) -> str:
        return f"max_fertility={self.max_fertility}"
