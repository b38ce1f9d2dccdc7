"""Triton kernel for CUDA: cross-entropy of rows of logits and its gradient in one pass.

    pass 1   m = max z        s = Σ exp(z - m)        online: when the maximum rises, s is rescaled
    pass 2   L = m + log s - (1 - ε) z[y] - ε mean z                  g = exp(z - m) / s - (1 - ε) onehot(y) - ε / V

A row is read from memory once; the second read for g hits the cache. One program per row, so sums are deterministic.
Columns from V on are padding: they are left out of the sum, and their gradient is 0.

Registering the kernel imports PyTorch's compiler, which doubles the import time, so this file is imported only when
the kernel runs (fused_linear_cross_entropy.py).

Milakov, Gimelshein: Online normalizer calculation for softmax. 2018. arXiv:1805.02867
"""

from __future__ import annotations

import torch

from regard.core.shapes import Float, Int, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU build of PyTorch does not include it
    triton = None

TILE_SIZE, NUM_WARPS = 4096, 16  # columns per tile, warps per program (the fastest of nine settings on an H200)


if triton is not None:

    @triton.jit
    def _cross_entropy_kernel(z_ptr, target_ptr, loss_ptr, g_ptr, vocab, columns, label_smoothing, tile: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        z_ptr += row * columns
        g_ptr += row * columns
        target = tl.load(target_ptr + row)
        lane = tl.arange(0, tile)

        # each lane has its target_logit maximum and sum: lanes synchronise once per row, not once per tile
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

        has_target = target != -100
        target_logit = tl.load(z_ptr + tl.where(has_target, target, 0)).to(tl.float32)
        loss = maximum + tl.log(total) - (1 - label_smoothing) * target_logit - label_smoothing * mean
        tl.store(loss_ptr + row, tl.where(has_target, loss, 0.0))

        inverse_total = tl.where(has_target, 1 / total, 0.0)
        smoothing_term, target_term = (
            tl.where(has_target, label_smoothing / vocab, 0.0),
            tl.where(has_target, 1 - label_smoothing, 0.0),
        )
        for start in range(0, columns, tile):
            column = start + lane
            z = tl.load(z_ptr + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
            g = (
                tl.exp(z - maximum) * inverse_total
                - tl.where(column < vocab, smoothing_term, 0.0)
                - tl.where(column == target, target_term, 0.0)
            )
            tl.store(g_ptr + column, g.to(g_ptr.dtype.element_ty), mask=column < columns)

    @torch.library.triton_op("regard::cross_entropy_with_grad", mutates_args={})
    def _cross_entropy_with_grad(
        z: Tensor, target: Tensor, vocab: int, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        losses = torch.empty(z.shape[0], dtype=torch.float32, device=z.device)
        g = torch.empty_like(z)
        torch.library.wrap_triton(_cross_entropy_kernel)[(z.shape[0],)](
            z, target, losses, g, vocab, z.shape[1], label_smoothing, TILE_SIZE, num_warps=NUM_WARPS
        )
        return losses, g


def cross_entropy_with_grad(
    z: Float[Tensor, "T V"], target: Int[Tensor, " T"], vocab: int, label_smoothing: float = 0.0
) -> tuple[Float[Tensor, " T"], Float[Tensor, "T V"]]:
    """Return the loss of each row in float32 (0 for an ignored target) and its gradient in the logits' dtype."""
    losses, g = _cross_entropy_with_grad(z.contiguous(), target, vocab, label_smoothing)
    return losses, g
