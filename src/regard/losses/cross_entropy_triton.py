"""Cross-entropy of rows of logits and its gradient in one pass over them: a Triton kernel, for CUDA.

    first   m = max z        s = Σ exp(z - m)        as it goes: where the maximum rises, s is scaled down
    then    L = m + log s - (1 - ε) z[y] - ε mean z                  g = exp(z - m) / s - (1 - ε) onehot(y) - ε / V

A row is read from memory once: when it is read again for g, the cache still holds it. One program a row, so nothing is
summed in an order that changes from run to run. Columns from V on are padding: no part of the sum, and g is 0 there.

Registering it imports PyTorch's compiler, as long as all of PyTorch: so this file is imported by whoever runs it, when
they do (fused_linear_cross_entropy.py).

Milakov, Gimelshein: Online normalizer calculation for softmax. 2018. arXiv:1805.02867
"""

from __future__ import annotations

import torch

from regard.core.shapes import Float, Int, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs comes without it
    triton = None

TILE_SIZE, NUM_WARPS = 4096, 16  # columns at a time; their threads by 32 (the fastest of nine on an H200)


if triton is not None:

    @triton.jit
    def _cross_entropy_kernel(z_at, wanted_at, loss_at, g_at, vocab, columns, label_smoothing, tile: tl.constexpr):  # type: ignore[no-untyped-def]
        row = tl.program_id(0).to(tl.int64)
        z_at += row * columns
        g_at += row * columns
        wanted = tl.load(wanted_at + row)
        lane = tl.arange(0, tile)

        # every lane keeps a maximum and a sum of its own: the lanes wait for each other once a row, not once a tile
        tops, totals = tl.full([tile], -1e30, tl.float32), tl.zeros([tile], tl.float32)
        every = tl.zeros([tile], tl.float32)
        for start in range(0, vocab, tile):
            inside = start + lane < vocab
            z = tl.load(z_at + start + lane, mask=inside, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(tops, z)
            totals = totals * tl.exp(tops - higher) + tl.exp(z - higher)
            tops = higher
            if label_smoothing > 0:
                every += tl.where(inside, z, 0.0)
        top = tl.max(tops, 0)
        total, mean = tl.sum(totals * tl.exp(tops - top), 0), tl.sum(every, 0) / vocab

        asked = wanted != -100
        own = tl.load(z_at + tl.where(asked, wanted, 0)).to(tl.float32)
        loss = top + tl.log(total) - (1 - label_smoothing) * own - label_smoothing * mean
        tl.store(loss_at + row, tl.where(asked, loss, 0.0))

        share = tl.where(asked, 1 / total, 0.0)
        less, off = tl.where(asked, label_smoothing / vocab, 0.0), tl.where(asked, 1 - label_smoothing, 0.0)
        for start in range(0, columns, tile):
            column = start + lane
            z = tl.load(z_at + column, mask=column < vocab, other=-float("inf")).to(tl.float32)
            g = tl.exp(z - top) * share - tl.where(column < vocab, less, 0.0) - tl.where(column == wanted, off, 0.0)
            tl.store(g_at + column, g.to(g_at.dtype.element_ty), mask=column < columns)

    @torch.library.triton_op("regard::cross_entropy_with_grad", mutates_args={})
    def _cross_entropy_with_grad(
        z: Tensor, wanted: Tensor, vocab: int, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        losses = torch.empty(z.shape[0], dtype=torch.float32, device=z.device)
        g = torch.empty_like(z)
        torch.library.wrap_triton(_cross_entropy_kernel)[(z.shape[0],)](
            z, wanted, losses, g, vocab, z.shape[1], label_smoothing, TILE_SIZE, num_warps=NUM_WARPS
        )
        return losses, g


def cross_entropy_with_grad(
    z: Float[Tensor, "T V"], wanted: Int[Tensor, " T"], vocab: int, label_smoothing: float = 0.0
) -> tuple[Float[Tensor, " T"], Float[Tensor, "T V"]]:
    """Each row's loss in float32 (0 where nothing is wanted), and its gradient by the logits in their own type."""
    losses, g = _cross_entropy_with_grad(z.contiguous(), wanted, vocab, label_smoothing)
    return losses, g
