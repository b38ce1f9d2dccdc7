"""Norms that torch lacks or has otherwise.

    RMSNorm    x / √(mean x² + ε) · g, in the type of g whatever x has, as layer norms run under autocast

Zhang, Sennrich: Root Mean Square Layer Normalization. NeurIPS 2019. arXiv:1910.07467
"""

from __future__ import annotations

from torch import nn

from regard.core.shapes import Tensor


class RMSNorm(nn.RMSNorm):
    """torch's, which leaves its fused kernel where x is narrower than its weight."""

    def forward(self, x: Tensor) -> Tensor:
        """Every vector, divided by its size."""
        return super().forward(x if self.weight is None else x.to(self.weight.dtype))
