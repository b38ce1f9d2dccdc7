"""Nyströmformer: the attention matrix from three small ones, through a few landmarks.

    softmax    A = softmax(q kᵀ / √D)                                                                O(N M D)
    nystrom    A = softmax(q k̃ᵀ / √D)  softmax(q̃ k̃ᵀ / √D)⁺  softmax(q̃ kᵀ / √D) [+ convolution]     O(N L D + L³)

The L landmarks q̃ and k̃ are means of consecutive segments. The pseudoinverse of the L x L matrix between them is
iterated, Z ← Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, with matrix products only; six times are the authors' choice.
A depthwise convolution of the values, one filter of `conv` taps for each head, is added as a skip connection.

What differs from the paper: segments are made of the true length of each input, and of any length; where it is not
longer than L, every token is a landmark of its own. The iteration begins at Aᵀ / |A|₁ of each matrix; the authors' code
takes the largest |A|₁ of the batch, so that an output depends on the rest of the batch.

Xiong, Zeng, Chakraborty, Tan, Fung, Li, Singh: Nyströmformer. AAAI 2021. arXiv:2102.03902
"""

from __future__ import annotations

import torch
from torch import nn

from regard.attention.landmarks import segment_means
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Float, Tensor


class NystromAttention(Mechanism):
    """Attention through `landmarks` segment means; `conv`, an odd number, adds a convolution of the values."""

    traits = Traits(
        cost="N L D + L³",
        paper="2102.03902",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        rowwise=False,
        headwise=False,
        normalised=False,
        square=True,
        positional=True,
        family="low rank",
        limit="landmarks=16, iterations=40, conv=None",
    )

    def __init__(
        self,
        heads: int,
        landmarks: int = 64,
        iterations: int = 6,
        conv: int | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if conv is not None and conv % 2 == 0:
            raise RegardError(f"conv must be an odd number of taps, so that it is centred on its token, got {conv}")
        self.landmarks, self.iterations, self.scale = landmarks, iterations, scale
        self.conv = None
        if conv is not None:
            self.conv = nn.Conv2d(heads, heads, (conv, 1), padding=(conv // 2, 0), bias=False, groups=heads)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask | None,
        bias: Bias | None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        n, dtype = q.shape[2], v.dtype
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        q = q * (q.shape[-1] ** -0.5 if self.scale is None else self.scale)
        means, found = segment_means(self.landmarks, n, mask, q)
        real = None
        if mask is not None and mask.padding is not None:
            real = mask.padding.real(n)[:, None]
            v = v * real[..., None]
        few_q, few_k = means @ q, means @ k
        to_landmarks = masked_softmax(q @ few_k.mT, found[..., None, :]).to(dtype)
        from_landmarks = masked_softmax(few_q @ k.mT, None if real is None else real[..., None, :]).to(dtype)
        between = masked_softmax(few_q @ few_k.mT, found[..., None, :]) * found[..., None]
        out = to_landmarks @ (pseudoinverse(between, self.iterations).to(dtype) @ (from_landmarks @ v))
        return out if self.conv is None else out + self.conv(v)

    def extra_repr(self) -> str:
        return f"landmarks={self.landmarks}, iterations={self.iterations}, scale={self.scale or '1/√D'}"


def pseudoinverse(a: Float[Tensor, "*any L L"], iterations: int) -> Float[Tensor, "*any L L"]:
    """Return the Moore-Penrose inverse of rows that sum to at most one, by iteration, in float32 at least."""
    with torch.autocast(a.device.type, enabled=False):
        a = upcast(a)
        norm = a.sum(-2).amax(-1)[..., None, None]
        z, eye = a.mT / torch.where(norm > 0, norm, 1.0), torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        for _ in range(iterations):
            az = a @ z
            z = z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az))) / 4
    return z
