"""Pooled attention: queries, keys and values are pooled on their grid before they meet.

    multi-head    softmax(q kᵀ) v                                         N × M scores,  M = N
    pooled        softmax(P(q) P(k)ᵀ + bias) P(v)  (+ P(q))               N / s_q² × M / s_k² scores

Pooled keys make attention on a fine grid affordable, pooled queries make the grid coarser: a pyramid without layers
that only merge. P is a filter of 3 × 3 cells for each channel of a head, the same in all heads, and a norm; or the mean
of these cells. The way around is pooled by the maximum. MViTv2 adds the pooled queries to what they found.

A key made by a filter and a norm is no weighted mean of its cells, so `geometry` is its receptive field, each cell with
the share that the filter's weights have there; with the mean it is exact.

Fan et al.: Multiscale Vision Transformers. ICCV 2021. arXiv:2104.11227
Li et al.: MViTv2. CVPR 2022. arXiv:2112.01526
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mechanisms import MECHANISMS
from regard.blocks import POOLINGS
from regard.blocks.drop_path import DropPath
from regard.core.errors import RegardError
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import build_part
from regard.core.trace import Geometry, Slots, receptive_fields
from regard.positions.bias.decomposed import DecomposedPositions

Shape = tuple[int, ...]  # of a grid, (Y, X) or (T, Y, X), or a stride along each of its axes
EPS = 1e-6


class MultiScaleBlock(nn.Module):
    """Pooled attention, then feed-forward; the grid may become coarser in the first, the tokens wider in either."""

    def __init__(self, mix: PoolingAttention, out: int, drop_path: float) -> None:
        super().__init__()
        width, inner = mix.qkv.in_features, mix.out.out_features
        self.mix, self.mix_norm = mix, nn.LayerNorm(width, EPS)
        self.mix_skip = nn.Linear(width, inner) if width != inner else None
        self.feed, self.feed_norm = WideningFeedForward(inner, out), nn.LayerNorm(inner, EPS)
        self.feed_skip = nn.Linear(inner, out) if inner != out else None
        self.drop = DropPath(drop_path)

    def forward(self, x: Float[Tensor, "B N C"], shape: Shape) -> tuple[Float[Tensor, "B M E"], Shape]:
        """Tokens of a grid, after those that stand before it, and its shape; the same of what comes out."""
        y = self.mix_norm(x)
        skip = x if self.mix_skip is None else self.mix_skip(y)
        x = self.mix.pool_skip(skip, shape) + self.drop(self.mix(*split_prefix(y, shape)))
        y = self.feed_norm(x)
        skip = x if self.feed_skip is None else self.feed_skip(y)
        return skip + self.drop(self.feed(y)), self.mix.q_pool.shape(shape)


class PoolingAttention(nn.Module):
    """The mixer: a grid in, the tokens of a grid that is as fine or coarser out."""

    def __init__(
        self,
        width: int,
        out: int,
        heads: int,
        *,
        stride: Shape,
        kv_stride: Shape,
        pooling: str = "conv",
        max_grid: Shape | None = None,
        residual: str = "all",
        num_prefix: int = 0,
        attention: Any = "softmax",
    ) -> None:
        super().__init__()
        if out % heads:
            raise RegardError(f"{heads} heads must divide the width {out}")
        head_dim = out // heads
        self.residual, self.num_prefix = residual, num_prefix
        self.qkv = nn.Linear(width, 3 * out)
        # The first MViT leaves queries alone where the grid stays as it is; the second pools them everywhere.
        self.q_pool, self.k_pool, self.v_pool = (
            build_part(POOLINGS, pooling, "pooling", head_dim=head_dim, stride=each)
            for each in (stride, kv_stride, kv_stride)
        )
        if residual == "none" and prod(stride) == 1:
            self.q_pool = NoPooling(head_dim, stride)
        self.positions = None if max_grid is None else DecomposedPositions(head_dim, max_grid)
        self.attend = build_part(MECHANISMS, attention, "attention", scale=head_dim**-0.5)
        self.out = nn.Linear(out, out)

    def forward(self, x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None = None) -> Tensor:
        """The tokens B N E of the new grid, after those that stand before it."""
        shape = tuple(x.shape[1:-1])
        on_grid, before = self.qkv(x).chunk(3, -1), (None,) * 3 if prefix is None else self.qkv(prefix).chunk(3, -1)
        pools = (self.q_pool, self.k_pool, self.v_pool)
        q, k, v = (pool(*given).transpose(1, 2) for pool, *given in zip(pools, on_grid, before, strict=True))
        bias = None
        if self.positions is not None:
            bias = self.positions.bias(q, self.q_pool.shape(shape), self.k_pool.shape(shape))
        mixed = self.attend(q, k, v, bias=bias)
        if self.residual == "patches":
            q = F.pad(q[:, :, self.num_prefix :], (0, 0, self.num_prefix, 0))
        mixed = mixed if self.residual == "none" else mixed + q
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def pool_skip(self, x: Float[Tensor, "B N C"], shape: Shape) -> Float[Tensor, "B M C"]:
        """The way around: the largest of the cells that a token of the new grid stands for."""
        stride = self.q_pool.stride
        if prod(stride) == 1:
            return x
        cells, prefix = split_prefix(x, shape)
        kernel = _skip_kernel(stride)
        pool = F.max_pool2d if len(stride) == 2 else F.max_pool3d
        grid = pool(cells.movedim(-1, 1), kernel, stride, tuple(k // 2 for k in kernel)).movedim(1, -1)
        return join_prefix(grid, prefix)

    @property
    def exact_geometry(self) -> bool:
        """Whether the geometry is an identity; with filters it is a receptive field."""
        return bool(self.v_pool.exact)

    def geometry(self, x: Float[Tensor, "B *S C"]) -> Geometry:
        """Which cells each query writes and each key was made of; tokens before the grid are the first cells."""
        old = tuple(x.shape[1:-1])
        new = self.q_pool.shape(old)
        made, share = self.v_pool.cells(old, x.device)
        queries = torch.arange(prod(new), device=x.device)[:, None]
        skip = None
        if new != old:
            kernel = _skip_kernel(self.q_pool.stride)
            skip = self._slots(receptive_fields(old, kernel, self.q_pool.stride, x.device), None, old)
        return Geometry(self._slots(queries, None, new), self._slots(made, share, old), skip)

    def _slots(self, cells: Int[Tensor, "N P"], share: Float[Tensor, "N P"] | None, grid: Shape) -> Slots:
        if not self.num_prefix:
            return Slots(cells[None, None], grid, None if share is None else share[None, None])
        cells = torch.where(cells < 0, cells, cells + self.num_prefix)
        prefix = torch.full((self.num_prefix, cells.shape[1]), -1, device=cells.device)
        prefix[:, 0] = torch.arange(self.num_prefix, device=cells.device)
        if share is not None:
            share = torch.cat([share.new_ones(prefix.shape), share])[None, None]
        return Slots(torch.cat([prefix, cells])[None, None], (self.num_prefix + prod(grid),), share)


class WideningFeedForward(nn.Module):
    """A feed-forward layer four times as wide inside, whose way back may end in another width."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, out)

    def forward(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N E"]:
        """Each token on its own."""
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


# -- pooling: B *S (H D) and the tokens before the grid B P (H D) -> B N H D -------------------------------------------


class NoPooling(nn.Module):
    """Only the heads are told apart."""

    def __init__(self, head_dim: int, stride: Shape) -> None:
        super().__init__()
        self.head_dim, self.stride = head_dim, stride

    def forward(self, x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N H D"]:
        """The tokens before the grid, then the grid's."""
        return join_prefix(x, prefix).unflatten(-1, (-1, self.head_dim))

    def shape(self, shape: Shape) -> Shape:
        """The grid that comes out: a filter stands wherever a stride begins."""
        return tuple(-(-n // s) for n, s in zip(shape, self.stride, strict=True))


class MeanPooling(NoPooling):
    """The mean of 3 × 3 cells (in clips 3 × 3 × 3), of those that are there at the edge."""

    exact = True

    def forward(self, x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N H D"]:
        """Pooled tokens."""
        pool: Any = F.avg_pool2d if len(self.stride) == 2 else F.avg_pool3d
        pooled = pool(x.movedim(-1, 1), 3, self.stride, 1, count_include_pad=False)
        return super().forward(pooled.movedim(1, -1), prefix)

    def cells(self, shape: Shape, device: torch.device) -> tuple[Int[Tensor, "N P"], Float[Tensor, "N P"] | None]:
        """The cells that each token was made of, and their shares; None: the same for all."""
        return receptive_fields(shape, (3,) * len(shape), self.stride, device), None


class ConvPooling(NoPooling):
    """A filter of 3 × 3 cells (in clips 3 × 3 × 3) for each channel of a head, the same in all heads; then a norm."""

    exact = False

    def __init__(self, head_dim: int, stride: Shape) -> None:
        super().__init__(head_dim, stride)
        conv = nn.Conv2d if len(stride) == 2 else nn.Conv3d
        self.filter = conv(head_dim, head_dim, 3, stride, 1, groups=head_dim, bias=False)  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(head_dim, EPS)

    def forward(self, x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N H D"]:
        """Pooled tokens."""
        # Heads stay side by side as channels, each with a copy of the filter: tokens need not be moved in memory.
        heads, conv = x.shape[-1] // self.head_dim, F.conv2d if len(self.stride) == 2 else F.conv3d
        filters = self.filter.weight.repeat(heads, *(1,) * (self.filter.weight.ndim - 1))
        pooled = conv(x.movedim(-1, 1), filters, None, self.stride, 1, 1, x.shape[-1])
        out: Tensor = self.norm(super().forward(pooled.movedim(1, -1), prefix))
        return out.to(pooled.dtype)  # under autocast a norm answers in float32

    def cells(self, shape: Shape, device: torch.device) -> tuple[Int[Tensor, "N P"], Float[Tensor, "N P"] | None]:
        """The receptive field of each token, every cell with the share that the weights have of the filter there."""
        cells = receptive_fields(shape, (3,) * len(shape), self.stride, device)
        weight = self.filter.weight.detach().flatten(1)
        size = weight.to(torch.promote_types(weight.dtype, torch.float32)).norm(dim=0)  # over the channels
        share = size * (cells >= 0)
        return cells, share / share.sum(-1, keepdim=True).clamp(min=1e-12)


def join_prefix(x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N C"]:
    """A grid as a sequence, after the tokens that stand before it."""
    flat = x.flatten(1, -2)
    return flat if prefix is None else torch.cat([prefix, flat], 1)


def split_prefix(
    x: Float[Tensor, "B N C"], shape: Shape
) -> tuple[Float[Tensor, "B *S C"], Float[Tensor, "B P C"] | None]:
    """The grid of a sequence, and the tokens that stand before it."""
    before = x.shape[1] - prod(shape)
    return x[:, before:].unflatten(1, shape), x[:, :before] if before else None


def _skip_kernel(stride: Shape) -> Shape:
    """The window of the way around: one cell more than a stride, along the axes that become shorter."""
    return tuple(s + 1 if s > 1 else 1 for s in stride)
