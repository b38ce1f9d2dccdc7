"""Dice loss: 1 minus the overlap of a predicted mask with the true one, so that small objects count like large ones.

    1 - (2 Σ p t + 1) / (Σ p + Σ t + 1)        sums over the pixels of a mask; the 1 makes two empty masks equal

Milletari, Navab, Ahmadi: V-Net. 3DV 2016. arXiv:1606.04797
"""

from __future__ import annotations

from regard.core.shapes import Float, Tensor


def dice_loss(logits: Float[Tensor, "N P"], targets: Float[Tensor, "N P"]) -> Float[Tensor, "N"]:
    """Return the dice loss of every mask, 0 to 1."""
    p = logits.sigmoid()
    return 1 - (2 * (p * targets).sum(-1) + 1) / (p.sum(-1) + targets.sum(-1) + 1)
