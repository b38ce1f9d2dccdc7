"""What aligners share.

    Looking     any aligner: a file writes `keys` and `map_rows`
    Scored      one that has a score for every place and remembers nothing: a file writes `keys` and `scores`

        w_m = exp(e_m) / Σ_m' exp(e_m')      over the places the mask allows; zeros where it allows none

Models call the module, so that what an aligner gives can be watched.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from regard.attention.masked_softmax import masked_softmax
from regard.core.errors import Unsupported
from regard.core.shapes import Bool, Float, Tensor


class AlignerBase(nn.Module):
    """An aligner: `keys` once for each input, `map_rows` at each step; calling it gives the weights."""

    normalised: ClassVar[bool] = True  # rows sum to one, where there is a place to look at
    monotonic: ClassVar[bool] = False  # where it looks only moves forward

    def keys(self, memory: Float[Tensor, "B M C"]) -> Float[Tensor, "B M A"]:
        """What the scores need of the memory, once for each input."""
        raise NotImplementedError

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Where each query looks, and the state for the next step."""
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """The same as `map_rows`; models call the module, so that what it gives can be watched."""
        return self.weights(query, keys, mask, state)


class StatelessAligner(AlignerBase):
    """An aligner that compares the query with every key and remembers nothing."""

    def scores(self, query: Float[Tensor, "B K Q"], keys: Float[Tensor, "B M A"]) -> Float[Tensor, "B K M"]:
        """How well every place suits each query."""
        raise NotImplementedError

    def weights(
        self,
        query: Float[Tensor, "B K Q"],
        keys: Float[Tensor, "B M A"],
        mask: Bool[Tensor, "B M"] | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "B K M"], Any]:
        """Where each query looks: rows sum to one over what the mask allows, to zero where it allows nothing."""
        weights = masked_softmax(self.scores(query, keys), None if mask is None else mask[:, None])
        return weights.to(keys.dtype), state


def check_same_width(name: str, query_width: int, memory_width: int) -> None:
    """Refuse a product of vectors that differ in width."""
    if query_width != memory_width:
        raise Unsupported(
            f"'{name}' multiplies query and memory, which are {query_width} and {memory_width} wide here; "
            "make them equal, or use 'bilinear', which has a matrix between them"
        )
