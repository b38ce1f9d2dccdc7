"""Attention within windows of a grid: every cell looks at the cells of its own window, and at no other.

    everywhere    all Y X cells see one another                       O((Y X)² C)
    windowed      the N cells of a window see one another             O(Y X N C)
    shifted       the same, of a grid that was turned by half a window: what was a border lies inside one now

The grid is filled up to whole windows. What becomes of the padding is the user's choice:

    mask       it is no key; the cells there are see each other as if the window had been smaller
    attend     it is a key like any other, its value the bias of the projection; as the authors' and transformers' Swin
    shifted    the same, but put in after the turn; as timm's, where the padding lies in another place

`Windowed` is Swin's mixer; `CosineWindowAttention`, of Swin v2, compares directions of q and k only.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030; Swin Transformer V2. CVPR 2022. arXiv:2111.09883
"""

from __future__ import annotations

from math import log
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import Mask
from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms import MECHANISMS
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.attention.joins import OutputProjection
from regard.attention.projections import QKVProjection
from regard.attention.window_attention import is_kernel_available, window_attention_qkv
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState
from regard.core.positions import TensorBias
from regard.core.shapes import Float, Int, Pair, Tensor
from regard.core.spec import build_part
from regard.core.trace import Geometry, Slots
from regard.positions.bias.window import WindowBias
from regard.tokens.windows import padded_size, shift_regions, window_partition, window_reverse

Padding = Literal["mask", "attend", "shifted"]


