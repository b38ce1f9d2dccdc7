"""ETC: a short global side that sees all, a long side that sees its neighbourhood, and labels for their relations.

    softmax    o_n = Σ_m softmax_m(q_n·k_m / √D) v_m                      all m                      O(N M D)
    ETC        o_n = Σ_m softmax_m((q_n·(k_m + a_l) + b_l) / √D) v_m      g2g, g2l, l2g: all m;
                                                                          l2l: |n - m| ≤ r           O(N (2r + g) D)

The first g tokens are the global side, the others the long side; g2l is the attention of global to long tokens, and so
on. l is the label of the pair: within a side the distance m - n, clipped at ±k, and between the sides whether the long
token belongs to the global one, which makes a hierarchy of words and their segments. Each head of each side learns a
vector a and a number b for every label.

Differs from the paper: a global token stands for `segment` consecutive long tokens, the first for the first ones (in
the paper the caller says which tokens belong together, and may hide pairs); both sides share the projections, one of
the paper's options; labels start at zero, so that it begins as attention without them. Not here: its pre-training by
contrastive predictive coding. It is an encoder: there is no causal form.

Ainslie et al.: ETC: Encoding Long and Structured Inputs in Transformers. EMNLP 2020. arXiv:2004.08483
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.window import WindowPattern
from regard.attention.protocol import Traits
from regard.attention.sparse_pattern import PatternAttention
from regard.core.errors import Unsupported
from regard.core.layer_state import LayerState
from regard.core.positions import Bias, LabelBias
from regard.core.shapes import Float, Rows, Tensor
from regard.core.validation import Count, Fraction


class ETCAttention(PatternAttention):
    """Global-local attention with `radius` neighbours on either side, and relations clipped at `max_distance`."""

    traits = Traits(
        cost="N (2 r + g) D",
        paper="2004.08483",
        masks=frozenset({"padding"}),
        causality="none",
        exact=False,
        headwise=False,  # a head has labels of its own
        square=True,
        positional=True,
        family="sparse by position",
        limit="radius=16",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        radius: int = 84,
        global_tokens: Count = 1,
        segment: int = 64,
        max_distance: Count = 12,
        dropout: Fraction = 0.0,
        scale: float | None = None,
        backend: Literal["gather", "flex"] | None = None,
    ) -> None:
        super().__init__(WindowPattern(2 * radius, 1, global_tokens), dropout, scale, backend)
        self.heads, self.global_tokens, self.segment, self.max_distance = heads, global_tokens, segment, max_distance
        sides, labels = 1 + (global_tokens > 0), 2 * max_distance + 1 + 2 * (global_tokens > 0)
        self.label_vectors = nn.Parameter(torch.zeros(sides, heads, labels, head_dim))  # of the long side, the global
        self.label_biases = nn.Parameter(torch.zeros(sides, heads, 1, labels))

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        return super().mix(q, k, v, mask, self._with_labels(q, bias), layer_state)

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
        return super().weights(q, k, mask, self._with_labels(q, bias), layer_state=layer_state, queries=queries)

    def label(self, n: Tensor, m: Tensor) -> Tensor:
        """Return the label of a pair: 0 .. k to the right, k + 1 .. 2k to the left, then member and stranger."""
        limit, g = self.max_distance, self.global_tokens
        found = (m - n).clamp(min=0, max=limit) + torch.where(m < n, limit + (n - m).clamp(max=limit), 0)
        if not g:
            return found
        belongs = torch.maximum(n, m) - g
        stranger = belongs // self.segment != torch.minimum(n, m)
        return torch.where((n < g) == (m < g), found, 2 * limit + 1 + stranger.long())

    def _with_labels(self, q: Tensor, bias: Bias | None) -> LabelBias:
        if q.shape[1] != self.heads:
            raise Unsupported(f"ETC has labels for {self.heads} heads, got {q.shape[1]}")
        g, vectors, biases = self.global_tokens, self.label_vectors, self.label_biases
        scores = q[:, :, g:] @ vectors[0].mT + biases[0]
        if g:
            scores = torch.cat([q[:, :, :g] @ vectors[1].mT + biases[1], scores], 2)
        return LabelBias(upcast(scores) * self._scale(q), self.label, bias)
