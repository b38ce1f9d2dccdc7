"""ViT: a Transformer encoder over the patches of an image.

    tokens      patches of P × P pixels through one linear map (tokens.patches; or another stem), plus a class token
    positions   a learned grid, added; interpolated for images of another size
    attention   softmax with H heads, every patch sees every patch; norm before each sublayer
    head        linear, on the class token or the mean of the patches

``model(images)`` returns the logits of the classes, ``model.pooled(images)`` the input of the head,
``model.grid(images)`` the last tokens on their grid, ``model.features(images)`` a feature pyramid. Images of any size
work; those that patches do not divide are padded with zeros.

Dosovitskiy et al.: An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale. ICLR 2021.
arXiv:2010.11929; Zhai, Kolesnikov, Houlsby, Beyer: Scaling Vision Transformers (g, G). CVPR 2022. arXiv:2106.04560;
Touvron et al.: DeiT (Ti, S). ICML 2021. arXiv:2012.12877; Touvron et al.: Going Deeper with Image Transformers
(layer scale). ICCV 2021. arXiv:2103.17239; Darcet et al.: Vision Transformers Need Registers. ICLR 2024.
arXiv:2309.16588
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS, STEMS
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.blocks.feature_pyramid import pyramid_layers, resample_to_strides
from regard.blocks.residual import LayerScale, drop_path_rates
from regard.core.config import field
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ImageModel
from regard.positions import GRID_POSITIONS
from regard.positions.none import NoPositions
from regard.tokens.patches import grid_size


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a ViT; the defaults are the paper's ViT-B/16."""

    num_classes: int = field(1000, low=0)  # 0: no head, return the pooled vector
    image_size: int | tuple[int, int] = 224  # size in training; any other works
    channels: int = 3
    patch_size: int | tuple[int, int] = 16
    width: int = 768
    heads: int = 12
    layers: int = field(12, low=0)
    ffn: int | None = None  # None: four times the width
    num_prefix_tokens: int = field(
        1, low=0
    )  # learned tokens before the patches: the first is the class, further ones are registers
    pool: Literal["token", "mean", "mean_norm"] = "token"  # of normed tokens; mean_norm: norm of the mean
    representation_size: int | None = None  # width of a tanh layer before the head, as in the paper's pretraining
    layer_scale: float | None = field(None, low=0)  # initial factor of every channel; None: no layer scale
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    drop_path: float = field(0.0, low=0, below=1)  # of the last layer; 0 at the first, linear between
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    positions: str = "learned"  # a spec of GRID_POSITIONS
    stem: Any = "patches"  # a spec of STEMS, or a module from images to B Y X C with a stride
    feedforward: str = "gelu"
    eps: float = field(1e-6, above=0)


def _size(width: int, heads: int, layers: int, patch: int, **more: Any) -> dict[str, Any]:
    return {"patch_size": patch, "width": width, "heads": heads, "layers": layers, **more}


# Ti and S are DeiT's; B, L and H the paper's, table 1; g and G those of Zhai et al., table 2. The number is the patch.
# Tiny is for small images and tests.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": _size(96, 3, 4, 4, image_size=32, num_classes=10),
    "ti32": _size(192, 3, 12, 32),
    "ti16": _size(192, 3, 12, 16),
    "ti14": _size(192, 3, 12, 14),
    "ti8": _size(192, 3, 12, 8),
    "s32": _size(384, 6, 12, 32),
    "s16": _size(384, 6, 12, 16),
    "s14": _size(384, 6, 12, 14),
    "s8": _size(384, 6, 12, 8),
    "b32": _size(768, 12, 12, 32),
    "b16": _size(768, 12, 12, 16),
    "b14": _size(768, 12, 12, 14),
    "b8": _size(768, 12, 12, 8),
    "l32": _size(1024, 16, 24, 32),
    "l16": _size(1024, 16, 24, 16),
    "l14": _size(1024, 16, 24, 14),
    "l8": _size(1024, 16, 24, 8),
    "h32": _size(1280, 16, 32, 32),
    "h16": _size(1280, 16, 32, 16),
    "h14": _size(1280, 16, 32, 14),
    "h8": _size(1280, 16, 32, 8),
    "g14": _size(1408, 16, 40, 14, ffn=6144),
    "G14": _size(1664, 16, 48, 14, ffn=8192),
    # a ResNet first (blocks.hybrid; Steiner et al. 2021): the patch counts cells of its grid, the number pixels
    "r-ti32": _size(192, 3, 12, 8, stem="hybrid(layers=())"),
    "r26-s32": _size(384, 6, 12, 1, stem="hybrid(layers=(2, 2, 2, 2))"),
    "r26-b32": _size(768, 12, 12, 1, stem="hybrid(layers=(2, 2, 2, 2))"),
    "r50-b16": _size(768, 12, 12, 1, stem="hybrid(layers=(3, 4, 9))"),
    "r50-l32": _size(1024, 16, 24, 1, stem="hybrid(layers=(3, 4, 6, 3))"),
    # for CIFAR, after the ViT-Lite of Hassani et al. 2021 (models.cct)
    "lite6-4": _size(256, 4, 6, 4, ffn=512, image_size=32, num_classes=10),
    "lite7-4": _size(256, 4, 7, 4, ffn=512, image_size=32, num_classes=10),
    "lite7-8": _size(256, 4, 7, 8, ffn=512, image_size=32, num_classes=10),
}


