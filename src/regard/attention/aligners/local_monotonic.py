"""Local attention, monotonic: a window that moves on by one place with every step.

    local-m     p_t = t         w_m = softmax of the scores with |m - p_t| <= D, zero elsewhere      O(K D A)
    additive    w_m = softmax of the scores of all places                                            O(K M A)

For inputs and outputs that run side by side. `replay_step` is how many places a step moves on (the paper's is 1). At
the end of the memory the window stays with the last place, so that an output may be longer than its input.

Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015. arXiv:1508.04025
"""

from __future__ import annotations

from typing import Any

import torch

from regard.attention.aligners.local import LocalAligner, last_position, scatter_weights
from regard.core.errors import BadInput
from regard.core.shapes import Bool, Float, Tensor


class LocalMonotonicAligner(LocalAligner):
    """Remembers the centre, B K. `window` is D, `score` any aligner that has scores."""

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
            raise BadInput(f"a monotonic window moves on by more than nothing, not by {step}")
        self.step = step

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Where each query looks around its step's place; the state is that place."""
        last = last_position(keys, mask)
        centre = torch.minimum(last.new_zeros(query.shape[:2]) if state is None else state + self.step, last)
        near, places = self.window_weights(query, keys, mask, centre)
        return scatter_weights(near, places, keys.shape[1]).to(keys.dtype), centre

    def centres(self, state: Float[Tensor, "B K"]) -> Float[Tensor, "B K 1"]:
        """The middle of the window, in places counted from 0; for pictures."""
        return state[..., None]
