"""MViT: a multiscale vision Transformer that pools queries, keys and values inside attention.

    tokens      overlapping patches, 7 x 7 pixels every 4; in clips 3 frames every 2; perhaps a class token first
    positions   v1: learned tables of space and of time, added; v2: decomposed relative positions in every layer
    attention   softmax over pooled keys; the first block of a stage pools its queries too, and halves the grid
    head        norm, then the class token or the mean of the last grid, then a linear layer

Four stages; each has half the rows and columns of the one before and twice its width and heads. An image has the shape
(Y, X), a clip (T, Y, X); for other sizes than in training, positions are interpolated.

Fan, Xiong, Mangalam, Li, Yan, Malik, Feichtenhofer: Multiscale Vision Transformers. ICCV 2021. arXiv:2104.11227
Li, Wu, Fan, Mangalam, Xiong, Malik, Feichtenhofer: MViTv2: Improved Multiscale Vision Transformers for Classification
and Detection. CVPR 2022. arXiv:2112.01526
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mechanisms import MECHANISMS
from regard.blocks.residual import DropPath, drop_path_rates
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.layer_state import LayerState, PassState
from regard.core.shapes import Float, Int, Tensor, pair
from regard.core.spec import Registry, build_part, layer_spec
from regard.core.trace import Geometry, Slots, receptive_fields
from regard.core.validation import validate
from regard.models.contract import ImageModel
from regard.positions.bias.decomposed import DecomposedPositions
from regard.tokens.overlapping_patches import OverlappingPatchEmbedding

Shape = tuple[int, ...]  # of a grid, (Y, X) or (T, Y, X), or a stride along each of its axes
EPS = 1e-6  # of norms

POOLINGS: Registry = {
    "conv": ("regard.models.mvit", "ConvPooling"),
    "mean": ("regard.models.mvit", "MeanPooling"),
}


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an MViT; the defaults are MViTv2-T."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    num_frames: int | None = None  # of a clip; None: images
    channels: int = 3
    patch_size: int = 4  # stride in pixels; the kernel is nearly twice as wide
    width: int = 96  # of the first stage
    heads: int = 1  # of the first stage
    layers: tuple[int, ...] = (1, 2, 5, 2)  # of each stage
    kv_stride: int = 4  # stride of keys and values in the first stage, halved in each next, down to 1
    pooling: str = "conv"  # a spec of blocks.POOLINGS
    positions: Literal["relative", "added"] = "relative"
    widen_in: Literal["attention", "feedforward"] = (
        "attention"  # of a stage's first block, or feedforward of the last block before it
    )
    residual_pooling: Literal["all", "patches", "none"] = (
        "all"  # where pooled queries are added to the output; none: v1
    )
    class_token: bool = False
    dropout: float = field(0.0, low=0, below=1)  # before the head
    drop_path: float = field(0.0, low=0, below=1)
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module


_SMALL, _BASE, _LARGE = {"layers": (1, 2, 11, 2)}, {"layers": (2, 3, 16, 3)}, {"layers": (2, 6, 36, 4), "heads": 2}
_V1: dict[str, Any] = {
    **_SMALL,
    "positions": "added",
    "widen_in": "feedforward",
    "residual_pooling": "none",
    "class_token": True,
}
_CLIPS: dict[str, Any] = {"num_classes": 400, "num_frames": 16, "kv_stride": 8}

# MViTv2 on images (t to h), MViT on images (v1-b), and both on clips of 16 frames, as they were trained on Kinetics.
# Tiny and cifar are for images of 32 x 32, with a token for every second pixel.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"num_classes": 10, "image_size": 32, "patch_size": 2, "width": 24, "layers": (1, 1, 2, 1), "kv_stride": 2},
    "cifar": {
        "num_classes": 10,
        "image_size": 32,
        "patch_size": 2,
        "width": 48,
        "layers": (1, 2, 4, 1),
        "kv_stride": 2,
    },
    "t": {},
    "s": _SMALL,
    "b": _BASE,
    "l": {**_LARGE, "width": 144, "widen_in": "feedforward"},
    "s-token": {**_SMALL, "class_token": True},
    "b-token": {**_BASE, "class_token": True},
    "l-token": {**_LARGE, "width": 144, "class_token": True},
    "h-token": {"layers": (4, 8, 60, 8), "width": 192, "heads": 3, "class_token": True},
    "v1-b": _V1,
    "v1-b-clips": _V1 | _CLIPS,
    "s-clips": {**_SMALL, **_CLIPS, "residual_pooling": "patches", "class_token": True},
}


class MViT(ImageModel):
    """Images or clips to logits of classes."""

    no_weight_decay = ("prefix_tokens",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config, self.num_prefix_tokens = config, int(config.class_token)
        self.stem = OverlappingPatchEmbedding(
            config.channels, config.width, config.patch_size, clips=config.num_frames is not None
        )
        self.prefix_tokens = nn.Parameter(torch.zeros(1, config.width)) if config.class_token else None
        shape = self.stem.grid_size((*([config.num_frames] if config.num_frames else []), *pair(config.image_size)))
        self.positions = (
            SeparablePositions(config.width, shape, self.num_prefix_tokens) if config.positions == "added" else None
        )
        self.stages: Any = nn.ModuleList()
        for stage in range(len(config.layers)):
            blocks = [_block(config, stage, layer, shape) for layer in range(config.layers[stage])]
            self.stages.append(nn.ModuleList(blocks))
            shape = blocks[0].mix.q_pool.shape(shape)
        last = config.width * 2 ** (len(config.layers) - 1)
        self.norm, self.drop = nn.LayerNorm(last, EPS), nn.Dropout(config.dropout)
        self.head = nn.Linear(last, config.num_classes) if config.num_classes else None
        self.reset()

    def forward(self, images: Float[Tensor, "B I *S"], pass_state: PassState | None = None) -> Float[Tensor, "B K"]:
        """Return the logits of the classes, or the pooled vector if there are none."""
        x = self.drop(self.pooled(images, pass_state))
        return x if self.head is None else self.head(x)

    @property
    def num_features(self) -> int:
        return int(self.norm.normalized_shape[0])

    def forward_features(
        self, images: Float[Tensor, "B I *S"], pass_state: PassState | None = None
    ) -> Float[Tensor, "B N C"]:
        *_, (x, _) = self.pyramid(images, pass_state)
        return self.norm(x)

    def pooled(self, images: Float[Tensor, "B I *S"], pass_state: PassState | None = None) -> Float[Tensor, "B C"]:
        """Return the class token or, without one, the mean of the last grid."""
        *_, (x, _) = self.pyramid(images, pass_state)
        return self.norm(x[:, 0]) if self.num_prefix_tokens else self.norm(x).mean(1)

    def grid(self, images: Float[Tensor, "B I *S"], pass_state: PassState | None = None) -> Float[Tensor, "B *G C"]:
        """Return the normed tokens of the last layer on their grid: B Y X C, of clips B T Y X C."""
        *_, (x, shape) = self.pyramid(images, pass_state)
        return self.norm(split_prefix(x, shape)[0])

    def features(self, images: Float[Tensor, "B I *S"], pass_state: PassState | None = None) -> list[Tensor]:
        """Return the output of each stage, B C Y X (B C T Y X), at strides of 1, 2, 4 and 8 patches.

        In the published sizes these are strides of 4, 8, 16 and 32 pixels.
        """
        return [split_prefix(x, shape)[0].movedim(-1, 1) for x, shape in self.pyramid(images, pass_state)]

    def pyramid(
        self, images: Float[Tensor, "B I *S"], pass_state: PassState | None = None
    ) -> Iterator[tuple[Float[Tensor, "B N C"], Shape]]:
        """Return the tokens after each stage, and the shape of their grid."""
        x = self.stem(images)
        shape = tuple(x.shape[1:-1])
        x = join_prefix(x, None if self.prefix_tokens is None else self.prefix_tokens.expand(x.shape[0], -1, -1))
        x = x if self.positions is None else x + self.positions(shape)
        pass_state = PassState() if pass_state is None else pass_state
        for n, stage in enumerate(self.stages):
            for depth, block in enumerate(stage):
                x, shape = block(x, shape, pass_state.branch(f"stages.{n}").layer(depth))
            yield x, shape

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise as in the paper: truncated normal with std 0.02, biases 0; convolutions as in torch."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        if self.prefix_tokens is not None:
            nn.init.trunc_normal_(self.prefix_tokens, std=0.02)


class SeparablePositions(nn.Module):
    """Learned positions of space, of time and of the prefix tokens; interpolated for other sizes."""

    no_weight_decay = ("space", "time", "before")

    def __init__(self, width: int, shape: Shape, before: int) -> None:
        super().__init__()
        *frames, self.rows, self.columns = shape
        self.space = nn.Parameter(torch.empty(self.rows * self.columns, width))
        self.time = nn.Parameter(torch.empty(frames[0], width)) if frames else None
        self.before = nn.Parameter(torch.empty(before, width)) if before else None
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def forward(self, shape: Shape) -> Float[Tensor, "N C"]:
        """Return the positions of every token of a grid of this shape."""
        *frames, rows, columns = shape
        table = self.space.unflatten(0, (self.rows, self.columns))  # Y X C
        if (rows, columns) != (self.rows, self.columns):
            table = F.interpolate(table.movedim(-1, 0)[None], (rows, columns), mode="bicubic")[0].movedim(0, -1)
        if self.time is not None:
            time = self.time.T[None]  # 1 C T
            time = time if time.shape[2] == frames[0] else F.interpolate(time, frames[0], mode="linear")
            table = time[0].T[:, None, None] + table
        return join_prefix(table[None], None if self.before is None else self.before[None])[0]


def _block(config: Config, stage: int, layer: int, shape: Shape) -> MultiScaleBlock:
    """Build block `layer` of a stage; `shape` is the grid at its input."""
    first, last = layer == 0, layer == config.layers[stage] - 1
    own, feeds = config.width * 2**stage, config.widen_in == "feedforward"
    before = sum(config.layers[:stage]) + layer
    halves, still = first and stage > 0, (1,) if config.num_frames else ()
    stride, keys = (2 if halves else 1,) * 2, (max(config.kv_stride >> stage, 1),) * 2
    if not first and stage > 0:
        shape = (*shape[:-2], *(-(-n // 2) for n in shape[-2:]))
    longest = max(-(-max(shape[-2:]) // min(stride[0], keys[0])), 1)
    mix = PoolingAttention(
        own // 2 if halves and not feeds else own,
        own,
        config.heads * 2**stage,
        stride=(*still, *stride),
        kv_stride=(*still, *keys),
        pooling=config.pooling,
        max_grid=(*shape[:-2], longest, longest) if config.positions == "relative" else None,
        residual=config.residual_pooling,
        num_prefix=int(config.class_token),
        attention=layer_spec(config.attention, before),
    )
    out = 2 * own if feeds and last and stage < len(config.layers) - 1 else own
    return MultiScaleBlock(mix, out, drop_path_rates(config.drop_path, sum(config.layers))[before])


# -- pooling attention -------------------------------------------------------------------------------------------------


class MultiScaleBlock(nn.Module):
    """Pooled attention, then feed-forward; the first may coarsen the grid, either may widen the tokens."""

    def __init__(self, mix: PoolingAttention, out: int, drop_path: float) -> None:
        super().__init__()
        width, inner = mix.qkv.in_features, mix.out.out_features
        self.mix, self.mix_norm = mix, nn.LayerNorm(width, EPS)
        self.mix_skip = nn.Linear(width, inner) if width != inner else None
        self.feed, self.feed_norm = WideningFeedForward(inner, out), nn.LayerNorm(inner, EPS)
        self.feed_skip = nn.Linear(inner, out) if inner != out else None
        self.drop = DropPath(drop_path)

    def forward(
        self, x: Float[Tensor, "B N C"], shape: Shape, layer_state: LayerState | None = None
    ) -> tuple[Float[Tensor, "B M E"], Shape]:
        """Apply the block to the tokens of a grid, prefix tokens first; returns the new tokens and the new shape."""
        y = self.mix_norm(x)
        skip = x if self.mix_skip is None else self.mix_skip(y)
        x = self.mix.pool_skip(skip, shape) + self.drop(self.mix(*split_prefix(y, shape), layer_state))
        y = self.feed_norm(x)
        skip = x if self.feed_skip is None else self.feed_skip(y)
        return skip + self.drop(self.feed(y)), self.mix.q_pool.shape(shape)


class PoolingAttention(nn.Module):
    """Attention over pooled queries, keys and values: a grid in, the tokens of an equal or coarser grid out.

        multi-head    softmax(q kᵀ) v                                         N × M scores,  M = N
        pooled        softmax(P(q) P(k)ᵀ + bias) P(v)  (+ P(q))               N / s_q² × M / s_k² scores

    Pooled keys make attention on a fine grid affordable, pooled queries coarsen the grid. P is a 3 × 3 depthwise
    convolution, the same in all heads, and a norm, or a mean of 3 × 3 cells; the skip path is max-pooled. MViTv2 adds
    the pooled queries to the output. A key made by a convolution and a norm is no weighted mean of its cells, so
    `geometry` is its receptive field, each cell with its share of the kernel; with the mean it is exact.
    """

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
            raise RegardError(f"width {out} is not divisible by {heads} heads; change one of them")
        head_dim = out // heads
        self.residual, self.num_prefix = residual, num_prefix
        self.qkv = nn.Linear(width, 3 * out)
        # MViT v1 does not pool queries where the grid stays as it is; v2 pools them everywhere
        self.q_pool, self.k_pool, self.v_pool = (
            build_part(POOLINGS, pooling, "pooling", head_dim=head_dim, stride=each)
            for each in (stride, kv_stride, kv_stride)
        )
        if residual == "none" and prod(stride) == 1:
            self.q_pool = NoPooling(head_dim, stride)
        self.positions = None if max_grid is None else DecomposedPositions(head_dim, max_grid)
        self.attend = build_part(
            MECHANISMS,
            attention,
            "attention",
            width=out,
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            scale=head_dim**-0.5,
        )
        self.out = nn.Linear(out, out)

    def forward(
        self,
        x: Float[Tensor, "B *S C"],
        prefix: Float[Tensor, "B P C"] | None = None,
        layer_state: LayerState | None = None,
    ) -> Tensor:
        """Return the tokens B N E of the new grid, prefix tokens first."""
        shape = tuple(x.shape[1:-1])
        on_grid, before = self.qkv(x).chunk(3, -1), (None,) * 3 if prefix is None else self.qkv(prefix).chunk(3, -1)
        pools = (self.q_pool, self.k_pool, self.v_pool)
        q, k, v = (pool(*inputs).transpose(1, 2) for pool, *inputs in zip(pools, on_grid, before, strict=True))
        bias = None
        if self.positions is not None:
            bias = self.positions.bias(q, self.q_pool.shape(shape), self.k_pool.shape(shape))
        mixed = self.attend(q, k, v, bias=bias, layer_state=layer_state)
        if self.residual == "patches":
            q = F.pad(q[:, :, self.num_prefix :], (0, 0, self.num_prefix, 0))
        mixed = mixed if self.residual == "none" else mixed + q
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def pool_skip(self, x: Float[Tensor, "B N C"], shape: Shape) -> Float[Tensor, "B M C"]:
        """Return the skip path, max-pooled to the new grid."""
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
        """Whether the geometry is exact; with a convolution it is a receptive field."""
        return bool(self.v_pool.exact)

    def geometry(self, x: Float[Tensor, "B *S C"]) -> Geometry:
        """Return which cells each query writes and each key was made of; prefix tokens are the first cells."""
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
    """A feed-forward layer with four times the width inside, to another width."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, out)

    def forward(self, x: Float[Tensor, "B N C"]) -> Float[Tensor, "B N E"]:
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