class ViT(ImageModel):
    """Images to logits of classes."""

    no_weight_decay = ("prefix_tokens",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        if config.pool == "token" and not config.num_prefix_tokens:
            raise RegardError("pool='token' needs a class token: set num_prefix_tokens=1, or pool='mean'")
        self.config, self.num_prefix_tokens = config, config.num_prefix_tokens
        self.stem = build_part(
            STEMS, config.stem, "stem", channels=config.channels, width=config.width, patch=config.patch_size
        )
        self.prefix_tokens = (
            nn.Parameter(torch.empty(config.num_prefix_tokens, config.width)) if config.num_prefix_tokens else None
        )
        grid = grid_size(config.image_size, self.stem.stride)
        self.positions = build_part(
            GRID_POSITIONS,
            config.positions,
            "positions on a grid",
            width=config.width,
            grid=grid,
            prefix=config.num_prefix_tokens,
        )
        late = config.pool == "mean_norm"
        blocks = [make_block(config, layer, grid) for layer in range(config.layers)]
        self.encoder = Encoder(blocks, NoPositions(), None if late else _norm(config), config.dropout)
        self.pool_norm = _norm(config) if late else None
        self.pre_logits = nn.Linear(config.width, config.representation_size) if config.representation_size else None
        self.head = (
            nn.Linear(config.representation_size or config.width, config.num_classes) if config.num_classes else None
        )
        self.reset()

    def forward(
        self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None
    ) -> Float[Tensor, "B classes"]:
        """Return the logits of the classes, or the pooled vector if there are none; as the lecture's pseudocode."""
        patches = self.stem(images)  # B Y X C
        sequence = self.sequence(patches)  # concat(class token, patches) + positions
        hidden = self.encoder(sequence, None, pass_state)
        return self.classify(self.pool(hidden))

    @property
    def num_features(self) -> int:
        return self.config.representation_size or self.config.width

    def forward_features(
        self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None
    ) -> Float[Tensor, "B N D"]:
        return self._normed(self.encoder(self.sequence(self.stem(images)), None, pass_state))

    def pooled(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B R"]:
        """Return the input of the head."""
        return self.pool(self.encoder(self.sequence(self.stem(images)), None, pass_state))

    def grid(self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B y x D"]:
        """Return the normed patch tokens of the last layer on their grid."""
        patches = self.stem(images)
        hidden = self.encoder(self.sequence(patches), None, pass_state)
        return self._placed(self._normed(hidden), patches.shape[1:3])

    def features(
        self, images: Float[Tensor, "B C Y X"], pass_state: PassState | None = None
    ) -> list[Float[Tensor, "B D y x"]]:
        """Return a pyramid at strides 4, 8, 16 and 32: normed tokens of four depths, resampled bilinearly."""
        patches = self.stem(images)
        depths = pyramid_layers(self.config.layers)
        found = self.encoder.intermediate_layers(self.sequence(patches), depths, None, pass_state)
        grids = [self._placed(self._normed(self.encoder.final_norm(x)), patches.shape[1:3]) for x in found]
        return resample_to_strides(grids, (images.shape[2], images.shape[3]))

    def sequence(self, patches: Float[Tensor, "B y x D"]) -> Float[Tensor, "B N D"]:
        """Concatenate the prefix tokens and the patches, row by row, and add positions."""
        tokens = patches.flatten(1, 2)
        if self.prefix_tokens is not None:
            tokens = torch.cat([self.prefix_tokens.to(tokens.dtype).expand(tokens.shape[0], -1, -1), tokens], 1)
        placed: Tensor = self.positions(tokens, (patches.shape[1], patches.shape[2]))
        return placed

    def pool(self, hidden: Float[Tensor, "B N D"]) -> Float[Tensor, "B R"]:
        """Return one vector of the image."""
        x = hidden[:, 0] if self.config.pool == "token" else hidden[:, self.num_prefix_tokens :].mean(1)
        x = x if self.pool_norm is None else self.pool_norm(x)
        return x if self.pre_logits is None else torch.tanh(self.pre_logits(x))

    def classify(self, pooled: Float[Tensor, "B R"]) -> Float[Tensor, "B classes"]:
        """Apply the head to pooled vectors; without a head, return them."""
        return pooled if self.head is None else self.head(pooled)

    def _normed(self, hidden: Tensor) -> Tensor:
        """Norm the tokens, unless the norm is after the mean."""
        return hidden if self.pool_norm is None else self.pool_norm(hidden)

    def _placed(self, tokens: Float[Tensor, "B N D"], grid: Any) -> Float[Tensor, "B y x D"]:
        return tokens[:, self.num_prefix_tokens :].unflatten(1, tuple(grid))

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights as DeiT: truncated normal with std 0.02, biases 0; patches by fan-in."""
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear) and not name.startswith("stem."):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    module.bias.zero_()
        if self.prefix_tokens is not None:
            nn.init.trunc_normal_(self.prefix_tokens, std=0.02)


def make_block(config: Config, layer: int, grid: tuple[int, int]) -> EncoderBlock:
    """Return a block of the encoder for a grid of this size at the training size."""
    mix = build_mixer(
        layer_spec(config.attention, layer),
        layer=layer,
        width=config.width,
        heads=config.heads,
        length=config.num_prefix_tokens + grid[0] * grid[1],
        grid=grid,
        prefix=config.num_prefix_tokens,
        dropout=config.attention_dropout,
    )
    hidden = 4 * config.width if config.ffn is None else config.ffn
    feed = build_part(
        FEEDFORWARDS, config.feedforward, "feed-forward", width=config.width, hidden=hidden, dropout=config.dropout
    )
    start = config.layer_scale
    scales = [None if start is None else LayerScale(config.width, float(start)) for _ in range(2)]
    path = drop_path_rates(config.drop_path, config.layers)[layer]
    return EncoderBlock(mix, feed, [_norm(config), _norm(config)], True, config.dropout, path, scales)


def _norm(config: Config) -> nn.Module:
    return nn.LayerNorm(config.width, eps=config.eps)
