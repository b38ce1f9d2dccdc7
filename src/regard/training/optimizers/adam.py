"""Adam: with weight decay as a penalty, part of the gradient.

    g = g + decay · w                                     then as adamw without decay

A weight whose gradient is small is pulled to zero as fast as any other moves, since the sum of both is normalised: what
the loss does not need is forgotten in some dozen updates. AdamW decays all weights at one slow rate instead. GCN and
GAT were trained with this one.

Kingma and Ba 2015, arXiv:1412.6980
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.core.shapes import Float, Tensor
from regard.training.optimizers.adamw import AdamW
from regard.training.optimizers.parameter_state import ParameterState, group_by_decay


class Adam(AdamW):
    """Adam with weight decay in the gradient."""

    @torch.no_grad()
    def update(
        self, parts: Sequence[ParameterState], learning_rate: float | Tensor, found_inf: Float[Tensor, ""]
    ) -> None:
        for same, weight_decay, factor in group_by_decay(parts):
            gradients = [p.gradient for p in same]
            if weight_decay:
                gradients = [*torch._foreach_add(gradients, [p.weight for p in same], alpha=weight_decay)]
            self.move(same, gradients, learning_rate * factor, 0.0, found_inf)

    def describe(self) -> str:
        return "fused Adam" if self.fused else "Adam"
