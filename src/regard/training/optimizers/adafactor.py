"""Adafactor: mean squares of a matrix as the product of a column and a row, and steps relative to the weights.

    r = mean over columns of g²,  c = mean over rows of g²      moving means, with decay 1 - n^-0.8 at update n
    u = g / √(r c / mean(r))                                    a vector has its own mean square
    w = w - lr · decay · w - α u / max(1, RMS(u))               α = min(lr, 1/√n) · max(min_rms, RMS(w))

The state of a matrix is one number per row and per column; there is no first moment. The learning rate is relative to
the size of the weights: 1e-2 and up are usual. Equal to torch.optim.Adafactor, which synchronises with the host three
times per parameter; this one never does.

Shazeer and Stern 2018, arXiv:1804.04235
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from torch.distributed.tensor import DTensor, Replicate

from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction, Range
from regard.training.optimizers.parameter_state import (
    ParameterState,
    all_sharded_axes,
    group_by_decay,
    select_if_finite,
    sharded_axes,
    sum_shards,
    zero_non_finite,
)


class Adafactor:
    """Factored second moment, relative steps."""

    fused = False

    def __init__(
        self,
        decay_rate: Fraction = 0.8,
        clip_threshold: Annotated[float, Range(above=0)] = 1.0,
        min_rms: Annotated[float, Range(low=0)] = 1e-3,
    ) -> None:
        self.decay_rate, self.clip_threshold, self.min_rms = decay_rate, clip_threshold, min_rms

    def init_state(self, parts: Sequence[ParameterState]) -> None:
        for part in parts:
            p = part.parameter.detach()
            squares = {"square": torch.zeros_like(p)}
            if p.ndim >= 2:
                squares = {"row": _zeros_without_dim(p, -1), "column": _zeros_without_dim(p, -2)}
            part.state = {"step": torch.zeros((), dtype=torch.float32, device=part.weight.device), **squares}

    @torch.no_grad()
    def update(
        self, parts: Sequence[ParameterState], learning_rate: float | Tensor, found_inf: Float[Tensor, ""]
    ) -> None:
        if not parts:
            return
        zero_non_finite([p.gradient for p in parts], found_inf)
        applied, counts = select_if_finite(found_inf, 1.0, 0.0), [p.local_state("step") for p in parts]
        torch._foreach_add_(counts, [applied] * len(counts))  # the form for one tensor waits for the device
        count = torch.stack(counts).clamp(min=1)
        sizes = self._rms([p.weight for p in parts], parts)
        self._update_mean_squares(parts, (count**-self.decay_rate * applied).unbind())
        steps = self._steps(parts)
        alpha = sizes.clamp(min=self.min_rms) / (self._rms(steps, parts) / self.clip_threshold).clamp(min=1) * applied
        relative = count.rsqrt()
        index = {part.name: i for i, part in enumerate(parts)}
        for same, weight_decay, factor in group_by_decay(parts):
            lr, weights = learning_rate * factor, [part.weight for part in same]
            torch._foreach_mul_(weights, select_if_finite(found_inf, 1 - lr * weight_decay, 1.0))
            lengths = (alpha * relative.clamp(max=lr)).unbind()
            moves = [steps[i] * lengths[i] for i in (index[part.name] for part in same)]
            torch._foreach_sub_(weights, moves)

    def _rms(self, tensors: Sequence[Tensor], parts: Sequence[ParameterState]) -> Float[Tensor, " P"]:
        """Return the root mean square of each whole parameter."""
        squares = [x.square() for x in torch._foreach_norm(list(tensors))]
        total = sum_shards(squares, parts, [all_sharded_axes(p.parameter) for p in parts])
        return torch.stack([x / p.parameter.numel() for x, p in zip(total, parts, strict=True)]).sqrt()

    def _update_mean_squares(self, parts: Sequence[ParameterState], new: Sequence[Tensor]) -> None:
        """Move the mean squares; `new` is the weight of this gradient in them."""
        shares = dict(zip((p.name for p in parts), new, strict=True))
        for part in parts:
            if part.parameter.ndim < 2:
                part.local_state("square").lerp_(part.gradient.square(), shares[part.name])
        matrices = [p for p in parts if p.parameter.ndim >= 2]
        for name, dim in (("row", -1), ("column", -2)):
            squares = [torch.linalg.vector_norm(p.gradient, dim=dim, keepdim=True).square_() for p in matrices]
            total = sum_shards(squares, matrices, [sharded_axes(p.parameter, dim) for p in matrices])
            for part, x in zip(matrices, total, strict=True):
                part.local_state(name).lerp_(x / part.parameter.shape[dim], shares[part.name])

    def _steps(self, parts: Sequence[ParameterState]) -> list[Tensor]:
        """Return gradients divided by the roots of their mean squares."""
        matrices = [p for p in parts if p.parameter.ndim >= 2]
        sums = [p.local_state("row").sum(-2, keepdim=True) for p in matrices]
        totals = sum_shards(sums, matrices, [sharded_axes(p.parameter, -2) for p in matrices])
        means = {p.name: x / p.parameter.shape[-2] for p, x in zip(matrices, totals, strict=True)}
        steps = []
        for part in parts:
            tiny = torch.finfo(part.weight.dtype).eps
            if part.name in means:
                square = part.local_state("row") * part.local_state("column") / means[part.name].clamp(min=tiny)
            else:
                square = part.local_state("square")
            steps.append(part.gradient * square.clamp(min=tiny * tiny).rsqrt())
        return steps

    def describe(self) -> str:
        return "Adafactor"


def _zeros_without_dim(p: Tensor, dim: int) -> Tensor:
    """Return zeros of a parameter's shape with one dimension reduced to 1, sharded like the parameter."""
    shape = [*p.shape]
    shape[dim] = 1
    if not isinstance(p, DTensor):
        return p.new_zeros(shape)
    local_shape = [*p.to_local().shape]
    local_shape[dim] = 1
    placements = [
        Replicate() if sharded else index for index, sharded in zip(p.placements, sharded_axes(p, dim), strict=True)
    ]
    stride = torch.empty(shape, device="meta").stride()
    zeros = p.to_local().new_zeros(local_shape)
    return DTensor.from_local(zeros, p.device_mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)
