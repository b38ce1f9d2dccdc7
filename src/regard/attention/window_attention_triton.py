"""Window attention as one CUDA kernel, in Triton, that reads the cells of a window in place.

    eager       roll, partition, scores B nW H N N, + bias, + mask, softmax, values, reverse, roll: a memory pass each
    here        one pass: q, k, v of a window are read through shifted addresses, o is written through the same

The scores of a window fit into registers (N <= 64), so a program computes a whole softmax at once. It keeps the bias of
its head and processes many windows; the regions of a shifted window follow from comparing addresses, without a mask in
memory. The backward pass recomputes the scores from q and k; only the inputs are saved. The gradient of the bias is
summed over a program's windows in registers and over programs afterwards, always in the same order.

Memory traffic per window and head, in numbers: 4 N D forward, 7 N D backward. Products in the dtype of qkv (float32 as
three of tf32), everything else in float32.

Registering an operator made of Triton kernels imports PyTorch's compiler, which takes as long as importing PyTorch; so
this file is imported only when it runs (window_attention.py).

Dao et al.: FlashAttention. NeurIPS 2022. arXiv:2205.14135; Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, no_type_check

import torch

from regard.core.shapes import Float, Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for CPUs comes without it
    triton = None


@dataclass
class LaunchConfig:
    """The launch grid of a kernel."""

    programs: int  # in all; each processes its share of the windows
    warps: int
    stages: int


# From benchmarks/window_attention.py --sweep on an H200: forward is the fastest in every stage, backward in the first
# stage of Swin-T; in the others within the noise.
FORWARD, BACKWARD = LaunchConfig(programs=1056, warps=4, stages=3), LaunchConfig(programs=264, warps=4, stages=3)


if triton is not None:  # no_type_check: Triton compiles from the source and must not be wrapped

    @triton.jit
    @no_type_check
    def _cells(w, ny, nx, shift_y, shift_x, real_y, real_x, WY: tl.constexpr, WX: tl.constexpr, NP: tl.constexpr):
        """Return image, row and column of the cells of window w, which are real, and the region of each."""
        n = tl.arange(0, NP)
        y = (w // nx) % ny * WY + n // WX + shift_y
        x = w % nx * WX + n % WX + shift_x
        low, right = y >= ny * WY, x >= nx * WX
        y, x = tl.where(low, y - ny * WY, y), tl.where(right, x - nx * WX, x)
        real = (n < WY * WX) & (y < real_y) & (x < real_x)
        return (w // (nx * ny)).to(tl.int64), y, x, real, low.to(tl.int32) * 2 + right.to(tl.int32)

    @triton.jit
    @no_type_check
    def _factor(scale_at, scale, head, SCALED: tl.constexpr):
        """Return the scale of the scores in float32: compiled graphs pass numbers in float64."""
        factor = tl.load(scale_at + head).to(tl.float32) if SCALED else tl.cast(scale, tl.float32)
        return factor

    @triton.jit
    @no_type_check
    def _added(bias_at, head, N: tl.constexpr, NP: tl.constexpr, BIASED: tl.constexpr):
        """Return the bias of the head for base-2 scores; -inf in columns beyond the window."""
        n, m = tl.arange(0, NP)[:, None], tl.arange(0, NP)[None, :]
        added = tl.where(m < N, tl.zeros([NP, NP], tl.float32), float("-inf"))
        if BIASED:
            bias = tl.load(bias_at + (head * N + n) * N + m, mask=(n < N) & (m < N), other=0.0)
            added += bias.to(tl.float32) * 1.4426950408889634
        return added

    @triton.jit
    @no_type_check
    def _weights(products, factor, added, real, side, SHIFTED: tl.constexpr, PADDED: tl.constexpr):
        """Return the unnormalised softmax of the scores and its sum; 0 and 1 for a fully masked row."""
        scores = products * (factor * 1.4426950408889634) + added
        allowed = side[:, None] == side[None, :]
        if PADDED:
            allowed = allowed & real[None, :]
        if SHIFTED or PADDED:
            scores = tl.where(allowed, scores, -1e30)
        weights = tl.exp2(scores - tl.max(scores, 1)[:, None])
        if PADDED:
            weights = tl.where(allowed, weights, 0.0)
        total = tl.sum(weights, 1)
        return weights, tl.where(total > 0, total, 1.0)

    @triton.jit
    @no_type_check
    def _normalize(x):
        """Return the normalised rows and their factors."""
        wide = x.to(tl.float32)
        share = 1 / tl.maximum(tl.sqrt(tl.sum(wide * wide, 1)), 1e-12)
        return (wide * share[:, None]).to(x.dtype), share

    @triton.jit
    @no_type_check
    def _normalize_backward(grad_out, unit, share):
        """Return the gradient with respect to the rows before normalisation: without the component along them."""
        wide = unit.to(tl.float32)
        return (grad_out - wide * tl.sum(grad_out * wide, 1)[:, None]) * share[:, None]

    @triton.jit
    @no_type_check
    def _forward_kernel(
        qkv_at, out_at, bias_at, scale_at, scale, windows, slots, ny, nx, Y, X, shift_y, shift_x, real_y, real_x,
        step_b, step_y, step_x, step_part, step_h,
        H: tl.constexpr, D: tl.constexpr, WY: tl.constexpr, WX: tl.constexpr, NP: tl.constexpr, DP: tl.constexpr,
        BIASED: tl.constexpr, SCALED: tl.constexpr, UNIT: tl.constexpr, SHIFTED: tl.constexpr, PADDED: tl.constexpr,
        STAGES: tl.constexpr,
    ):  # fmt: skip
        head, slot = tl.program_id(0) % H, tl.program_id(0) // H
        n, d = tl.arange(0, NP), tl.arange(0, DP)
        added = _added(bias_at, head, WY * WX, NP, BIASED)
        factor = _factor(scale_at, scale, head, SCALED)
        qkv_at += head * step_h
        for w in tl.range(slot, windows, slots, num_stages=STAGES):
            b, y, x, real, side = _cells(w, ny, nx, shift_y, shift_x, real_y, real_x, WY, WX, NP)
            at = qkv_at + b * step_b + (y * step_y + x * step_x)[:, None] + d[None, :]
            in_bounds = real[:, None] & (d < D)[None, :]
            q = tl.load(at, mask=in_bounds, other=0.0)
            k = tl.load(at + step_part, mask=in_bounds, other=0.0)
            v = tl.load(at + 2 * step_part, mask=in_bounds, other=0.0)
            if UNIT:
                q, _ = _normalize(q)
                k, _ = _normalize(k)
            products = tl.dot(q, tl.trans(k), input_precision="tf32x3")
            weights, total = _weights(products, factor, added, real, side, SHIFTED, PADDED)
            out = tl.dot(weights.to(v.dtype), v, input_precision="tf32x3") / total[:, None]
            stored = (n < WY * WX) & (y < Y) & (x < X)
            if PADDED:
                out = tl.where(real[:, None], out, 0.0)
            out_cells = out_at + b * (Y * X * H * D) + ((y * X + x) * (H * D) + head * D)[:, None] + d[None, :]
            tl.store(out_cells, out.to(out_at.dtype.element_ty), mask=stored[:, None] & (d < D)[None, :])

    @triton.jit
    @no_type_check
    def _backward_kernel(
        qkv_at, grad_at, dqkv_at, bias_at, dbias_at, scale_at, dscale_at, scale, windows, slots,
        ny, nx, Y, X, shift_y, shift_x, real_y, real_x,
        step_b, step_y, step_x, step_part, step_h, to_b, to_y, to_x, to_part, to_h,
        H: tl.constexpr, D: tl.constexpr, WY: tl.constexpr, WX: tl.constexpr, NP: tl.constexpr, DP: tl.constexpr,
        BIASED: tl.constexpr, SCALED: tl.constexpr, UNIT: tl.constexpr, SHIFTED: tl.constexpr, PADDED: tl.constexpr,
        STAGES: tl.constexpr,
    ):  # fmt: skip
        head, slot = tl.program_id(0) % H, tl.program_id(0) // H
        n, d = tl.arange(0, NP), tl.arange(0, DP)
        N: tl.constexpr = WY * WX
        added = _added(bias_at, head, N, NP, BIASED)
        factor = _factor(scale_at, scale, head, SCALED)
        dbias = tl.zeros([NP, NP], tl.float32)
        dscale = tl.zeros([NP], tl.float32)
        qkv_at += head * step_h
        dqkv_at += head * to_h
        for w in tl.range(slot, windows, slots, num_stages=STAGES):
            b, y, x, real, side = _cells(w, ny, nx, shift_y, shift_x, real_y, real_x, WY, WX, NP)
            at = qkv_at + b * step_b + (y * step_y + x * step_x)[:, None] + d[None, :]
            in_bounds = real[:, None] & (d < D)[None, :]
            q = tl.load(at, mask=in_bounds, other=0.0)
            k = tl.load(at + step_part, mask=in_bounds, other=0.0)
            v = tl.load(at + 2 * step_part, mask=in_bounds, other=0.0)
            grad_cells = grad_at + b * (Y * X * H * D) + ((y * X + x) * (H * D) + head * D)[:, None] + d[None, :]
            grad_out = tl.load(grad_cells, mask=in_bounds, other=0.0).to(v.dtype)
            if UNIT:
                q, q_share = _normalize(q)
                k, k_share = _normalize(k)
            products = tl.dot(q, tl.trans(k), input_precision="tf32x3")
            weights, total = _weights(products, factor, added, real, side, SHIFTED, PADDED)
            weights = weights / total[:, None]
            by_weight = tl.dot(grad_out, tl.trans(v), input_precision="tf32x3")
            by_score = weights * (by_weight - tl.sum(weights * by_weight, 1)[:, None])
            if BIASED:
                dbias += by_score
            if SCALED:
                dscale += tl.sum(by_score * products, 1)
            near = by_score.to(v.dtype)
            dv = tl.dot(tl.trans(weights.to(v.dtype)), grad_out, input_precision="tf32x3")
            dq = tl.dot(near, k, input_precision="tf32x3") * factor
            dk = tl.dot(tl.trans(near), q, input_precision="tf32x3") * factor
            if UNIT:
                dq = _normalize_backward(dq, q, q_share)
                dk = _normalize_backward(dk, k, k_share)
            stored = ((n < N) & (y < Y) & (x < X))[:, None] & (d < D)[None, :]
            if PADDED:
                dq, dk = tl.where(real[:, None], dq, 0.0), tl.where(real[:, None], dk, 0.0)
                dv = tl.where(real[:, None], dv, 0.0)
            to = dqkv_at + b * to_b + (y * to_y + x * to_x)[:, None] + d[None, :]
            tl.store(to, dq.to(v.dtype), mask=stored)
            tl.store(to + to_part, dk.to(v.dtype), mask=stored)
            tl.store(to + 2 * to_part, dv.to(v.dtype), mask=stored)
        if BIASED:
            m = n[None, :]
            own = dbias_at + ((slot * H + head) * N + n[:, None]) * N + m
            tl.store(own, dbias, mask=(n[:, None] < N) & (m < N))
        if SCALED:
            tl.store(dscale_at + slot * H + head, tl.sum(dscale, 0))

    def _sizes(
        qkv: Tensor, wy: int, wx: int, sy: int, sx: int, ry: int, rx: int, launch: LaunchConfig
    ) -> dict[str, Any]:
        """Return the arguments that both kernels share."""
        batch, rows, columns, _, heads, width = qkv.shape
        ny, nx = -(-rows // wy), -(-columns // wx)
        windows, cells = batch * ny * nx, max(16, triton.next_power_of_2(wy * wx))
        # two sets of larger tiles would take more memory than some GPUs have
        small = qkv.element_size() == 2 and width <= 32
        return {
            "windows": windows, "slots": max(1, min(windows, launch.programs // heads)),
            "ny": ny, "nx": nx, "Y": rows, "X": columns,
            "shift_y": sy, "shift_x": sx, "real_y": ry, "real_x": rx,
            "H": heads, "D": width, "WY": wy, "WX": wx,
            "NP": cells, "DP": max(16, triton.next_power_of_2(width)),
            "SHIFTED": sy > 0 or sx > 0, "PADDED": (ry, rx) != (ny * wy, nx * wx),
            "STAGES": launch.stages if small else 1,
            "num_warps": min(launch.warps, cells // 16),  # a warp has 16 rows of scores
        }  # fmt: skip

    @torch.library.triton_op("regard::windows", mutates_args={})
    @no_type_check
    def _attend(
        qkv: Tensor, bias: Tensor | None, scales: Tensor | None, scale: float, cosine: bool,
        wy: int, wx: int, sy: int, sx: int, ry: int, rx: int,
    ) -> Tensor:  # fmt: skip
        batch, rows, columns, _, heads, width = qkv.shape
        out = torch.empty((batch, rows, columns, heads, width), dtype=qkv.dtype, device=qkv.device)
        sizes = _sizes(qkv, wy, wx, sy, sx, ry, rx, FORWARD)
        steps = dict(zip(("step_b", "step_y", "step_x", "step_part", "step_h"), qkv.stride()[:5], strict=True))
        torch.library.wrap_triton(_forward_kernel)[(sizes["slots"] * heads,)](
            qkv, out, qkv if bias is None else bias, qkv if scales is None else scales, scale,
            BIASED=bias is not None, SCALED=scales is not None, UNIT=cosine, **sizes, **steps,
        )  # fmt: skip
        return out

    @torch.library.triton_op("regard::windows_backward", mutates_args={})
    @no_type_check
    def _attend_backward(
        grad_out: Tensor, qkv: Tensor, bias: Tensor | None, scales: Tensor | None, scale: float, cosine: bool,
        wy: int, wx: int, sy: int, sx: int, ry: int, rx: int,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        heads, cells = qkv.shape[4], wy * wx
        dqkv = torch.empty_like(qkv)
        sizes = _sizes(qkv, wy, wx, sy, sx, ry, rx, BACKWARD)
        slots = sizes["slots"]
        parts = {"dtype": torch.float32, "device": qkv.device}
        dbias = torch.empty((slots if bias is not None else 0, heads, cells, cells), **parts)
        dscale = torch.empty((slots if scales is not None else 0, heads), **parts)
        names = ("b", "y", "x", "part", "h")
        steps = {f"step_{name}": step for name, step in zip(names, qkv.stride(), strict=False)}
        steps |= {f"to_{name}": step for name, step in zip(names, dqkv.stride(), strict=False)}
        torch.library.wrap_triton(_backward_kernel)[(slots * heads,)](
            qkv, grad_out, dqkv, grad_out if bias is None else bias, dbias,
            grad_out if scales is None else scales, dscale, scale,
            BIASED=bias is not None, SCALED=scales is not None, UNIT=cosine, **sizes, **steps,
        )  # fmt: skip
        return dqkv, dbias.sum(0), dscale.sum(0)

    def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        qkv, bias, scales, *ctx.rest = inputs
        ctx.save_for_backward(qkv, bias, scales)

    def _backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        qkv, bias, scales = ctx.saved_tensors
        dqkv, dbias, dscale = _attend_backward(grad_out.contiguous(), qkv, bias, scales, *ctx.rest)
        by_bias = None if bias is None else dbias.to(bias.dtype)
        by_scale = None if scales is None else dscale.to(scales.dtype)
        return (dqkv, by_bias, by_scale, *(None for _ in ctx.rest))

    _attend.register_autograd(_backward, setup_context=_save_for_backward)


def fused_window_attention(
    qkv: Float[Tensor, "B Y X 3 H D"],
    bias: Float[Tensor, "H N N"] | None,
    window: tuple[int, int],
    shift: tuple[int, int],
    real: tuple[int, int],
    scale: Float[Tensor, " H"] | float,
    cosine: bool,
) -> Float[Tensor, "B Y X H D"]:
    """Apply the kernel, differentiably; `qkv` may be a permuted view whose last axis is contiguous."""
    qkv = qkv if qkv.stride(-1) == 1 else qkv.contiguous()
    bias = None if bias is None else bias.contiguous()
    each, one = (scale.contiguous(), 1.0) if isinstance(scale, Tensor) else (None, float(scale))
    out: Tensor = _attend(qkv, bias, each, one, cosine, *window, *shift, *real)
    return out
