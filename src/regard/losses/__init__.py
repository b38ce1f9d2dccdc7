"""Losses: fused linear cross-entropy, CTC, REINFORCE baselines."""

from __future__ import annotations

from regard.core.lazy_exports import lazy_exports

_MODULES = {
    "ctc": ("ctc_loss", "forced_align"),
    "fused_linear_cross_entropy": ("fused_linear_loss_and_correct",),
    "reinforce_baselines": (
        "BASELINES", "Baseline", "LearnedBaseline", "LeaveOneOutBaseline", "MovingAverageBaseline"
    ),
}  # fmt: skip
__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
