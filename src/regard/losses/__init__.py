"""Losses: fused linear cross-entropy, CTC, REINFORCE baselines, set matching, boxes, denoising, focal, dice, depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports

_MODULES = {
    "ctc": ("ctc_loss", "ctc_training_loss", "forced_align"),
    "denoising": ("denoising_losses", "denoising_queries"),
    "detection": ("detection_losses", "mask_losses"),
    "dice": ("dice_loss",),
    "focal": ("sigmoid_focal_loss",),
    "fused_linear_cross_entropy": ("fused_linear_loss_and_correct",),
    "reinforce_baselines": (
        "BASELINES", "Baseline", "LearnedBaseline", "LeaveOneOutBaseline", "MovingAverageBaseline"
    ),
    "scale_shift_invariant": ("fit_scale_and_shift", "scale_shift_invariant_loss"),
    "set_matching": ("MatchingWeights", "Matches", "Targets", "assign", "matching_cost", "pad_targets"),
}  # fmt: skip
if TYPE_CHECKING:
    from regard.losses._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
