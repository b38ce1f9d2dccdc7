"""Image Transformer: an image as a sequence of intensities, each predicted from those before it.

    p(image) = Π_n softmax(W h_n)[x_n]        x_n: one channel of one pixel, an integer from 0 to levels - 1
                                              h_n: from x_1 ... x_(n-1) and, for super-resolution, the small image

    tokens      Y X C of them, row by row, the channels of a pixel in turn; every channel has embeddings of its own
    positions   sinusoids added to the tokens: half the width for the row, half for the column and channel
    attention   local and causal (image_local_1d, image_local_2d): O(N (b + l)) scores instead of O(N²)
    head        linear, the same for all channels; or a mixture of logistics over the intensities

With `condition_size` an encoder reads a small image with dense attention, and the decoder attends to all of it: 8 x 8
in, 32 x 32 out is the paper's super-resolution. With `block` an image is generated block after block, the order of the
paper's 2-D attention.

With `mixtures` an intensity has the probability that a mixture of logistic distributions puts on its interval, instead
of a free one; with `num_classes` the vector of the image's class is added to every token.

Differs from the paper: with a mixture its tokens are pixels, whose channels depend on one another by coefficients, as
in PixelCNN++; here tokens are still channels, each with a mixture of its own.

Parmar, Vaswani, Uszkoreit, Kaiser, Shazeer, Ku, Tran: Image Transformer. ICML 2018. arXiv:1802.05751; Salimans,
Karpathy, Chen, Kingma: PixelCNN++. ICLR 2017. arXiv:1701.05517 (discretised mixture of logistics)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.masked_softmax import upcast
from regard.attention.mechanisms.image_local_2d import RectanglePattern, block_cell
from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS, NORMS
from regard.blocks.autoregressive import AutoregressiveModel
from regard.blocks.causal import CausalBlock, CausalStack
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.core.config import field
from regard.core.errors import BadInput, RegardError
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Float, Int, Pair, Shaped, Size, Tensor, check_id_range, check_token_ids, pair
from regard.core.spec import build_part, layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.positions.added.sinusoidal import SinusoidalPositions


@dataclass(frozen=True)
class Config:
    """Hyperparameters of an Image Transformer; the defaults are for CIFAR-10."""

    image_size: Size = 32
    channels: int = 3
    levels: int = field(256, low=2, high=256)  # intensities of a channel
    condition_size: Size | None = None  # of the small image to enlarge; None: images from nothing
    width: int = 512
    heads: int = 8
    ffn: int = 1024
    layers: int = 12
    encoder_layers: int = 4  # with condition_size
    dropout: float = field(0.1, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    norm: Literal["post", "pre"] = "post"
    attention: Any = "image_local_1d"  # of the decoder: a spec, a list of them (one a layer, cycled), or a module
    block: Pair | None = None  # rows and columns of pixels; None: row by row
    mixtures: int = field(0, low=0)  # logistic distributions of an intensity; 0: a free probability for each level
    num_classes: int = field(0, low=0)  # of labels that images are drawn for; 0: none


SMALLEST_LOG_SCALE = -7.0  # of a logistic distribution, as in PixelCNN++


# Widths and depths of tensor2tensor's models for CIFAR-10 and for super-resolution; mnist and tiny are our own.
SIZES: dict[str, dict[str, Any]] = {
    "cifar10": {},
    "cifar10-2d": {
        "block": (8, 8), "attention": "image_local_2d(query_block=(8, 24), memory=(8, 24), order='blocks')"
    },
    "superres": {"condition_size": 8},
    "mnist": {
        "image_size": 28, "channels": 1, "width": 256, "heads": 4, "layers": 8, "norm": "pre",
        "attention": "image_local_1d(query_block=112, memory=112)",
    },
    "tiny": {
        "image_size": 6, "channels": 1, "levels": 16, "width": 32, "heads": 2, "ffn": 64, "layers": 2,
        "encoder_layers": 1, "dropout": 0.0, "attention": "image_local_1d(query_block=12, memory=6)",
    },
}  # fmt: skip


class ImageTransformer(AutoregressiveModel, ModelContract):
    """Images to the logits of all their intensities; decodes step by step (blocks.autoregressive).

    The token `levels` comes before an image; no token ends one, since the number of tokens is known.
    """

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.grid = pixel_grid(config.image_size, config.channels)
        self.length = self.grid[0] * self.grid[1]
        self.embed = nn.Embedding(config.channels * config.levels + 1, config.width)  # the last one begins an image
        ends = _norm(config) if config.norm == "pre" else None
        block = None if config.block is None else (config.block[0], config.block[1] * config.channels)
        positions = PixelPositions(config.width, self.grid, block)
        self.encoder: Encoder | None = None
        if config.condition_size is None:
            causal = [_causal_block(config, layer) for layer in range(config.layers)]
            self.decoder: CausalStack | Decoder = CausalStack(causal, positions, ends, config.dropout)
        else:
            small = PixelPositions(config.width, pixel_grid(config.condition_size, config.channels))
            encoder = [_encoder_block(config, layer) for layer in range(config.encoder_layers)]
            self.encoder = Encoder(encoder, small, _norm(config) if config.norm == "pre" else None, config.dropout)
            decoder = [_decoder_block(config, layer) for layer in range(config.layers)]
            self.decoder = Decoder(decoder, positions, ends, config.dropout)
        self._check_order()
        self.head: nn.Module = nn.Linear(config.width, config.levels, bias=False)
        if config.mixtures:
            self.head = MixtureOfLogistics(config.width, config.mixtures, config.levels)
        self.classes = nn.Embedding(config.num_classes, config.width) if config.num_classes else None
        self.reset()

    def forward(
        self,
        images: Shaped[Tensor, "B C Y X"],
        condition: Shaped[Tensor, "B C y x"] | None = None,
        labels: Shaped[Tensor, "*any"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B C Y X V"]:
        """Return the logits of every intensity, given those before it, the small image and the class."""
        tokens = self.tokens(images)
        shifted = torch.cat([self.begin(tokens.shape[0], tokens.device), tokens[:, :-1]], 1)
        return self._unflatten(self.token_logits(shifted, condition, labels, pass_state))

    def token_logits(
        self,
        tokens: Int[Tensor, "B N"],
        condition: Shaped[Tensor, "B C y x"] | None = None,
        labels: Shaped[Tensor, "*any"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B N V"]:
        """Return the logits after each token of the beginnings of images; the first token is that of `begin`."""
        if tokens.shape[1] > self.length:
            raise BadInput(f"an image of this model has {self.length} tokens, got {tokens.shape[1]}")
        vectors = self._embed_from(check_token_ids(tokens), 0) + self._class_vectors(labels, tokens)
        memory = self._encode(condition, pass_state)
        if isinstance(self.decoder, CausalStack):
            return self.head(self.decoder(vectors, None, pass_state))
        return self.head(self.decoder(vectors, memory, pass_state=branch(pass_state, "decoder")))

    # -- images and tokens ---------------------------------------------------------------------------------------------

    def tokens(self, images: Shaped[Tensor, "B C Y X"]) -> Int[Tensor, "B N"]:
        """Return the intensities of images in the order in which they are generated."""
        flat = self._raster(images, self.config.image_size, "images")
        return flat if self._order is None else flat[:, self._order.to(flat.device)]

    def images(self, tokens: Int[Tensor, "B N"]) -> Int[Tensor, "B C Y X"]:
        """Return the images of all their tokens."""
        return self._unflatten(check_token_ids(tokens))

    def begin(self, batch: int, device: torch.device | None = None) -> Int[Tensor, "B 1"]:
        """Return the token before every image, the prompt of images from nothing."""
        return torch.full((batch, 1), self.config.levels, device=device)

    @property
    def _order(self) -> Int[Tensor, " N"] | None:
        """Where in raster order each token stands; None: there."""
        positions: PixelPositions = self.decoder.positions
        return None if positions.block is None else positions.raster(torch.arange(self.length))

    def _unflatten(self, x: Tensor) -> Tensor:
        """Return what belongs to the tokens B N ... as B C Y X ..."""
        if self._order is not None:
            x = x[:, self._order.argsort().to(x.device)]
        return x.unflatten(1, (*pair(self.config.image_size), self.config.channels)).movedim(3, 1)

    def _raster(self, images: Tensor, size: Size, what: str) -> Int[Tensor, "B N"]:
        (y, x), channels, levels = pair(size), self.config.channels, self.config.levels
        if images.ndim != 4 or images.shape[1:] != (channels, y, x) or images.is_floating_point():
            got = f"{str(images.dtype).removeprefix('torch.')} of shape {tuple(images.shape)}"
            raise BadInput(f"{what} must be integers of shape (batch, {channels}, {y}, {x}), got {got}")
        check_id_range("intensity", images, levels)
        return images.movedim(1, 3).flatten(1).long()

    def _embed_from(self, tokens: Int[Tensor, "B N"], time: int | Tensor) -> Float[Tensor, "B N C"]:
        """Return the vectors of consecutive tokens; `time` tokens of their images came before them."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        return self._embed_channels(tokens, (time + steps - 1) % self.config.channels)

    def _embed_channels(self, tokens: Int[Tensor, "B N"], channel: Tensor | int) -> Float[Tensor, "B N C"]:
        levels, last = self.config.levels, self.embed.num_embeddings - 1
        return self.embed(torch.where(tokens == levels, last, channel * levels + tokens)) * self.config.width**0.5

    def _class_vectors(self, labels: Tensor | None, tokens: Tensor) -> Float[Tensor, "#B 1 C"]:
        """Return the vectors of classes, which are added to every token; zeros for a model without classes."""
        if self.classes is None or labels is None:
            if (self.classes is None) != (labels is None):
                wanted = "no labels: leave `labels` out" if self.classes is None else "a class for each image, `labels`"
                raise BadInput(f"this model takes {wanted}")
            return self.embed.weight.new_zeros(1, 1, 1)
        if labels.shape != (len(tokens),) or labels.is_floating_point():
            raise BadInput(f"labels must be {len(tokens)} integers, one for each image, got {tuple(labels.shape)}")
        check_id_range("label", labels, self.classes.num_embeddings)
        vectors: Tensor = self.classes(labels.long())[:, None] * self.config.width**0.5
        return vectors

    def _encode(self, condition: Tensor | None, pass_state: PassState | None = None) -> Float[Tensor, "B M C"] | None:
        """Return the encoded small image."""
        if (condition is None) != (self.encoder is None):
            wanted = (
                "no small image: leave `condition` out" if self.encoder is None else "the small image as `condition`"
            )
            raise BadInput(f"this model takes {wanted}")
        if condition is None or self.encoder is None:
            return None
        tokens = self._raster(condition, self.config.condition_size or 1, "condition")
        channel = torch.arange(tokens.shape[1], device=tokens.device) % self.config.channels
        return self.encoder(self._embed_channels(tokens, channel), None, branch(pass_state, "encoder"))

    # -- decoding, one token at a time ---------------------------------------------------------------------------------

    @property
    def eos(self) -> int:
        """A token that is never generated: an image ends where it is full."""
        return self.config.levels

    def start(
        self,
        prompts: Int[Tensor, "B N"],
        condition: Shaped[Tensor, "B C y x"] | None = None,
        labels: Shaped[Tensor, "*any"] | None = None,
        *,
        capacity: int,
    ) -> tuple[Int[Tensor, "B 1"], Any]:
        """Read the beginnings of images (`begin`, and tokens that follow); return their last tokens, to step with, and
        a state with `capacity` more slots."""
        n = check_token_ids(prompts, "prompts").shape[1]
        if not 1 <= n <= self.length:
            raise BadInput(f"prompts must have from 1 to {self.length} tokens, got {n}; the first is that of `begin`")
        check_id_range("token", prompts, self.config.levels + 1)
        memory, last = self._encode(condition), prompts[:, -1:].clone()  # a search modifies it
        added = self._class_vectors(labels, prompts)
        if isinstance(self.decoder, CausalStack):
            read = self._embed_from(prompts[:, :-1], 0) + added
            return last, ImageState(self.decoder.start(read, None, capacity), added)
        state: Any = ImageState(self.decoder.start(memory, None, capacity + n - 1), added)  # type: ignore[arg-type]
        for token in prompts[:, :-1].unbind(1):
            _, state = self.step(token[:, None], state)
        return last, state

    def step(self, tokens: Int[Tensor, "B K"], state: Any) -> tuple[Float[Tensor, "B K V"], Any]:
        """Return the logits of the next intensity of every beam."""
        time = state.decoder.beam_table.time
        if isinstance(time, int) and time >= self.length:
            raise BadInput(f"an image of this model has {self.length} tokens, and all of them were generated")
        x = self._embed_channels(tokens, (time - 1) % self.config.channels) + state.added
        x, decoder = self.decoder.step(x, state.decoder)
        return self.logits(x), replace(state, decoder=decoder)

    def select(self, state: Any, rows: Int[Tensor, " R"] | None, beams: Int[Tensor, "R K"]) -> Any:
        added = state.added if rows is None or len(state.added) == 1 else state.added[rows]
        return ImageState(self.decoder.select(state.decoder, rows, beams), added)

    def freeze(self, state: Any) -> Any:
        return replace(state, decoder=self.decoder.freeze(state.decoder))

    # -- building ------------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Initialise matrices by Xavier, embeddings with variance 1/C."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for embedding in (self.embed, self.classes):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=self.config.width**-0.5)
        if isinstance(self.head, MixtureOfLogistics):
            self.head.spread()

    def _check_order(self) -> None:
        """Raise an error if a 2-D pattern expects the tokens in another order than that of the model."""
        block = self.decoder.positions.block
        for layer in self.decoder.blocks:
            pattern = getattr(getattr(layer.mix, "attend", None), "pattern", None)
            if isinstance(pattern, RectanglePattern) and (pattern.query_block if pattern.by_blocks else None) != block:
                order = (
                    "row by row: order='raster'" if block is None else f"in blocks: query_block={block}, order='blocks'"
                )
                raise RegardError(
                    f"with block={self.config.block} tokens stand {order} in attention (columns × channels)"
                )


