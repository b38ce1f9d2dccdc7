"""Deformable DETR: queries look at a few points of a pyramid, around anchors that every decoder layer refines.

    tokens      the last grids of a ResNet or EfficientNet, and further ones by strided convolutions
    positions   sines of rows and columns, plus a learned vector of the level, added to the inputs of attention
    attention   deformable: each cell, and each object query, at a few points of each level; softmax between the queries
    head        per decoder layer: a linear map to the classes and "no object" (last), an MLP to a step of the anchor

Attention costs O(N L P C) instead of O(N² C), so that fine grids are affordable, and small objects are seen. A query
begins with a point; after each layer its anchor is the box found so far, and the layer above looks there ("iterative
box refinement"). Such queries need a tenth of DETR's epochs. Images, sizes and outputs are those of `detr`.

With `anchor_boxes` (DAB-DETR) a query begins with a box of its own, and its position is made of its box again in every
layer. Noised objects then are queries like the others (`denoising`: DN-DETR), and groups of queries work as in `detr`.
With `masks` the panoptic head of `detr` reads the last queries and the encoder's cells of the backbone's last grid.

What differs from the authors' code: classes are a softmax with "no object" as in DETR, where they have a sigmoid for
each class and the focal loss; so losses and tasks of DETR work here. All else is equal to transformers'
``with_box_refine=True``.

Zhu, Su, Lu, Li, Wang, Dai: Deformable DETR: Deformable Transformers for End-to-End Object Detection. ICLR 2021.
arXiv:2010.04159; Liu et al.: DAB-DETR: Dynamic Anchor Boxes are Better Queries for DETR. ICLR 2022. arXiv:2201.12329
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.attention.deformable import DeformableAttention
from regard.attention.mask import DenseMask, KeyMask
from regard.attention.mixers import build_mixer
from regard.blocks.feedforward import ReluFeedForward
from regard.blocks.residual import ResidualBlock
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import LayerState, PassState
from regard.core.positions import PositionInfo
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.detr import (
    MLP,
    AnchorPositions,
    Backbone,
    DenoisingQueries,
    DETROutput,
    PanopticHead,
    backbone,
    build_backbone,
    grid_sizes,
    group_mask,
    pair_tensor,
    real_cells,
    stage_channels,
    stage_strides,
)
from regard.positions.added.grid_sinusoidal import SinusoidalGridPositions

_R50 = backbone("50")


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Deformable DETR; the defaults are the paper's, with ResNet-50, for COCO."""

    num_classes: int = 91  # without "no object"
    num_queries: int = 300
    backbone: Backbone = _R50  # a ResNet, or an EfficientNet-Lite, with frozen_stages=0
    frozen_stages: int = field(1, low=0)  # stages of the backbone that are not trained, with its stem; 0: all are
    backbone_levels: int = 3  # grids of the backbone in the pyramid, from the last stage on
    pyramid_levels: int = 4  # of the pyramid; those beyond the backbone's are made by strided convolutions
    points: int = 4  # of each head on each level
    width: int = 256
    heads: int = 8
    ffn: int = 1024
    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = field(0.1, low=0, below=1)
    anchor_boxes: bool = False  # queries begin with boxes, of which their positions are made in every layer
    query_groups: int = 1  # groups of queries in training, each matched on its own; one of them is used afterwards
    denoising: bool = False  # can take noised objects as further queries in training; needs anchor_boxes
    masks: bool = False  # with DETR's panoptic head, on the backbone's last grid; needs a backbone of 4 stages

    def quick(self) -> Config:
        """Return the settings of a quick run: the groups of norms in the panoptic head need 8 heads."""
        return replace(self, heads=8) if self.masks else self


_SMALL: dict[str, Any] = {"frozen_stages": 0, "num_queries": 25, "dropout": 0.0, "width": 128, "ffn": 512}
_SMALL |= {"pyramid_levels": 3}

# The paper's table 1. `small` trains on a few thousand images from scratch; tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        **_SMALL,
        "num_classes": 5,
        "num_queries": 7,
        "backbone_levels": 2,
        "points": 2,
        "width": 64,
        "heads": 4,
        "ffn": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "backbone": backbone("tiny", stem="large", norm="batch"),
    },
    "small": {
        **_SMALL,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "backbone": backbone("18", width=32, norm="batch"),
    },
    "r50": {},
}


