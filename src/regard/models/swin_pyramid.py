"""Swin pyramid: the four stages of a Swin, each normed, joined by a UPerNet head into numbers for every pixel.

    tokens      patches of 4 x 4 pixels; between stages 2 x 2 tokens are merged (models.swin)
    positions   a learned bias for every relative position within a window
    attention   softmax within shifted windows; linear in the number of pixels
    pooling     the coarsest map and its means over 1, 2², 3² and 6² cells, joined by a convolution: the whole image
    pyramid     every finer map plus the next coarser one, twice as large; all resized to the finest and convolved
    head        a 1 x 1 convolution, resized bilinearly to the image

Convolutions have batch norm and ReLU. `features` are the normed stages, which is what a detector reads too.

Liu et al.: Swin Transformer. ICCV 2021. arXiv:2103.14030; Xiao, Liu, Zhou, Jiang, Sun: Unified Perceptual Parsing for
Scene Understanding (UPerNet). ECCV 2018. arXiv:1807.10221; Lin et al.: Feature Pyramid Networks for Object Detection.
CVPR 2017. arXiv:1612.03144
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.window_attention import Padding
from regard.core.config import field
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.core.validation import validate
from regard.models import swin
from regard.models.contract import DenseModel


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Swin pyramid; the defaults are the paper's UPerNet with Swin-T on ADE20K."""

    num_outputs: int = 150  # classes, or 1 for inverse depth
    image_size: int | tuple[int, int] = 512  # size in training; any other works
    channels: int = 3
    patch_size: int = 4
    width: int = 96  # of the first stage, doubled in each next
    heads: tuple[int, ...] = (3, 6, 12, 24)  # of each stage
    layers: tuple[int, ...] = (2, 2, 6, 2)
    window_size: int = 7  # side in tokens
    mlp_ratio: float = field(4.0, above=0)
    pyramid_width: int = 512  # of the head's maps
    pool_sizes: tuple[int, ...] = (1, 2, 3, 6)  # cells along a side
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.3, low=0, below=1)  # of the last layer; 0 at the first, linear between
    positions: str = "table"  # a spec of WINDOW_BIASES
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    padding: Padding = "mask"  # padding tokens are masked, or attended to (attend, shifted)


# The paper's, section 4.3. Tiny is for small images and tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "num_outputs": 10,
        "image_size": 32,
        "patch_size": 2,
        "width": 16,
        "heads": (2, 4, 4),
        "layers": (2, 2, 2),
        "window_size": 4,
        "pyramid_width": 8,
        "pool_sizes": (1, 2),
    },
    "t": {},
    "s": {"layers": (2, 2, 18, 2)},
    "b": {"width": 128, "heads": (4, 8, 16, 32), "layers": (2, 2, 18, 2)},
}


class SwinPyramid(DenseModel):
    """Images to numbers for every pixel."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.backbone = swin.Swin(_backbone_config(config))
        self.backbone.norm.requires_grad_(False)  # every stage has its own here; a pretrained Swin has this one
        widths, wide = [config.width * 2**stage for stage in range(len(config.layers))], config.pyramid_width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in widths)
        self.pools = nn.ModuleList(ConvNormReLU(widths[-1], wide, 1) for _ in config.pool_sizes)
        self.context = ConvNormReLU(widths[-1] + len(config.pool_sizes) * wide, wide, 3)
        self.laterals = nn.ModuleList(ConvNormReLU(width, wide, 1) for width in widths[:-1])
        self.smooth = nn.ModuleList(ConvNormReLU(wide, wide, 3) for _ in widths[:-1])
        self.join = ConvNormReLU(len(widths) * wide, wide, 3)
        self.head = self._make_head()

    def forward(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Tensor:
        """Return the logits of the classes, or the inverse depth, of every pixel, B K Y X."""
        maps = self.features(images, pass_state)
        x, rows, columns = self.pyramid(maps), images.shape[2], images.shape[3]
        stride = self.config.patch_size
        out = _resize(self.head(x), (maps[0].shape[2] * stride, maps[0].shape[3] * stride))
        return out[..., :rows, :columns]

    def features(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> list[Tensor]:
        """Return the normed output of each stage, B C Y X, at strides of 4, 8, 16 and 32 pixels."""
        maps = self.backbone.features(images, pass_state)
        return [norm(x.movedim(1, -1)).movedim(-1, 1) for x, norm in zip(maps, self.norms, strict=True)]

    def pyramid(self, maps: list[Tensor]) -> Float[Tensor, "B D Z W"]:
        """Join maps, finest first, into one of the size of the finest."""
        *fine, x = maps
        pooled = [
            _resize(conv(F.adaptive_avg_pool2d(x, size)), x.shape[2:])
            for size, conv in zip(self.config.pool_sizes, self.pools, strict=True)
        ]
        x = self.context(torch.cat([x, *pooled], 1))
        found, size = [x], maps[0].shape[2:]
        for finer, lateral, smooth in zip(reversed(fine), reversed(self.laterals), reversed(self.smooth), strict=True):
            x = lateral(finer) + _resize(x, finer.shape[2:])
            found.append(smooth(x))
        out: Tensor = self.join(torch.cat([_resize(each, size) for each in reversed(found)], 1))
        return out

    def _make_head(self) -> nn.Module:
        return nn.Conv2d(self.config.pyramid_width, self.config.num_outputs, 1)


class ConvNormReLU(nn.Module):
    """A convolution with batch norm and ReLU."""

    def __init__(self, channels: int, width: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D Y X"]:
        return F.relu(self.norm(self.conv(x)), inplace=True)


def _resize(x: Tensor, size: tuple[int, ...]) -> Tensor:
    return F.interpolate(x, list(size), mode="bilinear", align_corners=False)


def _backbone_config(config: Config) -> swin.Config:
    """Return the Config of the Swin: the fields of the same names."""
    shared = ("image_size", "channels", "patch_size", "width", "heads", "layers", "window_size", "mlp_ratio")
    more = ("dropout", "attention_dropout", "drop_path", "positions", "attention", "padding")
    return swin.Config(num_classes=0, **{name: getattr(config, name) for name in (*shared, *more)})
