"""Base classes of aligners.

    AlignerBase         any aligner: a file writes `keys` and `weights`
    StatelessAligner    one with a score for every place and no state: a file writes `keys` and `scores`

        w_m = exp(e_m) / Σ_m' exp(e_m')      over the places that the mask allows; zeros where it allows none

Models call the module (through `align`), so that `watch` sees its weights.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from regard.attention.masked_softmax import masked_softmax
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.shapes import Bool, Float, Tensor


class AlignerBase(nn.Module):
    """An aligner: `keys` once for each input, `weights` at each step; calling it returns the weights."""

    normalised: ClassVar[bool] = True  # rows sum to one, unless everything is masked
    monotonic: ClassVar[bool] = False  # the attended place only moves forward
    takes_layer_state: ClassVar[bool] = False  # `weights` and calls take a LayerState, whose depth is the step

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """Return what the scores need of the memory, once for each input."""
        raise NotImplementedError

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Return the weights of each query over the memory, and the state for the next step."""
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Return `weights(...)`; models call the module, so that it can be watched."""
        return self.weights(query, keys, mask, state)


class StatelessAligner(AlignerBase):
    """An aligner that compares the query with every key and has no state."""

    def scores(self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M A"]) -> Float[Tensor, "B K M"]:
        """Return the score of every place for each query."""
        raise NotImplementedError

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        weights = masked_softmax(self.scores(query, keys), None if mask is None else mask[:, None])
        return weights.to(keys.dtype), state


def align(
    aligner: Any,
    query: Float[Tensor, "B K Q"],
    keys: Float[Tensor, "B M A"],
    mask: Bool[Tensor, "B M"] | None,
    state: Any,
    layer_state: LayerState | None,
) -> tuple[Float[Tensor, "B K M"], Any]:
    """Call an aligner, with the layer state if it takes one."""
    if getattr(aligner, "takes_layer_state", False):
        weights, state = aligner(query, keys, mask, state, layer_state)
    else:
        weights, state = aligner(query, keys, mask, state)
    return weights, state


def check_same_width(name: str, query_width: int, memory_width: int) -> None:
    """Raise `Unsupported` unless query and memory have the same width."""
    if query_width != memory_width:
        raise Unsupported(
            f"'{name}' multiplies query and memory, which are {query_width} and {memory_width} wide here; "
            "make them equal, or use 'bilinear', which has a matrix between them"
        )
