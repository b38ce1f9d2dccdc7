"""DETR: detection as the prediction of a set; each learned query becomes an object or "no object".

    tokens      the last grid of a ResNet through a 1 x 1 convolution, row by row
    positions   sines of rows and columns, added to the inputs of q and k in every layer; never to values
    attention   softmax: the encoder between all cells; the decoder between Q object queries, and from them to all cells
    head        on every decoder layer: a linear map to the classes and "no object" (last), an MLP to a box

`forward(images, sizes)` takes images padded at the right and the bottom. Boxes are centres and sizes, fractions of each
image's own size. Predictions of all decoder layers are returned; those of the last are the model's, the others have
auxiliary losses (losses/detection.py). With `masks` there is a panoptic head too: attention maps of every object,
normalised over heads and pixels together, refined by convolutions over the grids of the backbone to a quarter of the
image's size.

`frozen_stages` and the backbone's `norm="frozen"` are for weights trained on ImageNet; to train from scratch use 0 and
"batch". The first convolution of the panoptic head is computed once for the features, which all queries share.

Two parts make training on few images faster; neither changes a trained model. `query_groups` (Group DETR): in training,
G groups of queries do not see each other and are matched each on its own, so that every object has G predictions that
learn from it. `denoising` (DN-DETR): further queries are made of the true objects with noise (losses/denoising.py) and
learn to undo it, without matching; other queries do not see them. Their positions are the sines of a box through an
MLP, and their contents an embedding of the class, since DETR's own queries have no anchors.

Carion, Massa, Synnaeve, Usunier, Kirillov, Zagoruyko: End-to-End Object Detection with Transformers. ECCV 2020.
arXiv:2005.12872; Chen et al.: Group DETR. ICCV 2023. arXiv:2207.13085; Li et al.: DN-DETR. CVPR 2022. arXiv:2203.01305
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mask import DenseMask, KeyMask
from regard.attention.mixers import build_mixer
from regard.attention.observed_weights import ObservedWeights
from regard.blocks import FEEDFORWARDS
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.blocks.resnet_blocks import BLOCKS
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import build_part, layer_spec
from regard.core.trace import Slots
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.efficientnet_lite import Config as EfficientNetConfig
from regard.models.efficientnet_lite import EfficientNetLite, grid_strides, grid_widths, headless
from regard.models.resnet import SIZES as RESNETS
from regard.models.resnet import Config as ResNetConfig
from regard.models.resnet import ResNet
from regard.positions.added.grid_sinusoidal import SinusoidalGridPositions
from regard.positions.none import NoPositions
from regard.tokens.patches import pixel_slots


def backbone(size: str, **settings: Any) -> ResNetConfig:
    """Return the Config of a ResNet of this size, without a classifier, its norms frozen."""
    return ResNetConfig(**RESNETS[size] | {"num_classes": 0, "norm": "frozen"} | settings)


_R50 = backbone("50")
Backbone = ResNetConfig | EfficientNetConfig


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a DETR; the defaults are the paper's, with ResNet-50, for COCO."""

    num_classes: int = 91  # without "no object"
    num_queries: int = 100  # the most objects that are found in an image
    backbone: Backbone = _R50  # a ResNet, or an EfficientNet-Lite, with frozen_stages=0
    frozen_stages: int = field(1, low=0)  # stages of the backbone that are not trained, with its stem; 0: all are
    width: int = 256
    heads: int = 8
    ffn: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    activation_dropout: float = field(0.1, low=0, below=1)
    feedforward: str = "relu"
    attention: Any = "softmax"  # of the encoder: a spec, a list of them (one a layer, cycled), or a module
    masks: bool = False  # with the panoptic head
    query_groups: int = 1  # groups of queries in training, each matched on its own; one of them is used afterwards
    denoising: bool = False  # can take noised objects as further queries in training

    def quick(self) -> Config:
        """Return the settings of a quick run: the groups of norms in the panoptic head need 8 heads."""
        return replace(self, heads=8) if self.masks else self


