"""Window attention: every cell of a grid attends to the cells of its own window; windows may be shifted.

    global      o_n = Σ_m softmax_m(s q_n·k_m + b) v_m      m: all Y X cells                      O((Y X)² D)
    windows                                                 m: the N cells of n's window          O(Y X N D)

    partition   B Y X ... -> (B G) N ...   G windows of N = wy wx cells, row by row; `window_reverse` undoes it
    shift       before it the grid is rolled by (sy, sx) cells, up and to the left, so that windows cross the borders of
                the unshifted ones; afterwards it is rolled back
    regions     cells of a window that were neighbours before the roll: only those may attend to each other

`WindowAttention` is Swin's mixer, `CosineWindowAttention` that of Swin v2. On a GPU they use one fused kernel that
reads windows in place (window_attention_triton), for windows of up to 64 cells; its reference is the backend "eager".
Every function of the partition is plain indexing, so cell indices are partitioned by the same code as tokens: that
gives the geometry of a map.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030; cosine attention: Liu et al.: Swin Transformer V2. CVPR 2022.
arXiv:2111.09883
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from math import log
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.joins.concat import OutputProjection
from regard.attention.mask import Mask
from regard.attention.masked_softmax import masked_softmax, upcast
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.projections import QKVProjection
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported, did_you_mean
from regard.core.layer_state import LayerState
from regard.core.positions import TensorBias
from regard.core.shapes import Float, Int, Pair, Tensor
from regard.core.spec import build_part
from regard.core.trace import Geometry, Slots

Backend = Callable[[Tensor, "Tensor | None", Pair, Pair, Pair, "Tensor | float", bool], Tensor]
Padding = Literal["mask", "attend", "shifted"]

MAX_WINDOW_CELLS, MAX_HEAD_DIM = 64, 64  # of the kernel
KERNEL_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
HAS_TRITON = find_spec("triton") is not None  # PyTorch for CPUs comes without it


# -- partition ---------------------------------------------------------------------------------------------------------


def padded_size(size: Pair, window: Pair) -> Pair:
    """Return the size of the smallest grid of whole windows that contains a grid of this size."""
    return -(-size[0] // window[0]) * window[0], -(-size[1] // window[1]) * window[1]


def window_partition(x: Tensor, window: Pair, shift: Pair = (0, 0)) -> Tensor:
    """Partition a grid B Y X ... of whole windows into sequences (B G) N ..., the windows of one input adjacent."""
    if any(shift):
        x = x.roll((-shift[0], -shift[1]), (1, 2))
    b, y, x_, *rest = x.shape
    x = x.view(b, y // window[0], window[0], x_ // window[1], window[1], *rest)
    return x.transpose(2, 3).reshape(-1, window[0] * window[1], *rest)


def window_reverse(windows: Tensor, grid: Pair, window: Pair, shift: Pair = (0, 0)) -> Tensor:
    """Put sequences (B G) N ... back on their grid B Y X ..."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    x = windows.view(-1, rows, columns, *window, *windows.shape[2:]).transpose(2, 3)
    x = x.reshape(-1, *grid, *windows.shape[2:])
    return x.roll(shift, (1, 2)) if any(shift) else x


def shift_regions(grid: Pair, window: Pair, shift: Pair, real: Pair, device: torch.device) -> Int[Tensor, "G N"] | None:
    """Return a number for each cell of each window, equal where cells may attend to each other; -1 is padding.

    `real` is the size without padding. None: no shift and no padding, so all cells of a window attend to each other.
    """
    if not any(shift) and real == grid:
        return None
    y, x = (torch.arange(n, device=device) for n in grid)
    # the first `shift` rows are rolled to the other side, where they are no neighbours of the last ones
    number = (y < shift[0]).long()[:, None] * 2 + (x < shift[1]).long()
    number = torch.where((y < real[0])[:, None] & (x < real[1]), number, -1)
    return window_partition(number[None, ..., None], window, shift)[..., 0]