@dataclass(frozen=True, eq=False)
class ImageState:
    """What decoding carries from step to step: the decoder's state, and the vectors of the classes."""

    decoder: Any
    added: Tensor  # #B 1 C, the same for all beams of an input


class MixtureOfLogistics(nn.Module):
    """Vectors to the logarithms of the probabilities of all levels, by a mixture of `mixtures` logistic distributions.

    p(v) = Σ_k π_k [σ((x_v + h - μ_k) / s_k) - σ((x_v - h - μ_k) / s_k)], where x_v is level v on a line from -1 to 1
    and 2 h the distance of two levels; the lowest and the highest one take all that lies beyond them.
    """

    def __init__(self, width: int, mixtures: int, levels: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * mixtures)  # log π, μ, log s
        self.levels, self.half_step = levels, 1 / (levels - 1)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B V"]:
        shares, centres, log_scales = upcast(self.project(x))[..., None, :].chunk(3, -1)
        inverse = (-log_scales.clamp(min=SMALLEST_LOG_SCALE)).exp()
        place = torch.linspace(-1, 1, self.levels, dtype=inverse.dtype, device=x.device)[:, None]
        above, below = (place + self.half_step - centres) * inverse, (place - self.half_step - centres) * inverse
        # σ(a) - σ(b) = σ(a) σ(-b) (1 - exp(b - a)); beyond the ends σ(a) = 1 and σ(-b) = 1
        rise, fall = F.logsigmoid(above), F.logsigmoid(-below)
        inside = rise + fall + (-torch.expm1(-2 * self.half_step * inverse)).log()
        first, last = rise[..., :1, :], fall[..., -1:, :]
        each = torch.cat([first, inside[..., 1:-1, :], last], -2)
        return (each + shares.log_softmax(-1)).logsumexp(-1)

    @torch.no_grad()
    def spread(self) -> None:
        """Let the distributions start side by side, as wide as they are apart."""
        _, centres, log_scales = self.project.bias.chunk(3)
        many = len(centres)
        centres.copy_((torch.arange(many) * 2 + 1) / many - 1)
        log_scales.fill_(-log(many))


