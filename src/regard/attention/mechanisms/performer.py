"""Performer: random features whose products estimate exp(q·k), so softmax attention costs as much as linear (FAVOR+).

    softmax      o_n = Σ_m exp(q_n·k_m / √D) v_m  /  Σ_m exp(q_n·k_m / √D)              O(N M D)
    performer    o_n = φ(q_n)ᵀ Σ_m φ(k_m) v_mᵀ    /  φ(q_n)ᵀ Σ_m φ(k_m)                O((N + M) R D)
                 φ(x)_r = (exp(w_r·x' - |x'|²/2) + ε) / √R,  x' = x D^(-1/4)           kernel="softmax"
                 φ(x)_r = relu(w_r·x) / √R + ε                                          kernel="relu"

For w ~ N(0, I), E[φ(q)·φ(k)] = exp(q·k / √D): unbiased and, unlike sines and cosines, positive, so that small weights
are estimated with small errors. The directions w are orthogonal within blocks of D, which lowers the variance; the
generalised kernel replaces exp by relu.

What differs from the paper: its code subtracts from the exponents of the keys their largest one over all keys, future
ones too. Here nothing of other keys is needed: w·k - |k|²/2 = |w|²/2 - |w - k|²/2 is seldom above a few, and what is
above 60, of a key that lies upon a long w, counts as 60. Queries subtract their own largest exponent, as there. So
causal attention is causal to the bit, and can step.

Choromanski et al.: Rethinking Attention with Performers. ICLR 2021. arXiv:2009.14794
"""

from __future__ import annotations

import math

import torch

from regard.attention.kernel import RandomKernelAttention, round_features
from regard.attention.masked_softmax import upcast
from regard.attention.protocol import Traits
from regard.core.errors import UnknownName, did_you_mean
from regard.core.shapes import Float, Tensor
from regard.core.validation import Count

EPS = {"softmax": 1e-6, "relu": 1e-3}  # the stabilisers of the authors' code
LARGEST_EXPONENT = 60.0  # e^60 leaves float32 (e^88) room for sums over features and keys


class PerformerAttention(RandomKernelAttention):
    """Attention with `features` random features of softmax's kernel or of relu's (default: D ln D of them)."""

    traits = Traits(
        cost="(N + M) R D",
        paper="2009.14794",
        masks=frozenset({"causal", "padding"}),
        bias=False,
        exact=False,
        family="linearised",
        budget="features",
    )

    def __init__(
        self,
        head_dim: int,
        features: int | None = None,
        kernel: str = "softmax",
        seed: int = 1,
        layer: Count = 0,
        redraw_interval: int | None = None,
        chunk: int = 64,
    ) -> None:
        if kernel not in EPS:
            raise UnknownName(f"performer has no kernel '{kernel}'; {did_you_mean(kernel, EPS)}")
        features = features or max(1, int(head_dim * math.log(head_dim)))
        super().__init__((features, head_dim), seed, layer, redraw_interval, chunk)
        self.kernel = kernel

    def draw(self, shape: tuple[int, ...], seed: int) -> Tensor:
        return orthogonal_gaussian(shape[0], shape[1], seed)

    def query_features(self, q: Float[Tensor, "B H N D"]) -> Float[Tensor, "B H N R"]:
        if self.kernel == "relu":
            return self._relu(q)
        exponent = self._exponent(q)
        return self._exp(exponent - exponent.amax(-1, keepdim=True), q)  # cancels in the quotient

    def key_features(self, k: Float[Tensor, "B G M D"]) -> Float[Tensor, "B G M R"]:
        if self.kernel == "relu":
            return self._relu(k)
        # a constant that is subtracted would cancel, but features far below ε would all be the same
        return self._exp(self._exponent(k).clamp(max=LARGEST_EXPONENT), k)

    def _exponent(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # an exponent needs more than three digits
            x = upcast(x) * x.shape[-1] ** -0.25
            return x @ self.projection.to(x.dtype).mT - x.square().sum(-1, keepdim=True) / 2

    def _exp(self, exponent: Tensor, x: Tensor) -> Tensor:
        return round_features((exponent.exp() + EPS["softmax"]) * self.projection.shape[0] ** -0.5, x)

    def _relu(self, x: Tensor) -> Tensor:
        wide = upcast(x)
        features = (wide @ self.projection.to(wide.dtype).mT).relu() * self.projection.shape[0] ** -0.5
        return round_features(features + EPS["relu"], x)

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, {super().extra_repr()}"


def orthogonal_gaussian(rows: int, width: int, seed: int) -> Float[Tensor, "rows width"]:
    """Return Gaussian vectors, orthogonal to one another within blocks of `width`; the same for the same seed."""
    draw = torch.Generator().manual_seed(seed)
    blocks = torch.randn(-(-rows // width), width, width, generator=draw, dtype=torch.float64)
    directions = torch.linalg.qr(blocks).Q.mT.flatten(0, 1)[:rows]
    lengths = torch.randn(rows, width, generator=draw, dtype=torch.float64).norm(dim=-1, keepdim=True)
    return (directions * lengths).to(torch.get_default_dtype())