class WindowAttention(nn.Module):
    """A grid B Y X C in and out; positions give the bias between the cells of a window, and with it the window."""

    def __init__(
        self,
        width: int,
        heads: int,
        positions: WindowBias,
        shifted: bool = False,
        *,
        attention: Any = "softmax",
        dropout: float = 0.0,
        padding: Padding = "mask",
    ) -> None:
        super().__init__()
        if width % heads:
            raise RegardError(f"{heads} heads must divide the width {width}")
        self.window, self.shifted, self.padding = positions.window, shifted, padding
        self.project = self.projection(width, heads)
        self.positions = positions
        self.attend = build_part(MECHANISMS, attention, "attention", dropout=dropout, scale=self.scale)
        self.join = OutputProjection(width)

    scale: float | None = None  # of the scores that the mechanism is given; None: 1/√D
    cosine = False  # whether q and k are of length one

    @staticmethod
    def projection(width: int, heads: int) -> QKVProjection:
        """What makes q, k and v."""
        return QKVProjection(width, heads)

    def forward(
        self,
        x: Float[Tensor, "B Y X C"],
        context: None = None,
        mask: None = None,
        positions: None = None,
        layer_state: LayerState | None = None,
    ) -> Float[Tensor, "B Y X C"]:
        """Every cell mixed with those of its window; who sees whom and where they are is the windows' affair."""
        if self._uses_kernel(x):
            return self.fused(x)
        real, shift = (x.shape[1], x.shape[2]), self.shift(x)
        x = self.pad_to_windows(x, shift)
        grid = (x.shape[1], x.shape[2])
        q, k, v = self.project(window_partition(x, self.window, shift))  # (B G) H N D
        groups = shift_regions(grid, self.window, shift, real if self.padding == "mask" else grid, x.device)
        region_mask = None if groups is None else RegionMask(groups)
        mixed = self.join(
            self.attend(q, k, v, region_mask, TensorBias(self.positions()[None]), layer_state=layer_state)
        )
        return self.crop(window_reverse(mixed, grid, self.window, shift), shift, real)

    def fused(self, x: Float[Tensor, "B Y X C"], backend: str = "triton") -> Float[Tensor, "B Y X C"]:
        """The same where the windows are read in their places: nothing is cut, turned or joined."""
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
        """q, k and v of every cell, head by head."""
        out: Tensor = self.project.qkv(x)
        return out

    def scales(self) -> Float[Tensor, " H"] | float:
        """What scores are multiplied with."""
        return self.project.head_dim**-0.5

    def _uses_kernel(self, x: Tensor) -> bool:
        """On a GPU, where there is a kernel for it."""
        return (
            x.is_cuda
            and self.can_fuse()
            and is_kernel_available(self.window[0] * self.window[1], self.project.head_dim, x.dtype)
        )

    def can_fuse(self) -> bool:
        """Softmax with the scale and the backend that it has unasked, that nobody watches and that drops nothing: what
        the kernel computes, which has no weights to show, and none to drop."""
        attend = self.attend
        if type(attend) is not SoftmaxAttention or (attend.scale, attend.backend) != (self.scale, "sdpa"):
            return False
        return not attend._forward_pre_hooks and not (attend.dropout > 0 and attend.training)

    def geometry(self, x: Float[Tensor, "B Y X C"]) -> Geometry:
        """Which cells of the grid the windows hold, in the order they are attended to in; exact."""
        real, shift = (x.shape[1], x.shape[2]), self.shift(x)
        cells = torch.arange(1, real[0] * real[1] + 1, device=x.device).view(1, *real, 1)
        slots = Slots(
            window_partition(self.pad_to_windows(cells, shift), self.window, shift)[None] - 1, real
        )  # padding was 0
        return Geometry(slots, slots)

    def shift(self, x: Tensor) -> Pair:
        """How far the grid is turned; not at all along a side that is no longer than a window."""
        if not self.shifted:
            return 0, 0
        down, right = (w // 2 if size > w else 0 for size, w in zip(x.shape[1:3], self.window, strict=True))
        return down, right

    def pad_to_windows(self, x: Tensor, shift: Pair) -> Tensor:
        """The grid with zeros below and at the right, to whole windows."""
        size = (x.shape[1], x.shape[2])
        grid = padded_size(size, self.window)
        if grid == size:
            return x
        late = self.padding == "shifted" and any(shift)
        x = x.roll((-shift[0], -shift[1]), (1, 2)) if late else x
        x = F.pad(x, (0, 0, 0, grid[1] - size[1], 0, grid[0] - size[0]))
        return x.roll(shift, (1, 2)) if late else x

    def crop(self, x: Tensor, shift: Pair, real: Pair) -> Tensor:
        """The grid without its padding."""
        if real == (x.shape[1], x.shape[2]):
            return x
        if self.padding == "shifted" and any(shift):
            x = x.roll((-shift[0], -shift[1]), (1, 2))[:, : real[0], : real[1]]
            return x.roll(shift, (1, 2))
        return x[:, : real[0], : real[1]]

    def extra_repr(self) -> str:
        """What a printed model shows."""
        return f"window={self.window}, shifted={self.shifted}, padding={self.padding}"


class CosineWindowAttention(WindowAttention):
    """Scores are the cosine of q and k, times a learned number for each head: at most 100."""

    scale, cosine = 1.0, True  # the projection scales
    project: CosineQKVProjection

    @staticmethod
    def projection(width: int, heads: int) -> QKVProjection:
        """What makes q, k and v."""
        return CosineQKVProjection(width, heads)

    def project_qkv(self, x: Float[Tensor, "B Y X C"]) -> Float[Tensor, "B Y X D"]:
        """q, k and v of every cell, head by head, of any length."""
        return self.project.project_qkv(x)

    def scales(self) -> Float[Tensor, " H"] | float:
        """What scores are multiplied with."""
        return self.project.scale()


class CosineQKVProjection(QKVProjection):
    """x -> q, k, v, with q and k of length one and q then scaled; keys have no bias."""

    reads_weights = True  # the matrix is multiplied together with a bias made here (runtime.inference)

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads, bias=False)
        self.bias = nn.Parameter(torch.zeros(2 * width))  # of q and v, head by head
        self.log_scale = nn.Parameter(torch.full((heads,), log(10.0)))

    def forward(self, x: Float[Tensor, "B N C"]) -> tuple[Tensor, Tensor, Tensor]:
        """All three at once."""
        q, k, v = self.project_qkv(x).unflatten(-1, (-1, 3, self.head_dim)).unbind(3)  # B N H D
        q, k = (F.normalize(upcast(each), dim=-1) for each in (q, k))  # in float16 the key of padding is 0 / 0
        q, k = (q * self.scale()[:, None]).to(v.dtype), k.to(v.dtype)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def project_qkv(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B D"]:
        """q, k and v in one product, neither normed nor scaled."""
        q, v = self.bias.unflatten(0, (-1, 2, self.head_dim)).unbind(1)
        return F.linear(x, self.qkv.weight, torch.stack([q, torch.zeros_like(q), v], 1).flatten())

    def scale(self) -> Float[Tensor, " H"]:
        """What each head multiplies a cosine with."""
        return self.log_scale.clamp(max=log(100.0)).exp()


class RegionMask(Mask):
    """Cells of the same region of a window; inputs are windows, those of one image one after another."""

    batched = True

    def __init__(self, region: Int[Tensor, "G N"]) -> None:
        self.region = region

    def allow(self, b: Tensor, n: Tensor, m: Tensor) -> Tensor:
        """Equal regions."""
        own = b % len(self.region)
        return self.region[own, n] == self.region[own, m]

    def sdpa(
        self, batch: int, n: int, m: int, dtype: torch.dtype, device: torch.device, bias: Tensor | None = None
    ) -> dict[str, Any]:
        """Made for the windows of one image, and repeated for the others."""
        region_mask = (self.region[:, :, None] == self.region[:, None])[:, None]
        added = torch.zeros((), dtype=dtype, device=device) if bias is None else bias.to(dtype)
        added = torch.where(region_mask, added, float("-inf"))  # G H N N
        return {"attn_mask": added.repeat(batch // len(added), 1, 1, 1)}

    def __repr__(self) -> str:
        return f"RegionMask({tuple(self.region.shape)})"