class PixelPositions(nn.Module):
    """Add sinusoids of the row, and of the column and channel, to the tokens of an image."""

    kind: ClassVar[str] = "added"

    def __init__(self, width: int, grid: Pair, block: Pair | None = None) -> None:
        super().__init__()
        self.grid, self.block = grid, block
        if block is not None and (grid[0] % block[0] or grid[1] % block[1]):
            raise BadInput(
                f"an image of {grid[0]} x {grid[1]} tokens cannot be cut into blocks of {block[0]} x {block[1]}"
            )
        self.row, self.column = SinusoidalPositions(width - width // 2), SinusoidalPositions(max(1, width // 2))

    def forward(self, x: Float[Tensor, "B N C"], index: Int[Tensor, "#B N"]) -> Float[Tensor, "B N C"]:
        row, column = self.cells(index)
        half = torch.cat([self.row.vectors(row, x.dtype), self.column.vectors(column, x.dtype)], -1)
        return x + half[..., : x.shape[-1]]

    def cells(self, index: Int[Tensor, "*any"]) -> tuple[Int[Tensor, "*any"], Int[Tensor, "*any"]]:
        """Return row, and column and channel, of the tokens at these times."""
        if self.block is None:
            return index // self.grid[1], index % self.grid[1]
        return block_cell(index, self.block, self.grid[1])

    def raster(self, index: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Return where the tokens at these times stand in raster order."""
        row, column = self.cells(index)
        return row * self.grid[1] + column


def pixel_grid(size: Size, channels: int) -> Pair:
    """Return the rows and columns of tokens of an image: the channels of a pixel stand side by side."""
    rows, columns = pair(size)
    return rows, columns * channels


def _encoder_block(config: Config, layer: int) -> EncoderBlock:
    mix = _attention(config, layer, "softmax", causal=False)
    return EncoderBlock(mix, _feed(config), [_norm(config) for _ in range(2)], config.norm == "pre", config.dropout)


def _causal_block(config: Config, layer: int) -> CausalBlock:
    mix = _attention(config, layer, layer_spec(config.attention, layer), causal=True)
    return CausalBlock(mix, _feed(config), [_norm(config) for _ in range(2)], config.norm == "pre", config.dropout)


def _decoder_block(config: Config, layer: int) -> DecoderBlock:
    mix = _attention(config, layer, layer_spec(config.attention, layer), causal=True)
    cross = _attention(config, layer, "softmax", causal=False, cross=True)
    norms = [_norm(config) for _ in range(3)]
    return DecoderBlock(mix, cross, _feed(config), norms, config.norm == "pre", config.dropout)


def _attention(config: Config, layer: int, spec: Any, causal: bool, cross: bool = False) -> nn.Module:
    grid = pixel_grid(config.image_size, config.channels)
    place: dict[str, Any] = {"grid": grid, "length": grid[0] * grid[1]} if causal else {}
    return build_mixer(
        spec,
        layer=layer,
        width=config.width,
        heads=config.heads,
        causal=causal,
        cross=cross,
        dropout=config.attention_dropout,
        **place,
    )


def _feed(config: Config) -> nn.Module:
    part: nn.Module = build_part(FEEDFORWARDS, "relu", "feed-forward", width=config.width, hidden=config.ffn)
    return part


def _norm(config: Config) -> nn.Module:
    part: nn.Module = build_part(NORMS, "layer", "norm", normalized_shape=config.width)
    return part
