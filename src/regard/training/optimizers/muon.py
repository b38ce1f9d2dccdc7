"""Muon: a matrix moves by its orthogonalised mean gradient, so that all directions move equally.

    m = μ m + (1 - μ) g        o = orthogonal(g + μ (m - g))      USVᵀ -> UVᵀ, by five products X -> aX + (bA + cA²)X
    w = w - lr · decay · w - lr · 0.2 √max(rows, columns) · o

The factor gives o the size of an AdamW update, so that both take the same learning rate and decay. Only for matrices
inside blocks; embeddings, heads, norms, biases and everything that is not a matrix use AdamW. A fused matrix (`qkv`,
`kv`) holds several unrelated maps: its rows are sorted into one matrix for all queries, one for all keys and one for
all values, each orthogonalised by itself; so is the matrix of each expert. Matrices of one shape are processed
together.

One number of state per weight, O(rows² · columns) multiply-adds per matrix (rows the smaller side). The products are in
bfloat16 on a GPU that has it, else in float32. A sharded matrix is gathered by every process, which keeps its own
shard.

Jordan et al. 2024, kellerjordan.github.io/posts/muon; Liu et al. 2025 (the factor), arXiv:2502.16982
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Annotated

import torch
from torch import nn

from regard.attention.projections import CrossProjection, QKVProjection, SharedQKProjection
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.validation import Fraction, Range
from regard.training.optimizers.adamw import AdamW
from regard.training.optimizers.parameter_state import (
    ParameterState,
    as_dtensor,
    group_by_decay,
    select_if_finite,
    zero_non_finite,
)
from regard.training.parallel.sharded_tensor import local_region, to_full

A, B, C = 3.4445, -4.7750, 2.0315  # steep at zero: five iterations bring every singular value to about 0.7 ... 1.2
BATCH_NUMBERS = 2**26  # numbers orthogonalised at a time
FusedRows = tuple[tuple[int, ...], int]  # heads of each kind per key/value head, rows per head


class Muon:
    """Orthogonalised updates for matrices inside blocks, AdamW for all else."""

    def __init__(
        self,
        momentum: Fraction = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        betas: Annotated[tuple[float, float], Range(low=0, below=1)] = (0.9, 0.999),
        eps: Annotated[float, Range(above=0)] = 1e-8,
        device: torch.device | None = None,
    ) -> None:
        self.momentum, self.nesterov, self.ns_steps = momentum, nesterov, ns_steps
        self.rest = AdamW(betas, eps, device)
        self.fused, self.matrices = self.rest.fused, 0

    def init_state(self, parts: Sequence[ParameterState]) -> None:
        matrices = [p for p in parts if uses_muon(p)]
        if not matrices:
            raise BadInput("muon needs matrices inside blocks, and this model has none: use adamw")
        for part in matrices:
            part.state = {"momentum": torch.zeros_like(part.parameter.detach())}
        self.rest.init_state([p for p in parts if not uses_muon(p)])
        self.matrices = len(matrices)

    @torch.no_grad()
    def update(
        self, parts: Sequence[ParameterState], learning_rate: float | Tensor, found_inf: Float[Tensor, ""]
    ) -> None:
        self.rest.update([p for p in parts if not uses_muon(p)], learning_rate, found_inf)
        matrices = [p for p in parts if uses_muon(p)]
        if not matrices:
            return
        gradients, means = (
            zero_non_finite([p.gradient for p in matrices], found_inf),
            [p.local_state("momentum") for p in matrices],
        )
        torch._foreach_mul_(means, select_if_finite(found_inf, self.momentum, 1.0))
        torch._foreach_add_(means, gradients, alpha=1 - self.momentum)
        lookahead = torch._foreach_lerp(gradients, means, self.momentum) if self.nesterov else means
        gathered = [to_full(as_dtensor(x, part.parameter)) for x, part in zip(lookahead, matrices, strict=True)]
        done = zip(matrices, self._steps(gathered, matrices), strict=True)
        steps = {part.name: x[local_region(part.parameter)] for part, x in done}
        for same, weight_decay, factor in group_by_decay(matrices):
            weights = [part.weight for part in same]
            torch._foreach_mul_(weights, select_if_finite(found_inf, 1 - learning_rate * factor * weight_decay, 1.0))
            torch._foreach_sub_(
                weights,
                torch._foreach_mul(
                    [steps[p.name] for p in same], select_if_finite(found_inf, learning_rate * factor, 0.0)
                ),
            )

    def _steps(self, matrices: Sequence[Tensor], parts: Sequence[ParameterState]) -> list[Tensor]:
        """Orthogonalise and scale each matrix, one projection at a time, those of one shape together."""
        maps = [split_fused(x, part.rows) for x, part in zip(matrices, parts, strict=True)]
        shapes: dict[torch.Size, list[tuple[int, int]]] = {}
        for i, projections in enumerate(maps):
            for j, x in enumerate(projections):
                shapes.setdefault(x.shape, []).append((i, j))
        for shape, places in shapes.items():
            for some in _chunks(places, max(1, BATCH_NUMBERS // max(1, shape.numel()))):
                done = orthogonalize(torch.stack([maps[i][j] for i, j in some]), self.ns_steps)
                done = done.to(maps[0][0].dtype) * (0.2 * math.sqrt(max(shape)))
                for (i, j), x in zip(some, done, strict=True):
                    maps[i][j] = x
        pairs = zip(maps, parts, strict=True)
        return [join_fused(projections, part.rows, part.parameter.ndim == 3) for projections, part in pairs]

    def describe(self) -> str:
        return f"Muon for {self.matrices} matrices, {self.rest.describe()} for the rest"


def uses_muon(part: ParameterState) -> bool:
    """Return whether this is a matrix inside a block, or a stack of them (experts)."""
    return part.matrix and part.parameter.ndim in (2, 3) and re.search(r"(^|\.)blocks\.\d+\.", part.name) is not None


def orthogonalize(x: Float[Tensor, "L R C"], ns_steps: int = 5) -> Float[Tensor, "L R C"]:
    """Return approximately the nearest matrices whose shorter side is orthonormal (Newton-Schulz iteration)."""
    able = x.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
    y = x.to(torch.bfloat16) if able else x
    if tall := y.shape[1] > y.shape[2]:
        y = y.mT
    y = y / y.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value above 1
    for _ in range(ns_steps):
        square = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(square, square, square, beta=B, alpha=C), y, beta=A)
    return y.mT if tall else y


# -- fused matrices ----------------------------------------------------------------------------------------------------


def fused_projections(module: nn.Module) -> dict[str, FusedRows]:
    """Return the row layout of the fused matrices in a module, by parameter name."""
    found: dict[str, FusedRows] = {}
    for name, part in module.named_modules():
        if isinstance(part, QKVProjection):
            found[f"{name}.qkv.weight"] = ((part.heads_per_kv, 1, 1), part.head_dim)
        elif isinstance(part, CrossProjection):
            found[f"{name}.kv.weight"] = ((1, 1), part.head_dim)
        elif isinstance(part, SharedQKProjection):
            found[f"{name}.qk_v.weight"] = ((1, 1), part.head_dim)
    return found


def split_fused(x: Float[Tensor, "*E R C"], rows: FusedRows | None) -> list[Tensor]:
    """Split a fused matrix into its maps, each with the rows of all groups; a stack into its matrices."""
    if rows is None:
        return [x] if x.ndim == 2 else list(x)
    kinds, head_dim = rows
    ordered = x.view(-1, sum(kinds), head_dim, x.shape[1])
    return [some.reshape(-1, x.shape[1]) for some in ordered.split(kinds, dim=1)]


def join_fused(maps: Sequence[Tensor], rows: FusedRows | None, stacked: bool = False) -> Float[Tensor, "*E R C"]:
    """Join the maps into one fused matrix (or stack) again."""
    if stacked:
        return torch.stack(list(maps))
    if rows is None:
        return maps[0]
    kinds, head_dim = rows
    projections = [x.view(-1, n, head_dim, x.shape[1]) for x, n in zip(maps, kinds, strict=True)]
    return torch.cat(projections, dim=1).flatten(0, 2)


def _chunks(items: list[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
