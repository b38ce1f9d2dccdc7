"""Norms with a checked `eps`, and RMSNorm that keeps its fused kernel under autocast.

    RMSNorm    x / √(mean x² + ε) · g, computed in the dtype of g whatever the dtype of x

Zhang, Sennrich: Root Mean Square Layer Normalization. NeurIPS 2019. arXiv:1910.07467
"""

from __future__ import annotations

from typing import Annotated

from torch import nn

from regard.core.shapes import Tensor
from regard.core.validation import Range


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` with the range of its `eps` declared."""

    def __init__(
        self,
        normalized_shape: int,
        eps: Annotated[float, Range(above=0)] = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, bias)


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm` that casts x to the dtype of its weight, without which torch leaves the fused kernel."""

    def __init__(
        self,
        normalized_shape: int,
        eps: Annotated[float | None, Range(above=0)] = None,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if self.weight is None else x.to(self.weight.dtype))
