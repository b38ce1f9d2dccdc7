"""Cross-entropy with label smoothing, summed over all targets but -100.

    L = Σ_t  log Σ_v exp z_tv - (1 - ε) z_t[y_t] - ε mean_v z_tv

In float32 whatever the dtype of the logits. On a GPU, where nothing is compiled, Triton kernels read the logits once
forwards and once backwards (losses.cross_entropy_triton): PyTorch's operations first copy them to float32 and read that
copy some ten times.

Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer Vision. CVPR 2016.
arXiv:1512.00567
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from regard.core.shapes import Float, Int, Tensor
from regard.losses.fused_linear_cross_entropy import IGNORE_INDEX, can_use_triton


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the label-smoothed cross-entropy summed over the targets, computed in float32."""
    logits, targets = logits.flatten(0, 1), targets.flatten()
    if can_use_triton(logits) and logits.requires_grad and not torch.compiler.is_compiling():
        # imported here because it brings in PyTorch's compiler
        from regard.losses.cross_entropy_triton import fused_cross_entropy

        return fused_cross_entropy(logits, targets, label_smoothing)
    return F.cross_entropy(
        logits.float(), targets, ignore_index=IGNORE_INDEX, label_smoothing=label_smoothing, reduction="sum"
    )
