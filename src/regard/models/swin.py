"""Swin: a Transformer that looks through windows and sees the image at four scales.

    tokens      patches of 4 x 4 pixels, normed; between the stages four neighbours become one of twice the width
    positions   a learned number for every step within a window, added to the scores (positions.biased.window)
    attention   softmax within windows of 7 x 7; every other layer's windows are shifted by half of one
    head        a linear map of the mean of the last tokens

Its cost grows with the number of pixels, not with its square, so that it reads large images; and its four stages are a
pyramid of features. Images of any size are read: where windows do not divide a grid, it is filled up, and the padding
is masked (`padding`, blocks.windowed). No window is larger than its stage's grid at the size the model is trained at.

Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.blocks.drop_path import drop_path_rates
from regard.blocks.encoder import EncoderBlock
from regard.blocks.feedforward import GeluFeedForward
from regard.blocks.shifted_window import Padding, WindowAttention
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.shapes import Float, Pair, Tensor
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.positions import WINDOW_BIASES
from regard.positions.bias.window import WindowBias
from regard.tokens.patch_merging import PatchMerging
from regard.tokens.patches import PatchEmbedding, grid_size


@dataclass(frozen=True)
class Config:
    """Everything that shapes a Swin; the defaults are the paper's Swin-T."""

    num_classes: int = field(1000, low=0)  # 0: no head, the pooled vector itself
    image_size: int | tuple[int, int] = 224  # rows and columns it is trained at; others are read too
    channels: int = 3
    patch_size: int = 4
    width: int = 96  # of the first stage; every further one has twice as much
    heads: tuple[int, ...] = (3, 6, 12, 24)  # stage by stage
    layers: tuple[int, ...] = (2, 2, 6, 2)
    window_size: int = 7  # cells on a side
    mlp_ratio: float = field(4.0, above=0)  # how much wider the feed-forward layers are
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.2, low=0, below=1)  # of the last layer; the first is never left out
    positions: str = "table"  # a spec of WINDOW_BIASES
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module of one's own
    padding: Padding = "mask"  # what fills a grid up to whole windows: no key, or one (attend, shifted)


# The paper's, section 3.3 and appendix A2 (drop path); L is the one fine-tuned from ImageNet-22K. The number is the
# side of an image. The one called tiny is nobody's: for small images, and to try things.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "num_classes": 10, "image_size": 32, "patch_size": 2, "width": 24, "heads": (2, 4, 8), "layers": (2, 2, 2), "window_size": 4,
    },
    "t": {},
    "s": {"layers": (2, 2, 18, 2), "drop_path": 0.3},
    "b": {"width": 128, "heads": (4, 8, 16, 32), "layers": (2, 2, 18, 2), "drop_path": 0.5},
    "l": {"width": 192, "heads": (6, 12, 24, 48), "layers": (2, 2, 18, 2)},
    "b384": {
        "image_size": 384, "window_size": 12, "width": 128, "heads": (4, 8, 16, 32), "layers": (2, 2, 18, 2), "drop_path": 0.5,
    },
    "l384": {"image_size": 384, "window_size": 12, "width": 192, "heads": (6, 12, 24, 48), "layers": (2, 2, 18, 2)},
}  # fmt: skip


class Swin(nn.Module):
    """Images in; out, the logits of the classes."""

    forward_methods = ("pooled", "grid", "features")  # what is called on a model beside itself
    num_prefix_tokens = 0  # no token stands before the patches
    merging, mixing, block = PatchMerging, WindowAttention, EncoderBlock  # the parts that a later version has otherwise

    def __init__(self, config: Any) -> None:
        super().__init__()
        validate(config)
        if len(config.heads) != len(config.layers):
            raise RegardError(f"heads={config.heads} and layers={config.layers} must name as many stages")
        self.config = config
        self.stem = PatchEmbedding(config.channels, config.width, config.patch_size)
        self.embed_norm = nn.LayerNorm(config.width)
        self.stages = nn.ModuleList(self._stage(stage) for stage in range(len(config.layers)))
        last = config.width * 2 ** (len(config.layers) - 1)
        self.norm = nn.LayerNorm(last)
        self.head = nn.Linear(last, config.num_classes) if config.num_classes else None
        self.reset()

    def forward(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B K"]:
        """The logits of the classes; the pooled vector where there are none."""
        x = self.pooled(images)
        return x if self.head is None else self.head(x)

    def pooled(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D"]:
        """What the head reads: the mean of the last tokens."""
        return self.grid(images).mean((1, 2))

    def grid(self, images: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B y x D"]:
        """The last tokens in their places, normed: one for every 32 x 32 pixels, in the published sizes."""
        out: Tensor = self.norm(self._scales(images)[-1])
        return out

    def features(self, images: Float[Tensor, "B C Y X"]) -> list[Tensor]:
        """What each stage gives, B C Y X, not normed: at strides of 1, 2, 4 ... patches.

        In the published sizes, with patches of 4 pixels and four stages, these are strides of 4, 8, 16 and 32 pixels;
        in the one called tiny, with patches of 2 and three stages, of 2, 4 and 8.
        """
        return [x.permute(0, 3, 1, 2) for x in self._scales(images)]

    def _scales(self, images: Tensor) -> list[Tensor]:
        x, found = self.embed_norm(self.stem(images)), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found

    def _stage(self, stage: int) -> Stage:
        """Merging, but for the first; then blocks, every other one with shifted windows."""
        config, before = self.config, sum(self.config.layers[:stage])
        width = config.width * 2**stage
        drops = drop_path_rates(config.drop_path, sum(config.layers))[before:]
        blocks = []
        for layer in range(config.layers[stage]):
            feed = GeluFeedForward(width, int(width * config.mlp_ratio), config.dropout)
            norms = [nn.LayerNorm(width), nn.LayerNorm(width)]
            mix = self._mixer(width, stage, layer)
            blocks.append(self.block(mix, feed, norms, True, config.dropout, drops[layer]))
        return Stage(self.merging(width // 2) if stage else None, blocks)

    def _mixer(self, width: int, stage: int, layer: int) -> WindowAttention:
        config = self.config
        return self.mixing(
            width,
            config.heads[stage],
            self._positions(stage),
            shifted=layer % 2 == 1,
            attention=layer_spec(config.attention, sum(config.layers[:stage]) + layer),
            dropout=config.attention_dropout,
            padding=config.padding,
        )

    def _positions(self, stage: int, **more: Any) -> WindowBias:
        window, heads = self._window(stage), self.config.heads[stage]
        part: WindowBias = build_part(
            WINDOW_BIASES, self.config.positions, "positions", heads=heads, window=window, **more
        )
        return part

    def _window(self, stage: int) -> Pair:
        """The window of a stage: its whole grid where that is smaller."""
        down, right = (
            min(self.config.window_size, side)
            for side in grid_size(self.config.image_size, self.config.patch_size * 2**stage)
        )
        return down, right

    def reset(self) -> None:
        """Fresh weights, as the paper's: normal with 0.02 and cut off, biases 0."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class Stage(nn.Module):
    """Blocks at one scale, and the merging that leads there."""

    def __init__(self, merge: nn.Module | None, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.merge = merge
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Float[Tensor, "B Y X C"]) -> Float[Tensor, "B y x D"]:
        """A grid in, one half as wide and high out, but for the first stage."""
        x = x if self.merge is None else self.merge(x)
        for block in self.blocks:
            x = block(x)
        return x