class RegionMask(Mask):
    """Cells of the same region of a window (`shift_regions`) see each other; the batch is windows, image by image."""

    batched = True

    def __init__(self, region: Int[Tensor, "G N"]) -> None:
        self.region = region

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        own = b % len(self.region)
        return self.region[own, n] == self.region[own, m]

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        """Compute the mask for the windows of one image and repeat it for the others."""
        region_mask = (self.region[:, :, None] == self.region[:, None])[:, None]
        added = torch.zeros((), dtype=dtype, device=device) if bias is None else bias.to(dtype)
        added = torch.where(region_mask, added, float("-inf"))  # G H N N
        return {"attn_mask": added.repeat(batch // len(added), 1, 1, 1)}

    def __repr__(self) -> str:
        return f"RegionMask({tuple(self.region.shape)})"


# -- mixers ------------------------------------------------------------------------------------------------------------


class WindowAttention(nn.Module):
    """The mixer of Swin: a grid B Y X C in and out.

    `positions` gives the bias H N N between the cells of a window and has its size (`window`). The grid is padded to
    whole windows; `padding` says how:

        mask      padding is no key: cells attend as if the window were smaller
        attend    padding is a key like any other, with the projection's bias as its value (transformers' Swin)
        shifted   the same, but padded after the shift, so that the padding lies elsewhere (timm's Swin)
    """

    def __init__(
        self,
        width: int,
        heads: int,
        positions: Any,
        shifted: bool = False,
        *,
        attention: Any = "softmax",
        dropout: float = 0.0,
        padding: Padding = "mask",
    ) -> None:
        super().__init__()
        if width % heads:
            raise RegardError(f"width {width} is not divisible by {heads} heads; change one of them")
        self.window, self.shifted, self.padding = positions.window, shifted, padding
        self.project = self.projection(width, heads)
        self.positions = positions
        sizes = {"width": width, "heads": heads, "kv_heads": heads, "head_dim": width // heads}
        self.attend = build_part(MECHANISMS, attention, "attention", **sizes, dropout=dropout, scale=self.scale)
        self.join = OutputProjection(width)

    scale: float | None = None  # of the scores; None: 1/√D
    cosine = False  # whether q and k are normalised

    @staticmethod
    def projection(width: int, heads: int) -> QKVProjection:
        return QKVProjection(width, heads)

    def forward(
        self,
        x: Float[Tensor, "B Y X C"],
        context: None = None,
        mask: None = None,
        positions: None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B Y X C"]:
        """Mix every cell with those of its window; mask and positions are those of the windows."""
        real, shift = (x.shape[1], x.shape[2]), self.shift(x)
        if self._uses_kernel(x):
            if self.attend._forward_pre_hooks:
                self._call_observers(x, shift, layer_state)
            return self.fused(x)
        grid = padded_size(real, self.window)
        mixed = self.join(self.attend(*self._windows(x, shift), layer_state=layer_state))
        return self.crop(window_reverse(mixed, grid, self.window, shift), shift, real)

    def _windows(self, x: Float[Tensor, "B Y X C"], shift: Pair) -> tuple[Any, ...]:
        """Return what the mechanism attends with: q, k, v of the windows, (B G) H N D, their mask and bias."""
        real, x = (x.shape[1], x.shape[2]), self.pad_to_windows(x, shift)
        grid = (x.shape[1], x.shape[2])
        q, k, v = self.project(window_partition(x, self.window, shift))
        regions = shift_regions(grid, self.window, shift, real if self.padding == "mask" else grid, x.device)
        return q, k, v, None if regions is None else RegionMask(regions), TensorBias(self.positions()[None])

    @torch.no_grad()
    def _call_observers(self, x: Float[Tensor, "B Y X C"], shift: Pair, layer_state: LayerState | None) -> None:
        """Show observers what the mechanism would attend with; the output comes from the kernel, as without them."""
        windows = self._windows(x, shift)
        for hook in self.attend._forward_pre_hooks.values():
            hook(self.attend, windows, {"layer_state": layer_state})

    def fused(self, x: Float[Tensor, "B Y X C"], backend: str = "triton") -> Float[Tensor, "B Y X C"]:
        """Do the same with one kernel that reads windows in place: nothing is rolled, partitioned or reversed."""
        real, shift = (x.shape[1], x.shape[2]), self.shift(x)
        x = x if self.padding == "mask" else self.pad_to_windows(x, shift)
        qkv = self.project_qkv(x).unflatten(-1, (-1, 3, self.project.head_dim)).transpose(3, 4)  # B Y X 3 H D
        mixed = window_attention_qkv(
            qkv,
            self.positions(),
            window=self.window,
            shift=shift,
            real=(x.shape[1], x.shape[2]),
            scale=self.scales(),
            cosine=self.cosine,
            backend=backend,
        )
        return self.crop(self.join.out(mixed.flatten(3)), shift, real)

    def project_qkv(self, x: Float[Tensor, "B Y X C"]) -> Float[Tensor, "B Y X D"]:
        """Return q, k and v of every cell, head by head."""
        out: Tensor = self.project.qkv(x)
        return out

    def scales(self) -> Float[Tensor, " H"] | float:
        """Return the factor of the scores."""
        return self.project.head_dim**-0.5

    def _uses_kernel(self, x: Tensor) -> bool:
        return (
            x.is_cuda
            and self.can_fuse()
            and is_kernel_available(self.window[0] * self.window[1], self.project.head_dim, x.dtype)
        )

    def can_fuse(self) -> bool:
        """Whether the kernel computes the same: softmax with default scale and backend, no dropout.

        Hooks must not need more than the mechanism's inputs (`only_observes`, which `watch` says of its own).
        """
        attend = self.attend
        if type(attend) is not SoftmaxAttention or (attend.scale, attend.backend) != (self.scale, "sdpa"):
            return False
        if not all(getattr(hook, "only_observes", False) for hook in attend._forward_pre_hooks.values()):
            return False
        return not attend._forward_hooks and not (attend.dropout > 0 and attend.training)

    def geometry(self, x: Float[Tensor, "B Y X C"]) -> Geometry:
        """Return the cells of each window, in the order in which they are attended to; exact."""
        real, shift = (x.shape[1], x.shape[2]), self.shift(x)
        cells = torch.arange(1, real[0] * real[1] + 1, device=x.device).view(1, *real, 1)
        slots = Slots(
            window_partition(self.pad_to_windows(cells, shift), self.window, shift)[None] - 1, real
        )  # padding was 0
        return Geometry(slots, slots)

    def shift(self, x: Tensor) -> Pair:
        """Return the shift of a grid: none along a side that is no longer than a window."""
        if not self.shifted:
            return 0, 0
        down, right = (w // 2 if size > w else 0 for size, w in zip(x.shape[1:3], self.window, strict=True))
        return down, right

    def pad_to_windows(self, x: Tensor, shift: Pair) -> Tensor:
        """Return the grid padded with zeros, below and at the right, to whole windows."""
        size = (x.shape[1], x.shape[2])
        grid = padded_size(size, self.window)
        if grid == size:
            return x
        late = self.padding == "shifted" and any(shift)
        x = x.roll((-shift[0], -shift[1]), (1, 2)) if late else x
        x = F.pad(x, (0, 0, 0, grid[1] - size[1], 0, grid[0] - size[0]))
        return x.roll(shift, (1, 2)) if late else x

    def crop(self, x: Tensor, shift: Pair, real: Pair) -> Tensor:
        """Return the grid without its padding."""
        if real == (x.shape[1], x.shape[2]):
            return x
        if self.padding == "shifted" and any(shift):
            x = x.roll((-shift[0], -shift[1]), (1, 2))[:, : real[0], : real[1]]
            return x.roll(shift, (1, 2))
        return x[:, : real[0], : real[1]]

    def extra_repr(self) -> str:
        return f"window={self.window}, shifted={self.shifted}, padding={self.padding}"


class CosineWindowAttention(WindowAttention):
    """The mixer of Swin v2: scores are the cosine of q and k, times a learned factor of each head, at most 100."""

    scale, cosine = 1.0, True  # the projection scales
    project: CosineQKVProjection

    @staticmethod
    def projection(width: int, heads: int) -> QKVProjection:
        return CosineQKVProjection(width, heads)

    def project_qkv(self, x: Float[Tensor, "B Y X C"]) -> Float[Tensor, "B Y X D"]:
        """Return q, k and v of every cell, head by head, not normalised."""
        return self.project.project_qkv(x)

    def scales(self) -> Float[Tensor, " H"] | float:
        """Return the factor of the scores."""
        return self.project.scale()


class CosineQKVProjection(QKVProjection):
    """Project x to q, k and v, with q and k normalised and q scaled; keys have no bias."""

    reads_weights = True  # its matrix is used together with a bias made here (runtime.inference)

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, bias=False)
        self.bias = nn.Parameter(torch.zeros(2 * width))  # of q and v, head by head
        self.log_scale = nn.Parameter(torch.full((heads,), log(10.0)))

    def forward(self, x: Float[Tensor, "B N C"], qk_positions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        if qk_positions is not None:
            raise Unsupported("cosine window attention takes no position vectors; its positions are a bias")
        q, k, v = self.project_qkv(x).unflatten(-1, (-1, 3, self.head_dim)).unbind(3)  # B N H D
        q, k = (F.normalize(upcast(each), dim=-1) for each in (q, k))  # in float16 the key of padding would be 0 / 0
        q, k = (q * self.scale()[:, None]).to(v.dtype), k.to(v.dtype)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def project_qkv(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B D"]:
        """Return q, k and v in one product, neither normalised nor scaled."""
        q, v = self.bias.unflatten(0, (-1, 2, self.head_dim)).unbind(1)
        return F.linear(x, self.qkv.weight, torch.stack([q, torch.zeros_like(q), v], 1).flatten())

    def scale(self) -> Float[Tensor, " H"]:
        """Return the factor of each head."""
        return self.log_scale.clamp(max=log(100.0)).exp()


# -- the fused form ----------------------------------------------------------------------------------------------------


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
    """Apply softmax attention within windows to q, k and v in one tensor, which may be a permuted view.

    Cells at or beyond `real` are padding: no keys, and zero in the output; so is what Y and X lack to whole windows.
    With `cosine`, queries and keys are normalised first.
    """
    if backend not in BACKENDS:
        raise UnknownName(f"window attention has no backend '{backend}'; {did_you_mean(backend, BACKENDS)}")
    rows, columns, cells = qkv.shape[1], qkv.shape[2], window[0] * window[1]
    if not (0 < real[0] <= rows and 0 < real[1] <= columns):
        raise BadInput(f"real={real} must lie within the grid of {rows} x {columns}")
    if not all(0 <= s < w for s, w in zip(shift, window, strict=True)):
        raise BadInput(f"shift must be at least 0 and less than the window {window}, got {shift}")
    if bias is not None and bias.shape != (qkv.shape[4], cells, cells):
        raise BadInput(
            f"bias must have shape {(qkv.shape[4], cells, cells)} (heads, cells, cells), got {tuple(bias.shape)}"
        )
    return BACKENDS[backend](qkv, bias, window, shift, real, scale, cosine)


def eager(
    qkv: Tensor, bias: Tensor | None, window: Pair, shift: Pair, real: Pair, scale: Tensor | float, cosine: bool
) -> Tensor:
    """The formula written out: the reference implementation of the kernel."""
    rows, columns, cells = qkv.shape[1], qkv.shape[2], window[0] * window[1]
    grid = padded_size((rows, columns), window)
    padded = F.pad(qkv, (0, 0) * 3 + (0, grid[1] - columns, 0, grid[0] - rows))
    q, k, v = window_partition(padded, window, shift).permute(2, 0, 3, 1, 4)  # (B G) H N D
    if cosine:
        q, k = (F.normalize(upcast(x), dim=-1).to(v.dtype) for x in (q, k))
    scores = upcast(q @ k.mT) * (scale[:, None, None] if isinstance(scale, Tensor) else scale)
    scores = scores if bias is None else scores + bias
    regions = shift_regions(grid, window, shift, real, qkv.device)
    allowed = None if regions is None else RegionMask(regions).dense(len(scores), cells, cells, qkv.device)
    out = masked_softmax(scores, allowed).to(v.dtype) @ v
    out = window_reverse(out.transpose(1, 2), grid, window, shift)[:, : real[0], : real[1]]
    return F.pad(out, (0, 0, 0, 0, 0, columns - real[1], 0, rows - real[0]))


def triton(
    qkv: Tensor, bias: Tensor | None, window: Pair, shift: Pair, real: Pair, scale: Tensor | float, cosine: bool
) -> Tensor:
    """Run the fused kernel."""
    if not kernel_supports(qkv, window):
        raise Unsupported(
            f"the Triton kernel takes windows of up to {MAX_WINDOW_CELLS} cells and heads of up to {MAX_HEAD_DIM}, in "
            f"float32, bfloat16 or float16 on CUDA; got {window[0]} x {window[1]} cells, heads of {qkv.shape[-1]}, "
            f"{qkv.dtype} on {qkv.device.type}; use backend='eager'"
        )
    from regard.attention.window_attention_triton import fused_window_attention  # imports PyTorch's compiler

    return fused_window_attention(qkv, bias, window, shift, real, scale, cosine)


BACKENDS: dict[str, Backend] = {"eager": eager, "triton": triton}


def kernel_supports(qkv: Float[Tensor, "B Y X 3 H D"], window: Pair) -> bool:
    """Whether the kernel takes this tensor."""
    here = qkv.is_cuda or is_triton_interpreted()
    return here and is_kernel_available(window[0] * window[1], qkv.shape[-1], qkv.dtype)


def is_triton_interpreted() -> bool:
    """Whether Triton's interpreter replaces a GPU, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_kernel_available(cells: int, width: int, dtype: torch.dtype) -> bool:
    """Whether the kernel supports this number of cells, head width and dtype."""
    return HAS_TRITON and cells <= MAX_WINDOW_CELLS and width <= MAX_HEAD_DIM and dtype in KERNEL_DTYPES
