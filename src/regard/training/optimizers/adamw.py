"""AdamW: Adam with decoupled weight decay.

    m = β1 m + (1 - β1) g            v = β2 v + (1 - β2) g²
    w = w - lr · decay · w - lr · m / (1 - β1ⁿ) / (√(v / (1 - β2ⁿ)) + ε)

Two numbers of state per weight. Runs torch.optim's fused kernel where the device has one, else the formula.

Kingma and Ba 2015, arXiv:1412.6980; Loshchilov and Hutter 2019 (decoupled decay), arXiv:1711.05101
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch.optim.adamw import adamw

from regard.core.shapes import Float, Tensor
from regard.core.validation import Range
from regard.training.optimizers.parameter_state import ParameterState, group_by_decay, select_if_finite, zero_non_finite


class AdamW:
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        betas: Annotated[tuple[float, float], Range(low=0, below=1)] = (0.9, 0.999),
        eps: Annotated[float, Range(above=0)] = 1e-8,
        device: torch.device | None = None,
    ) -> None:
        self.betas, self.eps = betas, eps
        self.fused = device is None or has_fused(device)

    def init_state(self, parts: Sequence[ParameterState]) -> None:
        for part in parts:
            p = part.parameter.detach()
            step = torch.zeros((), dtype=torch.float32, device=part.weight.device)
            part.state = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}

    @torch.no_grad()
    def update(
        self, parts: Sequence[ParameterState], learning_rate: float | Tensor, found_inf: Float[Tensor, ""]
    ) -> None:
        for same, weight_decay, factor in group_by_decay(parts):
            self.move(same, [p.gradient for p in same], learning_rate * factor, weight_decay, found_inf)

    def move(
        self,
        same: Sequence[ParameterState],
        gradients: Tensors,
        learning_rate: float | Tensor,
        weight_decay: float,
        found_inf: Float[Tensor, ""],
    ) -> None:
        """Update parameters of one weight decay by these gradients."""
        m, v, steps = ([p.local_state(name) for p in same] for name in ("exp_avg", "exp_avg_sq", "step"))
        move, weights = _fused if self.fused else _plain, [p.weight for p in same]
        move(weights, gradients, m, v, steps, learning_rate, weight_decay, self.betas, self.eps, found_inf)

    def describe(self) -> str:
        return "fused AdamW" if self.fused else "AdamW"


Tensors = list[Tensor]
Betas = tuple[float, float]


def _fused(
    w: Tensors,
    g: Tensors,
    m: Tensors,
    v: Tensors,
    n: Tensors,
    learning_rate: float | Tensor,
    weight_decay: float,
    betas: Betas,
    eps: float,
    found_inf: Tensor,
) -> None:
    """torch's fused kernel, which skips the update where `found_inf` is 1."""
    adamw(
        w, g, m, v, [], n, fused=True, found_inf=found_inf, amsgrad=False, beta1=betas[0], beta2=betas[1],
        lr=learning_rate, weight_decay=weight_decay, eps=eps, maximize=False,
    )  # fmt: skip


def _plain(
    w: Tensors,
    g: Tensors,
    m: Tensors,
    v: Tensors,
    n: Tensors,
    learning_rate: float | Tensor,
    weight_decay: float,
    betas: Betas,
    eps: float,
    found_inf: Tensor,
) -> None:
    """The formula, for any device."""
    g = zero_non_finite(g, found_inf)
    b1, b2 = betas
    torch._foreach_add_(n, select_if_finite(found_inf, 1.0, 0.0))
    torch._foreach_mul_(m, select_if_finite(found_inf, b1, 1.0))
    torch._foreach_add_(m, g, alpha=1 - b1)
    torch._foreach_mul_(v, select_if_finite(found_inf, b2, 1.0))
    torch._foreach_addcmul_(v, g, g, value=1 - b2)
    torch._foreach_mul_(w, select_if_finite(found_inf, 1 - learning_rate * weight_decay, 1.0))
    for x, mean, square, count in zip(w, m, v, n, strict=True):
        count = count.clamp(min=1)  # 0 only if the first update is skipped
        size = select_if_finite(found_inf, learning_rate, 0.0) / (1 - b1**count)
        x.sub_(mean / ((square / (1 - b2**count)).sqrt_().add_(eps)) * size)


def has_fused(device: torch.device) -> bool:
    """Return whether torch has fused optimizers for this device."""
    try:
        torch.optim.AdamW([torch.empty(1, device=device)], fused=True)
    except (RuntimeError, ValueError):
        return False
    return True
