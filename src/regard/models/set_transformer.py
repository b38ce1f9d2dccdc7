"""Set Transformer: attention between the elements of a set, pooled by learned seeds.

    elements    vectors of a set, in no order; a linear map to the width; no positions
    encoder     blocks of ISAB (P inducing points, O(N P D)) or SAB (softmax attention, O(N² D)); norm after the sum
    pooling     PMA: S seeds attend to relu(Z W) and become S vectors
    decoder     SAB blocks between the S vectors, then a linear map

A permutation of the elements changes nothing. `attention` is a spec as in other encoders: "isab(points=32)" or
"softmax" for SAB. A set is padded to the largest of its batch, beyond `lengths`. ``model(elements, lengths)`` returns
num_outputs vectors of output_dim numbers: one for a class or a statistic of the set, one per cluster, ...

What differs from the authors' code: the linear map to the width stands before the first block (theirs is the first
block's projection of queries); attention as in attention/mixers/isab.py.

Lee, Lee, Kim, Kosiorek, Choi, Teh: Set Transformer. ICML 2019. arXiv:1810.00825
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention.mask import PaddingMask
from regard.attention.mixers import build_mixer
from regard.attention.mixers.isab import PMA
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.blocks.feedforward import ReluFeedForward
from regard.core.config import field
from regard.core.layer_state import PassState, branch
from regard.core.shapes import Float, Int, Tensor
from regard.core.spec import layer_spec
from regard.core.validation import validate
from regard.models.contract import ModelContract
from regard.positions.none import NoPositions


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a Set Transformer; the defaults are those of the authors' code."""

    input_dim: int = 2  # numbers of an element
    output_dim: int = 10  # numbers of an output
    num_outputs: int = 1  # seeds of the pooling
    width: int = 128
    heads: int = 4
    encoder_layers: int = 2
    decoder_layers: int = field(2, low=0)
    ffn: int | None = None  # None: the width
    dropout: float = field(0.0, low=0, below=1)
    attention_dropout: float = field(0.0, low=0, below=1)
    attention: Any = "isab(points=32)"  # of the encoder: a spec, a list of them (one a layer, cycled), or a module


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"width": 32, "heads": 2, "attention": "isab(points=8)"},
    "base": {},
}


class SetTransformer(ModelContract):
    """Sets of vectors to a fixed number of vectors."""

    forward_methods = ("pooled",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        validate(config)
        self.config = config
        self.embed = nn.Linear(config.input_dim, config.width)
        encoder = [_block(config, layer_spec(config.attention, layer), layer) for layer in range(config.encoder_layers)]
        self.encoder = Encoder(encoder, NoPositions(), None, config.dropout)
        self.pool_feed = nn.Linear(config.width, config.width)
        self.pool = PMA(config.width, config.heads, config.num_outputs, config.attention_dropout)
        decoder = [_block(config, "softmax", layer) for layer in range(config.decoder_layers)]
        self.decoder = Encoder(decoder, NoPositions(), None, 0.0)
        self.head = nn.Linear(config.width, config.output_dim)

    def forward(
        self,
        elements: Float[Tensor, "B N F"],
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B S K"]:
        """Return the outputs of every set; elements beyond `lengths` are padding."""
        out: Tensor = self.head(self.pooled(elements, lengths, pass_state))
        return out

    def pooled(
        self,
        elements: Float[Tensor, "B N F"],
        lengths: Int[Tensor, " B"] | None = None,
        pass_state: PassState | None = None,
    ) -> Float[Tensor, "B S C"]:
        """Return the vectors before the last linear map."""
        mask = PaddingMask.from_lengths(elements, lengths)
        x = self.encoder(self.embed(elements), mask, branch(pass_state, "encoder"))
        x = self.pool(torch.relu(self.pool_feed(x)), mask)
        return self.decoder(x, None, branch(pass_state, "decoder"))


def _block(config: Config, attention: Any, layer: int) -> EncoderBlock:
    mix = build_mixer(attention, width=config.width, heads=config.heads, layer=layer, dropout=config.attention_dropout)
    feed = ReluFeedForward(config.width, config.ffn or config.width, config.dropout)
    return EncoderBlock(mix, feed, [nn.LayerNorm(config.width) for _ in range(2)], False, config.dropout)
