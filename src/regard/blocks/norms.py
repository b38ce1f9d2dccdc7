"""Norms with a checked `eps`, RMSNorm that keeps its fused kernel under autocast, and batch norm that is not trained.

    RMSNorm              x / √(mean x² + ε) · g, computed in the dtype of g whatever the dtype of x
    FrozenBatchNorm2d    (x - μ) / √(σ² + ε) · g + b with loaded μ, σ, g and b, in training too

Zhang, Sennrich: Root Mean Square Layer Normalization. NeurIPS 2019. arXiv:1910.07467
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.shapes import Float, Tensor
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


class FrozenBatchNorm2d(nn.Module):
    """Batch norm whose statistics and factors are buffers: detectors train on too few images for statistics."""

    def __init__(self, channels: int, eps: Annotated[float, Range(above=0)] = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C Y X"]:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)  # type: ignore[arg-type]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        state_dict.pop(f"{prefix}num_batches_tracked", None)  # of a trained batch norm
        super()._load_from_state_dict(state_dict, prefix, *rest)