# -- pooling: a grid B *S (H D) and prefix tokens B P (H D) -> B N H D -------------------------------------------------


class NoPooling(nn.Module):
    """No pooling: only split the heads."""

    def __init__(self, head_dim: int, stride: Shape) -> None:
        super().__init__()
        self.head_dim, self.stride = head_dim, stride

    def forward(self, x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N H D"]:
        """Return prefix tokens, then those of the grid."""
        return join_prefix(x, prefix).unflatten(-1, (-1, self.head_dim))

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of the pooled grid."""
        return tuple(-(-n // s) for n, s in zip(shape, self.stride, strict=True))


class MeanPooling(NoPooling):
    """Mean of 3 × 3 cells (3 × 3 × 3 in clips), without padding at the edges."""

    exact = True

    def forward(self, x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N H D"]:
        pool: Any = F.avg_pool2d if len(self.stride) == 2 else F.avg_pool3d
        pooled = pool(x.movedim(-1, 1), 3, self.stride, 1, count_include_pad=False)
        return super().forward(pooled.movedim(1, -1), prefix)

    def cells(self, shape: Shape, device: torch.device) -> tuple[Int[Tensor, "N P"], Float[Tensor, "N P"] | None]:
        """Return the cells that each token was made of, and their shares; None: equal shares."""
        return receptive_fields(shape, (3,) * len(shape), self.stride, device), None


class ConvPooling(NoPooling):
    """Depthwise convolution over 3 × 3 cells (3 × 3 × 3 in clips), the same in all heads; then a norm."""

    exact = False

    def __init__(self, head_dim: int, stride: Shape) -> None:
        super().__init__(head_dim, stride)
        conv = nn.Conv2d if len(stride) == 2 else nn.Conv3d
        self.filter = conv(head_dim, head_dim, 3, stride, 1, groups=head_dim, bias=False)  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(head_dim, EPS)

    def forward(self, x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N H D"]:
        # heads stay side by side as channels, each with a copy of the kernel: tokens need not be moved in memory
        heads, conv = x.shape[-1] // self.head_dim, F.conv2d if len(self.stride) == 2 else F.conv3d
        filters = self.filter.weight.repeat(heads, *(1,) * (self.filter.weight.ndim - 1))
        pooled = conv(x.movedim(-1, 1), filters, None, self.stride, 1, 1, x.shape[-1])
        out: Tensor = self.norm(super().forward(pooled.movedim(1, -1), prefix))
        return out.to(pooled.dtype)  # under autocast a norm returns float32

    def cells(self, shape: Shape, device: torch.device) -> tuple[Int[Tensor, "N P"], Float[Tensor, "N P"] | None]:
        """Return the receptive field of each token, every cell with its share of the kernel's norm."""
        cells = receptive_fields(shape, (3,) * len(shape), self.stride, device)
        weight = self.filter.weight.detach().flatten(1)
        size = weight.to(torch.promote_types(weight.dtype, torch.float32)).norm(dim=0)  # over the channels
        share = size * (cells >= 0)
        return cells, share / share.sum(-1, keepdim=True).clamp(min=1e-12)


def join_prefix(x: Float[Tensor, "B *S C"], prefix: Float[Tensor, "B P C"] | None) -> Float[Tensor, "B N C"]:
    """Return a grid as a sequence, after the prefix tokens."""
    flat = x.flatten(1, -2)
    return flat if prefix is None else torch.cat([prefix, flat], 1)


def split_prefix(
    x: Float[Tensor, "B N C"], shape: Shape
) -> tuple[Float[Tensor, "B *S C"], Float[Tensor, "B P C"] | None]:
    """Return the grid of a sequence, and the prefix tokens."""
    before = x.shape[1] - prod(shape)
    return x[:, before:].unflatten(1, shape), x[:, :before] if before else None


def _skip_kernel(stride: Shape) -> Shape:
    """Return the kernel of the skip path: one cell more than the stride, along the axes that become shorter."""
    return tuple(s + 1 if s > 1 else 1 for s in stride)
