"""Evolving attention (predictive attention): the maps of a layer are predicted from those of the layer below.

    softmax     w^l = softmax(s^l)                                          s^l = q k^T / √D             O(N M D)
    evolving    w^l = softmax(r^l)                                                                       O(N M (D + H))
                r^l = β conv(a^l) + (1 - β) a^l,   a^l = α r^(l-1) + (1 - α) s^l,   a^0 = s^0

The scores of all heads are an image with H channels; a 3x3 convolution and relu follow how they evolve from layer to
layer. A causal layer convolves over the rows n - 1 and n only, so that no row sees a later query. Where the mask allows
nothing, and in the rows of padded queries, the image is zero. r is handed upwards under "scores"; a position bias, the
same in every layer, is added after the convolution and not handed on.

Differs from the paper: the first layer, which has none below, convolves its own scores (the authors' code does not, and
leaves those parameters out).

Wang, Yang, Bai, Zhang, Bai, Yu, Zhang, Huang, Tong: Evolving Attention with Residual Convolutions. ICML 2021.
arXiv:2102.12895
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.kv_cache import BeamTable, KVCache
from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.dense import DenseAttention, repeat_kv
from regard.attention.mechanisms.realformer import below_scores, require
from regard.attention.protocol import Traits
from regard.attention.running_state import RunningState
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Int, Rows, Tensor
from regard.core.validation import Fraction, Range

Share = Annotated[float, Range(low=0, high=1)]


class EvolvingAttention(DenseAttention):
    """Softmax attention over scores that evolve from layer to layer.

    `below` (α) is the share of the scores of the layer below, `convolved` (β) that of the convolution.
    """

    traits = Traits(
        cost="N M (D + H)",
        paper="2102.12895",
        masks=frozenset({"causal", "padding"}),  # another mask would not say which queries come later
        exact=False,
        rowwise=False,
        headwise=False,
        square=True,
        positional=True,
        family="with a prior",
        limit="below=0, convolved=0",
    )

    def __init__(
        self,
        heads: int,
        below: Share = 0.5,
        convolved: Share = 0.1,
        causal: bool = False,
        dropout: Fraction = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__(dropout, scale)
        self.below, self.convolved, self.causal = below, convolved, causal
        self.kernel = nn.Parameter(torch.empty(heads, heads, 2 if causal else 3, 3))
        self.kernel_bias = nn.Parameter(torch.zeros(heads))
        nn.init.kaiming_uniform_(self.kernel, a=5**0.5)  # as nn.Conv2d

    def check(self, q: Tensor, k: Tensor, mask: Mask | None, bias: Bias | None) -> None:
        super().check(q, k, mask, bias)
        if mask is not None and "causal" in mask.kinds and not self.causal:
            raise Unsupported("evolving was built to convolve over later queries too; build it with causal=True")

    def scores(
        self, q: Tensor, k: Tensor, mask: Mask | None, layer_state: LayerState | None, rows: Rows = slice(None)
    ) -> Float[Tensor, "B H rows M"]:
        scores = self._blend(q, k, layer_state)
        neighbours = F.pad(_image(scores, q, k, mask), (0, 0, 1, 0 if self.causal else 1))
        return self._evolve(neighbours, scores)[:, :, rows]

    def publish(self, scores: Tensor, weights: Tensor, layer_state: LayerState | None) -> None:
        require(layer_state, "evolving").publish("scores", scores)

    def _blend(self, q: Tensor, k: Tensor, layer_state: LayerState | None) -> Tensor:
        """Return the scores of this layer mixed with those of the layer below."""
        scores = super().scores(q, k, None, layer_state)
        below = below_scores(layer_state, scores, slice(None), "evolving")
        return scores if below is None else self.below * below + (1 - self.below) * scores

    def _evolve(self, neighbours: Float[Tensor, "B H rows M"], scores: Float[Tensor, "B H N M"]) -> Tensor:
        """Return r of these scores; `neighbours` are their rows as an image, with those before (and after) them."""
        convolved = F.conv2d(F.pad(neighbours, (1, 1)), upcast(self.kernel), upcast(self.kernel_bias)).relu()
        return self.convolved * convolved + (1 - self.convolved) * scores

    # -- decoding: the row before is part of the state -----------------------------------------------------------------

    def start(self, batch: int, capacity: int) -> Any:
        if not self.causal:
            raise Unsupported(
                "evolving was built to convolve over later queries too; build it with causal=True to step"
            )
        return EvolvingState(cache=KVCache(capacity))

    def prefill(
        self,
        q: Float[Tensor, "B H N D"],
        k: Float[Tensor, "B G N D"],
        v: Float[Tensor, "B G N E"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H N E"], Any]:
        out, cache = super().prefill(q, k, v, state.cache, beam_table, mask, bias, layer_state=layer_state)
        real = beam_table.allow[:, 0].sum(-1)  # tokens of each prompt; the last one's row is the row before the next
        rows = _image(self._blend(q, k, layer_state), q, k, mask)
        row = rows[torch.arange(len(rows), device=q.device), :, (real - 1).clamp_min(0)]
        row = row.masked_fill((real == 0)[:, None, None], 0)[:, None]
        return out, replace(state.replace(row), cache=cache)

    def step(
        self,
        q: Float[Tensor, "B H K D"],
        k: Float[Tensor, "B G K D"],
        v: Float[Tensor, "B G K E"],
        state: Any,
        beam_table: BeamTable,
        mask: Mask | None = None,
        bias: Bias | None = None,
        *,
        layer_state: LayerState | None = None,
    ) -> tuple[Float[Tensor, "B H K E"], Any]:
        cache = state.cache.allocate(k, v)
        k, v = cache.append(k, v, beam_table)
        seen = beam_table.positioned_mask()
        scores = self._blend(q, k, layer_state).masked_fill(~seen.allowed[:, None], 0)
        # neighbours in time are not neighbours in the cache, where beams write side by side
        order = (~seen.allowed).byte().argsort(dim=-1, stable=True)[:, None].expand_as(scores)
        row = scores.gather(-1, order).transpose(1, 2)  # B K H M
        before = torch.zeros_like(row[..., :0]) if state.row is None else state.row
        before = F.pad(before, (0, row.shape[-1] - before.shape[-1]))
        rows = torch.stack([before, row], -2).flatten(0, 1)
        evolved = self._evolve(rows, row.flatten(0, 1)[..., None, :]).squeeze(-2).unflatten(0, row.shape[:2])
        scores = torch.zeros_like(scores).scatter(-1, order, evolved.transpose(1, 2))
        self.publish(scores, scores, layer_state)
        weights = self.weight_matrix(scores, q, k, seen, bias).to(v.dtype)
        return weights @ repeat_kv(v, q.shape[1]), replace(state.replace(row), cache=cache)

    def extra_repr(self) -> str:
        return f"below={self.below}, convolved={self.convolved}, causal={self.causal}, {super().extra_repr()}"


@dataclass(eq=False)
class EvolvingState(RunningState):
    """The decoding state: keys and values, and the last row of the image of every beam, in order of time."""

    row: Any = None  # B K H M
    cache: KVCache = field(kw_only=True)

    def select(self, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> EvolvingState:
        return replace(super().select(rows, beams), cache=self.cache.select(rows, beams))

    def freeze(self) -> EvolvingState:
        """Return a state of static shape that steps write in place."""
        row = None if self.row is None else F.pad(self.row, (0, self.cache.capacity - self.row.shape[-1]))
        return replace(self, row=row, frozen=True)


def _image(scores: Float[Tensor, "B H N M"], q: Tensor, k: Tensor, mask: Mask | None) -> Float[Tensor, "B H N M"]:
    """Return the scores that are convolved: zero where the mask allows nothing, and for padded queries."""
    if mask is None:
        return scores
    if mask.padding is not None:
        scores = scores.masked_fill(~mask.padding.real(q.shape[2])[:, None, :, None], 0)
    return scores.masked_fill(~mask.dense(k.shape[0], q.shape[2], k.shape[2], q.device), 0)
