"""Caption Transformer: the words of a caption attend to the parts of a picture.

    tokens      the last grid of a CNN, or the patches of a ViT, through one linear map; words of the caption
    positions   a learned grid, added to the parts; sinusoids, added to the words
    attention   softmax: the parts see each other, a word sees the words before it, and the words see the parts
    head        linear, tied to the embedding

    parts ← parts + self(parts);    parts ← parts + feed(parts)                                  encoder_layers times
    words ← words + causal(words);  words ← words + cross(words, parts);  words ← words + feed(words)   decoder_layers

Every word looks for itself, all words of a training caption at once: where Show, Attend and Tell has one map for a word
and a loop over the words, this has one for each layer and head and none. `forward` takes images, or annotation vectors
B M D that were computed before, as Show, Attend and Tell does.

Sharma, Ding, Goodman, Soricut: Conceptual Captions. ACL 2018, section 5 (Transformer captioners); Liu, Chen, Guo, Zhu,
Liu: CPTR: Full Transformer Network for Image Captioning. 2021. arXiv:2101.10804
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.mixers import build_mixer
from regard.blocks import FEEDFORWARDS
from regard.blocks.autoregressive import EncoderDecoder
from regard.blocks.decoder import Decoder, DecoderBlock
from regard.blocks.encoder import Encoder, EncoderBlock, build_positions
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Float, Int, Tensor, check_token_ids, pair
from regard.core.spec import build_part
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.models.efficientnet_lite import Config as CNNConfig
from regard.models.show_attend_and_tell import LITE2, AnnotationEncoder, cnn
from regard.models.vit import Config as ViTConfig
from regard.positions import GRID_POSITIONS
from regard.positions.none import NoPositions


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Transformer that captions."""

    vocab: int
    encoder: CNNConfig | ViTConfig = LITE2
    frozen: bool = True  # the encoder is not trained
    width: int = 256
    heads: int = 8
    ffn: int = 1024
    encoder_layers: int = field(1, low=0)  # after the CNN
    decoder_layers: int = 3
    dropout: float = field(0.3, low=0, below=1)
    feedforward: str = "gelu"
    positions: str = "sinusoidal"  # of words
    length: int = 64  # words at most, with learned positions
    pad: int = field(0, low=0, below="vocab")
    bos: int = field(1, low=0)
    eos: int = field(2, low=0)


# Base is for Flickr8k; tiny is for tests.
SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {
        "encoder": cnn("tiny"),
        "frozen": False,
        "width": 32,
        "heads": 2,
        "ffn": 48,
        "decoder_layers": 2,
        "dropout": 0.0,
    },
}


class CaptionTransformer(EncoderDecoder, ModelContract):
    """Images and the words so far in, logits of the next word out; decodes step by step (blocks.autoregressive)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = c = config
        self.encoder = AnnotationEncoder(c.encoder, c.frozen)
        self.project = nn.Linear(self.encoder.width, c.width)
        self.grid = self.encoder.grid_size(*pair(c.encoder.image_size))
        self.grid_positions = build_part(
            GRID_POSITIONS, "learned", "positions on a grid", width=c.width, grid=self.grid, prefix=0
        )
        blocks = [_encoder_block(c) for _ in range(c.encoder_layers)]
        self.parts = Encoder(blocks, NoPositions(), nn.LayerNorm(c.width), c.dropout)
        self.embed = nn.Embedding(c.vocab, c.width, padding_idx=c.pad)
        self.decoder = Decoder(
            [_decoder_block(c) for _ in range(c.decoder_layers)],
            build_positions(c, causal=True),
            nn.LayerNorm(c.width),
            c.dropout,
        )
        self.head = nn.Linear(c.width, c.vocab)
        self.reset()

    def forward(
        self,
        images: Float[Tensor, "B C Y X"] | Float[Tensor, "B M D"],
        target: Int[Tensor, "B T"],
        target_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the word after each target word; targets are padded on the right."""
        memory = self.encode(images, None, pass_state)
        vectors = self.embed_tokens(check_token_ids(target, "target words"))
        return self.head(self.decoder(vectors, memory, None, None, branch(pass_state, "decoder")))

    def encode(
        self,
        source: Float[Tensor, "B C Y X"] | Float[Tensor, "B M D"],
        source_lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B M E"]:
        """Return the parts of pictures after the encoder."""
        vectors, (rows, columns) = self.encoder(source, pass_state), self.grid
        if source.ndim == 4:
            rows, columns = self.encoder.grid_size(*source.shape[2:])
        elif source.shape[1] != rows * columns:
            raise BadInput(f"annotation vectors must be of a grid of {rows} x {columns}, got {source.shape[1]} of them")
        placed = self.grid_positions(self.project(vectors), (rows, columns))
        return self.parts(self.parts.drop(placed), None, branch(pass_state, "parts"))

    def start(
        self,
        source: Float[Tensor, "B C Y X"] | Float[Tensor, "B M D"],
        source_lengths: Int[Tensor, " B"] | None = None,
        *,
        capacity: int,
    ) -> tuple[Int[Tensor, "B 1"], Any]:
        """Encode pictures; return the first token of every caption and a state for `capacity` slots."""
        first = torch.full((source.shape[0], 1), self.config.bos, device=source.device)
        return first, self.decoder.start(self.encode(source), None, capacity)

    def embed_tokens(self, tokens: Int[Tensor, "B N"]) -> Float[Tensor, "B N C"]:
        """Return word vectors scaled by √C."""
        return self.embed(tokens) * self.config.width**0.5

    @torch.no_grad()
    def reset(self) -> None:
        """Initialise all but the encoder: matrices by Xavier, biases 0, words so that scaled ones have deviation 1."""
        for part in (self.project, self.parts, self.decoder, self.head):
            for module in part.modules():
                if isinstance(module, nn.Linear):
                    nn.init.xavier_uniform_(module.weight)
                    if module.bias is not None:
                        module.bias.zero_()
        nn.init.normal_(self.embed.weight, std=self.config.width**-0.5)
        self.embed.weight[self.config.pad].zero_()
        self.head.weight = self.embed.weight


def _encoder_block(config: Config) -> EncoderBlock:
    norms = [nn.LayerNorm(config.width) for _ in range(2)]
    return EncoderBlock(_attention(config), _feed(config), norms, pre_norm=True, dropout=config.dropout)


def _decoder_block(config: Config) -> DecoderBlock:
    norms = [nn.LayerNorm(config.width) for _ in range(3)]
    mix, cross = _attention(config, causal=True), _attention(config, cross=True)
    return DecoderBlock(mix, cross, _feed(config), norms, pre_norm=True, dropout=config.dropout)


def _attention(config: Config, causal: bool = False, cross: bool = False) -> nn.Module:
    return build_mixer(
        "softmax", width=config.width, heads=config.heads, length=config.length, causal=causal, cross=cross
    )


def _feed(config: Config) -> nn.Module:
    part: nn.Module = build_part(
        FEEDFORWARDS, config.feedforward, "feed-forward", width=config.width, hidden=config.ffn, dropout=0.0
    )
    return part