_SMALL: dict[str, Any] = {"frozen_stages": 0, "num_queries": 25, "dropout": 0.0, "attention_dropout": 0.0}
_SMALL |= {"activation_dropout": 0.0, "width": 128, "ffn": 512, "encoder_layers": 3, "decoder_layers": 3}

# The paper's tables 1 and 5. `small` trains on a few thousand images from scratch; tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        **_SMALL,
        "num_classes": 5,
        "num_queries": 7,
        "width": 32,
        "heads": 8,
        "ffn": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "backbone": backbone("tiny", stem="large", norm="batch"),
    },
    "small": {**_SMALL, "backbone": backbone("18", width=32, norm="batch")},
    "r50": {},
    "r50-dc5": {"backbone": backbone("50", dilated=True)},
    "r101": {"backbone": backbone("101")},
    "r101-dc5": {"backbone": backbone("101", dilated=True)},
    "r50-panoptic": {"num_classes": 250, "masks": True},
    "r50-dc5-panoptic": {"num_classes": 250, "masks": True, "backbone": backbone("50", dilated=True)},
    "r101-panoptic": {"num_classes": 250, "masks": True, "backbone": backbone("101")},
}


class DETROutput(NamedTuple):
    """The predictions: of every decoder layer, the last one last; masks of the last layer only."""

    logits: Float[Tensor, "L B Q K"]  # of the classes; the last is "no object"
    boxes: Float[Tensor, "L B Q 4"]  # centre x, y, width, height: fractions of each image's own size
    masks: Float[Tensor, "B Q y x"] | None  # logits, over the padded image


