"""ImageGPT: a GPT over the pixels of a small image, of which each is one of a few colours.

    p(image) = Π_n softmax(W h_n)[x_n]        x_n: the number of the colour that is nearest to pixel n

    tokens      Y X of them, row by row: 512 colours (k-means over the training images), or levels of grey
    positions   a learned table, added to the tokens
    attention   softmax, causal: O((Y X)²) scores, so 32 x 32 pixels are about the limit
    head        linear, to the colour of the next pixel; or, with num_classes, on the mean of the last features

A class of images is read off the same network without the token that begins an image. The paper's norm is an RMS norm
and its activation x σ(1.702 x).

Chen, Radford, Child, Wu, Jun, Luan, Sutskever: Generative Pretraining from Pixels. ICML 2020
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import UInt8
from torch import nn

from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS
from regard.blocks.autoregressive import AutoregressiveModel
from regard.blocks.causal import CausalBlock, CausalStack
from regard.blocks.norms import RMSNorm
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Int, Shaped, Size, Tensor, check_id_range, check_token_ids, pair
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.positions.added.learned import LearnedPositions
from regard.tokens.color_palette import ColorPalette


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an ImageGPT; the defaults are the smallest of the paper's."""

    image_size: Size = 32
    channels: int = 3
    levels: int = field(512, low=2, high=65_536)  # colours
    num_classes: int = field(0, low=0)  # 0: no classes, the logits of the next pixel's colour
    width: int = 512
    heads: int = 8
    layers: int = 24
    ffn: int | None = None  # None: four times the width
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.1, low=0, below=1)
    feedforward: str = "quick_gelu"
    attention: Any = "softmax"  # a spec, a list of them (one a layer, cycled), or a module
    norm_eps: float = field(1e-5, above=0)
    mean: tuple[float, ...] = (0.5,)  # what was subtracted from the numbers that it reads as an image,
    std: tuple[float, ...] = (0.5,)  # and what they were divided by


# Widths and depths of the paper (section 4.1); mnist and tiny are our own.
SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "medium": {"width": 1024, "layers": 36},
    "large": {"width": 1536, "heads": 16, "layers": 48},
    "grey": {"channels": 1, "levels": 16, "width": 128, "heads": 4, "layers": 6, "dropout": 0.0},
    "tiny": {
        "image_size": 5, "levels": 12, "width": 24, "heads": 2, "layers": 2, "dropout": 0.0, "attention_dropout": 0.0
    },
}  # fmt: skip


