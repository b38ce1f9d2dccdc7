"""DPT: a dense prediction Transformer; tokens of four depths become maps of four scales, fused from coarse to fine.

    tokens      patches of 16 x 16 pixels with a class token, as in ViT; hybrid: cells of a ResNet or EfficientNet
    positions   a learned grid, added; interpolated bilinearly for images of another size
    attention   softmax, every patch sees every patch at every depth: the receptive field is global from the start
    reassemble  tokens (+ the class token, projected in) -> 1 x 1 convolution -> resized to strides 4, 8, 16, 32
    fusion      residual convolutions of the map and of the sum with the coarser one, twice as large after each
    head        depth: three convolutions to one inverse depth, not negative; segmentation: K logits

``num_outputs=1`` is inverse depth (up to a scale and a shift, losses.scale_shift_invariant), more are classes. In the
hybrid the two finest maps are the first two stages of that network. Images of any size work: they are padded to whole
patches, and a map that is not twice the coarser one is resized to it, as in transformers.

Ranftl, Bochkovskiy, Koltun: Vision Transformers for Dense Prediction. ICCV 2021. arXiv:2103.13413
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch.nn.functional as F
from torch import nn

from regard.blocks.hybrid import HybridStem
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models import vit
from regard.models.contract import DenseModel
from regard.models.efficientnet_lite import Config as EfficientNetConfig
from regard.models.efficientnet_lite import EfficientNetStem
from regard.tokens.patches import check_images, pad_to_stride

FACTORS = (4.0, 2.0, 1.0, 0.5)  # from the grid of tokens to the four scales


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a DPT; the defaults are the paper's DPT-Large."""

    num_outputs: int = 1  # 1: inverse depth; else classes
    image_size: int | tuple[int, int] = 384  # size in training; any other works
    channels: int = 3
    patch_size: int | tuple[int, int] = 16
    width: int = 1024
    heads: int = 16
    layers: int = 24
    ffn: int | None = None  # None: four times the width
    out_layers: tuple[int, ...] = (5, 12, 18, 24)  # blocks after which tokens are read; two with a hybrid stem
    readout: Literal["project", "add", "ignore"] = "project"  # what becomes of the class token
    reassemble_widths: tuple[int, int, int, int] = (256, 512, 1024, 1024)  # of the four maps, finest first
    fusion_width: int = 256
    fusion_norm: bool = False  # batch norm in the fusion, as for segmentation in the paper
    head_dropout: float = field(0.1, low=0, below=1)  # of the segmentation head
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.0, low=0, below=1)  # of the last layer; 0 at the first, linear between
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    positions: str = "learned(interpolation='bilinear', antialias=False)"  # a spec of GRID_POSITIONS
    stem: Any = "patches"  # or "hybrid(layers=(3, 4, 9))", a ResNet, with patch_size=1
    backbone: EfficientNetConfig | None = None  # instead of a stem: two maps and tokens of stride 16 from its grids
    eps: float = field(1e-6, above=0)

    def quick(self) -> Config:
        """Return the settings of a quick run: one block for every map."""
        maps = len(self.out_layers)
        return replace(self, layers=maps, out_layers=tuple(range(1, maps + 1)))


_BASE: dict[str, Any] = {"width": 768, "heads": 12, "layers": 12}

# The paper's, section 3. Tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "image_size": 32,
        "patch_size": 8,
        "width": 24,
        "heads": 2,
        "layers": 4,
        "out_layers": (1, 2, 3, 4),
        "reassemble_widths": (4, 6, 8, 10),
        "fusion_width": 8,
        "num_outputs": 10,
    },
    "base": {**_BASE, "out_layers": (3, 6, 9, 12), "reassemble_widths": (96, 192, 384, 768)},
    "large": {},
    "hybrid": {
        **_BASE,
        "out_layers": (9, 12),
        "reassemble_widths": (256, 512, 768, 768),
        "patch_size": 1,
        "stem": "hybrid(layers=(3, 4, 9))",
    },
}