class DETR(ModelContract):
    """Images to a set of objects: classes, boxes, and with the panoptic head masks."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.stem = BackboneStem(config.backbone, config.width, config.frozen_stages)
        self.positions = SinusoidalGridPositions(config.width)
        encoder = [_encoder_block(config, layer) for layer in range(config.encoder_layers)]
        self.encoder = Encoder(encoder, NoPositions(), None, 0.0)
        self.queries = nn.Parameter(torch.randn(config.query_groups * config.num_queries, config.width))
        self.denoising = DenoisingEmbedding(config.num_classes, config.width) if config.denoising else None
        decoder = [_decoder_block(config, layer) for layer in range(config.decoder_layers)]
        self.decoder = Decoder(decoder, NoPositions(), nn.LayerNorm(config.width), 0.0, causal=False)
        for parameter in (*self.encoder.parameters(), *self.decoder.parameters()):
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        self.class_head = nn.Linear(config.width, config.num_classes + 1)
        self.box_head = MLP(config.width, config.width, 4, layers=3)
        self.mask_head = None
        if config.masks:
            self.mask_head = PanopticHead(config.width, config.heads, self.stem.channels[-2::-1])

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
        *grids, features = self.stem(images)
        grid = features.shape[2], features.shape[3]
        real, mask = grid_sizes(images, sizes, grid), None
        if sizes is not None:
            mask = KeyMask(real_cells(real, grid).flatten(1))
        places = self.positions(real, grid, features.dtype)
        memory = self.encoder(features.flatten(2).mT, mask, branch(pass_state, "encoder"), places)
        content, anchors, groups = self.object_queries(images.shape[0], denoising)
        queries = self.decoder.forward_layers(
            content, memory, groups, mask, branch(pass_state, "decoder"), anchors, places
        )
        masks = None
        if self.mask_head is not None:
            own = queries[-1][:, : self.config.num_queries]  # in training of the first group only
            masks = self.mask_head(own, memory, mask, features, grids[-2::-1])
        return DETROutput(self.class_head(queries), self.box_head(queries).sigmoid(), masks)

    def object_queries(
        self, batch: int, denoising: DenoisingQueries | None
    ) -> tuple[Float[Tensor, "B Q C"], Float[Tensor, "#B Q C"], DenseMask | None]:
        """Return contents and positions of the decoder's queries, and which of them see each other (None: all)."""
        size = self.config.num_queries
        places = self.queries[None, : len(self.queries) if self.training else size]
        content = places.new_zeros(batch, *places.shape[1:])
        mask = group_mask(content, size, denoising)
        if denoising is None:
            return content, places, mask
        if self.denoising is None:
            raise BadInput("this model takes no denoising queries; build it with denoising=True")
        noised = self.denoising(denoising)
        return torch.cat([content, noised[0]], 1), torch.cat([places.expand(batch, -1, -1), noised[1]], 1), mask

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the class head by a new one, to fine-tune on other classes."""
        if num_classes < 1:
            raise BadInput(f"num_classes must be at least 1, got {num_classes}")
        old = self.class_head.weight
        self.config = replace(self.config, num_classes=num_classes)
        self.class_head = nn.Linear(self.config.width, num_classes + 1, device=old.device, dtype=old.dtype)
        if self.denoising is not None:
            self.denoising = DenoisingEmbedding(num_classes, self.config.width).to(old)


class DenoisingQueries(NamedTuple):
    """Noised objects, as further queries of the decoder; losses.denoising makes them."""

    classes: Int[Tensor, "B P"]
    boxes: Float[Tensor, "B P 4"]  # centres and sizes, fractions of the image
    group: Int[Tensor, " P"]  # from 0; groups do not see each other
    real: Bool[Tensor, "B P"]  # False: padding


def group_mask(own: Float[Tensor, "B Q C"], size: int, denoising: DenoisingQueries | None) -> DenseMask | None:
    """Return which queries see each other (None: all): those of a group of `size`; noised ones also the first group."""
    batch, queries, _ = own.shape
    group = torch.arange(queries, device=own.device) // size
    if denoising is None:
        return None if queries == size else DenseMask((group[:, None] == group).expand(batch, -1, -1))
    group = torch.cat([group, denoising.group + queries // size])
    real = F.pad(denoising.real, (queries, 0), value=True)[:, None]
    is_noised = group >= queries // size
    sees = (group[:, None] == group) | (is_noised[:, None] & (group == 0))
    return DenseMask(sees & (real | torch.eye(len(group), dtype=torch.bool, device=group.device)))


class DenoisingEmbedding(nn.Module):
    """Contents and positions of denoising queries."""

    def __init__(self, num_classes: int, width: int) -> None:
        super().__init__()
        self.classes = nn.Embedding(num_classes, width)
        self.positions = AnchorPositions(width)

    def forward(self, queries: DenoisingQueries) -> tuple[Float[Tensor, "B P C"], Float[Tensor, "B P C"]]:
        return self.classes(queries.classes), self.positions(queries.boxes.to(self.classes.weight))


class AnchorPositions(nn.Module):
    """Position vectors of boxes (DAB-DETR): sines of centre and size, through two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sines = SinusoidalGridPositions(width)
        self.mlp = MLP(2 * width, width, width, layers=2)

    def forward(self, boxes: Float[Tensor, "B Q 4"]) -> Float[Tensor, "B Q C"]:
        vectors: Tensor = self.mlp(self.sines.vectors(boxes.unflatten(-1, (2, 2))).flatten(-2))
        return vectors


