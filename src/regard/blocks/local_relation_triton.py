"""Local relation as CUDA kernels, in Triton: no score, weight or neighbourhood is ever in memory.

    shifts      scores K² B G Z W, softmax, K² sums: each a memory pass, forwards and backwards
    here        one pass: a program keeps some cells of one group and walks over the k x k offsets (online softmax)

Backwards the weights are recomputed from q, k and the logarithm of their sum. A kernel over queries gives the gradient
of q, and of the prior by program, summed afterwards, always in the same order; a kernel over keys gathers that of k and
of the values from the queries around, so that nothing is added atomically.

Memory traffic per cell and group of m channels: 2 m + 3 numbers forward, about 5 m + 8 backward, for any k; neighbours
come from the cache. All arithmetic in float32, whatever the dtype of q, k and the values.

The operators are opaque to PyTorch's compiler: as `triton_op`, into which it looks, a compiled layer gave zeros on a
GPU (PyTorch 2.11). Registering them imports the compiler, so this file is imported only when it runs
(blocks/local_relation.py).

Hu et al.: Local Relation Networks. ICCV 2019. arXiv:1904.11491; Milakov, Gimelshein: Online normalizer calculation for
softmax. arXiv:1805.02867
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch

from regard.core.shapes import Float, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs comes without it
    triton = None

MAX_BLOCK = 128  # cells of a program


if triton is not None:  # no_type_check: Triton compiles from the source and must not be wrapped

    @triton.jit
    @no_type_check
    def _forward_kernel(
        q_at, k_at, x_at, prior_at, out_at, lse_at, blocks, G, C, Y, X, Z, W,
        K: tl.constexpr, STRIDE: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        block, bg = tl.program_id(0) % blocks, tl.program_id(0) // blocks
        g, b = bg % G, (bg // G).to(tl.int64)
        n, c = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, MP)
        real, has = n < Z * W, (c < M) & (g * M + c < C)
        z, w, channel = n // W, n % W, b * C + g * M + c
        q = tl.load(q_at + (b * G + g) * Z * W + n, mask=real, other=0.0).to(tl.float32)
        top = tl.full([BLOCK], -1e30, tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        mixed = tl.zeros([MP, BLOCK], tl.float32)
        for i in range(K * K):
            y, x = z * STRIDE + i // K - K // 2, w * STRIDE + i % K - K // 2
            inside = real & (y >= 0) & (y < Y) & (x >= 0) & (x < X)
            cell = y * X + x
            k = tl.load(k_at + (b * G + g) * Y * X + cell, mask=inside, other=0.0).to(tl.float32)
            prior = tl.load(prior_at + i * G + g).to(tl.float32)
            score = tl.where(inside, q * k + prior, -1e30)  # what came before the first cell inside is scaled to 0
            higher = tl.maximum(top, score)
            scale, weight = tl.exp(top - higher), tl.exp(score - higher)
            values = x_at + channel[:, None] * (Y * X) + cell[None, :]
            v = tl.load(values, mask=has[:, None] & inside[None, :], other=0.0).to(tl.float32)
            mixed = mixed * scale[None, :] + weight[None, :] * v
            total = total * scale + weight
            top = higher
        out = mixed / total[None, :]
        to = out_at + channel[:, None] * (Z * W) + n[None, :]
        tl.store(to, out.to(out_at.dtype.element_ty), mask=has[:, None] & real[None, :])
        tl.store(lse_at + (b * G + g) * Z * W + n, top + tl.log(total), mask=real)

    @triton.jit
    @no_type_check
    def _query_kernel(
        q_at, k_at, x_at, prior_at, out_at, lse_at, grad_at, dq_at, dprior_at, inner_at,
        programs, blocks, G, C, Y, X, Z, W,
        K: tl.constexpr, STRIDE: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        block, bg = tl.program_id(0) % blocks, tl.program_id(0) // blocks
        g, b = bg % G, (bg // G).to(tl.int64)
        n, c = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, MP)
        real, has = n < Z * W, (c < M) & (g * M + c < C)
        z, w, channel = n // W, n % W, b * C + g * M + c
        own, both = (b * G + g) * Z * W + n, has[:, None] & real[None, :]
        q = tl.load(q_at + own, mask=real, other=0.0).to(tl.float32)
        lse = tl.load(lse_at + own, mask=real, other=0.0)
        cells = channel[:, None] * (Z * W) + n[None, :]
        grad = tl.load(grad_at + cells, mask=both, other=0.0).to(tl.float32)
        inner = tl.sum(grad * tl.load(out_at + cells, mask=both, other=0.0).to(tl.float32), 0)
        tl.store(inner_at + own, inner, mask=real)
        dq = tl.zeros([BLOCK], tl.float32)
        for i in range(K * K):
            y, x = z * STRIDE + i // K - K // 2, w * STRIDE + i % K - K // 2
            inside = real & (y >= 0) & (y < Y) & (x >= 0) & (x < X)
            cell = y * X + x
            k = tl.load(k_at + (b * G + g) * Y * X + cell, mask=inside, other=0.0).to(tl.float32)
            prior = tl.load(prior_at + i * G + g).to(tl.float32)
            weight = tl.where(inside, tl.exp(q * k + prior - lse), 0.0)
            values = x_at + channel[:, None] * (Y * X) + cell[None, :]
            v = tl.load(values, mask=has[:, None] & inside[None, :], other=0.0).to(tl.float32)
            by_score = weight * (tl.sum(grad * v, 0) - inner)
            dq += by_score * k
            tl.store(dprior_at + i * programs + tl.program_id(0), tl.sum(by_score, 0))
        tl.store(dq_at + own, dq.to(dq_at.dtype.element_ty), mask=real)

    @triton.jit
    @no_type_check
    def _key_kernel(
        q_at, k_at, x_at, prior_at, lse_at, grad_at, inner_at, dk_at, dx_at, blocks, G, C, Y, X, Z, W,
        K: tl.constexpr, STRIDE: tl.constexpr, M: tl.constexpr, MP: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        block, bg = tl.program_id(0) % blocks, tl.program_id(0) // blocks
        g, b = bg % G, (bg // G).to(tl.int64)
        n, c = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, MP)
        real, has = n < Y * X, (c < M) & (g * M + c < C)
        y, x, channel = n // X, n % X, b * C + g * M + c
        own, both = (b * G + g) * Y * X + n, has[:, None] & real[None, :]
        cells = channel[:, None] * (Y * X) + n[None, :]
        k = tl.load(k_at + own, mask=real, other=0.0).to(tl.float32)
        v = tl.load(x_at + cells, mask=both, other=0.0).to(tl.float32)
        dk = tl.zeros([BLOCK], tl.float32)
        dv = tl.zeros([MP, BLOCK], tl.float32)
        for i in range(K * K):  # of the queries that see this cell at offset i
            down, right = y + K // 2 - i // K, x + K // 2 - i % K
            z, w = down // STRIDE, right // STRIDE
            inside = real & (down >= 0) & (right >= 0) & (down % STRIDE == 0) & (right % STRIDE == 0)
            inside = inside & (z < Z) & (w < W)
            query = z * W + w
            at = (b * G + g) * Z * W + query
            q = tl.load(q_at + at, mask=inside, other=0.0).to(tl.float32)
            lse = tl.load(lse_at + at, mask=inside, other=0.0)
            inner = tl.load(inner_at + at, mask=inside, other=0.0)
            prior = tl.load(prior_at + i * G + g).to(tl.float32)
            weight = tl.where(inside, tl.exp(q * k + prior - lse), 0.0)
            grads = grad_at + channel[:, None] * (Z * W) + query[None, :]
            grad = tl.load(grads, mask=has[:, None] & inside[None, :], other=0.0).to(tl.float32)
            dv += weight[None, :] * grad
            dk += weight * (tl.sum(grad * v, 0) - inner) * q
        tl.store(dk_at + own, dk.to(dk_at.dtype.element_ty), mask=real)
        tl.store(dx_at + cells, dv.to(dx_at.dtype.element_ty), mask=both)

    def _sizes(q: Tensor, x: Tensor, kernel: int, stride: int, shared: int, cells: int) -> dict[str, Any]:
        """Return the arguments that all kernels share, for programs over this many cells."""
        block = max(32, min(MAX_BLOCK, triton.next_power_of_2(cells)))
        return {
            "G": q.shape[1], "C": x.shape[1], "Y": x.shape[2], "X": x.shape[3], "Z": q.shape[2], "W": q.shape[3],
            "K": kernel, "STRIDE": stride, "M": shared, "MP": triton.next_power_of_2(shared), "BLOCK": block,
            "blocks": -(-cells // block), "num_warps": block // 32,
        }  # fmt: skip

    @torch.library.custom_op("regard::local_relation", mutates_args=())
    @no_type_check
    def _relate(
        q: Tensor, k: Tensor, x: Tensor, prior: Tensor, kernel: int, stride: int, shared: int
    ) -> tuple[Tensor, Tensor]:
        batch, groups, rows, columns = q.shape
        out = torch.empty((batch, x.shape[1], rows, columns), dtype=x.dtype, device=x.device)
        lse = torch.empty(q.shape, dtype=torch.float32, device=x.device)
        sizes = _sizes(q, x, kernel, stride, shared, rows * columns)
        _forward_kernel[(batch * groups * sizes["blocks"],)](q, k, x, prior, out, lse, **sizes)
        return out, lse

    @_relate.register_fake
    @no_type_check
    def _(q, k, x, prior, kernel, stride, shared):
        shape = x.shape[0], x.shape[1], q.shape[2], q.shape[3]
        return x.new_empty(shape), q.new_empty(q.shape, dtype=torch.float32)

    @torch.library.custom_op("regard::local_relation_backward", mutates_args=())
    @no_type_check
    def _relate_backward(
        grad: Tensor, q: Tensor, k: Tensor, x: Tensor, prior: Tensor, out: Tensor, lse: Tensor,
        kernel: int, stride: int, shared: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        batch, groups, rows, columns = q.shape
        sizes = _sizes(q, x, kernel, stride, shared, rows * columns)
        blocks = sizes["blocks"]
        programs = batch * groups * blocks
        dq, dk, dx, inner = torch.empty_like(q), torch.empty_like(k), torch.empty_like(x), torch.empty_like(lse)
        partial = torch.empty((kernel**2, batch, groups, blocks), dtype=torch.float32, device=x.device)
        _query_kernel[(programs,)](q, k, x, prior, out, lse, grad, dq, partial, inner, programs, **sizes)
        sizes = _sizes(q, x, kernel, stride, shared, x.shape[2] * x.shape[3])
        _key_kernel[(batch * groups * sizes["blocks"],)](q, k, x, prior, lse, grad, inner, dk, dx, **sizes)
        return dq, dk, dx, partial.sum((1, 3))

    @_relate_backward.register_fake
    @no_type_check
    def _(grad, q, k, x, prior, out, lse, kernel, stride, shared):
        by_prior = prior.new_empty((kernel**2, q.shape[1]), dtype=torch.float32)
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(x), by_prior

    def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        q, k, x, prior, *ctx.sizes = inputs
        ctx.save_for_backward(q, k, x, prior, *output)
        ctx.mark_non_differentiable(output[1])

    def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        q, k, x, prior, out, lse = ctx.saved_tensors
        dq, dk, dx, dprior = _relate_backward(grad.contiguous(), q, k, x, prior, out, lse, *ctx.sizes)
        return dq, dk, dx, dprior.to(prior.dtype), None, None, None

    _relate.register_autograd(_backward, setup_context=_save_for_backward)


def fused_local_relation(
    q: Float[Tensor, "B G Z W"],
    k: Float[Tensor, "B G Y X"],
    x: Float[Tensor, "B C Y X"],
    prior: Float[Tensor, "K G"],
    kernel: int,
    stride: int,
    shared: int,
) -> Float[Tensor, "B C Z W"]:
    """Return the sums over the neighbours of each cell, weighted by the softmax of q·k + prior; differentiable once."""
    found: Tensor = _relate(q.contiguous(), k.contiguous(), x.contiguous(), prior.contiguous(), kernel, stride, shared)[
        0
    ]
    return found
