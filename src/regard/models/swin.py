"""Swin: a hierarchical vision Transformer with attention in shifted windows.

    tokens      patches of 4 x 4 pixels, normed; between stages 2 x 2 tokens are merged into one of twice the width
    positions   a learned bias for every relative position within a window (positions.bias.window)
    attention   softmax within windows of 7 x 7; in every other layer the windows are shifted by half
    head        linear, on the mean of the last tokens

The cost is linear in the number of pixels, and the four stages are a feature pyramid. Images of any size work: a grid
that windows do not divide is padded, and the padding is masked (`padding`, attention.window_attention). No window is
larger than the grid of its stage at the training size.

Liu et al.: Swin Transformer: Hierarchical Vision Transformer using Shifted Windows. ICCV 2021. arXiv:2103.14030
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.attention.window_attention import Padding, WindowAttention
from regard.blocks.encoder import EncoderBlock
from regard.blocks.feedforward import GeluFeedForward
from regard.blocks.residual import drop_path_rates
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Pair, Tensor
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ImageModel
from regard.positions import WINDOW_BIASES
from regard.positions.bias.window import WindowBias
from regard.tokens.patch_merging import PatchMerging
from regard.tokens.patches import PatchEmbedding, grid_size


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Swin; the defaults are the paper's Swin-T."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    channels: int = 3
    patch_size: int = 4
    width: int = 96  # of the first stage, doubled in each next
    heads: tuple[int, ...] = (3, 6, 12, 24)  # of each stage
    layers: tuple[int, ...] = (2, 2, 6, 2)
    window_size: int = 7  # side in tokens
    mlp_ratio: float = field(4.0, above=0)  # hidden width of the feed-forward / width
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.2, low=0, below=1)  # of the last layer; 0 at the first, linear between
    positions: str = "table"  # a spec of WINDOW_BIASES
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    padding: Padding = "mask"  # padding tokens are masked, or attended to (attend, shifted)


# The paper's, section 3.3 and appendix A2 (drop path); L is the one fine-tuned from ImageNet-22K. The number is the
# side of an image. Tiny is for small images and tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "num_classes": 10,
        "image_size": 32,
        "patch_size": 2,
        "width": 24,
        "heads": (2, 4, 8),
        "layers": (2, 2, 2),
        "window_size": 4,
    },
    "t": {},
    "s": {"layers": (2, 2, 18, 2), "drop_path": 0.3},
    "b": {"width": 128, "heads": (4, 8, 16, 32), "layers": (2, 2, 18, 2), "drop_path": 0.5},
    "l": {"width": 192, "heads": (6, 12, 24, 48), "layers": (2, 2, 18, 2)},
    "b384": {
        "image_size": 384,
        "window_size": 12,
        "width": 128,
        "heads": (4, 8, 16, 32),
        "layers": (2, 2, 18, 2),
        "drop_path": 0.5,
    },
    "l384": {"image_size": 384, "window_size": 12, "width": 192, "heads": (6, 12, 24, 48), "layers": (2, 2, 18, 2)},
}


class Swin(ImageModel):
    """Images to logits of classes."""

    merging, mixing, block = PatchMerging, WindowAttention, EncoderBlock  # replaced in Swin v2

    def __init__(self, config: Any) -> None:
        super().__init__()
        validate(config)
        if len(config.heads) != len(config.layers):
            raise RegardError(f"heads={config.heads} and layers={config.layers} must have one value for each stage")
        self.config = config
        self.stem = PatchEmbedding(config.channels, config.width, config.patch_size)
        self.embed_norm = nn.LayerNorm(config.width)
        self.stages = nn.ModuleList(self._stage(stage) for stage in range(len(config.layers)))
        last = config.width * 2 ** (len(config.layers) - 1)
        self.norm = nn.LayerNorm(last)
        self.head = nn.Linear(last, config.num_classes) if config.num_classes else None
        self.reset()

    def forward(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B K"]:
        """Return the logits of the classes, or the pooled vector if there are none."""
        x = self.pooled(images, pass_state)
        return x if self.head is None else self.head(x)

    @property
    def num_features(self) -> int:
        return self.config.width * 2 ** (len(self.config.layers) - 1)

    def forward_features(
        self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None
    ) -> Float[Tensor, "B y x D"]:
        return self.grid(images, pass_state)

    def pooled(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B D"]:
        """Return the mean of the last tokens."""
        return self.grid(images, pass_state).mean((1, 2))

    def grid(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B y x D"]:
        """Return the normed tokens of the last layer on their grid: one for 32 x 32 pixels in the published sizes."""
        out: Tensor = self.norm(self._scales(images, pass_state)[-1])
        return out

    def features(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> list[Tensor]:
        """Return the output of each stage, B C Y X, not normed, at strides of 1, 2, 4 ... patches.

        In the published sizes these are strides of 4, 8, 16 and 32 pixels.
        """
        return [x.permute(0, 3, 1, 2) for x in self._scales(images, pass_state)]

    def _scales(self, images: Tensor, pass_state: PassState | None) -> list[Tensor]:
        x, found = self.embed_norm(self.stem(images)), []
        pass_state = PassState() if pass_state is None else pass_state
        for n, stage in enumerate(self.stages):  # a branch for each: scores of one stage do not fit those of the next
            x = stage(x, pass_state.branch(f"stages.{n}"))
            found.append(x)
        return found

    def _stage(self, stage: int) -> Stage:
        """Build a stage: merging, except in the first, then blocks, every other one with shifted windows."""
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
        """Return the window of a stage: the whole grid where that is smaller."""
        down, right = (
            min(self.config.window_size, side)
            for side in grid_size(self.config.image_size, self.config.patch_size * 2**stage)
        )
        return down, right

    def reset(self) -> None:
        """Initialise the weights as in the paper: truncated normal with std 0.02, biases 0."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class Stage(nn.Module):
    """The merging into a stage and its blocks."""

    def __init__(self, merge: nn.Module | None, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.merge = merge
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Float[Tensor, "B Y X C"], pass_state: PassState) -> Float[Tensor, "B y x D"]:
        x = x if self.merge is None else self.merge(x)
        for depth, block in enumerate(self.blocks):
            x = block(x, layer_state=pass_state.layer(depth))
        return x
