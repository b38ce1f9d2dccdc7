"""Random feature attention: sines and cosines of random projections of unit vectors; gated, it forgets the past.

    softmax    o_n = Σ_m exp(q_n·k_m / √D) v_m  /  Σ_m exp(q_n·k_m / √D)                        O(N M D)
    rfa        o_n = φ(q_n)ᵀ S / φ(q_n)ᵀ z       S = Σ_m φ(k_m) v_mᵀ,  z = Σ_m φ(k_m)            O((N + M) R D)
               φ(x) = [sin(W x/|x|), cos(W x/|x|)] / √R,   W = σ ∘ Gaussian, R x D for each head
    gated      S_t = g_t S_(t-1) + (1 - g_t) φ(k_t) v_tᵀ,   z_t likewise,   g_t = sigmoid(u·k_t + b)

E[φ(q)·φ(k)] is the Gaussian kernel exp(-|σ ∘ (q - k)|² / 2), for unit vectors a constant times exp(σ² q·k): the length
of q and k no longer matters, and the learned σ, a vector for each head, takes the place of the temperature 1/√D. The
gate lets the past fade at a rate that each token chooses: a recency bias inside the running sums.

What differs from the paper: its gate is made of the token x, which a mechanism does not see; here it is made of the
token's key, itself a linear map of x. The paper gates causal attention only; without a causal mask every query here
reads the sums after the last key. The denominator, a sum of signed terms, is kept above `floor` (in the authors' code
1.56 in these units), so a row may sum to less than one. Their training picks W from 500 stored matrices at every
update; here it is drawn anew after every `redraw_interval` updates, by default never.

Peng, Pappas, Yogatama, Schwartz, Smith, Kong: Random Feature Attention. ICLR 2021. arXiv:2103.02143
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.kernel import RandomKernelAttention, round_features
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Traits
from regard.core.shapes import Float, Tensor
from regard.core.validation import Count, Range


class RandomFeatureAttention(RandomKernelAttention):
    """Attention with `features` random projections for each head, so 2 `features` sines and cosines."""

    traits = Traits(
        cost="(N + M) R D",
        paper="2103.02143",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        headwise=False,
        normalised=False,
        family="linearised",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        features: int = 64,
        floor: Annotated[float, Range(above=0)] = 1.0,
        seed: int = 1,
        layer: Count = 0,
        redraw_interval: int | None = None,
        chunk: int = 64,
    ) -> None:
        super().__init__((heads, features, head_dim), seed, layer, redraw_interval, chunk)
        self.heads, self.floor = heads, floor
        self.sigma = nn.Parameter(torch.ones(heads, 1, head_dim))

    def draw(self, shape: tuple[int, ...], seed: int) -> Tensor:
        draw = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=draw, dtype=torch.float64).to(torch.get_default_dtype())

    def query_features(self, q: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H N R"]:
        return self._features_of(q)

    def key_features(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B H M R"]:
        return self._features_of(self.for_heads(k))

    def for_heads(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B H M D"]:
        """Repeat the keys for query heads that share them, since every query head has its own features."""
        return k.repeat_interleave(self.sigma.shape[0] // k.shape[1], 1)

    def normalise(self, top: Tensor, bottom: Tensor) -> Tensor:
        return top / bottom.clamp(min=self.floor)

    def _features_of(self, x: Tensor) -> Tensor:
        wide = F.normalize(upcast(x), dim=-1, eps=1e-6)
        with torch.autocast(x.device.type, enabled=False):
            angle = wide @ (upcast(self.sigma) * self.projection).to(wide.dtype).mT
        return round_features(torch.cat([angle.sin(), angle.cos()], -1) * self.projection.shape[1] ** -0.5, x)

    def extra_repr(self) -> str:
        return f"floor={self.floor}, {super().extra_repr()}"


class GatedRandomFeatureAttention(RandomFeatureAttention):
    """Random feature attention whose running sums fade: g_t = sigmoid(u·k_t + b), for each head.

    The biases b start at 2 to 6, evenly over the heads: they remember some 8 to 400 tokens.
    """

    traits = Traits(
        cost="(N + M) R D",
        paper="2103.02143",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        headwise=False,
        normalised=False,
        positional=True,
        family="linearised",
    )

    def __init__(
        self,
        heads: int,
        head_dim: int,
        features: int = 64,
        floor: Annotated[float, Range(above=0)] = 1e-2,
        seed: int = 1,
        layer: Count = 0,
        redraw_interval: int | None = None,
        chunk: int = 64,
    ) -> None:
        super().__init__(heads, head_dim, features, floor, seed, layer, redraw_interval, chunk)
        self.gate_weight = nn.Parameter(torch.zeros(heads, head_dim, 1))
        self.gate_bias = nn.Parameter(torch.linspace(2.0, 6.0, heads)[:, None])

    def key_features(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B H M R"]:
        features = super().key_features(k)
        return features * (-self._logit(k)).sigmoid()[..., None].to(features.dtype)

    def gate(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B H M"]:
        return F.logsigmoid(self._logit(k))

    def _logit(self, k: Tensor) -> Tensor:
        k = upcast(self.for_heads(k))
        return (k @ self.gate_weight.to(k.dtype)).squeeze(-1) + self.gate_bias