class DeformableDETR(ModelContract):
    """Images to a set of objects: classes and boxes of every decoder layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        if config.denoising and not config.anchor_boxes:
            raise BadInput("denoising=True needs anchor_boxes=True: noised objects are boxes")
        self.stem = PyramidStem(config)
        self.positions = SinusoidalGridPositions(config.width, offset=0.5)
        self.level_vectors = nn.Parameter(torch.randn(config.pyramid_levels, config.width))
        self.encoder = nn.ModuleList(DeformableEncoderBlock(config) for _ in range(config.encoder_layers))
        queries, boxes = config.query_groups * config.num_queries, config.anchor_boxes
        self.queries = nn.Parameter(torch.randn(queries, (1 if boxes else 2) * config.width))  # positions?, contents
        self.reference = None if boxes else nn.Linear(config.width, 2)
        self.anchors = nn.Parameter(torch.empty(queries, 4)) if boxes else None  # logits of centres and sizes
        self.anchor_positions = AnchorPositions(config.width) if boxes else None
        self.denoising = nn.Embedding(config.num_classes, config.width) if config.denoising else None
        self.decoder = nn.ModuleList(DeformableDecoderBlock(config, n) for n in range(config.decoder_layers))
        self.class_heads = nn.ModuleList(
            nn.Linear(config.width, config.num_classes + 1) for _ in range(config.decoder_layers)
        )
        self.box_heads = nn.ModuleList(MLP(config.width, config.width, 4, 3) for _ in range(config.decoder_layers))
        self.mask_head = None
        if config.masks:
            self.mask_head = PanopticHead(config.width, config.heads, stage_channels(config.backbone)[-2::-1])
        self.reset()

    def forward(
        self,
        images: Float[Tensor, "B C Y X"],
        sizes: Int[Tensor, "B 2"] | None = None,
        denoising: DenoisingQueries | None = None,
        pass_state: PassState | None = None,
    ) -> DETROutput:
        """Return the predictions for images whose own rows and columns are `sizes`; None: without padding.

        In training the queries are those of all groups, then those of `denoising`.
        """
        pass_state = PassState() if pass_state is None else pass_state
        grids = self.stem.backbone.features(images)
        pyramid = self.pyramid(images, sizes, grids)
        memory = pyramid.tokens
        for block in self.encoder:
            memory = block(memory, pyramid)
        x, places, anchors, groups = self.object_queries(images.shape[0], denoising)
        logits, boxes = [], []
        for depth, block in enumerate(self.decoder):
            places = places if self.anchor_positions is None else self.anchor_positions(anchors)
            x = block(x, places, memory, anchors, pyramid, groups, pass_state.layer(depth))
            step = self.box_heads[depth](x)
            start, rest = inverse_sigmoid(anchors), step[..., anchors.shape[-1] :]
            boxes.append(torch.cat([step[..., : anchors.shape[-1]] + start, rest], -1).sigmoid())
            logits.append(self.class_heads[depth](x))
            anchors = boxes[-1].detach()
        masks = None
        if self.mask_head is not None:
            masks = self.masks(x[:, : self.config.num_queries], memory, pyramid, grids)
        return DETROutput(torch.stack(logits), torch.stack(boxes), masks)

    def masks(
        self, queries: Float[Tensor, "B Q C"], memory: Float[Tensor, "B M C"], pyramid: Pyramid, grids: list[Tensor]
    ) -> Float[Tensor, "B Q Y X"]:
        """Return the logits of the masks of queries: of the first group only, in training too."""
        assert self.mask_head is not None
        sizes = [rows * columns for rows, columns in pyramid.shapes]
        level = self.stem.taken - 1  # the backbone's last grid
        features = memory.split(sizes, 1)[level]
        real = None if pyramid.real is None else KeyMask(pyramid.real.split(sizes, 1)[level])
        as_grid = features.mT.unflatten(2, pyramid.shapes[level])
        found: Tensor = self.mask_head(queries, features, real, as_grid, grids[-2::-1])
        return found

    def object_queries(
        self, batch: int, denoising: DenoisingQueries | None
    ) -> tuple[Float[Tensor, "B Q C"], Tensor, Float[Tensor, "B Q R"], DenseMask | None]:
        """Return contents, positions and anchors of the queries, and which of them see each other (None: all)."""
        size = self.config.num_queries
        taken = len(self.queries) if self.training else size
        queries = self.queries[:taken].expand(batch, -1, -1)
        mask = group_mask(queries, size, denoising)
        if self.anchors is None or self.reference is not None:
            places, contents = queries.chunk(2, -1)
            return contents, places, self.reference(places).sigmoid(), mask  # type: ignore[misc]
        anchors = self.anchors[:taken].sigmoid().expand(batch, -1, -1)
        if denoising is None:
            return queries, queries, anchors, mask
        if self.denoising is None:
            raise BadInput("this model takes no denoising queries; build it with denoising=True")
        contents = torch.cat([queries, self.denoising(denoising.classes)], 1)
        return contents, contents, torch.cat([anchors, denoising.boxes.to(anchors)], 1), mask

    def pyramid(
        self, images: Float[Tensor, "B C Y X"], sizes: Int[Tensor, "B 2"] | None, grids: list[Tensor] | None = None
    ) -> Pyramid:
        """Return the tokens of all levels, and where they are; `grids` are the backbone's, if known."""
        grids = self.stem(images) if grids is None else self.stem.levels(grids)
        shapes = [(grid.shape[2], grid.shape[3]) for grid in grids]
        real = [grid_sizes(images, sizes, shape) for shape in shapes]
        places = [self.positions(part, shape, images.dtype) for part, shape in zip(real, shapes, strict=True)]
        cells = [
            _centres(shape, images) / (part.flip(1) / _columns_rows(shape, images))[:, None]
            for shape, part in zip(shapes, real, strict=True)
        ]
        extent = torch.stack([part.flip(1) / _columns_rows(s, images) for part, s in zip(real, shapes, strict=True)], 1)
        mask = None
        if sizes is not None:
            mask = torch.cat([real_cells(part, s).flatten(1) for part, s in zip(real, shapes, strict=True)], 1)
        return Pyramid(
            tokens=torch.cat([grid.flatten(2).mT for grid in grids], 1),
            places=torch.cat([p + v for p, v in zip(places, self.level_vectors, strict=True)], 1),
            cells=torch.cat(cells, 1),
            extent=extent.to(images.dtype),
            shapes=shapes,
            real=mask,
        )

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the class heads by new ones, to fine-tune on other classes."""
        if num_classes < 1:
            raise BadInput(f"num_classes must be at least 1, got {num_classes}")
        self.config = replace(self.config, num_classes=num_classes)
        width, layers = self.config.width, self.config.decoder_layers
        self.class_heads = nn.ModuleList(nn.Linear(width, num_classes + 1) for _ in range(layers)).to(self.queries)
        if self.denoising is not None:
            self.denoising = nn.Embedding(num_classes, width).to(self.queries)

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise: boxes begin at their anchors; points with σ(-2), an eighth of the image, on each side.

        Anchor boxes lie anywhere and are a quarter of the image wide and high.
        """
        for head in self.box_heads:
            nn.init.zeros_(head.layers[-1].weight)  # type: ignore[union-attr, index]
            nn.init.zeros_(head.layers[-1].bias)  # type: ignore[union-attr, index]
        if self.reference is not None:
            nn.init.xavier_uniform_(self.reference.weight)
            nn.init.zeros_(self.reference.bias)
            self.box_heads[0].layers[-1].bias[2:] = -2.0  # type: ignore[union-attr, index]
        if self.anchors is not None:
            centres = torch.rand(len(self.anchors), 2)
            self.anchors.copy_(inverse_sigmoid(torch.cat([centres, torch.full_like(centres, 0.25)], 1)))


