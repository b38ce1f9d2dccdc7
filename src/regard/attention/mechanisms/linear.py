"""Linear attention: swap exp(q·k) for a product of feature maps, then re-bracket.

    softmax    o_n = Σ_m exp(q_n·k_m) v_m      / Σ_m exp(q_n·k_m)        O(N M D)
    linear     o_n = φ(q_n)ᵀ Σ_m φ(k_m) v_mᵀ   / φ(q_n)ᵀ Σ_m φ(k_m)      O((N + M) D²)

The sums over m no longer depend on n: take them once or, when causal, carry them along (`attention/kernel.py`). φ(x) =
elu(x) + 1 is positive, so the denominator never vanishes.

Katharopoulos, Vyas, Pappas, Fleuret: Transformers are RNNs. ICML 2020. arXiv:2006.16236
"""

from __future__ import annotations

import torch.nn.functional as F

from regard.attention.kernel import KernelAttention, round_features
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Traits
from regard.core.shapes import Float, Tensor


class LinearAttention(KernelAttention):
    """Attention with the kernel φ(q)·φ(k); `chunk` is the number of tokens whose products are formed at a time."""

    traits = Traits(
        cost="(N + M) D²",
        paper="2006.16236",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        family="linearised",
    )

    def query_features(self, q: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H N D"]:
        return feature(q)

    def key_features(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B G M D"]:
        return feature(k)


def feature(x: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
    """φ(x) = elu(x) + 1."""
    return round_features(F.elu(upcast(x)) + 1, x)
