"""Location-aware attention: the last weights, convolved, join the score.

    location    e_m = v · tanh(W s + U h_m + V f_m)      f = F * w_{t-1}      O(K M (A L + L R))
    additive    e_m = v · tanh(W s + U h_m)                                   O(K M A)

L learned filters F of R = 2 `radius` + 1 taps are applied to the last weights, so that the score can prefer "one
position further" and distinguish positions with similar content. Before the first step f = 0.

For long inputs the paper changes how scores become weights, here `normalizer`: "softmax", or the
smoother "sigmoid", σ(e) / Σ σ(e), where many positions may share the weight. `sharpness` multiplies the scores before.

Chorowski, Bahdanau, Serdyuk, Cho, Bengio: Attention-Based Models for Speech Recognition. NeurIPS 2015. arXiv:1506.07503
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch.nn.functional as F
from torch import nn

from regard.attention.aligners.additive import AdditiveAlignerBase
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.core.errors import BadInput, UnknownName, did_you_mean
from regard.core.shapes import Bool, Float, Tensor
from regard.core.validation import Range

# applied before the softmax: log σ(e) instead of e gives σ(e) / Σ σ(e)
NORMALIZERS: dict[str, Callable[[Tensor], Tensor]] = {"softmax": lambda scores: scores, "sigmoid": F.logsigmoid}


class LocationAligner(AdditiveAlignerBase):
    """Location-aware attention with the last weights as its state, B K M; the paper has 10 filters of radius 100."""

    def __init__(
        self,
        query_width: int,
        memory_width: int,
        width: int,
        filters: int = 10,
        radius: Annotated[int, Range(low=0)] = 15,
        normalizer: str = "softmax",
        sharpness: Annotated[float, Range(above=0)] = 1.0,
    ) -> None:
        super().__init__(query_width, memory_width, width)
        if filters < 1 or radius < 0:
            raise BadInput(f"location attention needs filters >= 1 and radius >= 0, got {filters} and {radius}")
        if normalizer not in NORMALIZERS:
            raise UnknownName(
                f"location attention has no normalizer '{normalizer}'; {did_you_mean(normalizer, NORMALIZERS)}"
            )
        self.normalizer, self.sharpness = normalizer, sharpness
        self.filters = nn.Conv1d(1, filters, 2 * radius + 1, padding=radius, bias=False)  # F
        self.location = nn.Linear(filters, width, bias=False)  # V

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        past = None if state is None else self.location(self.convolve(state.to(keys.dtype)))
        scores = NORMALIZERS[self.normalizer](upcast(self.scores(query, keys, past)) * self.sharpness)
        weights = masked_softmax(scores, None if mask is None else mask[:, None])
        return weights.to(keys.dtype), weights

    def convolve(self, weights: Float[Tensor, "B K M"]) -> Float[Tensor, "B K M L"]:
        """Return the output of every filter at each position."""
        seen: Tensor = self.filters(weights.flatten(0, 1)[:, None])
        return seen.unflatten(0, weights.shape[:2]).transpose(-1, -2)

    def extra_repr(self) -> str:
        return f"normalizer={self.normalizer}, sharpness={self.sharpness}"