class DPT(DenseModel):
    """Images to inverse depth or to logits of classes for every pixel."""

    num_prefix_tokens = 1

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.backbone = vit.ViT(replace(_backbone_config(config), stem=_stem(config)))
        assert self.backbone.encoder.norm is not None
        self.backbone.encoder.norm.requires_grad_(False)  # no map reads it; a pretrained ViT has it
        stem, widths = self.backbone.stem, config.reassemble_widths
        self.stem_maps = 2 if isinstance(stem, (HybridStem, EfficientNetStem)) else 0
        _check_maps(config, stem)
        self.reassemble = nn.ModuleList(
            Reassemble(config, width, factor)
            for width, factor in list(zip(widths, FACTORS, strict=True))[self.stem_maps :]
        )
        self.narrow = nn.ModuleList(nn.Conv2d(width, config.fusion_width, 3, padding=1, bias=False) for width in widths)
        self.fusion = nn.ModuleList(
            Fusion(config.fusion_width, config.fusion_norm, is_coarsest=n == len(widths) - 1)
            for n in range(len(widths))
        )
        self.head = self._make_head()

    def forward(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Tensor:
        """Return the inverse depth or the logits of the classes of every pixel, B K Y X."""
        fused, (down, right) = None, self.backbone.stem.stride
        maps = self.features(images, pass_state)
        for x, narrow, fuse in zip(reversed(maps), reversed(self.narrow), reversed(self.fusion), strict=True):
            fused = fuse(narrow(x), fused)
        rows, columns = images.shape[2:]
        out: Tensor = self.head(fused, (rows + -rows % down, columns + -columns % right))
        return out[..., :rows, :columns]

    def features(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> list[Tensor]:
        """Return the four reassembled maps, B C Y X, at strides 4, 8, 16 and 32 where patches are of 16 pixels."""
        check_images(images, self.config.channels)
        images = pad_to_stride(images, self.backbone.stem.stride)
        stem: Any = self.backbone.stem
        stages = stem.stage_maps(images) if self.stem_maps else []  # the two finest maps are before the last
        patches = stem.tokens(stages[-1]) if self.stem_maps else stem(images)
        sequence = self.backbone.sequence(patches)
        found = self.backbone.encoder.intermediate_layers(sequence, self.config.out_layers, None, pass_state)
        grid = (patches.shape[1], patches.shape[2])
        tokens = [part(x, grid) for part, x in zip(self.reassemble, found, strict=True)]
        return [*stages[-1 - self.stem_maps : -1], *tokens] if self.stem_maps else tokens

    def _make_head(self) -> nn.Module:
        return DepthHead(self.config) if self.config.num_outputs == 1 else SegmentationHead(self.config)


class Reassemble(nn.Module):
    """Tokens of one depth to a map of one scale."""

    def __init__(self, config: Config, width: int, factor: float) -> None:
        super().__init__()
        self.readout = config.readout
        self.read = nn.Linear(2 * config.width, config.width) if config.readout == "project" else None
        self.project = nn.Conv2d(config.width, width, 1)
        self.resize: nn.Module = nn.Identity()
        if factor > 1:
            self.resize = nn.ConvTranspose2d(width, width, int(factor), int(factor))
        elif factor < 1:
            self.resize = nn.Conv2d(width, width, 3, int(1 / factor), padding=1)

    def forward(self, hidden: Float[Tensor, "B N D"], grid: tuple[int, int]) -> Float[Tensor, "B E Z W"]:
        readout, tokens = hidden[:, :1], hidden[:, 1:]
        if self.read is not None:  # the linear map of both, concatenated, in two parts: the readout's once per image
            of_tokens, of_readout = self.read.weight.chunk(2, 1)
            tokens = F.gelu(F.linear(tokens, of_tokens) + F.linear(readout, of_readout, self.read.bias))
        elif self.readout == "add":
            tokens = tokens + readout
        out: Tensor = self.resize(self.project(tokens.mT.unflatten(2, grid)))
        return out


class Fusion(nn.Module):
    """Add a map to the coarser ones and double its size; the coarsest has none to be added to."""

    def __init__(self, width: int, norm: bool, is_coarsest: bool) -> None:
        super().__init__()
        self.skip = None if is_coarsest else ResidualUnit(width, norm)
        self.merge = ResidualUnit(width, norm)
        self.project = nn.Conv2d(width, width, 1)

    def forward(self, x: Float[Tensor, "B C Y X"], coarser: Float[Tensor, "B C Z W"] | None) -> Tensor:
        if self.skip is not None and coarser is not None:
            if x.shape[2:] != coarser.shape[2:]:
                x = F.interpolate(x, coarser.shape[2:], mode="bilinear", align_corners=False)
            x = coarser + self.skip(x)
        x = self.project(self.merge(x))  # a 1 x 1 convolution before or after a resize is the same; here it is cheaper
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)


class ResidualUnit(nn.Module):
    """x + C relu(C relu(x)) with 3 x 3 convolutions, each with a batch norm if asked for."""

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=not norm) for _ in range(2))
        self.norm1, self.norm2 = (nn.BatchNorm2d(width) if norm else nn.Identity() for _ in range(2))

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C Y X"]:
        out: Tensor = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(F.relu(x))))))
        return out + x


