"""Stochastic gradient descent with momentum.

    m = μ m + g + decay · w          w = w - lr · m          (Nesterov: w - lr · (g + decay · w + μ m))

One number of state per weight. Weight decay is part of the gradient, as is usual for SGD. Runs torch.optim's fused
kernel where the device has one, else the formula.

Robbins and Monro 1951; Sutskever et al. 2013 (momentum), proceedings.mlr.press/v28/sutskever13
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.optim.sgd import sgd

from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction
from regard.training.optimizers.adamw import has_fused
from regard.training.optimizers.parameter_state import ParameterState, group_by_decay, select_if_finite, zero_non_finite


class SGD:
    """Gradient descent with momentum."""

    def __init__(self, momentum: Fraction = 0.9, nesterov: bool = False, device: torch.device | None = None) -> None:
        self.momentum, self.nesterov = momentum, nesterov
        self.fused = device is None or has_fused(device)

    def init_state(self, parts: Sequence[ParameterState]) -> None:
        for part in parts:
            part.state = {"momentum": torch.zeros_like(part.parameter.detach())} if self.momentum else {}

    @torch.no_grad()
    def update(
        self, parts: Sequence[ParameterState], learning_rate: float | Tensor, found_inf: Float[Tensor, ""]
    ) -> None:
        for same, weight_decay, factor in group_by_decay(parts):
            weights, gradients = [p.weight for p in same], [p.gradient for p in same]
            sums = [p.local_state("momentum") for p in same] if self.momentum else []
            if self.fused:  # the kernel skips the update where found_inf is 1
                sgd(
                    weights, gradients, [*sums] or [None] * len(weights), fused=True, found_inf=found_inf,
                    dampening=0.0, weight_decay=weight_decay, momentum=self.momentum, lr=learning_rate * factor,
                    nesterov=self.nesterov, maximize=False,
                )  # fmt: skip
            else:
                self._plain(weights, gradients, sums, learning_rate * factor, weight_decay, found_inf)

    def _plain(
        self,
        w: list[Tensor],
        g: list[Tensor],
        m: list[Tensor],
        learning_rate: float | Tensor,
        weight_decay: float,
        found_inf: Tensor,
    ) -> None:
        """The formula, for any device."""
        g = zero_non_finite(g, found_inf)
        step = [*torch._foreach_mul(w, select_if_finite(found_inf, weight_decay, 0.0))]
        torch._foreach_add_(step, g)
        if self.momentum:
            torch._foreach_mul_(m, select_if_finite(found_inf, self.momentum, 1.0))
            torch._foreach_add_(m, step)
            step = [*torch._foreach_add(step, m, alpha=self.momentum)] if self.nesterov else m
        torch._foreach_sub_(w, torch._foreach_mul(step, select_if_finite(found_inf, learning_rate, 0.0)))

    def describe(self) -> str:
        return "fused SGD" if self.fused else "SGD"
