"""Triton kernel for CUDA: cross-entropy of rows of logits and its gradient in one pass.

    pass 1   m = max z        s = Σ exp(z - m)        online: when the maximum rises, s is rescaled
    pass 2   L = m + log s - (1 - ε) z[y] - ε mean z                  g = exp(z - m) / s - (1 - ε) onehot(y) - ε / V

A row is read from memory once; the second read for g hits the cache. One program per row, so sums are deterministic.
Columns from V on are padding: they are left out of the sum, and their gradient is 0.

`fused_cross_entropy` is differentiable: its forward pass is pass 1; its backward pass computes g from the logits and
m + log s, times the incoming gradient, in float32. Beside the logits nothing of their size is kept.

Registering the kernel imports PyTorch's compiler, which doubles the import time, so this file is imported only when
the kernel runs (fused_linear_cross_entropy.py).

Milakov, Gimelshein: Online normalizer calculation for softmax. 2018. arXiv:1805.02867
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from regard.core.shapes import Float, Int, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU build of PyTorch does not include it
    triton = None

TILE_SIZE, NUM_WARPS = 4096, 16  # columns per tile, warps per program (the fastest of nine settings on an H200)


def _launch_sizes(columns: int) -> dict[str, int]:
    """Return tile and warps; a row shorter than a tile gets a smaller one."""
    tile = min(TILE_SIZE, max(64, triton.next_power_of_2(columns)))
    return {"tile": tile, "num_warps": max(1, NUM_WARPS * tile // TILE_SIZE)}


if triton is not None:

    @triton.jit
    def _row_loss(z_ptr, target, vocab, label_smoothing, tile: tl.constexpr):  # type: ignore[no-untyped-def]
        """Return the loss of a row, its maximum and the sum of its exponentials."""
        lane = tl.arange(0, tile)
        # each lane has its own maximum and sum: lanes synchronise once per row, not once per tile
        maxima, totals = tl.full([tile], -1e30, tl.float32), tl.zeros([tile], tl.float32)
        logit_sums = tl.zeros([tile], tl.float32)
        for start in range(0, vocab, tile):
            inside = start + lane < vocab
            z = tl.load(z_ptr + start + lane, mask=inside, other=-float("inf")).to(tl.float32)
            new_maxima = tl.maximum(maxima, z)
            totals = totals * tl.exp(maxima - new_maxima) + tl.exp(z - new_maxima)
            maxima = new_maxima
            if label_smoothing > 0:
                logit_sums += tl.where(inside, z, 0.0)
        maximum = tl.max(maxima, 0)
        total, mean = tl.sum(totals * tl.exp(maxima - maximum), 0), tl.sum(logit_sums, 0) / vocab
        target_logit = tl.load(z_ptr + tl.where(target != -100, target, 0)).to(tl.float32)
        loss = maximum + tl.log(total) - (1 - label_smoothing) * target_logit - label_smoothing * mean
        return tl.where(target != -100, loss, 0.0), maximum, total

    @triton.jit
    def _store_gradient(  # type: ignore[no-untyped-def]
        z_ptr, g_ptr, target, shift, factor, vocab, columns, label_smoothing, tile: tl.constexpr
    ):
        """Write factor · (exp(z - shift) - ε / V - (1 - ε) onehot(target)), zero for an ignored target."""
        lane = tl.arange(0, tile)
        factor = tl.where(target != -100, factor, 0.0)
        for start in range(0, columns, tile):
            column = start + lane
            z = tl.load(z_ptr + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
            g = (
                tl.exp(z - shift)
                - tl.where(column < vocab, label_smoothing / vocab, 0.0)
                - tl.where(column == target, 1 - label_smoothing, 0.0)
            )
            tl.store(g_ptr + column, (g * factor).to(g_ptr.dtype.element_ty), mask=column < columns)

    @triton.jit
    def _cross_entropy_kernel(z_ptr, target_ptr, loss_ptr, g_ptr, vocab, columns, label_smoothing, tile: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        target = tl.load(target_ptr + row)
        loss, maximum, total = _row_loss(z_ptr + row * columns, target, vocab, label_smoothing, tile)
        tl.store(loss_ptr + row, loss)
        shift = maximum + tl.log(total)
        at = row * columns
        _store_gradient(z_ptr + at, g_ptr + at, target, shift, 1.0, vocab, columns, label_smoothing, tile)

    @triton.jit
    def _loss_kernel(z_ptr, target_ptr, loss_ptr, shift_ptr, columns, label_smoothing, tile: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        target = tl.load(target_ptr + row)
        loss, maximum, total = _row_loss(z_ptr + row * columns, target, columns, label_smoothing, tile)
        tl.store(loss_ptr + row, loss)
        tl.store(shift_ptr + row, maximum + tl.log(total))

    @triton.jit
    def _gradient_kernel(  # type: ignore[no-untyped-def]
        z_ptr, target_ptr, shift_ptr, factor_ptr, g_ptr, columns, label_smoothing, tile: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64)
        at, target, shift = row * columns, tl.load(target_ptr + row), tl.load(shift_ptr + row)
        factor = tl.load(factor_ptr).to(tl.float32)
        _store_gradient(z_ptr + at, g_ptr + at, target, shift, factor, columns, columns, label_smoothing, tile)

    @torch.library.triton_op("regard::cross_entropy_with_grad", mutates_args={})
    def _cross_entropy_with_grad(
        z: Tensor, target: Tensor, vocab: int, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        losses = torch.empty(z.shape[0], dtype=torch.float32, device=z.device)
        g = torch.empty_like(z)
        torch.library.wrap_triton(_cross_entropy_kernel)[(z.shape[0],)](
            z, target, losses, g, vocab, z.shape[1], label_smoothing, **_launch_sizes(z.shape[1])
        )
        return losses, g


def cross_entropy_with_grad(
    z: Float[Tensor, "T V"], target: Int[Tensor, " T"], vocab: int, label_smoothing: float = 0.0
) -> tuple[Float[Tensor, " T"], Float[Tensor, "T V"]]:
    """Return the loss of each row in float32 (0 for an ignored target) and its gradient in the logits' dtype."""
    losses, g = _cross_entropy_with_grad(z.contiguous(), target.contiguous(), vocab, label_smoothing)
    return losses, g


def fused_cross_entropy(
    z: Float[Tensor, "T V"], target: Int[Tensor, " T"], label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the cross-entropy summed over the rows whose target is not -100, in float32; differentiable once."""
    loss: Tensor = _FusedCrossEntropy.apply(z.contiguous(), target.contiguous(), label_smoothing)
    return loss


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        losses, shift = torch.empty(2, len(z), dtype=torch.float32, device=z.device)
        if len(z):
            sizes = _launch_sizes(z.shape[1])
            _loss_kernel[(len(z),)](z, target, losses, shift, z.shape[1], label_smoothing, **sizes)
        ctx.save_for_backward(z, target, shift)
        ctx.label_smoothing = label_smoothing
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor, None, None]:
        z, target, shift = ctx.saved_tensors
        g = torch.empty_like(z)
        if len(z):
            _gradient_kernel[(len(z),)](
                z, target, shift, factor.contiguous(), g, z.shape[1], ctx.label_smoothing, **_launch_sizes(z.shape[1])
            )
        return g, None, None
