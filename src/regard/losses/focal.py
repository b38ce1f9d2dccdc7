"""Focal loss: binary cross-entropy in which examples that are already right weigh little.

    FL = -α_t (1 - p_t)^γ log p_t        p_t = p, α_t = α where the target is 1; 1 - p, 1 - α where it is 0

With γ = 0 and α = ½ it is half the binary cross-entropy. log p_t is taken from the logits, so it is always finite.

Lin, Goyal, Girshick, He, Dollár: Focal Loss for Dense Object Detection. ICCV 2017. arXiv:1708.02002
"""

from __future__ import annotations

import torch.nn.functional as F

from regard.core.shapes import Float, Tensor


def sigmoid_focal_loss(
    logits: Float[Tensor, "..."], targets: Float[Tensor, "..."], alpha: float = 0.25, gamma: float = 2.0
) -> Float[Tensor, "..."]:
    """Return the focal loss of every element, for targets from 0 to 1."""
    p = logits.sigmoid()
    wrong = p + targets - 2 * p * targets  # 1 - p_t
    weight = alpha * targets + (1 - alpha) * (1 - targets)
    return weight * wrong**gamma * F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
