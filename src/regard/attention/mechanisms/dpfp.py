"""DPFP: a deterministic, parameter-free feature map that makes keys more orthogonal, for linear attention.

    softmax    o_n = Σ_m exp(q_n·k_m / √D) v_m  /  Σ_m exp(q_n·k_m / √D)        O(N M D)
    dpfp       o_n = φ(q_n)ᵀ Σ_m φ(k_m) v_mᵀ    /  φ(q_n)ᵀ Σ_m φ(k_m)          O((N + M) ν D²)
               φ(x) = [r ∘ roll(r, 1), ..., r ∘ roll(r, ν)],   r = [relu(x), relu(-x)]      2 D ν features

Running sums hold as many keys apart as φ has dimensions. Products of neighbouring coordinates project into 2 D ν of
them, each non-zero in one region of the space only, so keys in different regions do not disturb each other. A query
whose features meet none of the keys' gives zeros.

Schlag, Irie, Schmidhuber: Linear Transformers Are Secretly Fast Weight Programmers. ICML 2021. arXiv:2102.11174
"""

from __future__ import annotations

import torch

from regard.attention.kernel import KernelAttention, round_features
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Traits
from regard.core.errors import RegardError
from regard.core.shapes import Float, Tensor


class DPFPAttention(KernelAttention):
    """Linear attention with the features DPFP-ν; `nu` is less than 2 D."""

    traits = Traits(
        cost="(N + M) ν D²",
        paper="2102.11174",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        normalised=False,
        family="linearised",
    )

    def __init__(self, nu: int = 1, chunk: int = 64) -> None:
        super().__init__(chunk)
        self.nu = nu

    def query_features(self, q: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H N R"]:
        return dpfp(q, self.nu)

    def key_features(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B G M R"]:
        return dpfp(k, self.nu)

    def extra_repr(self) -> str:
        return f"nu={self.nu}, {super().extra_repr()}"


def dpfp(x: Float[Tensor, "*any D"], nu: int) -> Float[Tensor, "*any R"]:
    """Return the 2 D ν features of x."""
    if nu >= 2 * x.shape[-1]:
        raise RegardError(f"nu must be less than twice the head width {x.shape[-1]}, got {nu}")
    wide = upcast(x)
    r = torch.cat([wide.relu(), (-wide).relu()], -1)
    features = torch.cat([r * r.roll(shift, -1) for shift in range(1, nu + 1)], -1)
    return round_features(features, x)
