"""Vector attention over neighbours as CUDA kernels, in Triton: no tensor of all pairs is kept.

    plain       δ, scores, weights, values: about ten tensors B N K C kept for the backward pass, each a memory pass
    here        a program keeps some points and walks over their K neighbours (online softmax, for every channel)

    h_j = relu(W₁ (p - p_j) + b₁)        g_j = relu(a - b_j + M h_j)        s_j = W₄ g_j
    y = Σ_j softmax_j(s_j) ⊙ (v_j + W₂ h_j)

with a = W₃ q + W₃ b₂ + b₃, b = W₃ k and M = W₃ W₂, which the caller computes: the same layer with a product less. The
bias of the scores is the same for all neighbours and cancels.

Backwards the weights are recomputed from the logarithm of their sum. What the gradients need of each pair is written
for a chunk of points at a time: by one kernel up to the scores, by another from there back. The gradients of b and v
are added to the neighbours (index_add, whose order is not fixed on a GPU; the plain form adds in the same way).

Products in the dtype of a, b and v (float32 as three of tf32, or as one where torch.backends.cuda.matmul.allow_tf32
says so), everything else in float32. Registering an operator imports PyTorch's compiler, so this file is imported
only when it runs (models/point_transformer.py).

Zhao, Jiang, Jia, Torr, Koltun: Point Transformer. ICCV 2021. arXiv:2012.09164; Milakov, Gimelshein: Online normalizer
calculation for softmax. arXiv:1805.02867
"""

from __future__ import annotations

from typing import Any, no_type_check

import torch

from regard.core.shapes import Float, Int, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs comes without it
    triton = None

CHUNK = 2**24  # numbers of a buffer over pairs, of which the backward pass has five


def max_width(dtype: torch.dtype) -> int:
    """Return how many channels the kernels take: their matrices must fit into shared memory."""
    return 64 if dtype == torch.float32 else 128