class DepthHead(nn.Module):
    """Three convolutions to one inverse depth, not negative; resized to the image after the first."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        half = max(1, config.fusion_width // 2)
        self.conv1 = nn.Conv2d(config.fusion_width, half, 3, padding=1)
        self.conv2 = nn.Conv2d(half, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 1, 1)
        nn.init.ones_(self.conv3.bias)  # type: ignore[arg-type]  # the last ReLU starts open

    def forward(self, x: Float[Tensor, "B C Z W"], size: tuple[int, int]) -> Float[Tensor, "B 1 Y X"]:
        x = F.interpolate(self.conv1(x), size, mode="bilinear", align_corners=True)
        return F.relu(self.conv3(F.relu(self.conv2(x))))


class SegmentationHead(nn.Module):
    """A convolution with batch norm, then logits, resized to the image."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.conv = nn.Conv2d(config.fusion_width, config.fusion_width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(config.fusion_width)
        self.drop = nn.Dropout(config.head_dropout)
        self.classify = nn.Conv2d(config.fusion_width, config.num_outputs, 1)

    def forward(self, x: Float[Tensor, "B C Z W"], size: tuple[int, int]) -> Float[Tensor, "B K Y X"]:
        logits = self.classify(self.drop(F.relu(self.norm(self.conv(x)))))
        return F.interpolate(logits, size, mode="bilinear", align_corners=True)


def _backbone_config(config: Config) -> vit.Config:
    """Return the Config of the ViT: a DPT's fields of the same names."""
    shared = ("image_size", "channels", "patch_size", "width", "heads", "layers", "ffn", "dropout", "stem", "eps")
    more = ("attention_dropout", "drop_path", "attention", "positions")
    return vit.Config(num_classes=0, **{name: getattr(config, name) for name in (*shared, *more)})


def _check_maps(config: Config, stem: nn.Module) -> None:
    """Raise an error unless stem and blocks give four maps of the given widths."""
    layers = config.out_layers
    needed = 2 if isinstance(stem, (HybridStem, EfficientNetStem)) else 4
    if len(layers) != needed or list(layers) != sorted(set(layers)) or layers[-1] > config.layers:
        raise RegardError(
            f"out_layers={layers} must be {needed} growing numbers of blocks, at most layers={config.layers}"
        )
    if isinstance(stem, HybridStem):
        widths = [_stage_width(stage) for stage in stem.stages]
        if len(widths) != 3 or widths[:2] != list(config.reassemble_widths[:2]):
            raise RegardError(
                f"a hybrid stem needs three stages, and reassemble_widths that begin with the widths of the first two; "
                f"got stages of {widths} and {config.reassemble_widths}"
            )

    if isinstance(stem, EfficientNetStem) and stem.skip_widths != list(config.reassemble_widths[:2]):
        raise RegardError(
            f"reassemble_widths must begin with the widths of the backbone's first two grids, {stem.skip_widths}; got "
            f"{config.reassemble_widths}"
        )


def _stem(config: Config) -> Any:
    if config.backbone is None:
        return config.stem
    return EfficientNetStem(config.backbone, config.width, level=2)


def _stage_width(stage: Any) -> int:
    return int(stage.blocks[-1].conv3.out_channels)