class BackboneStem(nn.Module):
    """Images to the grids of a backbone and, from the last, tokens: returns all grids, then the tokens B C y x."""

    exact_geometry = False  # the receptive field of a token is larger than its cell

    def __init__(self, config: Backbone, width: int, frozen_stages: int) -> None:
        super().__init__()
        self.backbone = build_backbone(config, frozen_stages)
        self.stride = stage_strides(config)[-1]
        self.strides = [self.stride]
        self.channels = stage_channels(config)
        self.project = nn.Conv2d(self.channels[-1], width, 1)

    def forward(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        grids = self.backbone.features(images)
        return [*grids, self.project(grids[-1])]

    def slots(self, images: Float[Tensor, "B C Y X"]) -> Slots:
        """Return the pixels of each token's cell."""
        return pixel_slots(images, (self.stride, self.stride))


class MLP(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, width: int, hidden: int, out: int, layers: int) -> None:
        super().__init__()
        sizes = [width, *[hidden] * (layers - 1), out]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        out: Tensor = self.layers[-1](x)
        return out


class PanopticHead(nn.Module):
    """Masks of objects: their attention maps over the image, upsampled over the backbone's grids, coarse to fine."""

    def __init__(self, width: int, heads: int, channels: Sequence[int]) -> None:
        super().__init__()
        if len(channels) != 3:
            raise BadInput(f"the panoptic head needs a backbone of 4 stages, got {len(channels) + 1}")
        if (width + heads) % 8 or width % 16:
            raise BadInput(f"masks need width % 16 == 0 and (width + heads) % 8 == 0, got {width} and {heads}")
        self.heads = heads
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.seen = ObservedWeights("cross")
        sizes = [width + heads, width + heads, width // 2, width // 4, width // 8, width // 16]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(nn.GroupNorm(min(8, size), size) for size in sizes[1:])
        self.adapters = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in zip(channels, sizes[2:5], strict=True))
        self.out = nn.Conv2d(sizes[-1], 1, 3, padding=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(
        self,
        queries: Float[Tensor, "B Q C"],
        memory: Float[Tensor, "B N C"],
        mask: KeyMask | None,
        features: Float[Tensor, "B C y x"],
        grids: Sequence[Tensor],
    ) -> Float[Tensor, "B Q Y X"]:
        """Return the logits of the masks at the size of the finest of `grids`."""
        maps = self.attention_maps(queries, memory, mask).unflatten(-1, features.shape[-2:])
        x = self._first_conv(features, maps.flatten(0, 1))
        x = F.relu(self.norms[1](self.convs[1](F.relu(self.norms[0](x)))))
        for conv, norm, adapter, grid in zip(self.convs[2:], self.norms[2:], self.adapters, grids, strict=True):
            shared = adapter(grid)[:, None]
            x = F.interpolate(x, shared.shape[-2:], mode="nearest").unflatten(0, (shared.shape[0], -1)) + shared
            x = F.relu(norm(conv(x.flatten(0, 1))))
        return self.out(x)[:, 0].unflatten(0, (queries.shape[0], -1))

    def attention_maps(
        self, queries: Float[Tensor, "B Q C"], memory: Float[Tensor, "B N C"], mask: KeyMask | None
    ) -> Float[Tensor, "B Q H N"]:
        """Return how each query attends to each cell; heads and cells together sum to 1."""
        q, k = (x.unflatten(-1, (self.heads, -1)) for x in (self.q(queries), self.k(memory)))
        scores = torch.einsum("bqhd,bnhd->bqhn", q * q.shape[-1] ** -0.5, k)
        if mask is not None:
            scores = scores.masked_fill(~mask.real[:, None, None], -torch.inf)
        maps = scores.flatten(2).softmax(-1).view_as(scores)
        return self.seen(maps.transpose(1, 2)).transpose(1, 2)

    def _first_conv(self, features: Float[Tensor, "B C y x"], maps: Float[Tensor, "R H y x"]) -> Tensor:
        """The convolution of features and maps, which is a sum of two; the first is the same for all queries."""
        first = self.convs[0]
        of_features, of_maps = first.weight.split([features.shape[1], self.heads], 1)  # type: ignore[operator]
        shared = F.conv2d(features, of_features, first.bias, padding=1)[:, None]  # type: ignore[arg-type]
        own = F.conv2d(maps, of_maps, padding=1).unflatten(0, (features.shape[0], -1))
        return (own + shared).flatten(0, 1)


def stage_strides(config: Backbone) -> list[int]:
    """Return the pixels per cell of the grids of a backbone."""
    if isinstance(config, EfficientNetConfig):
        return grid_strides(config)
    stages, first = len(config.layers), 4 if config.stem == "large" else 1
    return [first * 2 ** min(n, stages - 1 - config.dilated) for n in range(stages)]


def stage_channels(config: Backbone) -> list[int]:
    """Return the channels of the grids of a backbone."""
    if isinstance(config, EfficientNetConfig):
        return grid_widths(config)
    last = config.width * 2 ** (len(config.layers) - 1) * BLOCKS[config.block].expansion
    return [last // 2**n for n in reversed(range(len(config.layers)))]


def build_backbone(config: Backbone, frozen_stages: int) -> ResNet | EfficientNetLite:
    """Return a network without a classifier, of which the stem and the first stages, if any, are not trained."""
    if isinstance(config, EfficientNetConfig):
        if frozen_stages:
            raise BadInput(
                f"the stages of an EfficientNet cannot be frozen: frozen_stages must be 0, got {frozen_stages}"
            )
        return headless(config)
    if config.num_classes:
        raise BadInput(f"a backbone has no classifier: backbone.num_classes must be 0, got {config.num_classes}")
    if frozen_stages > len(config.layers):
        raise BadInput(f"frozen_stages must be at most {len(config.layers)}, got {frozen_stages}")
    backbone = ResNet(config)
    if frozen_stages:
        for part in (backbone.stem, *backbone.stages[:frozen_stages]):
            part.requires_grad_(False)
    return backbone


def grid_sizes(images: Tensor, sizes: Int[Tensor, "B 2"] | None, grid: tuple[int, int]) -> Int[Tensor, "#B 2"]:
    """Return the rows and columns of a grid whose first pixel lies inside the image's own size."""
    if sizes is None:
        return pair_tensor(grid, images.device)[None]
    _check_sizes(images, sizes)
    padded, cells = pair_tensor(images.shape[-2:], images.device), pair_tensor(grid, images.device)
    return (sizes * cells + padded - 1) // padded


def pair_tensor(pair: Sequence[int], device: torch.device) -> Int[Tensor, "2"]:
    """Return two numbers as a tensor, also where an exported program leaves them open."""
    return torch.stack([torch.full((), n, dtype=torch.long, device=device) for n in pair])


def real_cells(sizes: Int[Tensor, "B 2"], grid: tuple[int, int]) -> Bool[Tensor, "B Y X"]:
    """Return which cells of a grid are inside the first rows and columns `sizes`."""
    rows, columns = (
        torch.arange(n, device=sizes.device) < each[:, None] for n, each in zip(grid, sizes.T, strict=True)
    )
    return rows[:, :, None] & columns[:, None]


def _check_sizes(images: Tensor, sizes: Tensor) -> None:
    """Raise `BadInput` for impossible sizes; values are checked on the CPU only, to not wait for a GPU."""
    if torch.compiler.is_compiling():
        return
    if sizes.shape != (len(images), 2) or sizes.is_floating_point():
        raise BadInput(f"sizes must be integers, {len(images)} x 2, got {sizes.dtype} of shape {tuple(sizes.shape)}")
    if sizes.device.type == "cpu" and len(sizes):
        rows, columns = images.shape[-2:]
        wrong = (sizes < 1) | (sizes > torch.tensor([rows, columns]))
        if wrong.any():
            y, x = sizes[wrong.any(1)][0].tolist()
            raise BadInput(f"sizes must be 1 x 1 to {rows} x {columns} (rows x columns of the batch), got {y} x {x}")


def _encoder_block(config: Config, layer: int) -> EncoderBlock:
    mix = _attention(config, layer_spec(config.attention, layer), layer)
    return EncoderBlock(mix, _feed(config), _norms(config, 2), False, config.dropout)


def _decoder_block(config: Config, layer: int) -> DecoderBlock:
    mix, cross = _attention(config, "softmax", layer), _attention(config, "softmax", layer, cross=True)
    return DecoderBlock(mix, cross, _feed(config), _norms(config, 3), False, config.dropout)


def _attention(config: Config, spec: Any, layer: int, cross: bool = False) -> nn.Module:
    return build_mixer(
        spec, width=config.width, heads=config.heads, layer=layer, dropout=config.attention_dropout, cross=cross
    )


def _feed(config: Config) -> nn.Module:
    sizes = {"width": config.width, "hidden": config.ffn, "dropout": config.activation_dropout}
    part: nn.Module = build_part(FEEDFORWARDS, config.feedforward, "feed-forward", **sizes)
    return part


def _norms(config: Config, count: int) -> list[nn.Module]:
    return [nn.LayerNorm(config.width) for _ in range(count)]
