"""Local attention, predictive: the state predicts the centre of a window with Gaussian weights around it.

    local-p     p_t = (S - 1) σ(v · tanh(W s))     w_m = softmax_D(e)_m exp(-(m - p_t)² / 2 (D/2)²)     O(K (D + A) A)
    additive    w_m = softmax of the scores of all positions                                             O(K M A)

softmax_D is over the positions with |m - p_t| <= D, S the number of real positions (counted from 0 here, so the centre
lies between the first and the last). The gradient reaches p_t through the Gaussian, which is not normalised: a row sums
to less than one, as in the paper's equation 10. The centre may move either way.

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regard.attention.aligners.local import LocalAligner, last_position, scatter_weights
from regard.attention.masked_softmax import upcast
from regard.core.shapes import Bool, Float, Tensor


class LocalPredictiveAligner(LocalAligner):
    """Predictive local attention; its state is the latest centre, B K, for pictures only. `window` is D."""

    normalised = False

    def __init__(
        self, query_width: int, memory_width: int, width: int, window: int = 10, score: str = "bilinear"
    ) -> None:
        super().__init__(query_width, memory_width, width, window, score)
        self.position_hidden = nn.Linear(query_width, width, bias=False)  # W
        self.position_score = nn.Linear(width, 1, bias=False)  # v

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        share = torch.sigmoid(upcast(self.position_score(torch.tanh(self.position_hidden(query))).squeeze(-1)))
        centre = last_position(keys, mask).to(share.dtype) * share
        near, places = self.window_weights(query, keys, mask, centre)
        gaussian = torch.exp(-0.5 * ((places - centre[..., None]) / (self.window / 2)).square())
        return scatter_weights(near * gaussian, places, keys.shape[1]).to(keys.dtype), centre

    def centres(self, state: Float[Tensor, "B K"]) -> Float[Tensor, "B K 1"]:
        """Return the predicted centre, in positions counted from 0; for pictures."""
        return state[..., None]
