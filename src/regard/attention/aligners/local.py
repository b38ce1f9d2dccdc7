"""Local attention: only positions within D of a centre are scored.

    window      the positions round(p) - D .. round(p) + D that exist and are not padding           O(K D A)
    scatter     their weights among all M positions                                                 O(K M)

The keys of the window are gathered before anything is scored, so a step costs the same however long the memory is. The
scores inside are a part: those of any stateless aligner (`score`).
"""

from __future__ import annotations

import torch

from regard.attention.aligners import ALIGNERS
from regard.attention.aligners.base import AlignerBase, StatelessAligner
from regard.attention.masked_softmax import masked_softmax
from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part


class LocalAligner(AlignerBase):
    """Base class of aligners that attend within `window` positions of a centre, with the scores of another aligner."""

    def __init__(self, query_width: int, memory_width: int, width: int, window: int = 10, score: str = "bilinear"):
        super().__init__()
        if window < 1:
            raise BadInput(f"window must be at least 1, got {window}")
        self.window = window
        widths = {"query_width": query_width, "memory_width": memory_width, "width": width}
        self.score = build_part(ALIGNERS, score, "aligner", **widths)
        if not isinstance(self.score, StatelessAligner):
            raise Unsupported(f"score must be an aligner without state, not '{score}'; use 'bilinear'")

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        return self.score.keys(memory)

    def window_weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None,
        centre: Float[Tensor, "B K"],
    ) -> tuple[Float[Tensor, "B K W"], Int[Tensor, "B K W"]]:
        """Return the weights inside each window, which sum to one, and their positions."""
        offsets = torch.arange(-self.window, self.window + 1, device=keys.device)
        indices = centre.detach().round().long()[..., None] + offsets
        places = indices.clamp(0, keys.shape[1] - 1)
        allowed, flat = places == indices, places.flatten(1)
        if mask is not None:
            allowed = allowed & mask.gather(1, flat).view_as(allowed)
        close = keys.gather(1, flat[..., None].expand(-1, -1, keys.shape[-1])).view(-1, *offsets.shape, keys.shape[-1])
        scores = self.score.scores(query.flatten(0, 1)[:, None], close).view(places.shape)
        return masked_softmax(scores, allowed), places

    def extra_repr(self) -> str:
        return f"window={self.window}"


def scatter_weights(weights: Float[Tensor, "B K W"], places: Int[Tensor, "B K W"], m: int) -> Float[Tensor, "B K M"]:
    """Return the weights of a window among all positions; those outside the memory are zero and add to its edge."""
    return weights.new_zeros(*weights.shape[:2], m).scatter_add(2, places, weights)


def last_position(keys: Float[Tensor, "B M A"], mask: Bool[Tensor, "B M"] | None) -> Float[Tensor, "B 1"]:
    """Return the index of the last real position of each input; 0 if there is none."""
    if mask is None:
        return torch.full((keys.shape[0], 1), keys.shape[1] - 1.0, device=keys.device, dtype=torch.float32)
    return (mask.sum(-1, keepdim=True, dtype=torch.float32) - 1).clamp(min=0)