class Pyramid(NamedTuple):
    """Cells of all levels, one level after another, and where they are."""

    tokens: Float[Tensor, "B M C"]
    places: Float[Tensor, "#B M C"]  # position vectors
    cells: Float[Tensor, "#B M 2"]  # centres (x, y), fractions of each image's own size
    extent: Float[Tensor, "#B L 2"]  # columns and rows that are not padding, fractions of the level
    shapes: list[tuple[int, int]]
    real: Bool[Tensor, "B M"] | None

    def on_levels(self, references: Float[Tensor, "#B N R"]) -> Float[Tensor, "B N L R"]:
        """Return points or boxes, fractions of each image's own size, as fractions of every padded level."""
        found = references[:, :, None] * self.extent.repeat(1, 1, references.shape[-1] // 2)[:, None]
        return found.expand(self.tokens.shape[0], -1, -1, -1)


class PyramidStem(nn.Module):
    """Images to grids of one width: the last ones of a ResNet, and coarser ones by strided convolutions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        most = min(len(stage_strides(config.backbone)), config.pyramid_levels)
        if config.backbone_levels > most:
            raise BadInput(f"backbone_levels must be at most {most}, got {config.backbone_levels}")
        if config.width % 32:
            raise BadInput(f"width must be a multiple of 32, the groups of norms in the pyramid, got {config.width}")
        self.taken = config.backbone_levels
        self.backbone = build_backbone(config.backbone, config.frozen_stages)
        channels = stage_channels(config.backbone)[-config.backbone_levels :]
        self.project = nn.ModuleList(_project(c, config.width, 1) for c in channels)
        self.strides = stage_strides(config.backbone)[-self.taken :]  # of the levels
        self.strides += [2**n * self.strides[-1] for n in range(1, config.pyramid_levels - self.taken + 1)]
        extra = [channels[-1], *[config.width] * (config.pyramid_levels - self.taken)][:-1]  # channels in
        self.project.extend(_project(c, config.width, 3) for c in extra)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        return self.levels(self.backbone.features(images))

    def levels(self, grids: list[Tensor]) -> list[Tensor]:
        """Return the levels of the pyramid from the grids of the backbone."""
        grids = grids[-self.taken :]
        last, found = grids[-1], [project(grid) for project, grid in zip(self.project, grids, strict=False)]
        for project in self.project[self.taken :]:
            last = project(last)
            found.append(last)
        return found


class DeformableEncoderBlock(ResidualBlock):
    """Deformable attention between the cells of the pyramid, then feed-forward; norm after the sum."""

    def __init__(self, config: Config) -> None:
        super().__init__(False, config.dropout)
        self.mix = DeformableAttention(config.width, config.heads, config.pyramid_levels, config.points)
        self.feed = ReluFeedForward(config.width, config.ffn, config.dropout)
        self.mix_norm, self.feed_norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)

    def forward(self, x: Float[Tensor, "B M C"], pyramid: Pyramid) -> Float[Tensor, "B M C"]:
        where = pyramid.on_levels(pyramid.cells), pyramid.shapes, pyramid.real
        x = self.residual(x, self.mix_norm, lambda x: self.mix(x + pyramid.places, x, *where))
        return self.residual(x, self.feed_norm, self.feed)


class DeformableDecoderBlock(ResidualBlock):
    """Attention between queries, deformable attention around their anchors, feed-forward; norm after the sum."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(False, config.dropout)
        self.mix = build_mixer("softmax", width=config.width, heads=config.heads, layer=layer, dropout=config.dropout)
        self.cross = DeformableAttention(config.width, config.heads, config.pyramid_levels, config.points, cross=True)
        self.feed = ReluFeedForward(config.width, config.ffn, config.dropout)
        self.mix_norm, self.cross_norm, self.feed_norm = (nn.LayerNorm(config.width) for _ in range(3))

    def forward(
        self,
        x: Float[Tensor, "B Q C"],
        places: Float[Tensor, "B Q C"],
        memory: Float[Tensor, "B M C"],
        anchors: Float[Tensor, "B Q R"],
        pyramid: Pyramid,
        groups: DenseMask | None,
        layer_state: LayerState,
    ) -> Float[Tensor, "B Q C"]:
        index = torch.arange(x.shape[1], device=x.device)[None]
        positions = PositionInfo(index, index, query_vectors=places)
        where = pyramid.on_levels(anchors), pyramid.shapes, pyramid.real
        x = self.residual(x, self.mix_norm, lambda x: self.mix(x, None, groups, positions, layer_state))
        x = self.residual(x, self.cross_norm, lambda x: self.cross(x + places, memory, *where))
        return self.residual(x, self.feed_norm, self.feed)


def inverse_sigmoid(x: Float[Tensor, "*B"], eps: float = 1e-5) -> Float[Tensor, "*B"]:
    """Return log(x / (1 - x)) of fractions, both clamped from below."""
    return x.clamp(min=eps).log() - (1 - x).clamp(min=eps).log()


def _project(channels: int, width: int, kernel: int) -> nn.Module:
    conv = nn.Conv2d(channels, width, kernel, stride=2 if kernel > 1 else 1, padding=kernel // 2)
    return nn.Sequential(conv, nn.GroupNorm(32, width))


def _columns_rows(shape: tuple[int, int], like: Tensor) -> Tensor:
    return pair_tensor(shape[::-1], like.device).to(like.dtype)


def _centres(shape: tuple[int, int], like: Tensor) -> Float[Tensor, "1 M 2"]:
    """Return the centres (x, y) of the cells of a grid, row by row, fractions of its size."""
    y, x = ((torch.arange(n, device=like.device, dtype=like.dtype) + 0.5) / n for n in shape)
    return torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], -1).flatten(0, 1)[None]