if triton is not None:  # no_type_check: Triton compiles from the source and must not be wrapped

    @triton.jit
    @no_type_check
    def _pair(
        r, j, real, p0, p1, p2, w0, w1, w2, bias, points_at, index_at, a_at, b_at, v_at, m_at, two_at, four_at,
        C, K, c, has, CP: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        """Return of neighbour j of every point: whether it is there, h, g, scores and values."""
        i = tl.load(index_at + r * K + j, mask=real, other=-1)
        there = real & (i >= 0)
        i = tl.where(there, i, 0).to(tl.int32)
        x = p0 - tl.load(points_at + i * 3, mask=there, other=0.0)
        y = p1 - tl.load(points_at + i * 3 + 1, mask=there, other=0.0)
        z = p2 - tl.load(points_at + i * 3 + 2, mask=there, other=0.0)
        before = x[:, None] * w0[None, :] + y[:, None] * w1[None, :] + z[:, None] * w2[None, :] + bias[None, :]
        kind = b_at.dtype.element_ty
        hidden = tl.maximum(before, 0.0).to(kind)
        row, column = tl.arange(0, CP)[:, None], tl.arange(0, CP)[None, :]
        inside = (row < C) & (column < C)
        flipped = column * C + row  # row: the input channel
        both = there[:, None] & has[None, :]
        near = i[:, None] * C + c[None, :]
        m = tl.load(m_at + flipped, mask=inside, other=0.0)
        own = tl.load(a_at + r[:, None] * C + c[None, :], mask=both, other=0.0).to(tl.float32)
        t = own - tl.load(b_at + near, mask=both, other=0.0).to(tl.float32)
        g = tl.maximum(t + tl.dot(hidden, m, input_precision=PRECISION), 0.0).to(kind)
        second = tl.load(two_at + flipped, mask=inside, other=0.0)
        value = tl.load(v_at + near, mask=both, other=0.0).to(tl.float32)
        value += tl.dot(hidden, second, input_precision=PRECISION)
        fourth = tl.load(four_at + flipped, mask=inside, other=0.0)
        score = tl.dot(g, fourth, input_precision=PRECISION)
        return there, hidden, g, score, value

    @triton.jit
    @no_type_check
    def _own(r, c, real, has, points_at, first_at, bias_at):
        """Return the coordinates of a program's points, and the first layer of the position network."""
        p0 = tl.load(points_at + r * 3, mask=real, other=0.0)
        p1 = tl.load(points_at + r * 3 + 1, mask=real, other=0.0)
        p2 = tl.load(points_at + r * 3 + 2, mask=real, other=0.0)
        w0 = tl.load(first_at + c * 3, mask=has, other=0.0)
        w1 = tl.load(first_at + c * 3 + 1, mask=has, other=0.0)
        w2 = tl.load(first_at + c * 3 + 2, mask=has, other=0.0)
        return p0, p1, p2, w0, w1, w2, tl.load(bias_at + c, mask=has, other=0.0)

    @triton.jit
    @no_type_check
    def _forward_kernel(
        points_at, index_at, a_at, b_at, v_at, first_at, bias_at, m_at, two_at, four_at, out_at, lse_at, R, C, K,
        CP: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        r, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CP)
        real, has = r < R, c < C
        p0, p1, p2, w0, w1, w2, bias = _own(r, c, real, has, points_at, first_at, bias_at)
        top = tl.full([BLOCK, CP], -1e30, tl.float32)
        total = tl.zeros([BLOCK, CP], tl.float32)
        mixed = tl.zeros([BLOCK, CP], tl.float32)
        for j in range(K):
            there, _, _, score, value = _pair(
                r, j, real, p0, p1, p2, w0, w1, w2, bias, points_at, index_at, a_at, b_at, v_at, m_at, two_at, four_at,
                C, K, c, has, CP, PRECISION,
            )  # fmt: skip
            higher = tl.where(there[:, None], tl.maximum(top, score), top)
            scale, weight = tl.exp(top - higher), tl.where(there[:, None], tl.exp(score - higher), 0.0)
            mixed = mixed * scale + weight * value
            total = total * scale + weight
            top = higher
        total = tl.where(total > 0, total, 1.0)  # a point without neighbours gives zeros
        at, both = r[:, None] * C + c[None, :], real[:, None] & has[None, :]
        tl.store(out_at + at, (mixed / total).to(out_at.dtype.element_ty), mask=both)
        tl.store(lse_at + at, top + tl.log(total), mask=both)

    @triton.jit
    @no_type_check
    def _weights_kernel(
        points_at, index_at, a_at, b_at, v_at, first_at, bias_at, m_at, two_at, four_at, out_at, lse_at, grad_at,
        hidden_at, g_at, ds_at, dv_at, begin, R, C, K, CP: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        """Write h, g and the gradients of scores and values of all pairs of some points."""
        r, c = begin + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CP)
        real, has = r < R, c < C
        p0, p1, p2, w0, w1, w2, bias = _own(r, c, real, has, points_at, first_at, bias_at)
        own, both = r[:, None] * C + c[None, :], real[:, None] & has[None, :]
        for j in range(K):
            there, hidden, g, score, value = _pair(
                r, j, real, p0, p1, p2, w0, w1, w2, bias, points_at, index_at, a_at, b_at, v_at, m_at, two_at, four_at,
                C, K, c, has, CP, PRECISION,
            )  # fmt: skip
            lse = tl.load(lse_at + own, mask=both, other=0.0)  # read again: registers are scarcer than the cache
            grad = tl.load(grad_at + own, mask=both, other=0.0).to(tl.float32)
            grad *= tl.where(there[:, None], tl.exp(score - lse), 0.0)
            out = tl.load(out_at + own, mask=both, other=0.0).to(tl.float32)
            at = ((r - begin) * K + j)[:, None] * C + c[None, :]
            tl.store(hidden_at + at, hidden, mask=both)
            tl.store(g_at + at, g, mask=both)
            tl.store(ds_at + at, (grad * (value - out)).to(hidden.dtype), mask=both)
            tl.store(dv_at + at, grad.to(hidden.dtype), mask=both)

    @triton.jit
    @no_type_check
    def _pairs_kernel(
        points_at, index_at, m_at, two_at, four_at, hidden_at, g_at, ds_at, dv_at, dt_at, dfirst_at, begin, P, C, K,
        CP: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        """Write the gradients before g of all pairs, and those of the first layer, summed over a program's pairs."""
        p, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, CP)
        real, has = p < P, c < C
        at, both = p[:, None] * C + c[None, :], real[:, None] & has[None, :]
        matrix, inside = tl.arange(0, CP)[:, None] * C + c[None, :], (tl.arange(0, CP)[:, None] < C) & has[None, :]
        ds = tl.load(ds_at + at, mask=both, other=0.0)
        fourth = tl.load(four_at + matrix, mask=inside, other=0.0)
        g = tl.load(g_at + at, mask=both, other=0.0)
        dt = tl.where(g > 0, tl.dot(ds, fourth, input_precision=PRECISION), 0.0).to(ds.dtype)
        tl.store(dt_at + at, dt, mask=both)
        m = tl.load(m_at + matrix, mask=inside, other=0.0)
        dh = tl.dot(dt, m, input_precision=PRECISION)
        second = tl.load(two_at + matrix, mask=inside, other=0.0)
        dh += tl.dot(tl.load(dv_at + at, mask=both, other=0.0), second, input_precision=PRECISION)
        dh = tl.where(tl.load(hidden_at + at, mask=both, other=0.0) > 0, dh, 0.0)
        own = begin + p // K
        near = tl.load(index_at + begin * K + p, mask=real, other=-1)
        there = real & (near >= 0)  # of others the gradients are zero
        near = tl.where(there, near, 0)
        partial = dfirst_at + tl.program_id(0) * 4 * C + c
        for axis in tl.static_range(3):
            offset = tl.load(points_at + own * 3 + axis, mask=there, other=0.0)
            offset -= tl.load(points_at + near * 3 + axis, mask=there, other=0.0)
            tl.store(partial + axis * C, tl.sum(dh * offset[:, None], 0), mask=has)
        tl.store(partial + 3 * C, tl.sum(dh, 0), mask=has)

    def _sizes(rows: int, width: int, dtype: torch.dtype) -> dict[str, Any]:
        """Return the arguments that both kernels share."""
        precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"
        return {
            "C": width,
            "CP": max(16, triton.next_power_of_2(width)),
            "BLOCK": 64 if rows >= 2**14 else 32,  # fewer points: more programs
            "PRECISION": precision if dtype == torch.float32 else "ieee",
            "num_warps": 8 if width > 32 else 4,
            "num_stages": 1,
        }

    @torch.library.custom_op("regard::vector_attention", mutates_args=())
    @no_type_check
    def _attend(
        points: torch.Tensor, index: torch.Tensor, a: torch.Tensor, b: torch.Tensor, v: torch.Tensor,
        first: torch.Tensor, bias: torch.Tensor, m: torch.Tensor, second: torch.Tensor, fourth: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        rows, width = a.shape
        out, lse = torch.empty_like(a), torch.empty(a.shape, dtype=torch.float32, device=a.device)
        sizes = _sizes(rows, width, a.dtype)
        if rows:
            _forward_kernel[(-(-rows // sizes["BLOCK"]),)](
                points, index, a, b, v, first, bias, m, second, fourth, out, lse, R=rows, K=index.shape[1], **sizes
            )
        return out, lse

    @_attend.register_fake
    def _(points: Any, index: Any, a: Any, *_: Any) -> Any:
        return torch.empty_like(a), torch.empty_like(a, dtype=torch.float32)

    @torch.library.custom_op("regard::vector_attention_backward", mutates_args=())
    @no_type_check
    def _attend_backward(
        grad: torch.Tensor, points: torch.Tensor, index: torch.Tensor, a: torch.Tensor, b: torch.Tensor,
        v: torch.Tensor, first: torch.Tensor, bias: torch.Tensor, m: torch.Tensor, second: torch.Tensor,
        fourth: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        (rows, width), k = a.shape, index.shape[1]
        sizes = _sizes(rows, width, a.dtype)
        block = sizes["BLOCK"]
        da, db, dv = (torch.zeros_like(lse) for _ in range(3))
        dfirst = lse.new_zeros(4, width)
        dm, dsecond, dfourth = (torch.zeros_like(m, dtype=torch.float32) for _ in range(3))
        many = max(1, CHUNK // max(1, k * width))  # points of a chunk
        buffers = [a.new_empty(min(many, rows) * k, width) for _ in range(5)]
        for begin in range(0, rows, many):
            count = min(many, rows - begin)
            hidden, g, ds, dx, dt = (buffer[: count * k] for buffer in buffers)
            _weights_kernel[(-(-count // block),)](
                points, index, a, b, v, first, bias, m, second, fourth, out, lse, grad, hidden, g, ds, dx,
                begin=begin, R=begin + count, K=k, **sizes,
            )  # fmt: skip
            programs = -(-count * k // 64)
            partial = lse.new_empty(programs, 4, width)
            _pairs_kernel[(programs,)](
                points, index, m, second, fourth, hidden, g, ds, dx, dt, partial,
                begin=begin, P=count * k, K=k, **sizes | {"BLOCK": 64},
            )  # fmt: skip
            dfirst += partial.sum(0)
            dm += dt.T @ hidden
            dsecond += dx.T @ hidden
            dfourth += ds.T @ g
            da[begin : begin + count] = dt.unflatten(0, (count, k)).sum(1, dtype=torch.float32)
            near = index[begin : begin + count].flatten().clamp(min=0)  # of a missing neighbour the gradients are zero
            db.index_add_(0, near, dt.float(), alpha=-1)
            dv.index_add_(0, near, dx.float())
        matrices = (each.to(m.dtype) for each in (dm, dsecond, dfourth))
        return [da.to(a.dtype), db.to(a.dtype), dv.to(a.dtype), dfirst, *matrices]

    @_attend_backward.register_fake
    def _(grad: Any, points: Any, index: Any, a: Any, b: Any, v: Any, first: Any, bias: Any, m: Any, *_: Any) -> Any:
        dfirst = torch.empty(4, a.shape[1], dtype=torch.float32, device=a.device)
        return [*(torch.empty_like(a) for _ in range(3)), dfirst, *(torch.empty_like(m) for _ in range(3))]

    def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[1])

    def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
        da, db, dv, dfirst, *matrices = _attend_backward(grad.contiguous(), *ctx.saved_tensors)
        return None, None, da, db, dv, dfirst[:3].T.contiguous(), dfirst[3], *matrices

    _attend.register_autograd(_backward, setup_context=_save_for_backward)


def fused_vector_attention(
    points: Float[Tensor, "R 3"],
    index: Int[Tensor, "R K"],
    a: Float[Tensor, "R C"],
    b: Float[Tensor, "R C"],
    v: Float[Tensor, "R C"],
    first: Float[Tensor, "C 3"],
    bias: Float[Tensor, " C"],
    m: Float[Tensor, "C C"],
    second: Float[Tensor, "C C"],
    fourth: Float[Tensor, "C C"],
) -> Float[Tensor, "R C"]:
    """Return y of every row (formulas above); a neighbour of -1 is none. Differentiable once, but not in `points`."""
    kind = a.dtype
    layers = (first.float(), bias.float(), m.to(kind), second.to(kind), fourth.to(kind))
    tensors = (points.float(), index, a, b.to(kind), v.to(kind), *layers)
    out: Tensor = _attend(*(x.contiguous() for x in tensors))[0]
    return out
