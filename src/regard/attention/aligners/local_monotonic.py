"""Local attention, monotonic: a window that moves forward by one position with every step.

    local-m     p_t = t         w_m = softmax of the scores with |m - p_t| <= D, zero elsewhere      O(K D A)
    additive    w_m = softmax of the scores of all positions                                          O(K M A)

For inputs and outputs that proceed together. `step` is the movement in positions (1 in the paper). At the end of the
memory the window stays at the last position, so an output may be longer than its input.

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025
"""

from __future__ import annotations

from typing import Any

import torch

from regard.attention.aligners.local import LocalAligner, last_position, scatter_weights
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor


class LocalMonotonicAligner(LocalAligner):
    """Monotonic local attention with the centre as its state, B K; `window` is D, `score` a stateless aligner."""

    monotonic = True

    def __init__(
        self,
        query_width: int,
        memory_width: int,
        width: int,
        window: int = 10,
        step: float = 1.0,
        score: str = "bilinear",
    ) -> None:
        super().__init__(query_width, memory_width, width, window, score)
        if not step > 0:
            raise BadInput(f"step must be above 0, got {step}")
        self.step = step

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        last = last_position(keys, mask)
        centre = torch.minimum(last.new_zeros(query.shape[:2]) if state is None else state + self.step, last)
        near, places = self.window_weights(query, keys, mask, centre)
        return scatter_weights(near, places, keys.shape[1]).to(keys.dtype), centre

    def centres(self, state: Float[Tensor, "B K"]) -> Float[Tensor, "B K 1"]:
        """Return the centre of the window, in positions counted from 0; for pictures."""
        return state[..., None]
