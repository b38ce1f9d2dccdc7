"""Adafactor: a matrix's mean squares as a column times a row, and steps in proportion to the weights.

    r = mean over columns of g²,  c = mean over rows of g²      moving means, forgetting 1 - n^-0.8 at update n
    u = g / √(r c / mean(r))                                    a vector keeps its own mean square
    w = w - rate · decay · w - α u / max(1, RMS(u))             α = min(rate, 1/√n) · max(floor, RMS(w))

The state of a matrix is one number a row and one a column; there is no first moment. The rate is relative to the size
of the weights: 1e-2 and up are usual. The same numbers as torch's form, which asks the host three times a parameter;
this one never does.

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
    """A factored second moment, relative steps."""

    fused = False

    def __init__(
        self,
        decay_rate: Fraction = 0.8,
        clip_threshold: Annotated[float, Range(above=0)] = 1.0,
        min_rms: Annotated[float, Range(low=0)] = 1e-3,
    ) -> None:
        self.decay_rate, self.clip_threshold, self.min_rms = decay_rate, clip_threshold, min_rms

    def init_state(self, parts: Sequence[ParameterState]) -> None:
        """A row's and a column's mean square, or each number's, and the updates they have seen."""
        for part in parts:
            p = part.parameter.detach()
            squares = {"square": torch.zeros_like(p)}
            if p.ndim >= 2:
                squares = {"row": _zeros_without_dim(p, -1), "column": _zeros_without_dim(p, -2)}
            part.state = {"step": torch.zeros((), dtype=torch.float32, device=part.weight.device), **squares}

    @torch.no_grad()
    def update(self, parts: Sequence[ParameterState], learning_rate: float, found_inf: Float[Tensor, ""]) -> None:
        """One update."""
        if not parts:
            return
        zero_non_finite([p.gradient for p in parts], found_inf)
        happens, counts = select_if_finite(found_inf, 1.0, 0.0), [p.local_state("step") for p in parts]
        torch._foreach_add_(counts, happens)
        count = torch.stack(counts).clamp(min=1)
        sizes = self._roots([p.weight for p in parts], parts)
        self._remember(parts, (count**-self.decay_rate * happens).unbind())
        steps = self._steps(parts)
        alpha = sizes.clamp(min=self.min_rms) / (self._roots(steps, parts) / self.clip_threshold).clamp(min=1) * happens
        relative = count.rsqrt()
        place = {part.name: i for i, part in enumerate(parts)}
        for same, weight_decay, factor in group_by_decay(parts):
            own, weights = learning_rate * factor, [part.weight for part in same]
            torch._foreach_mul_(weights, select_if_finite(found_inf, 1 - own * weight_decay, 1.0))
            lengths = (alpha * relative.clamp(max=own)).unbind()
            moves = [steps[i] * lengths[i] for i in (place[part.name] for part in same)]
            torch._foreach_sub_(weights, moves)

    def _roots(self, tensors: Sequence[Tensor], parts: Sequence[ParameterState]) -> Float[Tensor, " P"]:
        """The root of the mean square of each whole parameter."""
        own = [x.square() for x in torch._foreach_norm(list(tensors))]
        whole = sum_shards(own, parts, [all_sharded_axes(p.parameter) for p in parts])
        return torch.stack([x / p.parameter.numel() for x, p in zip(whole, parts, strict=True)]).sqrt()

    def _remember(self, parts: Sequence[ParameterState], new: Sequence[Tensor]) -> None:
        """Move the mean squares; `new` is the share of this gradient in them."""
        shares = dict(zip((p.name for p in parts), new, strict=True))
        for part in parts:
            if part.parameter.ndim < 2:
                part.local_state("square").lerp_(part.gradient.square(), shares[part.name])
        matrices = [p for p in parts if p.parameter.ndim >= 2]
        for name, dim in (("row", -1), ("column", -2)):
            own = [torch.linalg.vector_norm(p.gradient, dim=dim, keepdim=True).square_() for p in matrices]
            whole = sum_shards(own, matrices, [sharded_axes(p.parameter, dim) for p in matrices])
            for part, x in zip(matrices, whole, strict=True):
                part.local_state(name).lerp_(x / part.parameter.shape[dim], shares[part.name])

    def _steps(self, parts: Sequence[ParameterState]) -> list[Tensor]:
        """Gradients over the roots of their mean squares."""
        matrices = [p for p in parts if p.parameter.ndim >= 2]
        own = [p.local_state("row").sum(-2, keepdim=True) for p in matrices]
        totals = sum_shards(own, matrices, [sharded_axes(p.parameter, -2) for p in matrices])
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
        """Its name."""
        return "Adafactor"


def _zeros_without_dim(p: Tensor, dim: int) -> Tensor:
    """Zeros of a parameter's shape with one dimension cut to 1, spread as the parameter is."""
    shape = [*p.shape]
    shape[dim] = 1
    if not isinstance(p, DTensor):
        return p.new_zeros(shape)
    held = [*p.to_local().shape]
    held[dim] = 1
    places = [Replicate() if gone else place for place, gone in zip(p.placements, sharded_axes(p, dim), strict=True)]
    stride = torch.empty(shape, device="meta").stride()
    zeros = p.to_local().new_zeros(held)
    return DTensor.from_local(zeros, p.device_mesh, places, run_check=False, shape=torch.Size(shape), stride=stride)
