"""Attention by its full matrix: the base of mechanisms that change the scores or the weights and nothing else.

    dense    w = softmax(s + bias, over what the mask allows),   o = w v        O(N M D)

A subclass writes `scores`, or `weight_matrix` if it replaces the softmax, and `publish` if it hands something to the
layer above. Mechanisms that know the places of tokens (`square`) step with a mask that says
when each slot of the cache was written, since beams write side by side.
"""

from __future__ import annotations

import torch.nn.functional as F

from regard.attention.kv_cache import BeamTable
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism
from regard.core.errors import RegardError, Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, PositionInfo
from regard.core.shapes import Bool, Float, Int, Rows, Tensor
from regard.core.validation import Fraction


class DenseAttention(Mechanism):
    """Softmax attention with the matrix written out; `scale=None` is 1/√D."""

    def __init__(self, dropout: Fraction = 0.0, scale: float | None = None) -> None:
        super().__init__()
        self.dropout, self.scale = dropout, scale

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        """Return the scores of the query rows in float32 at least, before bias and mask."""
        return scaled_products(q[:, :, rows], k, self.scale)

    def weight_matrix(
        self, scores: Tensor, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        """Return the weights of these scores in float32 at least."""
        scores = scores if bias is None else scores + bias.dense(rows)
        return masked_softmax(scores, dense_mask(q, k, mask, rows))

    def attention_map(
        self,
        q: Tensor,
        k: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None,
        rows: Rows = slice(None),
    ) -> tuple[Float[Tensor, "B J rows M"], Float[Tensor, "B H rows M"]]:
        """Return the scores and the weights of the query rows."""
        scores = self.scores(q, k, mask, layer_state, rows)
        return scores, self.weight_matrix(scores, q, k, mask, bias, rows)

    def publish(self, scores: Tensor, weights: Tensor, layer_state: LayerState | None) -> None:
        """Hand something to the layer above; by default nothing."""

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        scores, weights = self.attention_map(q, k, mask, bias, layer_state)
        self.publish(scores, weights, layer_state)
        weights = weights.to(v.dtype)
        weights = F.dropout(weights, self.dropout) if self.dropout and self.training else weights
        return weights @ repeat_kv(v, weights.shape[1])

    def weights(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G M D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
        queries: Rows = slice(None),
    ) -> Float[Tensor, "B H rows M"]:
        self.check(q, k, mask, bias)
        return self.attention_map(q, k, mask, bias, layer_state, queries)[1].to(q.dtype)

    def step_mask(self, beam_table: BeamTable, mask: Mask | None) -> Mask | None:
        return beam_table.positioned_mask() if self.traits.square else mask

    def extra_repr(self) -> str:
        return f"dropout={self.dropout}, scale={self.scale or '1/√D'}"


class PlacedAttention(DenseAttention):
    """Dense attention with parameters for every place of a text of up to `length` tokens."""

    def __init__(self, length: int | None, dropout: float = 0.0, scale: float | None = None) -> None:
        super().__init__(dropout, scale)
        if length is None:
            raise RegardError(
                f"{type(self).__name__} has parameters for every place; give the largest, e.g. length=512"
            )
        self.length = length

    def check(self, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None) -> None:
        super().check(q, k, mask, bias)
        if mask is None or mask.token_positions is None:
            self.check_length(k.shape[2])

    def check_length(self, tokens: int) -> None:
        """Raise `Unsupported` for a text with more tokens than there are places."""
        if tokens > self.length:
            raise Unsupported(
                f"{type(self).__name__} has parameters for {self.length} places, got {tokens} tokens; "
                "build it with a larger length"
            )

    def step_mask(self, beam_table: BeamTable, mask: Mask | None) -> Mask | None:
        if isinstance(beam_table.time, int):  # reading it from a device would wait for the device
            self.check_length(beam_table.time)
        return super().step_mask(beam_table, mask)

    def extra_repr(self) -> str:
        return f"length={self.length}, {super().extra_repr()}"


def scaled_products(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B G M D"], scale: float | None = None
) -> Float[Tensor, "B H N M"]:
    """Return q·k times the scale (None: 1/√D), in float32 at least; scaled before, since float16 ends at 65,504."""
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    return upcast(q @ repeat_kv(k, q.shape[1]).mT)


def dense_mask(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B G M D"], mask: Mask | None, rows: Rows = slice(None)
) -> Bool[Tensor, "#B 1 rows M"] | None:
    """Return the mask of the query rows as a matrix, None without one."""
    return None if mask is None else mask.dense(k.shape[0], q.shape[2], k.shape[2], q.device, rows)


def token_positions(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B G M D"], mask: Mask | None, rows: Rows = slice(None)
) -> tuple[Int[Tensor, "#B rows"], Int[Tensor, "#B M"]]:
    """Return the positions of the query rows and of the keys: those of the mask, else their indices."""
    known = None if mask is None else mask.token_positions
    queries, keys = PositionInfo.sequence_indices(q.shape[2], k.shape[2], q.device) if known is None else known
    return queries[:, rows], keys


def distances(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B G M D"], mask: Mask | None, rows: Rows = slice(None)
) -> Int[Tensor, "#B 1 rows M"]:
    """Return how far each key stands behind each query row (below zero: before it)."""
    queries, keys = token_positions(q, k, mask, rows)
    return keys[:, None, None] - queries[:, None, :, None]


def fixed_scores(scores: Float[Tensor, "B H N M"], mask: Mask | None) -> Float[Tensor, "B2 H N M"]:
    """Return scores that do not depend on the tokens once for all inputs, unless the mask differs between inputs."""
    return scores if mask is not None and mask.batched else scores[:1]


def repeat_kv(x: Float[Tensor, "B G M D"], heads: int) -> Float[Tensor, "B H M D"]:
    """Repeat keys or values of grouped heads for every query head."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)
