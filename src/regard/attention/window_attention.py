"""Attention within windows of a grid: every cell looks at the cells of its own window, and windows may be shifted.

    everywhere     o_n = Σ_m softmax_m(s q_n·k_m + b) v_m      m: all Y X cells                      O((Y X)² D)
    in windows                                                 m: the N cells of n's window          O(Y X N D)

The grid is shifted up and left before it is cut (cyclically, so the number of windows stays the same) and back
afterwards; cells that were no neighbours before do not see one another. Cells at or beyond `real` are padding: no key,
and their own output is zero. Two backends of one signature: written out (`plain`), and a fused kernel for CUDA that
reads the windows where they lie (`triton`), for windows of up to 64 cells.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030; cosine attention: Liu et al.: Swin Transformer V2. CVPR 2022.
arXiv:2111.09883
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from einops import rearrange

from regard.attention.masked_softmax import masked_softmax, upcast
from regard.core.errors import BadInput, UnknownName, Unsupported, did_you_mean
from regard.core.shapes import Bool, Float, Pair, Tensor

Backend = Callable[[Tensor, "Tensor | None", Pair, Pair, Pair, "Tensor | float", bool], Tensor]

MAX_WINDOW_CELLS, MAX_HEAD_DIM = 64, 64  # of the kernel: of a window, of a head
KERNEL_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
HAS_TRITON = find_spec("triton") is not None  # PyTorch for CPUs comes without it


def window_attention(
    q: Float[Tensor, "B Y X H D"],
    k: Float[Tensor, "B Y X H D"],
    v: Float[Tensor, "B Y X H D"],
    bias: Float[Tensor, "H N N"] | None,
    *,
    window: Pair,
    shift: Pair,
    real: Pair,
    scale: Float[Tensor, " H"] | float,
    backend: str = "eager",
) -> Float[Tensor, "B Y X H D"]:
    """Softmax attention within windows, q, k and v apart; those that come out of one product are better left in it."""
    qkv = torch.stack((q, k, v), 3)
    return window_attention_qkv(qkv, bias, window=window, shift=shift, real=real, scale=scale, backend=backend)


def window_attention_qkv(
    qkv: Float[Tensor, "B Y X 3 H D"],
    bias: Float[Tensor, "H N N"] | None,
    *,
    window: Pair,
    shift: Pair,
    real: Pair,
    scale: Float[Tensor, " H"] | float,
    cosine: bool = False,
    backend: str = "eager",
) -> Float[Tensor, "B Y X H D"]:
    """The same of one tensor (or a permuted view of it), as one product gives it: nothing has to be copied.

    With `bits_to_unit`, queries and keys are brought to length one first (cosine attention). Y and X need not be multiples of
    the window: what is missing is padding.
    """
    if backend not in BACKENDS:
        raise UnknownName(f"no backend of windowed attention is called '{backend}'; {did_you_mean(backend, BACKENDS)}")
    rows, columns, cells = qkv.shape[1], qkv.shape[2], window[0] * window[1]
    if not (0 < real[0] <= rows and 0 < real[1] <= columns):
        raise BadInput(f"real={real} must lie within the grid of {rows} x {columns}")
    if not all(0 <= s < w for s, w in zip(shift, window, strict=True)):
        raise BadInput(f"a shift must be less than the window: shift {shift}, window {window}")
    if bias is not None and bias.shape != (qkv.shape[4], cells, cells):
        raise BadInput(f"a bias of {tuple(bias.shape)} was given to {qkv.shape[4]} heads and windows of {cells} cells")
    return BACKENDS[backend](qkv, bias, window, shift, real, scale, cosine)


def eager(
    qkv: Tensor, bias: Tensor | None, window: Pair, shift: Pair, real: Pair, scale: Tensor | float, cosine: bool
) -> Tensor:
    """The formula written out: the twin that the kernel is tested against."""
    rows, columns = qkv.shape[1], qkv.shape[2]
    below, right = -rows % window[0], -columns % window[1]
    padded_grid = rows + below, columns + right
    padded = F.pad(qkv, (0, 0) * 3 + (0, right, 0, below)).roll((-shift[0], -shift[1]), (1, 2))
    form = "B (y wy) (x wx) three H D -> three (B y x) H (wy wx) D"
    q, k, v = rearrange(padded, form, wy=window[0], wx=window[1])
    if cosine:
        q, k = (F.normalize(upcast(x), dim=-1).to(v.dtype) for x in (q, k))
    each = scale[:, None, None] if isinstance(scale, Tensor) else scale
    scores = upcast(q @ k.mT) * each
    scores = scores if bias is None else scores + bias
    allowed = _window_mask(padded_grid, window, shift, real, qkv.device)
    if allowed is not None:
        allowed = allowed.repeat(qkv.shape[0], 1, 1)[:, None]  # (B nW) 1 N N
    out = masked_softmax(scores, allowed).to(v.dtype) @ v
    back = "(B y x) H (wy wx) D -> B (y wy) (x wx) H D"
    out = rearrange(out, back, B=qkv.shape[0], y=padded_grid[0] // window[0], wy=window[0], wx=window[1])
    out = out.roll(shift, (1, 2))[:, : real[0], : real[1]]
    return F.pad(out, (0, 0, 0, 0, 0, columns - real[1], 0, rows - real[0]))


def triton(
    qkv: Tensor, bias: Tensor | None, window: Pair, shift: Pair, real: Pair, scale: Tensor | float, cosine: bool
) -> Tensor:
    """One fused kernel."""
    if not kernel_supports(qkv, window):
        raise Unsupported(
            f"the kernel for windows takes up to {MAX_WINDOW_CELLS} cells, heads of up to {MAX_HEAD_DIM}, in float32, bfloat16 "
            f"or float16 on CUDA; here: {window[0]} x {window[1]} cells, heads of {qkv.shape[-1]}, {qkv.dtype} on "
            f"{qkv.device.type}; use backend='eager'"
        )
    from regard.attention.window_attention_triton import (
        fused_window_attention,  # and with it PyTorch's compiler, which nothing else here needs
    )

    return fused_window_attention(qkv, bias, window, shift, real, scale, cosine)


BACKENDS: dict[str, Backend] = {"eager": eager, "triton": triton}


def kernel_supports(qkv: Float[Tensor, "B Y X 3 H D"], window: Pair) -> bool:
    """Whether the kernel can take these numbers."""
    here = qkv.is_cuda or is_triton_interpreted()
    return here and is_kernel_available(window[0] * window[1], qkv.shape[-1], qkv.dtype)


def is_triton_interpreted() -> bool:
    """Whether Triton's interpreter stands in for a GPU, as it does in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_kernel_available(cells: int, width: int, dtype: torch.dtype) -> bool:
    """Whether the kernel is made for windows of so many cells, heads of this width and numbers of this type."""
    return HAS_TRITON and cells <= MAX_WINDOW_CELLS and width <= MAX_HEAD_DIM and dtype in KERNEL_DTYPES


def _window_mask(
    padded_grid: Pair, window: Pair, shift: Pair, real: Pair, device: torch.device
) -> Bool[Tensor, "nW N N"] | None:
    """Which keys each query of each window may see; None: all of them."""
    if real == padded_grid and not any(shift):
        return None
    y, x = torch.arange(padded_grid[0], device=device), torch.arange(padded_grid[1], device=device)
    y, x = (y + shift[0])[:, None], (x + shift[1])[None]
    side = 2 * (y >= padded_grid[0]) + (
        x >= padded_grid[1]
    )  # of the seams that the shift brought into the last windows
    there = (y % padded_grid[0] < real[0]) & (x % padded_grid[1] < real[1])
    side, there = (
        rearrange(each, "(y wy) (x wx) -> (y x) (wy wx)", wy=window[0], wx=window[1]) for each in (side, there)
    )
    return (side[:, :, None] == side[:, None, :]) & there[:, None, :]
