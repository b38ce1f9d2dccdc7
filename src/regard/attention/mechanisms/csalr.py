"""CSALR: attention of a few landmarks, and for every query the coefficients that combine their outputs.

    softmax    A = softmax(q kᵀ / √D)                                                            O(N M D)
    csalr      A = C · softmax(q̃ kᵀ / √D),   C = softmax(q k̃ᵀ / √D) (softmax(q̃ k̃ᵀ / √D) + I)⁻¹     O(N L D + L³)

The landmark attention map has L rows only; the combination coefficients C, from Nyström's approximation, spread it over
the queries. The matrix between landmarks is stochastic and positive, so with the identity added it can be inverted,
without a pseudoinverse. Two landmarks that attend to nothing but each other are the limit, [[0, 1], [1, 0]] + I; so the
matrix counts 0.1 % less. Rows of A then sum to about 1 / (1 + `ridge`): with I itself, to one half.

What was reconstructed: of the paper only the abstract was at hand (a landmark attention map and a combination
coefficient map, landmarks by average pooling); that I is added before inverting is from Lin et al.'s survey. The paper
pools feature maps of images in two dimensions; here landmarks are means of consecutive segments of the true length.

Chen, Gong, Ge, Du: Compressed Self-Attention for Deep Metric Learning with Low-Rank Approximation. IJCAI 2020; Lin,
Wang, Liu, Qiu: A Survey of Transformers. 2021. arXiv:2106.04554
"""

from __future__ import annotations

from typing import Annotated

import torch

from regard.attention.landmarks import segment_means
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.protocol import Mechanism, Traits
from regard.core.layer_state import LayerState
from regard.core.positions import Bias
from regard.core.shapes import Tensor
from regard.core.validation import Range

SHRINKAGE = 1e-3  # keeps the eigenvalues of the sum away from zero


class CSALRAttention(Mechanism):
    """Attention of `landmarks` segment means, combined for every query; `ridge` times I is added before inverting."""

    traits = Traits(
        cost="N L D + L³",
        paper="Chen et al. 2020",
        masks=frozenset({"padding"}),
        bias=False,
        exact=False,
        causality="none",
        rowwise=False,
        normalised=False,
        square=True,
        positional=True,
        family="low rank",
        limit="landmarks=16, ridge=0",
    )

    def __init__(
        self, landmarks: int = 64, ridge: Annotated[float, Range(low=0)] = 1.0, scale: float | None = None
    ) -> None:
        super().__init__()
        self.landmarks, self.ridge, self.scale = landmarks, ridge, scale

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
        allowed = None if mask is None else mask.dense(q.shape[0], 1, n, q.device)
        few_q, few_k = means @ q, means @ k
        landmark_map = masked_softmax(few_q @ k.mT, allowed) * found[..., None]
        between = masked_softmax(few_q @ few_k.mT, found[..., None, :]) * found[..., None]
        added = torch.where(found, self.ridge, 1.0).to(between.dtype)  # a landmark that does not exist stands alone
        from_landmarks = upcast(landmark_map.to(dtype) @ v)  # under autocast a product is of another dtype
        between = between * (1 - SHRINKAGE if self.ridge else 1)
        # the matrix can be inverted, and checking that waits for a GPU
        combined = torch.linalg.solve_ex(between + added.diag_embed(), from_landmarks).result
        return masked_softmax(q @ few_k.mT, found[..., None, :]).to(dtype) @ combined.to(dtype)

    def extra_repr(self) -> str:
        return f"landmarks={self.landmarks}, ridge={self.ridge}, scale={self.scale or '1/√D'}"