class ImageGPT(AutoregressiveModel, ModelContract):
    """Images to the logits of all their colours, or to those of classes; decodes step by step (blocks.autoregressive).

    The token `levels` comes before an image; no token ends one, since the number of tokens is known. An image is given
    as numbers B C Y X, of which each pixel becomes the nearest colour of the palette, or as colours, integers B 1 Y X.
    """

    config: Config
    forward_methods = ("token_logits", "pooled", "forward_features")

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        rows, columns = pair(config.image_size)
        self.length = rows * columns
        self.palette = ColorPalette(config.levels, config.channels)
        self.embed = nn.Embedding(config.levels + 1, config.width)  # the last one begins an image
        blocks = [_block(config, layer) for layer in range(config.layers)]
        positions = LearnedPositions(config.width, self.length)
        self.decoder = CausalStack(blocks, positions, RMSNorm(config.width, config.norm_eps), config.dropout)
        self.head = nn.Linear(config.width, config.num_classes or config.levels, bias=False)
        self.reset()

    def forward(self, images: Shaped[Tensor, "B C Y X"], pass_state: PassState | None = None) -> Float[Tensor, "B ..."]:
        """Return the logits of classes B K, or those of every pixel's colour B 1 Y X V, given the pixels before it."""
        tokens = self.tokens(images)
        if self.config.num_classes:
            return self.head(self._features(tokens, pass_state).mean(1))
        shifted = torch.cat([self.begin(len(tokens), tokens.device), tokens[:, :-1]], 1)
        return self.token_logits(shifted, pass_state).unflatten(1, (1, *pair(self.config.image_size)))

    def token_logits(self, tokens: Int[Tensor, "B N"], pass_state: PassState | None = None) -> Float[Tensor, "B N V"]:
        """Return the logits after each token of the beginnings of images; the first token is that of `begin`."""
        if tokens.shape[1] > self.length:
            raise BadInput(f"an image of this model has {self.length} tokens, got {tokens.shape[1]}")
        return self.head(self._features(check_token_ids(tokens), pass_state))

    def _features(self, tokens: Int[Tensor, "B N"], pass_state: PassState | None = None) -> Float[Tensor, "B N C"]:
        return self.decoder(self.embed(tokens), None, pass_state)

    def forward_features(self, images: Shaped[Tensor, "B C Y X"]) -> Float[Tensor, "B N C"]:
        """Return the last features of every pixel, of which each has seen those before it."""
        return self._features(self.tokens(images))

    def pooled(self, images: Shaped[Tensor, "B C Y X"]) -> Float[Tensor, "B C"]:
        """Return the mean of the last features."""
        return self.forward_features(images).mean(1)

    # -- images and tokens ---------------------------------------------------------------------------------------------

    def tokens(self, images: Shaped[Tensor, "B C Y X"]) -> Int[Tensor, "B N"]:
        """Return the colours of images, row by row."""
        c, size = self.config, pair(self.config.image_size)
        channels = c.channels if images.is_floating_point() else 1
        if images.ndim != 4 or images.shape[1:] != (channels, *size):
            got = f"{str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}"
            raise BadInput(
                f"images must be numbers of shape (batch, {c.channels}, {size[0]}, {size[1]}), or colours: integers of "
                f"shape (batch, 1, {size[0]}, {size[1]}); got {got}"
            )
        if images.is_floating_point():
            return self.palette.nearest(images * _like(c.std, images) + _like(c.mean, images)).flatten(1)
        check_id_range("colour", images, c.levels)
        return images.flatten(1).long()

    def quantize(self, pixels: UInt8[Tensor, "B C Y X"]) -> Int[Tensor, "B 1 Y X"]:
        """Return the number of the nearest colour of each pixel of bytes."""
        return self.palette.nearest(pixels.to(self.palette.colors) / 255)[:, None]

    def colored(self, colors: Int[Tensor, "B 1 Y X"]) -> UInt8[Tensor, "B C Y X"]:
        """Return the bytes of an image of colours."""
        return (255 * self.palette.colors[colors[:, 0]]).round().clamp(0, 255).byte().movedim(-1, 1)

    def images(self, tokens: Int[Tensor, "B N"]) -> Int[Tensor, "B 1 Y X"]:
        """Return the images of all their tokens."""
        return check_token_ids(tokens).unflatten(1, (1, *pair(self.config.image_size)))

    def begin(self, batch: int, device: torch.device | None = None) -> Int[Tensor, "B 1"]:
        """Return the token before every image, the prompt of images from nothing."""
        return torch.full((batch, 1), self.config.levels, device=device)

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    @property
    def eos(self) -> int:
        """A token that is never generated: an image ends where it is full."""
        return self.config.levels

    def start(self, prompts: Int[Tensor, "B N"], *, capacity: int) -> tuple[Int[Tensor, "B 1"], Any]:
        """Read the beginnings of images (`begin`, and tokens that follow); return their last tokens, to step with, and
        a state with `capacity` more slots."""
        n = check_token_ids(prompts, "prompts").shape[1]
        if self.config.num_classes:
            raise BadInput("this ImageGPT has the head of a classifier and draws nothing; build it with num_classes=0")
        if not 1 <= n <= self.length:
            raise BadInput(f"prompts must have from 1 to {self.length} tokens, got {n}; the first is that of `begin`")
        check_id_range("token", prompts, self.config.levels + 1)
        return prompts[:, -1:].clone(), self.decoder.start(self.embed(prompts[:, :-1]), None, capacity)

    def step(self, tokens: Int[Tensor, "B K"], state: Any) -> tuple[Float[Tensor, "B K V"], Any]:
        """Return the logits of the next pixel of every beam."""
        time = state.beam_table.time
        if isinstance(time, int) and time >= self.length:
            raise BadInput(f"an image of this model has {self.length} tokens, and all of them were generated")
        return super().step(tokens, state)

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise the weights as GPT-2; residual projections are scaled by 1/√(2 layers)."""
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                adds = name.endswith(("join.out", "feed.down"))
                module.weight.normal_(std=0.02 / (2 * self.config.layers) ** 0.5 if adds else 0.02)
                if getattr(module, "bias", None) is not None:
                    module.bias.zero_()  # type: ignore[operator]


def _block(config: Config, layer: int) -> CausalBlock:
    mixer = build_mixer(
        layer_spec(config.attention, layer),
        layer=layer,
        width=config.width,
        heads=config.heads,
        length=pair(config.image_size)[0] * pair(config.image_size)[1],
        causal=True,
        dropout=config.attention_dropout,
    )
    feed = build_part(
        FEEDFORWARDS, config.feedforward, "feed-forward", width=config.width, hidden=config.ffn or 4 * config.width
    )
    norms = [RMSNorm(config.width, config.norm_eps) for _ in range(2)]
    return CausalBlock(mixer, feed, norms, True, config.dropout)


def _like(values: Sequence[float], images: Tensor) -> Any:
    """Return a number for each channel; one number for all needs no tensor."""
    if len(values) == 1:
        return values[0]
    return torch.stack([torch.full((1, 1), value, dtype=images.dtype, device=images.device) for value in values])
